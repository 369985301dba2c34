# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.push.pushconsumer}: messages in order, and the locks that go
with that.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel

from tests.client.brokers import A
from tests.client.network import routeTo
from tests.client.pushcase import PushTests
from txrocket.client.consumer.push.listener import ConsumeLater
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.errors import RemoteSystemError
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader

BODIES = [b"%d" % each for each in range(10)]


class InOrderTests(PushTests):
    """
    One call at a time for each queue, and a lock on each.
    """

    def started(self, listener: Any = None, **options: Any) -> PushConsumer:
        """
        A consumer that has got its queues, and takes messages in order.
        """
        return super().started(listener, orderly=True, **options)

    def unlocked(self) -> set[MessageQueue]:
        """
        The queues that were unlocked since this was last asked.
        """
        seen, self.a.unlocked = self.a.unlocked, []
        return {queue for body in seen for queue in body.mqSet}

    def locks(self) -> list[frozenset[MessageQueue]]:
        """
        The queues that the broker was to lock since this was last asked.
        """
        seen, self.locking = self.locking, []
        return seen

    # --- consuming -------------------------------------------------------

    def test_queueIsConsumedOneByOne(self) -> None:
        """
        The messages of a queue come one after the other, and offsets follow.
        """
        consumer = self.started()
        self.a.put(*BODIES[:3])
        self.a.put(b"other", queueId=1)
        self.network.flush()
        self.assertEqual(self.slow.offsets, [0, 0])
        for index in (0, 2):
            self.slow.end(index)
        self.assertEqual(self.slow.offsets, [0, 0, 1, 2])
        self.assertEqual(consumer.status("T")[self.queue], 2)

    def test_failedMessageSuspendsQueue(self) -> None:
        """
        An unconsumed message suspends its queue, as long as the consumer was told or the
        listener says.
        """
        self.started(suspend=2.0)
        self.a.put(*BODIES[:2])
        self.network.flush()
        self.slow.end(0, ConsumeLater())
        self.network.advance(1.9)
        self.assertEqual(self.slow.offsets, [0])
        self.network.advance(0.1)
        self.slow.end(1, ConsumeLater(seconds=5.0))
        self.network.advance(4.9)
        self.assertEqual(self.slow.offsets, [0, 0])
        self.network.advance(0.1)
        self.slow.end(2)
        self.assertEqual(self.slow.offsets, [0, 0, 0, 1])
        self.assertEqual(self.a.backs, [])

    def test_exhaustedMessageBecomesDeadLetter(self) -> None:
        """
        After its last time a message is sent to the retry topic with the maximum of times,
        so that the broker makes a dead letter of it, and the queue goes on.
        """
        self.ns.routes["%RETRY%G"] = routeTo(a={0: A})
        sent: list[SendMessageRequestHeaderV2] = []

        def store(request: RemotingCommand) -> RemotingCommand:
            sent.append(request.decodeHeader(SendMessageRequestHeaderV2))
            return responseCommand(header=SendMessageResponseHeader("00", 0, 7))

        self.a.answers[RequestCode.SEND_MESSAGE_V2] = store
        consumer = self.started(maxReconsumeTimes=1)
        self.a.put(*BODIES[:2])
        self.network.flush()
        self.slow.end(0, ConsumeLater())
        self.network.advance(1)
        self.slow.end(1, ConsumeLater())
        self.network.flush()
        self.assertEqual(
            [(each.topic, each.reconsumeTimes, each.maxReconsumeTimes) for each in sent],
            [("%RETRY%G", 1, 1)],
        )
        self.assertEqual(self.slow.offsets, [0, 0, 1])
        self.assertEqual((consumer.status("T")[self.queue], self.a.backs), (1, []))

    def test_slowListenerKeepsMessage(self) -> None:
        """
        A listener may take as long as it likes.
        """
        self.started(consumeTimeout=1.0)
        self.a.put(b"a")
        self.network.flush()
        self.network.advance(15)
        self.assertEqual((self.a.backs, self.slow.offsets), ([], [0]))

    def test_resetWaitsForListener(self) -> None:
        """
        A queue that is moved during a call goes on from the new offset after the call, and
        nothing from before is committed.
        """
        consumer = self.started()
        self.a.put(*BODIES)
        self.network.flush()
        consumer.resetOffsets("T", {self.queue: 7})
        self.network.flush()
        self.assertEqual((self.slow.offsets, self.updates()[-1]), ([0], 7))
        self.slow.end(0)
        self.assertEqual((self.slow.offsets, consumer.status("T")[self.queue]), ([0, 7], 7))

    # --- locks -----------------------------------------------------------

    def test_unlockedQueueIsNotBegun(self) -> None:
        """
        Only a locked queue is begun.
        """
        self.a.locked = {self.queues[1], self.queues[2]}
        consumer = self.started()
        self.assertEqual(self.locks(), [frozenset(self.queues)])
        self.assertEqual(self.had(consumer), [0, 3])

    def test_refusedLockIsTriedEachSecond(self) -> None:
        """
        The lock of a queue that another member holds is requested every second.
        """
        self.a.locked = {self.queues[1], self.queues[2]}
        consumer = self.started()
        self.locks()
        self.network.advance(1)
        self.assertEqual(self.locks(), [frozenset(self.queues[1:3])])
        self.a.locked = {self.queues[2]}
        self.network.advance(1)
        self.assertEqual((self.had(consumer), len(self.locks())), ([0, 1, 3], 1))
        self.mine(consumer, 0, 1, 3)
        self.network.advance(2)
        self.assertEqual(self.locks(), [])

    def test_unansweredLockIsTriedAfterThreeSeconds(self) -> None:
        """
        A broker that does not answer is asked again after three seconds.
        """
        self.a.answers[RequestCode.LOCK_BATCH_MQ] = self.refuse
        consumer = self.started()
        self.assertEqual(self.had(consumer), [])
        self.a.answers[RequestCode.LOCK_BATCH_MQ] = self.lock
        self.network.advance(2.9)
        self.assertEqual(self.locks(), [])
        self.network.advance(0.1)
        self.assertEqual(self.had(consumer), [0, 1, 2, 3])

    def refuse(self, request: RemotingCommand) -> RemotingCommand:
        """
        The broker fails.
        """
        raise RemoteSystemError("no")

    def test_locksAreRenewedEachTwentySeconds(self) -> None:
        """
        All locks are requested again every 20 seconds.
        """
        consumer = self.started()
        self.locks()
        self.network.advance(19.9)
        self.assertEqual(self.locks(), [])
        self.network.advance(0.1)
        self.assertEqual(self.locks(), [frozenset(self.queues)])
        self.assertEqual(consumer.runningInfo().mqTable[self.queue].lastLockTimestamp, 1_020_000)

    def test_failedRenewalEndsConsumingLater(self) -> None:
        """
        If a renewal fails, the lock holds for the rest of its 30 seconds, and then no more
        is consumed.  Once it is renewed, the queue begins at the offset of the group:
        another member may have had it.
        """
        self.started()
        self.a.put(*BODIES)
        self.network.flush()
        self.a.answers[RequestCode.LOCK_BATCH_MQ] = self.refuse
        self.network.advance(20)
        self.slow.end(0)
        self.network.advance(10)
        self.slow.end(1)
        self.assertEqual(self.slow.offsets, [0, 1, 2])
        self.network.advance(1)
        self.slow.end(2)
        self.assertEqual(self.slow.offsets, [0, 1, 2])
        self.a.answers[RequestCode.LOCK_BATCH_MQ] = self.lock
        self.network.advance(5)
        self.a.offsets["G", "T", 0] = 6
        self.network.advance(4)
        self.assertEqual(len(self.said("its lock had run out", LogLevel.warn)), 4)
        self.assertEqual(self.slow.offsets, [0, 1, 2, 6])

    def test_lostLockBeginsQueueAgain(self) -> None:
        """
        A queue whose lock another member holds is dropped, and begins at the offset of the
        group once the lock is back.  Nothing of the running call is committed.
        """
        consumer = self.started()
        self.a.put(*BODIES)
        self.network.flush()
        self.network.advance(10)
        self.updates()
        self.a.locked = {self.queue}
        self.network.advance(10)
        self.assertEqual(len(self.said("another member has its lock", LogLevel.warn)), 1)
        self.assertEqual(self.had(consumer), [1, 2, 3])
        self.slow.end(0)
        self.a.offsets["G", "T", 0] = 5
        self.a.locked = set()
        self.network.advance(1)
        self.assertEqual((self.slow.offsets, self.updates()), ([0, 5], []))

    def test_queueLostWhileLockedIsUnlocked(self) -> None:
        """
        A queue that is lost while it is being locked is unlocked.
        """
        consumer = self.started()
        self.mine(consumer)
        self.unlocked()
        consumer._rebalance.queues["T"] = frozenset({self.queue})
        consumer._queues.obtain([self.queue])
        consumer._rebalance.queues["T"] = frozenset()
        self.network.flush()
        self.assertEqual((self.had(consumer), self.unlocked()), ([], {self.queue}))

    # --- queues that go --------------------------------------------------

    def test_lostQueueIsUnlockedAfterSave(self) -> None:
        """
        A lost queue is unlocked once its offset is saved.
        """
        consumer = self.started(lambda message: None)
        self.a.put(*BODIES)
        self.network.flush()
        self.updates()
        kept: Deferred[RemotingCommand] = Deferred()

        def update(request: RemotingCommand) -> Any:
            self.a.updateOffset(request)
            return kept

        self.a.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = update
        self.mine(consumer, 1, 2, 3)
        self.assertEqual((self.updates(), self.unlocked()), ([10], set()))
        del self.a.answers[RequestCode.UPDATE_CONSUMER_OFFSET]
        kept.callback(responseCommand())
        self.network.flush()
        self.assertEqual(self.unlocked(), {self.queue})

    def test_busyLostQueueKeepsLock(self) -> None:
        """
        While the listener has a call for a lost queue, its lock is kept and renewed until
        the call has ended; nothing of it is committed.
        """
        consumer = self.started()
        self.a.put(*BODIES)
        self.network.flush()
        self.updates()
        self.mine(consumer, 1)
        self.assertEqual(self.unlocked(), {self.queues[2], self.queues[3]})
        self.locks()
        self.network.advance(20)
        self.assertEqual(self.locks(), [frozenset(self.queues[:2])])
        self.slow.end(0)
        self.network.flush()
        self.assertEqual((self.unlocked(), self.updates()), ({self.queue}, []))
        self.network.advance(20)
        self.assertEqual((self.locks(), self.slow.offsets), ([frozenset(self.queues[1:2])], [0]))

    def test_busyReturnedQueueStaysLocked(self) -> None:
        """
        If the queue returns meanwhile, it is not unlocked, and goes on after the call.
        """
        consumer = self.started()
        self.a.put(*BODIES)
        self.network.flush()
        self.mine(consumer)
        self.mine(consumer, 0)
        self.unlocked()
        self.assertEqual((self.had(consumer), self.slow.offsets), ([0], [0]))
        self.slow.end(0)
        self.network.flush()
        self.assertEqual((self.unlocked(), self.slow.offsets), (set(), [0, 0]))

    def test_takenLockIsNotFought(self) -> None:
        """
        If another member has got the lock of such a queue all the same, the call just ends.
        """
        consumer = self.started()
        self.a.put(*BODIES)
        self.network.flush()
        self.mine(consumer, 1)
        self.a.locked = {self.queue}
        self.network.advance(20)
        self.slow.end(0)
        self.network.advance(20)
        self.assertEqual((self.had(consumer), self.slow.offsets), ([1], [0]))

    # --- stop ------------------------------------------------------------

    def test_stopUnlocksQueues(self) -> None:
        """
        A stop unlocks all queues, after their offsets are saved and before the consumer
        leaves.
        """
        consumer = self.started(lambda message: None)
        self.a.put(*BODIES)
        self.network.flush()
        self.updates()
        self.got(self.stop(consumer))
        self.assertEqual((self.updates(), self.unlocked()), ([10], set(self.queues)))
        self.assertEqual(len(self.a.left), 1)
        self.locks()
        self.network.advance(60)
        self.assertEqual(self.locks(), [])

    def test_stopRenewsLocksMeanwhile(self) -> None:
        """
        While a stop waits for the listener, the locks are renewed.
        """
        consumer = self.started()
        self.a.put(b"a")
        self.network.flush()
        stopping = self.stop(consumer, 60.0)
        self.locks()
        self.network.advance(20)
        self.assertEqual(self.locks(), [frozenset(self.queues)])
        self.slow.end(0)
        self.got(stopping)
        self.assertEqual((self.unlocked(), self.updates()[-1]), (set(self.queues), 1))

    def test_stopLeavesBusyQueueLocked(self) -> None:
        """
        A queue with a running call after the time limit is not unlocked: its lock expires
        at the broker after a minute.
        """
        consumer = self.started()
        self.a.put(b"a")
        self.network.flush()
        stopping = self.stop(consumer, 1.0)
        self.network.advance(1)
        self.got(stopping)
        self.assertEqual(self.unlocked(), set(self.queues[1:]))
        self.locks()
        self.slow.end(0)
        self.network.advance(60)
        self.assertEqual((self.unlocked(), self.locks(), self.updates()), (set(), [], []))

    def test_stopBeginsNoLostQueue(self) -> None:
        """
        A queue that is lost during the stop is not begun again.
        """
        consumer = self.started()
        self.a.put(b"a")
        self.network.flush()
        stopping = self.stop(consumer, 60.0)
        self.a.locked = {self.queue}
        self.network.advance(20)
        self.locks()
        self.network.advance(5)
        self.assertEqual(self.locks(), [])
        self.slow.end(0)
        self.got(stopping)

    def test_stopUnlocksLeavingQueue(self) -> None:
        """
        A queue that is leaving is unlocked with all others.
        """
        consumer = self.started()
        self.a.put(b"a")
        self.network.flush()
        self.mine(consumer, 1)
        self.unlocked()
        stopping = self.stop(consumer)
        self.slow.end(0)
        self.got(stopping)
        self.assertEqual(self.unlocked(), set(self.queues[:2]))

    def test_stopUnlocksQueueBeingLocked(self) -> None:
        """
        A queue that is being locked at the stop is unlocked, and not begun.
        """
        consumer = self.make(orderly=True)
        self.successResultOf(consumer.start())
        while not self.divisions:
            self.network.step()
        self.got(self.stop(consumer))
        self.assertEqual((self.had(consumer), self.unlocked()), ([], set(self.queues)))
