# SPDX-License-Identifier: Apache-2.0
"""
Messages that are delivered late, from a producer to a consumer, with a broker in
memory that is stopped and killed meanwhile.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from txrocket.client.cluster import Cluster
from txrocket.client.producer import Producer
from txrocket.client.pushconsumer import PushConsumer
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere
from txrocket.testing.trial import memoryCluster

SETTINGS = {"flushDiskType": "SYNC_FLUSH"}


class DelayClusterTests(SynchronousTestCase):
    """
    Messages of delay levels.
    """

    def setUp(self) -> None:
        self.servers = memoryCluster(self, settings=SETTINGS)
        self.clock = self.servers.clock
        [self.broker] = self.servers.brokers
        cluster = Cluster(self.servers.nameServers, self.clock, connect=self.servers.connect)
        self.producer = Producer(cluster, "P")
        self.got: list[tuple[bytes, float]] = []
        self.messages: list[MessageExt] = []
        self.consumer = PushConsumer(
            cluster,
            "G",
            self.listen,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        self.consumer.subscribe("T")
        for service in (cluster, self.producer, self.consumer):
            service.startService()
            self.addCleanup(self.stop, service)
        self.servers.advance(1)

    def stop(self, service: Any) -> None:
        """
        End a part of the client.
        """
        stopping = service.stopService()
        if isinstance(stopping, Deferred):
            self.servers.resultOf(stopping)

    def listen(self, message: MessageExt) -> None:
        """
        A message has come.
        """
        self.messages.append(message)
        self.got.append((message.body, self.clock.seconds()))

    def send(self, body: bytes, **options: Any) -> float:
        """
        Send a message.

        @return: when that was.
        """
        now = self.clock.seconds()
        self.servers.resultOf(self.producer.send(Message("T", body, **options)))
        return now

    def test_delivered(self) -> None:
        """
        A consumer gets a message when its time has come, and not before.
        """
        sent = self.send(b"late", delayTimeLevel=2)
        self.send(b"soon", delayTimeLevel=1)
        self.send(b"now")
        self.servers.advance(10)
        self.assertEqual([body for body, _ in self.got], [b"now", b"soon", b"late"])
        self.assertTrue(5 <= self.got[2][1] - sent < 5.5, self.got)

    def test_sender(self) -> None:
        """
        The message is the one that was sent, to whatever queue that was.
        """
        self.send(b"x", delayTimeLevel=1, tags="a", keys="k", flag=7)
        self.servers.advance(3)
        [message] = self.messages
        self.assertEqual((message.topic, message.tags, message.keys), ("T", "a", ["k"]))
        self.assertEqual((message.flag, message.reconsumeTimes), (7, 0))
        self.assertEqual(message.properties["REAL_QID"], str(message.queueId))
        self.assertLess(message.bornTimestamp, message.storeTimestamp - 990)

    def restart(self, *, crash: bool) -> None:
        """
        The broker is away for 7 seconds.
        """
        if crash:
            self.servers.crash(self.broker)
        else:
            self.servers.stop(self.broker)
        self.servers.advance(7)
        self.servers.start(self.broker)

    def test_restart(self) -> None:
        """
        While a broker is away its messages wait; then those come whose time is over,
        and the others when it is.  Nothing comes twice after a stop.
        """
        self.send(b"a", delayTimeLevel=1)
        self.servers.advance(1.5)
        self.send(b"b", delayTimeLevel=2)
        sent = self.send(b"c", delayTimeLevel=4)
        self.restart(crash=False)
        self.servers.advance(60)
        self.assertEqual([body for body, _ in self.got], [b"a", b"b", b"c"])
        self.assertTrue(30 <= self.got[2][1] - sent < 40, self.got)

    def test_kill(self) -> None:
        """
        The same after kill -9, but that what was just delivered may come twice.
        """
        self.send(b"a", delayTimeLevel=1)
        self.servers.advance(1.5)
        self.send(b"b", delayTimeLevel=2)
        sent = self.send(b"c", delayTimeLevel=4)
        self.restart(crash=True)
        self.servers.advance(60)
        found = [body for body, _ in self.got]
        self.assertEqual(list(dict.fromkeys(found)), [b"a", b"b", b"c"])
        self.assertLessEqual(found.count(b"a"), 2)
        self.assertEqual((found.count(b"b"), found.count(b"c")), (1, 1))
        self.assertTrue(30 <= self.got[-1][1] - sent < 40, self.got)
