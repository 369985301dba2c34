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
from txrocket.client.results import SendResult, SendStatus
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode

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
