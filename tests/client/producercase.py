# SPDX-License-Identifier: Apache-2.0
"""
The base of the tests of producers.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.client.answering import Network, Received, routeTo
from txrocket.client.producer.producer import Producer
from txrocket.client.sansio.results import SendResult
from txrocket.errors import (
    SendFailed,
)
from txrocket.message import Message, MessageExt
from txrocket.protocol.record import encodeHost, encodeProperties

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

    def failed(self) -> SendFailed:
        """
        Why the last message was not sent.
        """
        error = self.failureResultOf(self.sending, SendFailed).value
        assert isinstance(error, SendFailed)
        return error


def consumed(**properties: str) -> MessageExt:
    """
    A message as a consumer has it.
    """
    host = encodeHost("192.0.2.9", 1)
    return MessageExt(
        *("T", b"question", 0, encodeProperties(properties), 0, 0, 0, 0),
        *(0, host, 0, host, 0, 0, 0, 0),
    )
