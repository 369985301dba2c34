# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.admin.resetoffset}.
"""

from __future__ import annotations

from tests.broker.peers import Connected
from tests.processors.admincase import BROKER, NOW, AdminCase
from tests.remoting.doubles import frame
from txrocket.model import MessageQueue
from txrocket.protocol.bodies import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RESPONSE_FLAG, RemotingCommand
from txrocket.protocol.headers import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader


class ResetTests(AdminCase):
    """
    INVOKE_BROKER_TO_RESET_OFFSET.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topic()
        self.fill(5)
        self.fill(5, queueId=1)
        self.commit("G", "T", 2, 4)

    def reset(self, timestamp: int, force: bool = False, **changes: str) -> dict[int, int]:
        """
        Reset the group.

        @return: the offsets of its queues in the answer.
        """
        header = ResetOffsetRequestHeader("T", "G", timestamp, force)
        answer = self.succeed(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, **changes)
        body = decodeBody(ResetOffsetBody, answer.body)
        self.assertEqual({("T", BROKER)}, {(q.topic, q.brokerName) for q in body.offsetTable})
        return {queue.queueId: offset for queue, offset in body.offsetTable.items()}

    def test_resetWithoutForceOnlyGoesBack(self) -> None:
        """
        Without force a group goes back where it must, and stays where it is
        elsewhere.
        """
        self.join("G", "T")
        # Queue 0 was filled in the first five seconds, queue 1 in the next.
        self.assertEqual({0: 2, 1: 0}, self.reset(NOW + 4000))
        self.assertEqual({0: 1, 1: 0}, self.reset(NOW + 1000))
        self.assertEqual({0: 2, 1: 4}, self.reset(-1))

    def test_forceGoesForward(self) -> None:
        """
        With force it goes forward too; -1 is the end of each queue.
        """
        self.join("G", "T")
        self.assertEqual({0: 4, 1: 0}, self.reset(NOW + 4000, force=True))
        self.assertEqual({0: 5, 1: 5}, self.reset(-1, force=True))

    def test_everyConsumerIsNotified(self) -> None:
        """
        Every consumer of the group is told, as Java tells it, and the broker's own
        table is left to them.
        """
        consumers = [self.join("G", "T", clientId=each) for each in ("a", "b")]
        other = self.join("H", "T")
        self.reset(NOW, force=True)
        for each in consumers:
            (command,) = each.wire.drain()
            self.assertEqual(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, command.code)
            self.assertTrue(command.isOneway)
            self.assertEqual(
                {"topic": "T", "group": "G", "timestamp": str(NOW), "isForce": "false"},
                command.extFields,
            )
            self.assertEqual(
                {MessageQueue("T", BROKER, 0): 0, MessageQueue("T", BROKER, 1): 0},
                decodeBody(ResetOffsetBody, command.body).offsetTable,
            )
        self.assertEqual([], other.wire.drain())
        self.assertEqual({0: 2, 1: 4}, self.offsets.of("G", "T"))

    def test_cppConsumerGetsAList(self) -> None:
        """
        A C++ consumer is told by a list, which is all it reads, and a Java one
        never; to others what the asker says decides.  The answer is no list.
        """
        queues = (MessageQueueForC("T", BROKER, 0, 5), MessageQueueForC("T", BROKER, 1, 5))
        for asker, language, listed in (
            ("JAVA", "CPP", True),
            ("CPP", "CPP", True),
            ("CPP", "GO", True),
            ("JAVA", "GO", False),
            ("CPP", "JAVA", False),
        ):
            one = self.join("G", "T", language=language)
            self.assertEqual({0: 5, 1: 5}, self.reset(-1, force=True, language=asker))
            (command,) = one.wire.drain()
            if listed:
                self.assertEqual(queues, decodeBody(ResetOffsetBodyForC, command.body).offsetTable)
            else:
                self.assertEqual(2, len(decodeBody(ResetOffsetBody, command.body).offsetTable))
            one.lose()

    def test_notOnline(self) -> None:
        """
        Without connected consumers the request is refused by a code
        that Java's tool looks at.
        """
        header = ResetOffsetRequestHeader("T", "G", -1)
        self.refused(
            ResponseCode.CONSUMER_NOT_ONLINE, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header
        )

    def test_missingTopicOrOffsetIsRefused(self) -> None:
        """
        There must be the topic, and offsets of the group in all its queues.
        """
        self.join("G", "T")
        self.topic("U")
        self.commit("G", "U", 1)
        for topic in ("missing", "U"):
            header = ResetOffsetRequestHeader(topic, "G", -1)
            said = self.refused(
                ResponseCode.SYSTEM_ERROR, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header
            )
            self.assertIn(topic, said)

    def test_tooOld(self) -> None:
        """
        If one consumer is too old to understand, none is told.
        """
        one = self.join("G", "T", clientId="new")
        self.join("G", "T", clientId="old", version=27)
        header = ResetOffsetRequestHeader("T", "G", -1)
        said = self.refused(
            ResponseCode.SYSTEM_ERROR, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header
        )
        self.assertIn("old", said)
        self.assertEqual([], one.wire.drain())

    def test_unreachableConsumerDelaysNoOther(self) -> None:
        """
        One that cannot be told keeps no other from being told.
        """
        gone, there = self.join("G", "T", clientId="a"), self.join("G", "T", clientId="b")
        gone.peer.connected = 0
        self.reset(-1)
        self.assertEqual(1, len(there.wire.drain()))


