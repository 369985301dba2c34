# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.reply}: replies that are brought to who asked.
"""

from __future__ import annotations

import errno
from typing import Any

import attrs
from twisted.logger import LogLevel
from zope.interface import implementer

from tests.processors.support import CLIENT, CLUSTER, BrokerTests, Client, longHeader, sendHeader
from tests.store.support import Held
from txrocket.broker.interfaces import ISendHook, Sending
from txrocket.broker.members import Client as Known
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
    The base: one who asked, and is connected.
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
        What is brought to who asked for a reply, which waits.
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

    def test_pushed(self) -> None:
        """
        Who asked is brought the reply: body, flags and properties, and when it was
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

    def test_answered(self) -> None:
        """
        Who replied is answered once who asked has it, with the place where the reply
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
        self.send.settings = SendSettings(storeReplyMessageEnable=False)
        answer = self.answer(self.replied())
        self.assertEqual(answer.code, 0)
        self.assertEqual(answer.extFields["msgId"], "0")
        self.assertEqual(answer.extFields["queueOffset"], "0")
        self.assertEqual(self.stored(TOPIC), [])

    def test_gone(self) -> None:
        """
        If who asked is not there, who replied is told so; and the reply is kept.
        """
        self.asker.lose()
        answer = self.answerTo(self.replied())
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("client asker that asked is not connected", answer.remark or "")
        [record] = self.stored(TOPIC)
        self.assertEqual(answer.extFields["msgId"], record.offsetMsgId)

    def test_nobody(self) -> None:
        """
        A reply that does not say who asked goes to nobody.
        """
        for properties in ("CORRELATION_ID\x01c", None):
            answer = self.answerTo(self.replied(sendHeader(TOPIC, properties=properties)))
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("REPLY_TO_CLIENT", answer.remark or "")

    def test_refused(self) -> None:
        """
        Who asked may not want it.
        """
        self.take(self.pushed(self.replied()), ResponseCode.SYSTEM_ERROR, "no, thanks")
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("no, thanks", answer.remark or "")

    def test_silent(self) -> None:
        """
        It has ten seconds to take it.
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
        If its connection ends before that, nobody waits.
        """
        self.pushed(self.replied())
        self.asker.lose()
        self.clock.advance(0)
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)

    def test_oneway(self) -> None:
        """
        Who replies need not want to know.
        """
        self.take(self.pushed(self.replied(flag=ONEWAY_FLAG)))
        self.assertEqual(self.client.answers(), [])
        self.assertEqual(len(self.stored(TOPIC)), 1)

    def test_notYet(self) -> None:
        """
        A broker that takes no messages yet brings no replies, as Java's.
        """
        self.send.settings = SendSettings(startAcceptSendRequestTimeStamp=2**62)
        answer = self.answerTo(self.replied())
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})
        self.assertEqual(self.asker.answers(), [])

    def test_topic(self) -> None:
        """
        The topic must be there, and be one that may be written to; and then nothing
        is brought.
        """
        header = sendHeader("a/b", properties=PROPERTIES)
        self.assertEqual(self.answerTo(self.replied(header)).code, ResponseCode.SYSTEM_ERROR)
        self.topic(TOPIC, perm=PERM_READ)
        self.assertEqual(self.answerTo(self.replied()).code, ResponseCode.NO_PERMISSION)
        self.assertEqual(self.asker.answers(), [])

    def test_compressed(self) -> None:
        """
        What is kept of a compressed reply says that it is compressed, and nothing of
        transactions: it would not be found.
        """
        header = sendHeader(TOPIC, properties=PROPERTIES, sysFlag=0x301 | 0x4)
        self.answer(self.replied(header, b"\x78\x9c"))
        data = self.store.get(TOPIC, 0, 0, 32).data
        [record] = decodeRecords(data, inflate=False)
        self.assertEqual((record.sysFlag, record.body), (0x301, b"\x78\x9c"))

    def test_disk(self) -> None:
        """
        A disk that does not take a reply changes nothing for those who have it; it
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
    Who asked, among those who are connected.
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
        Who replied waits for the disk; who asked does not.
        """
        self.take(self.pushed(self.replied()))
        self.assertEqual(self.client.answers(), [])
        self.work()
        [answer] = self.client.answers()
        self.assertEqual(answer.code, 0)

    def test_late(self) -> None:
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
        self.seen: list[Sending] = []
        self.answers: list[int] = []

    def beforeSend(self, sending: Sending) -> None:
        """
        A reply is about to be brought.
        """
        if self.refuses:
            raise NoPermission("no")
        self.seen.append(attrs.evolve(sending))
        sending.note("HOOKED", "yes")

    def afterSend(self, sending: Sending, response: RemotingCommand) -> None:
        """
        A reply was brought.
        """
        self.answers.append(response.code)


class HookTests(Replies):
    """
    The operator's hooks.
    """

    def setUp(self) -> None:
        self.hook = Hook()
        self.hooks = [self.hook]
        super().setUp()

    def test_looks(self) -> None:
        """
        They look at replies as at other messages, may change them, and are told of
        the answer.
        """
        push = self.pushed(self.replied())
        told = push.decodeHeader(ReplyMessageRequestHeader)
        self.assertEqual(splitProperties(told.properties or "")["HOOKED"], "yes")
        self.assertEqual(self.hook.answers, [])
        self.take(push)
        self.assertEqual(self.hook.answers, [0])
        [seen] = self.hook.seen
        self.assertEqual((seen.topic, seen.body, seen.properties), (TOPIC, b"42", PROPERTIES))
        [record] = self.stored(TOPIC)
        self.assertEqual(record.properties["HOOKED"], "yes")

    def test_refuses(self) -> None:
        """
        One that refuses a reply keeps it from who asked.
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
