# SPDX-License-Identifier: Apache-2.0
"""
Tests for the quick way of ordinary messages: it ends where the long way does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs
from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.processors.support import CLUSTER, BrokerTests, longHeader, sendHeader
from tests.store.support import filesOf
from txrocket.broker.settings import SendSettings
from txrocket.model import TopicFilterType
from txrocket.processors import stored as storedModule
from txrocket.processors.stored import Shapes, storedProperties
from txrocket.protocol.codes import RequestCode, ResponseCode, SerializeType
from txrocket.protocol.command import RemotingCommand
from txrocket.store.follow import filed
from txrocket.store.settings import FlushDiskType

ID = "7F0000010B251B89B4AC4E0EAA80%04X"

heads = st.sampled_from(["", "TAGS\x01a\x02", "WAIT\x01false\x02", "MY_", "KEYS\x01k l\x02"])
rests = st.sampled_from(
    [
        *("", "WAIT\x01true\x02TAGS\x01a", "TAGS\x01b\x02", "KEYS\x01k\x02CLUSTER\x01x\x02"),
        *("DELAY\x013", "TRAN_MSG\x01true\x02", "UNIQ_KEY\x01again", "é\x01è", "n\x01\x03"),
        "long\x01" + "x" * 300,
    ]
)
ids = st.sampled_from([ID % 1, ID % 2, "", "é", "\0" * 16, "WAIT\x01true"])


class Message(NamedTuple):
    """
    A message to send.
    """

    topic: str = "T"
    queueId: int = 0
    properties: str | None = None
    body: bytes = b"x"
    sysFlag: int = 0
    flag: int = 0
    reconsumeTimes: int | None = None
    code: int = RequestCode.SEND_MESSAGE_V2
    binary: bool = False
    oneway: bool = False


def _properties(head: str, id: str, rest: str) -> str:
    return f"{head}UNIQ_KEY\x01{id}\x02{rest}"


properties = st.one_of(st.none(), heads, st.builds(_properties, heads, ids, rests))
messages = st.builds(
    Message,
    st.sampled_from(["T", "T", "T", "new", "Multi", "Order", "TBW102", "no/topic", "%RETRY%G"]),
    st.sampled_from([0, 0, 0, 1, 3, 4, -1]),
    properties,
    st.sampled_from([b"x", b"", b"y" * 900, b"z" * 5000]),
    st.sampled_from([0, 0, 0, 1, 4, 8, 12, 0x30]),
    st.sampled_from([0, 7]),
    st.sampled_from([None, 0, 3, 16]),
    st.sampled_from(
        [RequestCode.SEND_MESSAGE_V2] * 3
        + [RequestCode.SEND_MESSAGE, RequestCode.SEND_BATCH_MESSAGE]
    ),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
)


class QuickTests(BrokerTests):
    """
    Messages one after the other.
    """

    def begin(self, quick: bool = True) -> None:
        """
        Have a broker with some topics, and count the messages that went quickly.
        """
        self.quickly = 0
        way = self.send._quick

        def counted(*given: Any) -> Any:
            answer = way(*given) if quick else None
            self.quickly += answer is not None
            return answer

        self.patch(self.send, "_quick", counted)
        for name, options in (
            ("T", {}),
            ("Multi", {"topicFilterType": TopicFilterType.MULTI_TAG}),
            ("Order", {"order": True}),
        ):
            self.topic(name, **options)

    def requestOf(self, message: Message) -> RemotingCommand:
        """
        The request that sends a message.
        """
        header: Any = sendHeader(
            message.topic,
            queueId=message.queueId,
            properties=message.properties,
            sysFlag=message.sysFlag,
            flag=message.flag,
            reconsumeTimes=message.reconsumeTimes,
        )
        if message.code == RequestCode.SEND_MESSAGE:
            header = longHeader(header)
        request = self.client.request(message.code, header, message.body)
        request.serializeType = SerializeType.ROCKETMQ if message.binary else SerializeType.JSON
        request.flag = 2 if message.oneway else 0
        return request

    def sendAll(self, *given: Message) -> list[Any]:
        """
        Send messages, each in a turn of its own, and tell all that was answered.
        """
        for each in given:
            self.client.write(self.requestOf(each))
            self.clock.advance(0)
        return [
            (each.opaque, each.code, each.remark, each.extFields, each.serializeType)
            for each in self.client.answers()
        ]

    def outcome(self, given: list[Message], quick: bool) -> tuple[Any, ...]:
        """
        What becomes of messages.
        """
        self.setUp()
        self.begin(quick)
        answers = self.sendAll(*given)
        self.store.stop()
        return answers, (self.stats.puts, self.stats.failures), filesOf(self.root)

    @settings(max_examples=40, deadline=None)
    @given(st.lists(messages, max_size=30))
    @example([Message(properties=_properties("", ID % n, "TAGS\x01a")) for n in range(5)])
    @example([Message(properties="TAGS\x01a")] * 4)
    def test_sameAsLong(self, given: list[Message]) -> None:
        """
        Whatever is sent, the answers are the same and so are all files.
        """
        self.assertEqual(self.outcome(given, quick=False), self.outcome(given, quick=True))

    def ordinary(self, count: int = 1, **changes: Any) -> dict[str, str]:
        """
        Send messages that are alike but for their ids.

        @return: the fields of the last answer.
        """
        fields: dict[str, str] = {}
        for number in range(count):
            text = _properties("", ID % number, "WAIT\x01true\x02TAGS\x01a\x02")
            [(_, code, _, fields, _)] = self.sendAll(Message(properties=text, **changes))
            self.assertEqual(code, ResponseCode.SUCCESS)
        return fields

    def test_taken(self) -> None:
        """
        It is taken for the fourth message of those that are alike, in all forms.
        """
        self.begin()
        self.ordinary(4)
        self.assertEqual(self.quickly, 1)
        self.ordinary(2, binary=True)
        self.ordinary(2, code=RequestCode.SEND_MESSAGE)
        self.ordinary(2, queueId=3)
        self.assertEqual(self.quickly, 7)

    def test_notTaken(self) -> None:
        """
        It is not while sends wait for the disk, when they are to, before messages
        are taken at all, or for a topic that has changed; and is again after that.
        """
        self.begin()
        self.ordinary(4)
        sync = attrs.evolve(self.store.settings, flushDiskType=FlushDiskType.SYNC_FLUSH)
        before = self.store.settings
        self.store.apply(sync)
        self.ordinary()
        self.store.apply(before)
        self.send.settings = SendSettings(startAcceptSendRequestTimeStamp=1)
        self.ordinary(2)
        self.send.settings = SendSettings()
        self.topic("T", 2)
        self.ordinary()
        self.assertEqual(self.quickly, 1)
        self.ordinary()
        self.assertEqual(self.quickly, 2)

    def test_region(self) -> None:
        """
        What is told of the broker may be any text, and may change.
        """
        self.begin()
        for number, (region, traced) in enumerate((('"%d%s\\', True), ("é", False))):
            settings = attrs.evolve(self.send.broker, regionId=region, traceOn=traced)
            self.send.broker = settings
            fields = self.ordinary(4)
            self.assertEqual(fields["MSG_REGION"], region)
            self.assertEqual(fields["TRACE_ON"], "true" if traced else "false")
            self.assertGreater(self.quickly, number)


class ShapeTests(SynchronousTestCase):
    """
    L{Shapes}.
    """

    cluster = f"CLUSTER\x01{CLUSTER}"

    @given(heads, ids, rests)
    def test_asStored(self, head: str, id: str, rest: str) -> None:
        """
        An id between the two parts of a shape is what the long way makes of all
        properties, and means the same to the store.
        """
        shapes = Shapes(self.cluster)
        for _ in range(2):
            self.assertIsNone(shapes.get(head, rest))
        shape = shapes.get(head, rest)
        if shape is not None:
            text, _ = storedProperties(_properties(head, id, rest), self.cluster)
            data = shape.before + id.encode() + shape.after
            self.assertEqual(data, text.encode())
            self.assertEqual((shape.hashed, id.encode(), shape.keys), filed(data))

    @given(heads | rests)
    def test_withoutId(self, text: str) -> None:
        """
        The same without an id.
        """
        shapes = Shapes(self.cluster)
        for _ in range(2):
            shapes.get(text, None)
        shape = shapes.get(text, None)
        if shape is not None:
            data = storedProperties(text, self.cluster)[0].encode()
            self.assertEqual((shape.before, shape.after), (data, b""))
            self.assertEqual((shape.hashed, shape.keys), filed(data)[::2])

    def test_notOrdinary(self) -> None:
        """
        What has to be looked at for each message has no shape.
        """
        shapes = Shapes(self.cluster)
        for head, rest in (
            ("MY_", ""),
            ("", "UNIQ_KEY\x01b"),
            ("", "DELAY\x011"),
            ("TRAN_MSG\x01true\x02", ""),
            ("", "n\x01\x03"),
            ("", "n\x01\ud800"),
            ("n" * 300, ""),
            ("DELAY\x013", None),
        ):
            for _ in range(3):
                self.assertIsNone(shapes.get(head, rest))

    def test_bounded(self) -> None:
        """
        So many are kept, and the next begin anew.
        """
        self.patch(storedModule, "_KEPT", 4)
        shapes = Shapes(self.cluster)
        for number in range(20):
            for _ in range(3):
                shapes.get("", f"n\x01{number}")
            self.assertLessEqual(len(shapes._table), 4)
            self.assertLessEqual(len(shapes._once), 4)
