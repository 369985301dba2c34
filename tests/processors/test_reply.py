# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.messages.reply}: replies that are passed on to requesters.
"""

from __future__ import annotations

import errno
from typing import Any

import attrs
from twisted.logger import LogLevel
from zope.interface import implementer

from tests.processors.support import (
    CLIENT,
    CLUSTER,
    BrokerTests,
    Client,
    longHeader,
    sendHeader,
)
from tests.store.support import Held
from txrocket.broker.clients.registry import ClientChannelInfo as Known
from txrocket.broker.interfaces import ISendHook, SendMessageContext
from txrocket.broker.settings import SendSettings
from txrocket.errors import NoPermission
from txrocket.message import splitProperties
from txrocket.model import PERM_READ
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import ONEWAY_FLAG, RemotingCommand, responseCommand
from txrocket.protocol.headers import ReplyMessageRequestHeader, SendMessageRequestHeaderV2
from txrocket.protocol.record import decodeRecords
from txrocket.store.settings import FlushDiskType

TOPIC = f"{CLUSTER}_REPLY_TOPIC"
PROPERTIES = "CORRELATION_ID\x01c\x02MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01asker\x02TTL\x013000"


class Replies(BrokerTests):
    """
    The base: a connected requester.
    """

    def setUp(self) -> None:
        super().setUp()
        self.asker = self.connect()
        self.known(self.asker)

    def known(self, client: Client, clientId: str = "asker", group: str = "P") -> None:
        """
        A client is a producer.
        """
        self.producers.register(group, Known(clientId, client.peer, "JAVA", 407), self.now())

    def replied(
        self, header: SendMessageRequestHeaderV2 | None = None, body: bytes = b"42", **changes: Any
    ) -> RemotingCommand:
        """
        A request to bring a reply.
        """
        header = header or sendHeader(TOPIC, properties=PROPERTIES)
        return self.client.request(RequestCode.SEND_REPLY_MESSAGE_V2, header, body, **changes)

    def pushed(self, request: RemotingCommand) -> RemotingCommand:
        """
        The request with a reply that the requester gets.
        """
        self.client.write(request)
        self.clock.advance(0)
        self.assertEqual(self.client.answers(), [])
        [push] = self.asker.answers()
        self.assertEqual(push.code, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        return push

    def take(self, push: RemotingCommand, code: int = 0, remark: str | None = None) -> None:
        """
        Who asked answers.
        """
        response = responseCommand(code, remark)
        response.opaque = push.opaque
        self.asker.peer.dataReceived(response.encode())
        self.clock.advance(0)

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """
        What is answered to a reply that is taken.
        """
        self.take(self.pushed(request))
        [answer] = self.client.answers()
        return answer


class ReplyTests(Replies):
    """
    Replies.
    """

    def test_requesterGetsReply(self) -> None:
        """
        The requester gets the reply: body, flags and properties, and when it was
        brought; who replied, as the broker sees it, and where the broker is.
        """
        header = sendHeader(
            TOPIC, properties=PROPERTIES, sysFlag=1, flag=7, reconsumeTimes=2, unitMode=True
        )
        push = self.pushed(self.replied(header))
        told = push.decodeHeader(ReplyMessageRequestHeader)
        properties = splitProperties(told.properties or "")
        self.assertEqual(
            properties, {**splitProperties(PROPERTIES), "PUSH_REPLY_TIME": str(self.now())}
        )
        self.assertEqual(
            told,
            ReplyMessageRequestHeader(
                producerGroup="P",
                topic=TOPIC,
                defaultTopic="TBW102",
                defaultTopicQueueNums=4,
                queueId=0,
                sysFlag=1,
                bornTimestamp=1_600_000_000_000,
                flag=7,
                bornHost=f"{CLIENT.host}:{CLIENT.port}",
                storeHost="127.0.0.1:10911",
                storeTimestamp=self.now(),
                properties=told.properties,
                reconsumeTimes=2,
                unitMode=True,
            ),
        )
        self.assertEqual(push.body, b"42")

    def test_replierIsAnsweredAfterwards(self) -> None:
        """
        The replier is answered once the requester has it, with the place where the reply
        is kept, as it was sent.
        """
        answer = self.answer(self.replied())
        self.assertEqual((answer.code, answer.remark), (0, None))
        [record] = self.stored(TOPIC)
        self.assertEqual(
            answer.extFields,
            {
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
                "msgId": record.offsetMsgId,
                "queueId": "0",
                "queueOffset": "0",
            },
        )
        self.assertEqual(record.body, b"42")
        self.assertEqual(record.properties, splitProperties(PROPERTIES))
        self.assertEqual(record.bornHost, (CLIENT.host, CLIENT.port))
        self.assertEqual(self.stats.puts, [(TOPIC, 1, record.storeSize)])

    def test_longForm(self) -> None:
        """
        SEND_REPLY_MESSAGE is the same with longer names.
        """
        header = longHeader(sendHeader(TOPIC, properties=PROPERTIES))
        request = self.client.request(RequestCode.SEND_REPLY_MESSAGE, header, b"42")
        self.assertEqual(self.answer(request).code, 0)

    def test_anyQueue(self) -> None:
        """
        A negative queue is any.
        """
        self.topic(TOPIC, 3)
        header = sendHeader(TOPIC, properties=PROPERTIES, queueId=-1)
        self.assertEqual(self.answer(self.replied(header)).extFields["queueId"], "2")

    def test_notKept(self) -> None:
        """
        Replies need not be kept; then the answer says that it is nowhere.
        """
        self.sendSettings.now = SendSettings(storeReplyMessageEnable=False)
        answer = self.answer(self.replied())
        self.assertEqual(answer.code, 0)
        self.assertEqual(answer.extFields["msgId"], "0")
        self.assertEqual(answer.extFields["queueOffset"], "0")
        self.assertEqual(self.stored(TOPIC), [])

    def test_absentRequesterIsReported(self) -> None:
        """
        If the requester is not connected, the replier gets an error; the reply is stored.
        """
        self.asker.lose()
        answer = self.answerTo(self.replied())
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("client asker that asked is not connected", answer.remark or "")
        [record] = self.stored(TOPIC)
        self.assertEqual(answer.extFields["msgId"], record.offsetMsgId)

    def test_missingRequesterIsRefused(self) -> None:
        """
        A reply without a requester is refused.
        """
        for properties in ("CORRELATION_ID\x01c", None):
            answer = self.answerTo(self.replied(sendHeader(TOPIC, properties=properties)))
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("REPLY_TO_CLIENT", answer.remark or "")

    def test_refusedReplyIsReported(self) -> None:
        """
        The requester may refuse it.
        """
        self.take(self.pushed(self.replied()), ResponseCode.SYSTEM_ERROR, "no, thanks")
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("no, thanks", answer.remark or "")

    def test_silentRequesterTimesOut(self) -> None:
        """
        The requester has ten seconds to answer.
        """
        self.pushed(self.replied())
        self.clock.advance(9)
        self.assertEqual(self.client.answers(), [])
        self.clock.pump([1, 1])
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("did not take the reply", answer.remark or "")

    def test_lostMeanwhile(self) -> None:
        """
        If its connection ends before that, the replier is answered at once.
        """
        self.pushed(self.replied())
        self.asker.lose()
        self.clock.advance(0)
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)

    def test_onewayReplyGetsNoResponse(self) -> None:
        """
        A oneway reply gets no response.
        """
        self.take(self.pushed(self.replied(flag=ONEWAY_FLAG)))
        self.assertEqual(self.client.answers(), [])
        self.assertEqual(len(self.stored(TOPIC)), 1)

    def test_notYet(self) -> None:
        """
        A broker that takes no messages yet brings no replies, as Java's.
        """
        self.sendSettings.now = SendSettings(startAcceptSendRequestTimeStamp=2**62)
        answer = self.answerTo(self.replied())
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})
        self.assertEqual(self.asker.answers(), [])

    def test_invalidTopicIsRefused(self) -> None:
        """
        The topic must be there, and be one that may be written to; and then nothing
        is brought.
        """
        header = sendHeader("a/b", properties=PROPERTIES)
        self.assertEqual(self.answerTo(self.replied(header)).code, ResponseCode.SYSTEM_ERROR)
        self.topic(TOPIC, perm=PERM_READ)
        self.assertEqual(self.answerTo(self.replied()).code, ResponseCode.NO_PERMISSION)
        self.assertEqual(self.asker.answers(), [])

    def test_storedReplyKeepsCompressionFlag(self) -> None:
        """
        What is kept of a compressed reply says that it is compressed, and nothing of
        transactions: it would not be found.
        """
        header = sendHeader(TOPIC, properties=PROPERTIES, sysFlag=0x301 | 0x4)
        self.answer(self.replied(header, b"\x78\x9c"))
        data = self.store.get(TOPIC, 0, 0, 32).data
        [record] = decodeRecords(data, inflate=False)
        self.assertEqual((record.sysFlag, record.body), (0x301, b"\x78\x9c"))

    def test_failedDiskDoesNotAffectRequester(self) -> None:
        """
        A disk that does not take a reply changes nothing for the requester; it
        is counted and logged.
        """
        push = self.pushed(self.replied())
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.take(push)
        self.disk.failing.clear()
        [answer] = self.client.answers()
        self.assertEqual((answer.code, answer.extFields["msgId"]), (0, "0"))
        self.assertEqual(self.stats.failures, 1)
        [event] = [each for each in self.events if each["log_level"] is LogLevel.warn]
        self.assertIn("A reply is not stored", event["log_format"])

    def test_tooLarge(self) -> None:
        """
        Nor does one that is too large to be stored.
        """
        answer = self.answer(self.replied(body=bytes(5000)))
        self.assertEqual((answer.code, answer.extFields["msgId"]), (0, "0"))
        self.assertEqual(self.stats.failures, 1)


class FindingTests(Replies):
    """
    The requester among the connected clients.
    """

    def test_newConnection(self) -> None:
        """
        Who has come back on another connection is found there.
        """
        former, self.asker = self.asker, self.connect()
        self.known(self.asker)
        self.assertEqual(self.answer(self.replied()).code, 0)
        self.assertEqual(former.answers(), [])

    def test_otherGroup(self) -> None:
        """
        Whatever groups it is a producer of, and if it leaves one of them.
        """
        self.known(self.asker, group="Q")
        self.producers.unregister("P", self.asker.peer)
        self.assertEqual(self.answer(self.replied()).code, 0)
        self.producers.unregister("Q", self.asker.peer)
        self.assertIsNone(self.producers.find("asker"))


class SyncTests(Replies):
    """
    SYNC_FLUSH.
    """

    storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH}

    def setUp(self) -> None:
        self.held = Held()
        self.inThread = self.held
        super().setUp()

    def work(self) -> None:
        """
        Let threads do all that they were asked for.
        """
        while self.held.jobs:
            self.held.work()
        self.clock.advance(0)

    def test_onTheDisk(self) -> None:
        """
        The replier waits for the disk; the requester does not.
        """
        self.take(self.pushed(self.replied()))
        self.assertEqual(self.client.answers(), [])
        self.work()
        [answer] = self.client.answers()
        self.assertEqual(answer.code, 0)

    def test_slowDiskIsNotWaitedFor(self) -> None:
        """
        A disk that takes too long is waited for no longer: the reply is there.
        """
        self.take(self.pushed(self.replied()))
        self.clock.pump([1] * 6)
        [answer] = self.client.answers()
        self.assertEqual(answer.code, 0)
        self.assertNotEqual(answer.extFields["msgId"], "0")
        self.work()

    def test_noWait(self) -> None:
        """
        It need not wait at all.
        """
        header = sendHeader(TOPIC, properties=f"{PROPERTIES}\x02WAIT\x01false")
        self.assertEqual(self.answer(self.replied(header)).code, 0)
        self.work()


@implementer(ISendHook)
class Hook:
    """
    Looks at replies.
    """

    def __init__(self) -> None:
        self.refuses = False
        self.seen: list[SendMessageContext] = []
        self.responses: list[int] = []

    def beforeSend(self, sending: SendMessageContext) -> None:
        """
        A reply is about to be brought.
        """
        if self.refuses:
            raise NoPermission("no")
        self.seen.append(attrs.evolve(sending))
        sending.note("HOOKED", "yes")

    def afterSend(self, sending: SendMessageContext, response: RemotingCommand) -> None:
        """
        A reply was brought.
        """
        self.responses.append(response.code)


class HookTests(Replies):
    """
    The operator's hooks.
    """

    def setUp(self) -> None:
        self.hook = Hook()
        self.hooks = [self.hook]
        super().setUp()

    def test_hookSeesReply(self) -> None:
        """
        They look at replies as at other messages, may change them, and are told of
        the answer.
        """
        push = self.pushed(self.replied())
        told = push.decodeHeader(ReplyMessageRequestHeader)
        self.assertEqual(splitProperties(told.properties or "")["HOOKED"], "yes")
        self.assertEqual(self.hook.responses, [])
        self.take(push)
        self.assertEqual(self.hook.responses, [0])
        [seen] = self.hook.seen
        self.assertEqual((seen.topic, seen.body, seen.properties), (TOPIC, b"42", PROPERTIES))
        [record] = self.stored(TOPIC)
        self.assertEqual(record.properties["HOOKED"], "yes")

    def test_refusingHookStopsReply(self) -> None:
        """
        A hook that refuses a reply keeps it from the requester.
        """
        self.hook.refuses = True
        self.assertEqual(self.answerTo(self.replied()).code, ResponseCode.NO_PERMISSION)
        self.assertEqual(self.asker.answers(), [])

    def test_halfText(self) -> None:
        """
        One that makes of its properties what is no text has it refused.
        """
        self.patch(self.hook, "beforeSend", lambda sending: sending.note("a", "\ud800"))
        answer = self.answerTo(self.replied())
        self.assertEqual(answer.code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertIn("surrogate", answer.remark or "")
        self.assertEqual(self.asker.answers(), [])
