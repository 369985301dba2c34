# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.producer}, on a clock and a network in memory.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.client.answering import Network, Received, routeTo
from txrocket.client.producer import Producer
from txrocket.client.queues import FaultTable
from txrocket.client.results import SendResult, SendStatus
from txrocket.errors import SendFailed
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode, ResponseCode

HELLO = Message("T", b"hello")


class ProducerCase(SynchronousTestCase):
    """
    A producer of topic T, which two brokers have with two queues each.
    """

    def setUp(self) -> None:
        self.network = Network()
        self.network.routes["T"] = routeTo("broker-a", "broker-b")
        self.network.routes["TBW102"] = routeTo("broker-a", queues=8)
        self.clock = self.network.clock

    def producer(self, **options: Any) -> Producer:
        """
        A producer that is started.
        """
        self.cluster = self.network.cluster()
        producer = Producer(self.cluster, "senders", **options)
        self.successResultOf(producer.start())
        return producer

    def sent(self, producer: Producer, message: Message = HELLO, **options: Any) -> Received:
        """
        Send a message.

        @return: what a broker has got.
        """
        self.sending: Deferred[SendResult] = producer.send(message, **options)
        return self.network.only()


class SendTests(ProducerCase):
    """
    One message.
    """

    def test_sent(self) -> None:
        """
        A message goes to a queue of its topic with all that Java's producer tells,
        and the answer says where it is.
        """
        producer = self.producer()
        received = self.sent(producer, Message("T", b"hello", "tag", "key", flag=5))
        self.assertEqual(received.code, RequestCode.SEND_MESSAGE_V2)
        self.assertEqual(received.request.body, b"hello")
        fields = dict(received.fields)
        text = fields.pop("i")
        self.assertEqual(
            fields,
            {
                "a": "senders",
                "b": "T",
                "c": "TBW102",
                "d": "4",
                "e": "1",
                "f": "0",
                "g": "1700000000000",
                "h": "5",
                "j": "0",
                "k": "false",
                "m": "false",
                "n": "broker-a",
            },
        )
        self.assertNoResult(self.sending)
        received.stored(offset=9, MSG_REGION="r", TRACE_ON="false")
        result = self.successResultOf(self.sending)
        self.assertEqual(
            result[1:],
            (result.msgId, "0A", MessageQueue("T", "broker-a", 1), 9, None, "r", False),
        )
        self.assertIs(result.sendStatus, SendStatus.SEND_OK)
        self.assertEqual(text, f"UNIQ_KEY\x01{result.msgId}\x02TAGS\x01tag\x02KEYS\x01key")


class TurnTests(ProducerCase):
    """
    Which queue a message goes to.
    """

    def places(self, producer: Producer, count: int) -> list[str]:
        """
        The brokers and queues that some messages go to.
        """
        found = []
        for _ in range(count):
            received = self.sent(producer)
            found.append(f"{received.fields['n'][-1]}{received.fields['e']}")
            received.stored()
        return found

    def test_inTurn(self) -> None:
        """
        Each queue has its turn, beginning anywhere.
        """
        self.assertEqual(self.places(self.producer(), 6), ["a1", "b0", "b1", "a0", "a1", "b0"])

    def test_failedIsAvoided(self) -> None:
        """
        What a broker refuses goes to another broker, and the queues that were left
        out for that count as having had their turn: the others are not burdened
        unevenly (C{TopicPublishInfo.selectOneMessageQueue}).
        """
        self.network.routes["T"] = routeTo("broker-a", "broker-b", queues=3)
        producer = self.producer()
        found = []
        for _ in range(6):
            received = self.sent(producer)
            if received.fields["n"] == "broker-a":
                received.refuse(ResponseCode.SYSTEM_BUSY)
                received = self.network.only()
            found.append(f"{received.fields['n'][-1]}{received.fields['e']}")
            received.stored()
            self.successResultOf(self.sending)
        self.assertEqual(found, ["b0", "b1", "b2", "b0", "b1", "b2"])

    def test_noOther(self) -> None:
        """
        If there is no other broker, the next queue of the same one has its turn.
        """
        self.network.routes["T"] = routeTo("broker-a")
        first = self.sent(self.producer())
        first.refuse(ResponseCode.SYSTEM_BUSY)
        second = self.network.only()
        self.assertEqual((first.fields["e"], second.fields["e"]), ("1", "0"))

    def test_chosen(self) -> None:
        """
        A queue that was chosen is sent to, whatever was sent before, and again if
        its broker was busy.
        """
        producer = self.producer()
        queue = MessageQueue("T", "broker-b", 1)
        for _ in range(2):
            received = self.sent(producer, queue=queue)
            received.refuse(ResponseCode.SYSTEM_BUSY)
            received = self.network.only()
            self.assertEqual((received.fields["n"], received.fields["e"]), ("broker-b", "1"))
            received.stored()
            self.assertEqual(self.successResultOf(self.sending).messageQueue, queue)

    def test_selector(self) -> None:
        """
        A selector gets the queues, the message and the key, and decides.
        """
        seen: list[Any] = []

        def last(queues: Any, message: Message, key: Any) -> MessageQueue:
            seen.append((len(queues), message, key))
            chosen: MessageQueue = queues[-1]
            return chosen

        received = self.sent(self.producer(), selector=last, key=5)
        self.assertEqual((received.fields["n"], received.fields["e"]), ("broker-b", "1"))
        self.assertEqual(seen, [(4, HELLO, 5)])

    def test_key(self) -> None:
        """
        A key without a selector is hashed: 7 of four queues is the last.
        """
        received = self.sent(self.producer(), key=7)
        self.assertEqual((received.fields["n"], received.fields["e"]), ("broker-b", "1"))

    def test_slow(self) -> None:
        """
        With a fault table, a broker that took 0.6 s is left alone for 30 s, one that
        took 0.5 s is not, and one that failed is left alone for ten minutes.
        """
        producer = self.producer(faults=FaultTable())
        for latency, rest in ((0.5, 0.0), (0.6, 30.0)):
            received = self.sent(producer, queue=MessageQueue("T", "broker-a", 0))
            self.clock.advance(latency)
            received.stored()
            expected = {"a", "b"} if not rest else {"b"}
            self.assertEqual({each[0] for each in self.places(producer, 8)}, expected)
            self.clock.advance(rest)
            self.assertEqual({each[0] for each in self.places(producer, 8)}, {"a", "b"})
        refused = self.sent(producer, queue=MessageQueue("T", "broker-b", 0))
        refused.refuse(ResponseCode.MESSAGE_ILLEGAL)
        self.failureResultOf(self.sending, SendFailed)
        for pause, expected in ((0.0, {"a"}), (599.0, {"a"}), (1.0, {"a", "b"})):
            self.clock.advance(pause)
            self.assertEqual({each[0] for each in self.places(producer, 8)}, expected)

    def test_unanswered(self) -> None:
        """
        With a fault table, a broker that gave no answer is left alone as one that
        failed, and the message goes to another.
        """
        producer = self.producer(faults=FaultTable())
        received = self.sent(producer)
        self.assertEqual(received.fields["n"], "broker-a")
        received.lose()
        self.network.only().stored()
        self.assertEqual(self.successResultOf(self.sending).messageQueue.brokerName, "broker-b")
        self.assertEqual({each[0] for each in self.places(producer, 8)}, {"b"})