class StatusTests(AdminCase):
    """
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS.
    """

    QUEUE = MessageQueue("T", BROKER, 0)

    def begin(self, clientAddr: str | None = None) -> None:
        """
        Ask where the consumers of a group are.
        """
        header = GetConsumerStatusRequestHeader("T", "G", clientAddr)
        command = RemotingCommand(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
        command.fields = header.toFields()
        self.peer.dataReceived(command.encode())
        # Many are asked bit by bit.
        self.clock.pump([0] * 5)

    def say(self, one: Connected, code: int, body: bytes) -> None:
        """
        Let a consumer answer.
        """
        (command,) = one.wire.drain()
        self.assertEqual(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, command.code)
        self.assertEqual({"topic": "T", "group": "G"}, command.extFields)
        one.peer.dataReceived(frame(code, command.opaque, body, flag=RESPONSE_FLAG))
        self.clock.pump([0] * 5)

    def place(self, offset: int) -> bytes:
        """
        A consumer's answer.
        """
        return encodeBody(GetConsumerStatusBody({self.QUEUE: offset}))

    def tables(self) -> dict[str, dict[MessageQueue, int]]:
        """
        What the asker is told in the end.
        """
        self.clock.pump([0] * 5)
        answer = self.answer()
        assert answer is not None
        self.assertEqual(ResponseCode.SUCCESS, answer.code)
        return decodeBody(GetConsumerStatusBody, answer.body).consumerTable

    def test_allConsumersAreAsked(self) -> None:
        """
        All consumers are asked at once, and their answers given together; those
        that have nothing to say, fail, make no sense or go away are left out.
        """
        ones = {each: self.join("G", "T", clientId=each) for each in "abcdef"}
        self.begin()
        self.say(ones["a"], 0, self.place(3))
        self.say(ones["b"], 0, self.place(4))
        self.say(ones["c"], 1, b"")
        self.say(ones["d"], 0, b"")
        self.say(ones["e"], 0, b"{")
        self.assertEqual(b"", self.wire.value())
        ones["f"].lose()
        self.assertEqual({"a": {self.QUEUE: 3}, "b": {self.QUEUE: 4}}, self.tables())

    def test_oneConsumerIsAsked(self) -> None:
        """
        One can be asked alone; of one that is not there nothing is said.
        """
        first, second = self.join("G", "T", clientId="a"), self.join("G", "T", clientId="b")
        self.begin("b")
        self.assertEqual([], first.wire.drain())
        self.say(second, 0, self.place(4))
        self.assertEqual({"b": {self.QUEUE: 4}}, self.tables())
        self.begin("c")
        self.assertEqual({}, self.tables())

    def test_silentConsumerTimesOut(self) -> None:
        """
        One that does not answer is waited for five seconds.
        """
        first, _ = self.join("G", "T", clientId="a"), self.join("G", "T", clientId="b")
        self.begin()
        self.say(first, 0, self.place(3))
        self.clock.advance(4.9)
        self.assertEqual(b"", self.wire.value())
        self.clock.advance(0.1)
        self.assertEqual({"a": {self.QUEUE: 3}}, self.tables())

    def test_groupWithoutConsumersIsRefused(self) -> None:
        """
        A group without consumers is refused, and one with consumers that are too
        old.
        """
        header = GetConsumerStatusRequestHeader("T", "G")
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        self.refused(ResponseCode.SYSTEM_ERROR, code, header)
        self.join("G", "T", version=27)
        self.refused(ResponseCode.SYSTEM_ERROR, code, header)
