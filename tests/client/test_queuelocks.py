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

    def test_lock(self) -> None:
        """
        Each broker is asked for its own, and says which are locked, and which are
        another's; those are not held.
        """
        self.a.locked = {self.queues[1]}
        locked = self.got(self.locks.lock([self.queues[0], self.queues[1], self.other]))
        self.assertEqual(
            locked, LockResult(frozenset({self.queues[0], self.other}), frozenset({self.queues[1]}))
        )
        self.assertEqual(self.locks.held, {self.queues[0], self.other})

    def test_noQueuesAskNoBroker(self) -> None:
        """
        For no queues nobody is asked.
        """
        self.assertEqual(
            self.successResultOf(self.locks.lock([])), LockResult(frozenset(), frozenset())
        )

    def test_unanswered(self) -> None:
        """
        A broker that does not answer has said nothing, and may have locked them: they
        count as held.
        """
        self.b.failing[RequestCode.LOCK_BATCH_MQ] = RemoteSystemError("no")
        locked = self.got(self.locks.lock([self.queue, self.other]))
        self.assertEqual(locked, LockResult(frozenset({self.queue}), frozenset()))
        self.assertEqual(self.locks.held, {self.queue, self.other})
        self.assertIn("Broker b does not lock queues", self.logged(LogLevel.warn)[0])

    def test_heldAtOnce(self) -> None:
        """
        What is asked for counts as held before the answer: who stops meanwhile gives
        it back.
        """
        self.locks.lock([self.queue])
        self.assertEqual(self.locks.held, {self.queue})
        self.network.flush()

    def test_unlock(self) -> None:
        """
        What is given back is not held any more, at each broker by itself.
        """
        self.got(self.locks.lock([self.queue, self.queues[1], self.other]))
        self.got(self.locks.unlock([self.queue, self.other]))
        for broker, queue in ((self.a, self.queue), (self.b, self.other)):
            (body,) = broker.unlocked
            self.assertEqual((body.consumerGroup, body.clientId), ("G", "me"))
            self.assertEqual(body.mqSet, {queue})
        self.assertEqual(self.locks.held, {self.queues[1]})

    def test_unlockUnanswered(self) -> None:
        """
        A broker that does not answer frees them by itself.
        """
        self.a.failing[RequestCode.UNLOCK_BATCH_MQ] = RemoteSystemError("no")
        self.got(self.locks.unlock([self.queue]))
        self.assertEqual(self.locks.held, set())
