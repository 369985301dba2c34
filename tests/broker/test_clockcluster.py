# SPDX-License-Identifier: Apache-2.0
"""
A cluster in memory, with clients, whose machines have their clocks set.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.errors import RequestTimedOut
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere, MessageQueue
from txrocket.protocol.bodies import (
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerTableInfo,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import GetConsumerListByGroupRequestHeader
from txrocket.testing.trial import memoryCluster

HOUR = 3600
YEAR = 365 * 24 * HOUR

# Back and ahead, and there again.
STEPS = (-HOUR, HOUR, HOUR, -HOUR, YEAR, -YEAR, -YEAR)


class ClockClusterTests(SynchronousTestCase):
    """
    A name server, a broker, a producer and a consumer.
    """

    def setUp(self) -> None:
        self.servers = memoryCluster(self)
        self.broker = self.servers.broker()
        self.got: list[MessageExt] = []
        self.cluster = self.client()
        self.producer = Producer(self.cluster, "P")
        self.consumer = PushConsumer(
            self.cluster,
            "G",
            self.got.append,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        self.consumer.subscribe("T")
        self.cluster.startService()
        self.addCleanup(lambda: self.servers.resultOf(self.cluster.stopService()))
        for service in (self.producer, self.consumer):
            service.setServiceParent(self.cluster)
        self.servers.resultOf(self.producer.send(Message("T", b"first")))
        self.servers.advance(60)

    def client(self) -> Cluster:
        """
        A client whose machine has the clock that all have.
        """
        servers = self.servers
        return Cluster(
            servers.nameServers, servers.clock, connect=servers.connect, wall=servers.wall
        )

    def known(self) -> list[str]:
        """
        The brokers that the name server knows.
        """
        return [*self.servers.nameServer().routes.brokerLiveTable]

    def lock(self, clientId: str) -> bool:
        """
        Lock a queue for a consumer, if it is free.
        """
        queue = MessageQueue("T", "broker-0", 0)
        body = encodeBody(LockBatchRequestBody("G", clientId, frozenset([queue])))
        request = requestCommand(RequestCode.LOCK_BATCH_MQ, None, body)
        answer = self.servers.resultOf(self.cluster.ask(self.servers.brokers[0], request))
        return queue in decodeBody(LockBatchResponseBody, answer.body).lockOKMQSet

    def ask(self, code: RequestCode, header: Any = None) -> bytes:
        """
        What the broker answers.
        """
        asked = self.cluster.ask(self.servers.brokers[0], requestCommand(code, header))
        return self.servers.resultOf(asked).body

    def test_brokerStaysKnown(self) -> None:
        """
        The name server keeps a broker that registers, and drops one that was silent for
        two minutes, however the clocks are set.
        """
        for step in STEPS:
            self.servers.shiftWall(step)
            for _ in range(26):
                self.servers.advance(5)
                self.assertEqual(self.known(), self.servers.brokers)
        # From now on the broker is connected, and says nothing.
        self.broker.registration._loop.stop()
        for link in self.broker.registration._links.values():
            link.stop()
        self.servers.shiftWall(-HOUR)
        self.servers.advance(110)
        self.assertEqual(self.known(), self.servers.brokers)
        self.servers.advance(30)
        self.assertEqual(self.known(), [])

    def test_setClockKeepsFlushing(self) -> None:
        """
        The log is synced and the offsets are written as often as ever, so that they are
        there after a crash.
        """
        [address] = self.servers.brokers
        for number, step in enumerate(STEPS, 2):
            self.servers.shiftWall(step)
            self.servers.resultOf(self.producer.send(Message("T", b"x")))
            end = self.servers.broker().store.log.written
            self.servers.advance(20)
            self.assertGreaterEqual(self.servers.broker().store.flusher.flushed.offset, end)
            self.servers.crash(address)
            self.servers.start(address)
            offsets = self.servers.broker().tables.offsets
            self.assertEqual(sum(offsets.query("G", "T", each) for each in range(4)), number)
            self.servers.advance(60)

    def test_consumerGoesOn(self) -> None:
        """
        A push consumer gets what is sent, is not forgotten, and gets what it subscribes
        to anew.
        """
        for number, step in enumerate(STEPS):
            self.servers.shiftWall(step)
            self.consumer.subscribe("T", f"tag{number} || all")
            self.servers.advance(40)
            body = b"%d" % number
            self.servers.resultOf(self.producer.send(Message("T", body, f"tag{number}")))
            self.servers.advance(40)
            self.assertEqual(self.got[-1].body, body)
            header = GetConsumerListByGroupRequestHeader("G")
            there = self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            members = decodeBody(GetConsumerListByGroupResponseBody, there).consumerIdList
            self.assertEqual([*members], [self.cluster.clientId])

    def test_messagesHaveTheTimeOfDay(self) -> None:
        """
        Messages are born at the time that their producer's clock shows.
        """
        for step in (HOUR, YEAR):
            self.servers.shiftWall(step)
            self.servers.resultOf(self.producer.send(Message("T", b"x")))
            self.servers.advance(1)
            now = int(self.servers.wall() * 1000)
            self.assertTrue(now - 2000 <= self.got[-1].bornTimestamp <= now)
            self.assertTrue(now - 2000 <= self.got[-1].storeTimestamp <= now)

    def test_lockIsHeldForAMinute(self) -> None:
        """
        A consumer has a queue for itself until a minute after it last said so.
        """
        for step in STEPS:
            self.assertTrue(self.lock("first"))
            self.servers.shiftWall(step)
            self.servers.advance(50)
            self.assertFalse(self.lock("second"))
            self.servers.advance(11)
            self.assertTrue(self.lock("second"))
            self.servers.advance(61)

    def test_requestTimesOut(self) -> None:
        """
        A request that gets no answer fails after its time, not sooner and not later.
        """
        unheard: Deferred[Any] = Deferred()
        broker = self.servers.brokers[0]
        self.ask(RequestCode.GET_BROKER_CONFIG)
        pair = self.broker.remoting.processorTable[RequestCode.GET_BROKER_CONFIG]
        self.broker.remoting.processorTable[RequestCode.GET_BROKER_CONFIG] = pair._replace(
            serve=lambda request, peer: unheard
        )
        for step in STEPS:
            request = requestCommand(RequestCode.GET_BROKER_CONFIG)
            asked = self.cluster.ask(broker, request, timeout=4.0)
            self.servers.advance(1)
            self.servers.shiftWall(step)
            self.servers.advance(2.9)
            self.assertNoResult(asked)
            self.servers.advance(0.2)
            self.failureResultOf(asked, RequestTimedOut)

    def test_shownTimesAreTimesOfDay(self) -> None:
        """
        Administrators get times of day: of a producer's last heartbeat, and of a consumer's
        last pull.
        """
        for step in (HOUR, -YEAR):
            self.servers.shiftWall(step)
            now = self.servers.wall() * 1000
            table = decodeBody(ProducerTableInfo, self.ask(RequestCode.GET_ALL_PRODUCER_INFO))
            [producer] = table.data["P"]
            self.assertTrue(now - 60_000 <= producer.lastUpdateTimestamp <= now + 1)
            for each in self.consumer.runningInfo().mqTable.values():
                self.assertTrue(now - 60_000 <= each.lastPullTimestamp <= now + 1)
