# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.push.queuelocks}.
"""

from __future__ import annotations

from twisted.logger import LogLevel

from tests.client.brokers import A, B, ConsumerTests
from tests.client.network import routeTo
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.push.queuelocks import ConsumerLocks, LockResult
from txrocket.errors import RemoteSystemError
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode


class HeldLocksTests(ConsumerTests):
    """
    Locks of queues at two brokers.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        self.got(self.cluster.routes.find("T"))
        self.addCleanup(self.cluster.stop)
        self.locks = ConsumerLocks(GroupCalls(self.cluster, "G"))
        self.other = MessageQueue("T", "b", 0)

    def test_eachBrokerLocksItsQueues(self) -> None:
        """
        Each broker is asked for its own queues, and says which are locked and which another
        client holds; those are not held.
        """
        self.a.locked = {self.queues[1]}
        locked = self.got(self.locks.lock([self.queues[0], self.queues[1], self.other]))
        self.assertEqual(
            locked, LockResult(frozenset({self.queues[0], self.other}), frozenset({self.queues[1]}))
        )
        self.assertEqual(self.locks.held, {self.queues[0], self.other})

    def test_noQueuesAskNoBroker(self) -> None:
        """
        For no queues no broker is asked.
        """
        self.assertEqual(
            self.successResultOf(self.locks.lock([])), LockResult(frozenset(), frozenset())
        )

    def test_unansweredLocksCountAsHeld(self) -> None:
        """
        A broker that does not answer may have locked the queues: they count as held.
        """
        self.b.failing[RequestCode.LOCK_BATCH_MQ] = RemoteSystemError("no")
        locked = self.got(self.locks.lock([self.queue, self.other]))
        self.assertEqual(locked, LockResult(frozenset({self.queue}), frozenset()))
        self.assertEqual(self.locks.held, {self.queue, self.other})
        self.assertIn("Broker b does not lock queues", self.logged(LogLevel.warn)[0])

    def test_requestedLocksCountAsHeld(self) -> None:
        """
        Requested locks count as held before the answer, so that a stop releases them.
        """
        self.locks.lock([self.queue])
        self.assertEqual(self.locks.held, {self.queue})
        self.network.flush()

    def test_unlockedQueuesAreNotHeld(self) -> None:
        """
        Released queues are not held any more, for each broker by itself.
        """
        self.got(self.locks.lock([self.queue, self.queues[1], self.other]))
        self.got(self.locks.unlock([self.queue, self.other]))
        for broker, queue in ((self.a, self.queue), (self.b, self.other)):
            (body,) = broker.unlocked
            self.assertEqual((body.consumerGroup, body.clientId), ("G", "me"))
            self.assertEqual(body.mqSet, {queue})
        self.assertEqual(self.locks.held, {self.queues[1]})

    def test_unansweredUnlockReleases(self) -> None:
        """
        A broker that does not answer releases them by itself.
        """
        self.a.failing[RequestCode.UNLOCK_BATCH_MQ] = RemoteSystemError("no")
        self.got(self.locks.unlock([self.queue]))
        self.assertEqual(self.locks.held, set())
