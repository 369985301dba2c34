# SPDX-License-Identifier: Apache-2.0
"""
Push consumers beside each other, with brokers in memory.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SynchronousTestCase

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere
from txrocket.remoting.peers import Connect
from txrocket.testing.trial import memoryCluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Member:
    """
    A consumer in a process of its own, and what it does.

    @ivar busy: what is promised of the messages that it has.
    @ivar done: the bodies that it has consumed.
    """

    def __init__(self, test: PushClusterTests, *, slow: bool = False, **options: Any) -> None:
        self._test = test
        self._slow = slow
        self.busy: list[tuple[MessageExt, Deferred[None]]] = []
        self.done: list[bytes] = []
        self._cutOff = False
        self.cluster = test.client(self._connect)
        self.consumer = PushConsumer(
            self.cluster, "G", self._listen, consumeFromWhere=FIRST, **options
        )
        self.consumer.subscribe("T")
        test.addCleanup(self.stop)
        self.consumer.startService()
        test.servers.advance(1)

    def _listen(self, message: MessageExt) -> Deferred[None] | None:
        if not self._slow:
            self.done.append(message.body)
            return None
        promise: Deferred[None] = Deferred()
        self.busy.append((message, promise))
        return promise.addCallback(lambda none: self.done.append(message.body))

    def _connect(self, address: str) -> Any:
        return self._test.servers.connect("192.0.2.99:9" if self._cutOff else address)

    def cutOff(self) -> None:
        """
        Its connections break, and it can make no others.
        """
        self._cutOff = True
        self._test.servers.resultOf(self.cluster.peers.stop())

    @property
    def queues(self) -> set[int]:
        """
        The ids of its queues of T.
        """
        return {each.queueId for each in self.consumer.status("T")}

    @property
    def working(self) -> set[int]:
        """
        The ids of the queues whose messages its listener has.
        """
        return {message.queueId for message, _ in self.busy}

    def end(self) -> None:
        """
        Its listener ends its calls.
        """
        busy, self.busy = self.busy, []
        for _, promise in busy:
            promise.callback(None)

    def stop(self) -> None:
        """
        It leaves.
        """
        self._slow = False
        self.end()
        self._test.servers.resultOf(self.consumer.stop())
        self._test.servers.resultOf(self.cluster.stop())


class PushClusterTests(SynchronousTestCase):
    """
    Members of one group.
    """

    def setUp(self) -> None:
        self.servers = memoryCluster(self)
        cluster = self.client()
        self.addCleanup(lambda: self.servers.resultOf(cluster.stop()))
        self.producer = Producer(cluster)
        self.producer.startService()
        self.addCleanup(lambda: self.servers.resultOf(self.producer.stop()))

    def client(self, connect: Connect | None = None) -> Cluster:
        """
        A client in a process of its own.
        """
        return Cluster(
            self.servers.nameServers, self.servers.clock, connect=connect or self.servers.connect
        )

    def send(self, count: int, first: int = 0) -> list[bytes]:
        """
        Messages, each to the next queue in turn.
        """
        bodies = [b"%d" % each for each in range(first, first + count)]
        sending = [self.producer.send(Message("T", each)) for each in bodies]
        self.servers.resultOf(gatherResults(sending))
        return bodies

    def test_membersShareQueues(self) -> None:
        """
        Members divide the queues, and each message is consumed once while the group does
        not change.
        """
        self.send(4)
        a, b = Member(self), Member(self)
        self.servers.advance(20)
        self.assertEqual((len(a.queues), len(b.queues), a.queues & b.queues), (2, 2, set()))
        a.done.clear()
        bodies = self.send(100, first=4)
        self.servers.advance(1)
        self.assertEqual(Counter(a.done + b.done), Counter(bodies))
        self.assertTrue(a.done and b.done)

    def test_leavingMemberLosesNothing(self) -> None:
        """
        A stopped member's queues go to the others at once, and no message comes twice: its
        offsets are saved.
        """
        self.send(4)
        a, b = Member(self), Member(self)
        self.servers.advance(20)
        self.send(20, first=4)
        self.servers.advance(1)
        a.stop()
        self.servers.advance(1)
        self.assertEqual(b.queues, {*range(4)})
        bodies = self.send(20, first=24)
        self.servers.advance(1)
        self.assertEqual(Counter(a.done + b.done), Counter(b"%d" % each for each in range(44)))
        self.assertEqual(set(b.done[-20:]), set(bodies))

    def test_brokenMembersMessagesComeAgain(self) -> None:
        """
        Messages that a member had not consumed when its connection broke come to the
        others.
        """
        self.send(4)
        a, b = Member(self, slow=True), Member(self)
        bodies = self.send(40, first=4)
        self.servers.advance(1)
        self.assertTrue(a.busy)
        a.cutOff()
        self.servers.advance(30)
        self.assertEqual(b.queues, {*range(4)})
        self.assertTrue(set(bodies) <= set(b.done))

    def test_returnedBrokerIsConsumedFurther(self) -> None:
        """
        After a broker was away, consumers go on at their offsets.
        """
        self.send(8)
        a = Member(self)
        (broker,) = self.servers.brokers
        self.servers.advance(10)
        self.servers.stop(broker)
        self.servers.advance(10)
        self.servers.start(broker)
        self.servers.advance(30)
        self.send(8, first=8)
        self.servers.advance(30)
        self.assertEqual(Counter(a.done), Counter(b"%d" % each for each in range(16)))

    def test_busyQueueKeepsItsLock(self) -> None:
        """
        In order, no member gets a queue while another member's listener has a call for it;
        it does soon after.
        """
        self.send(40)
        a = Member(self, slow=True, orderly=True)
        self.assertEqual(a.working, {*range(4)})
        b = Member(self, slow=True, orderly=True)
        for _ in range(10):
            self.servers.advance(20)
            self.assertEqual((a.working, b.working), ({*range(4)}, set()))
        mine = a.queues
        self.assertEqual(len(mine), 2)
        for message, promise in a.busy:
            if message.queueId not in mine:
                promise.callback(None)
        self.servers.advance(1.5)
        self.assertEqual((b.queues, b.working), ({*range(4)} - mine,) * 2)
        # What was not committed comes again, and first.
        self.assertEqual({message.queueOffset for message, _ in b.busy}, {0})
        a.busy = [each for each in a.busy if not each[1].called]

    def test_abandonedLockExpires(self) -> None:
        """
        After a stop that did not wait for the listener, the others get its queue once the
        lock has expired at the broker.
        """
        self.send(4)
        a = Member(self, slow=True, orderly=True)
        b = Member(self, slow=True, orderly=True)
        self.servers.resultOf(a.consumer.stop(1.0))
        for _ in range(4):
            self.servers.advance(10)
            self.assertEqual(b.working, set())
        self.servers.advance(25)
        self.assertEqual(b.working, {*range(4)})
