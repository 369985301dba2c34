# SPDX-License-Identifier: Apache-2.0
"""
Tests for what is plugged into the way of messages: L{ISendHook}.
"""

from __future__ import annotations

from collections.abc import Callable

from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.processors.support import CLUSTER, BrokerTests, sendHeader
from txrocket.broker.interfaces import ISendHook, SendMessageContext
from txrocket.errors import NoPermission
from txrocket.message import Message
from txrocket.model import TopicFilterType
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.record.batch import encodeBatch


@implementer(ISendHook)
class Hook:
    """
    A hook that remembers, and does what a test wants.
    """

    def __init__(self) -> None:
        self.before: list[SendMessageContext] = []
        self.after: list[tuple[SendMessageContext, RemotingCommand]] = []
        self.change: Callable[[SendMessageContext], object] = lambda sending: None
        self.fail: Exception | None = None

    def beforeSend(self, sending: SendMessageContext) -> None:
        self.before.append(sending)
        self.change(sending)

    def afterSend(self, sending: SendMessageContext, response: RemotingCommand) -> None:
        self.after.append((sending, response))
        if self.fail is not None:
            raise self.fail


class HookTests(BrokerTests):
    """
    Two hooks, one after the other.
    """

    def setUp(self) -> None:
        self.first, self.second = Hook(), Hook()
        self.hooks = (self.first, self.second)
        super().setUp()
        self.topic()

    def change(self, **values: object) -> None:
        """
        Have the first hook change messages.
        """

        def change(sending: SendMessageContext) -> None:
            for name, value in values.items():
                setattr(sending, name, value)

        self.first.change = change

    def test_interface(self) -> None:
        """
        What the tests use is a hook.
        """
        self.assertTrue(verifyObject(ISendHook, self.first))

    def test_sees(self) -> None:
        """
        A hook sees the message as it came, and the answer that it will get.
        """
        answer = self.sent(b"body", queueId=-1, flag=4, properties="TAGS\x01t\x02WAIT\x01true")
        expected = SendMessageContext(
            topic="T",
            queueId=3,
            properties="TAGS\x01t\x02WAIT\x01true",
            body=b"body",
            flag=4,
            producerGroup="P",
            bornTimestamp=1_600_000_000_000,
            batch=False,
            address="192.0.2.7:50001",
        )
        for hook in (self.first, self.second):
            self.assertEqual(hook.before, [expected])
            [(sending, response)] = hook.after
            self.assertIs(sending, hook.before[0])
            self.assertEqual(response.extFields, answer.extFields)

    def test_seesBatch(self) -> None:
        """
        A batch is seen as a whole, and a message without properties has none.
        """
        batch = encodeBatch([Message("T", b"a"), Message("T", b"b")])
        self.answerTo(self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), batch))
        [sending] = self.first.before
        self.assertEqual((sending.batch, sending.body, sending.properties), (True, batch, ""))

    def test_changes(self) -> None:
        """
        What a hook changes the next one sees, and the store gets.
        """
        self.change(
            body=b"new", properties="K\x01v", flag=9, bornTimestamp=77, queueId=2, topic="U"
        )
        self.topic("U", topicFilterType=TopicFilterType.MULTI_TAG)
        answer = self.sent()
        self.assertEqual(self.second.before[0].body, b"new")
        self.assertEqual(answer.extFields["queueId"], "2")
        [record] = self.stored("U", 2)
        self.assertEqual((record.body, record.flag, record.bornTimestamp), (b"new", 9, 77))
        self.assertEqual(dict(record.properties), {"K": "v", "CLUSTER": CLUSTER})
        self.assertEqual(record.sysFlag, 2)
        self.assertEqual(self.stored(), [])
        self.assertEqual(self.stats.puts[0][0], "U")

    def test_changesBatch(self) -> None:
        """
        A batch can be changed as a message can.
        """
        self.change(body=encodeBatch([Message("T", b"c")]), bornTimestamp=78)
        batch = encodeBatch([Message("T", b"a"), Message("T", b"b")])
        self.answerTo(self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), batch))
        [record] = self.stored()
        self.assertEqual((record.body, record.bornTimestamp), (b"c", 78))

    def test_refuses(self) -> None:
        """
        A hook can refuse a message, with a code and words of its own; the next one
        does not hear of it.
        """

        def refuse(sending: SendMessageContext) -> None:
            raise NoPermission("not today")

        self.first.change = refuse
        answer = self.sent()
        self.assertEqual((answer.code, answer.remark), (ResponseCode.NO_PERMISSION, "not today"))
        self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})
        self.assertEqual(self.second.before, [])
        self.assertEqual(self.store.log.end, 0)

    def test_fails(self) -> None:
        """
        If a hook fails before the message is stored, it is not, and the failure
        is logged.
        """

        def fail(sending: SendMessageContext) -> None:
            raise KeyError("oops")

        self.first.change = fail
        answer = self.sent()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.store.log.end, 0)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_failsAfter(self) -> None:
        """
        If a hook fails after the message was stored, that is logged, and neither
        the sender nor the next hook learns of it.
        """
        self.first.fail = KeyError("oops")
        self.assertEqual(self.sent().code, ResponseCode.SUCCESS)
        self.assertEqual(self.bodies(), [b"x"])
        self.assertEqual(len(self.second.after), 1)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_unreachable(self) -> None:
        """
        A hook cannot put a message where nobody finds it.
        """
        for topic, queueId, code in (
            ("none", 0, ResponseCode.TOPIC_NOT_EXIST),
            ("T", 4, ResponseCode.SYSTEM_ERROR),
            ("T", -1, ResponseCode.MESSAGE_ILLEGAL),
            ("OFFSET_MOVED_EVENT", 0, ResponseCode.NO_PERMISSION),
        ):
            self.change(topic=topic, queueId=queueId)
            self.assertEqual(self.sent().code, code)
        self.assertEqual(self.store.log.end, 0)

    def test_noText(self) -> None:
        """
        Nor properties that are no text.
        """
        self.change(properties="a\x01\ud800")
        answer = self.sent()
        self.assertEqual(answer.code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertIn("surrogate", answer.remark or "")

    def test_unwritable(self) -> None:
        """
        A hook may refuse with words that are no text; the answer is as it would be
        otherwise.
        """

        def refuse(sending: SendMessageContext) -> None:
            raise NoPermission("not \ud800 today")

        self.first.change = refuse
        answer = self.sent()
        self.assertEqual((answer.code, answer.remark), (ResponseCode.NO_PERMISSION, "not ? today"))
        self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})

    def test_long(self) -> None:
        """
        What a sender wrote is not all quoted back.
        """
        answer = self.sent(topic="new", defaultTopic="x" * 100_000)
        self.assertEqual(answer.code, ResponseCode.TOPIC_NOT_EXIST)
        self.assertLess(len(answer.remark or ""), 5000)
