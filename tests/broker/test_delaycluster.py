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
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.errors import SendFailed
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.configtext import ConfigText
from txrocket.remoting.peers import Peers
from txrocket.remoting.remoting import Remoting
from txrocket.testing.trial import memoryCluster

SETTINGS = {"flushDiskType": "SYNC_FLUSH"}


class LateClusterCase(SynchronousTestCase):
    """
    A producer, a consumer and a broker.
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


class DelayClusterTests(LateClusterCase):
    """
    Messages of delay levels.
    """

    def test_delayedMessageComesOnTime(self) -> None:
        """
        A consumer gets a message when its time has come, and not before.
        """
        sent = self.send(b"late", delayTimeLevel=2)
        self.send(b"soon", delayTimeLevel=1)
        self.send(b"now")
        self.servers.advance(10)
        self.assertEqual([body for body, _ in self.got], [b"now", b"soon", b"late"])
        self.assertTrue(5 <= self.got[2][1] - sent < 5.5, self.got)

    def test_messageKeepsQueueAndContent(self) -> None:
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

    def test_restartDeliversOverdueMessages(self) -> None:
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

    def test_killMayDeliverTwice(self) -> None:
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


class TimerClusterTests(LateClusterCase):
    """
    Messages that have a time.
    """

    def test_timedMessageComesOnTime(self) -> None:
        """
        A consumer gets a message when its time has come, and not before.
        """
        sent = self.send(b"delay", delayTimeMs=2500)
        self.send(b"time", deliverTimeMs=int(sent * 1000) + 1200)
        self.send(b"second", properties={"TIMER_DELAY_SEC": "1"})
        self.servers.advance(5)
        self.assertEqual([body for body, _ in self.got], [b"second", b"time", b"delay"])
        for (_, time), milliseconds in zip(self.got, (1000, 1200, 2500), strict=True):
            self.assertTrue(0 <= (time - sent) * 1000 - milliseconds < 100, self.got)

    def test_tooFarTimeIsRefused(self) -> None:
        """
        A producer is told why a message is not taken, and it is not tried again.
        """
        with self.assertRaises(SendFailed) as caught:
            self.send(b"x", delayTimeMs=4 * 24 * 3600 * 1000)
        self.assertIn("timerMaxDelaySec is 259200", str(caught.exception))

    def test_changedLimitApplies(self) -> None:
        """
        How far away a time may be can be changed while the broker runs.
        """
        change = requestCommand(
            RequestCode.UPDATE_BROKER_CONFIG, body=encodeBody(ConfigText(timerMaxDelaySec="10"))
        )
        peers = Peers(Remoting(self.clock), self.servers.connect)
        self.addCleanup(lambda: self.servers.resultOf(peers.stop()))
        answer = self.servers.resultOf(peers.request(self.broker, change, 5.0))
        self.assertEqual(answer.code, 0, answer.remark)
        self.send(b"fine", delayTimeMs=10_000)
        self.assertRaises(SendFailed, self.send, b"x", delayTimeMs=11_000)

    def test_restartDeliversOnce(self) -> None:
        """
        While a broker is away its messages wait, and nothing comes twice after a stop.
        """
        for milliseconds in (1000, 1400, 5000, 20_000):
            sent = self.send(b"%d" % milliseconds, delayTimeMs=milliseconds)
        self.servers.advance(2)
        self.restart(crash=False)
        self.servers.advance(60)
        self.assertEqual([body for body, _ in self.got], [b"1000", b"1400", b"5000", b"20000"])
        self.assertTrue(20 <= self.got[3][1] - sent < 30, self.got)

    def test_daysAwayLoseNothing(self) -> None:
        """
        After days away messages come; the store knows that their files are needed till
        then, however old these are.
        """
        broker: Any = self.servers.service(self.broker)
        self.send(b"level", delayTimeLevel=18)
        self.send(b"time", delayTimeMs=24 * 3600 * 1000)
        written = broker.store.log.written
        self.assertLess(broker.store.retention.needed(), written)
        self.servers.stop(self.broker)
        self.clock.rightNow += 10 * 24 * 3600
        self.servers.start(self.broker)
        self.servers.advance(60)
        self.assertEqual({body for body, _ in self.got}, {b"level", b"time"})
        broker = self.servers.service(self.broker)
        self.assertEqual(broker.store.retention.needed(), broker.store.log.written)

    def test_killMayDeliverTwice(self) -> None:
        """
        The same after kill -9, but that what came in the last second may come twice.
        """
        for milliseconds in (1000, 2900, 5000, 20_000):
            sent = self.send(b"%d" % milliseconds, delayTimeMs=milliseconds)
        self.servers.advance(2.95)
        self.restart(crash=True)
        self.servers.advance(60)
        found = [body for body, _ in self.got]
        self.assertEqual(list(dict.fromkeys(found)), [b"1000", b"2900", b"5000", b"20000"])
        self.assertEqual([found.count(each) for each in (b"1000", b"5000", b"20000")], [1, 1, 1])
        self.assertTrue(20 <= self.got[-1][1] - sent < 30, self.got)
