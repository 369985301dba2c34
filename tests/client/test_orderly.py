# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.push.orderly}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import succeed
from twisted.logger import LogLevel

from tests.client import consumecontract
from tests.client.messages import QUEUE, pulled
from txrocket.client.consumer.push.listener import ConsumeLater, ListenerCaller
from txrocket.client.consumer.push.orderly import Orderly
from txrocket.client.consumer.push.processqueue import ProcessQueue
from txrocket.errors import ConnectFailed
from txrocket.message import MessageExt
from txrocket.model import MessageQueue

OTHER = MessageQueue("T", "a", 1)


class OrderlyTests(consumecontract.ConsumeContract):
    """
    Messages in order.
    """

    def make(
        self,
        listener: Any,
        batch: int = 0,
        limit: int = 20,
        *,
        suspend: float = 1.0,
        maxTimes: int | None = None,
        needsLock: bool = True,
    ) -> Orderly:
        """
        A consume service for a listener.
        """
        return Orderly(
            self.clock,
            ListenerCaller(listener, batch, self.clock, blocking=False),
            limit,
            lambda window, offset: self.commits.append(offset),
            self.sendBack,
            lambda message: message,
            suspend=suspend,
            maxTimes=maxTimes,
            needsLock=needsLock,
        )

    def opened(self, queue: MessageQueue) -> ProcessQueue:
        """
        A queue that was just locked.
        """
        window = ProcessQueue(queue, 0)
        window.lockedAt = self.clock.seconds()
        return window

    def times(self) -> list[tuple[int, int]]:
        """
        The messages of all calls, and how often each had come again.
        """
        return [(given.queueOffset, given.reconsumeTimes) for given, _ in self.slow.calls]

    # --- calls -----------------------------------------------------------

    def test_messagesOfQueueComeOneByOne(self) -> None:
        """
        The next message of a queue is given once the one before is consumed and its offset
        committed.
        """
        self.came(0, 1)
        self.came(2)
        self.assertEqual(self.slow.offsets, [0])
        self.slow.end(0)
        self.assertEqual((self.slow.offsets, self.commits), ([0, 1], [1]))
        self.slow.end(1)
        self.slow.end(2)
        self.assertEqual((self.slow.offsets, self.commits), ([0, 1, 2], [1, 2, 3]))
        self.assertEqual(self.consuming.running, 0)

    def test_queuesAreConsumedSideBySide(self) -> None:
        """
        Queues do not wait for each other, up to the limit of queues at a time; the longest
        waiting goes first.
        """
        self.consuming = self.make(self.slow, limit=2)
        windows = [self.opened(MessageQueue("T", "a", each)) for each in range(3)]
        for index, window in enumerate(windows):
            self.came(10 * index, 10 * index + 1, window=window)
        self.assertEqual((self.slow.offsets, self.consuming.running), ([0, 10], 2))
        self.slow.end(0)
        self.assertEqual(self.slow.offsets, [0, 10, 20])
        self.slow.end(1)
        self.assertEqual(self.slow.offsets, [0, 10, 20, 1])

    def test_batchHasPresentMessagesInOrder(self) -> None:
        """
        A batch has the present messages in order, and not more than wanted.
        """
        self.consuming = self.make(self.slow, batch=3)
        self.came(0)
        self.came(1, 2, 3, 4)
        self.slow.end(0)
        self.slow.end(1)
        self.assertEqual(self.slow.offsets, [[0], [1, 2, 3], [4]])
        self.assertEqual(self.commits, [1, 4])

    def test_manyPlainCallsDoNotGrowStack(self) -> None:
        """
        Plain functions, and Deferreds that have fired, are called for any number of
        messages without a growing stack.
        """
        for listener in (lambda message: None, lambda message: succeed(None)):
            self.commits = []
            self.window = self.opened(QUEUE)
            self.consuming = self.make(listener)
            self.came(*range(5000))
            self.assertEqual(self.commits, list(range(1, 5001)))

    # --- queues that go --------------------------------------------------

    def test_lostQueueIsNotSuspended(self) -> None:
        """
        A lost queue is neither suspended, nor are its messages sent to the dead letters.
        """
        self.consuming = self.make(self.slow, maxTimes=0)
        self.came(0)
        self.window.dropped = True
        self.slow.end(0, ConsumeLater())
        self.assertEqual((self.backs, self.clock.getDelayedCalls()), ([], []))

    def test_lostQueueLeavesNoTimer(self) -> None:
        """
        If a queue is lost while messages are being sent to the dead letters, no timer is
        left.
        """
        self.consuming = self.make(self.slow, maxTimes=0)
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.window.dropped = True
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.assertEqual((self.commits, self.clock.getDelayedCalls()), ([], []))
        self.assertEqual(self.consuming.running, 0)

    def test_returnedQueueWaitsForRunningCall(self) -> None:
        """
        A queue that comes back while the listener still has a call for it waits for that
        call.
        """
        self.came(0, 1)
        self.window.dropped = True
        again = self.opened(QUEUE)
        self.came(0, 1, window=again)
        self.assertEqual(self.slow.offsets, [0])
        self.slow.end(0)
        self.assertEqual((self.slow.offsets, self.commits), ([0, 0], []))
        self.slow.end(1)
        self.assertEqual((self.slow.offsets, self.commits), ([0, 0, 1], [1]))

    def test_lostWindowsSuspensionIsIgnored(self) -> None:
        """
        The end of a lost window's suspension does not affect the new one.
        """
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.window.dropped = True
        again = self.opened(QUEUE)
        self.came(0, 1, window=again)
        self.clock.advance(1)
        self.slow.end(1)
        self.assertEqual((self.slow.offsets, self.commits), ([0, 0, 1], [0, 1]))

    def test_queueIsFreeAfterItsCall(self) -> None:
        """
        A queue is free once its call has ended, and not before.
        """
        self.came(0, window=self.opened(OTHER))
        self.came(0)
        self.assertEqual(set(self.consuming.busy), {QUEUE, OTHER})
        free = [self.consuming.free(QUEUE), self.consuming.free(QUEUE)]
        self.slow.end(0)
        self.assertNoResult(free[0])
        self.successResultOf(self.consuming.free(OTHER))
        self.slow.end(1)
        for each in free:
            self.successResultOf(each)
        self.assertEqual(list(self.consuming.busy), [])

    # --- locks -----------------------------------------------------------

    def test_expiredLockBeginsNoCall(self) -> None:
        """
        If a lock was not confirmed for 30 seconds, no call begins; a running one goes on.
        """
        self.came(0, 1)
        self.clock.advance(30)
        self.slow.end(0)
        self.assertEqual(self.slow.offsets, [0, 1])
        self.clock.advance(0.1)
        self.slow.end(1)
        self.came(2)
        self.assertEqual((self.slow.offsets, self.commits), ([0, 1], [1, 2]))

    def test_broadcastNeedsNoLock(self) -> None:
        """
        A broadcast consumer needs no lock.
        """
        self.consuming = self.make(self.slow, needsLock=False)
        self.clock.advance(1000)
        self.came(0)
        self.assertEqual(self.slow.offsets, [0])

    # --- messages that were not dealt with -------------------------------

    def test_failedMessageSuspendsQueue(self) -> None:
        """
        An unconsumed message suspends its queue for a while, and then comes again before
        all others with its count increased.
        """
        self.came(0, 1)
        self.slow.end(0, ConsumeLater())
        self.came(2)
        self.clock.advance(0.9)
        self.assertEqual(self.slow.offsets, [0])
        self.clock.advance(0.1)
        self.assertEqual(self.times(), [(0, 0), (0, 1)])
        self.slow.end(1)
        self.assertEqual(self.times(), [(0, 0), (0, 1), (1, 0)])
        self.assertEqual(self.commits, [0, 1])

    def test_otherQueuesAreNotSuspended(self) -> None:
        """
        Other queues are not suspended.
        """
        self.consuming = self.make(self.slow, limit=1)
        self.came(0)
        self.came(10, window=self.opened(OTHER))
        self.slow.end(0, ConsumeLater())
        self.assertEqual(self.slow.offsets, [0, 10])

    def test_suspensionStaysWithinJavasBounds(self) -> None:
        """
        The listener says for how long, within Java's bounds: 10 ms and 30 s.
        """
        self.consuming = self.make(self.slow, suspend=7.0)
        self.came(0)
        for index, (said, expected) in enumerate(
            ((None, 7.0), (2.5, 2.5), (0.0, 0.01), (100.0, 30.0))
        ):
            self.window.lockedAt = self.clock.seconds()
            self.slow.end(index, ConsumeLater(seconds=said))
            (call,) = self.clock.getDelayedCalls()
            self.assertAlmostEqual(call.getTime() - self.clock.seconds(), expected)
            self.clock.advance(expected)

    def test_unlimitedMessageIsTriedForEver(self) -> None:
        """
        Without a limit a message is tried for ever.
        """
        self.came(0)
        for index in range(40):
            self.window.lockedAt = self.clock.seconds()
            self.slow.end(index, ConsumeLater())
            self.clock.advance(1)
        self.assertEqual((self.times()[-1], self.backs), ((0, 40), []))

    def test_failingListenerSuspendsQueue(self) -> None:
        """
        A failing listener suspends its queue, too, and its error is logged.
        """

        def listen(message: MessageExt) -> None:
            raise ZeroDivisionError

        self.consuming = self.make(listen)
        self.came(0)
        self.came(1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertIn("1 messages of", self.logged(LogLevel.critical)[0])
        self.clock.advance(1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.consuming = self.make(self.slow)
        self.window = self.opened(OTHER)
        self.came(0)
        self.slow.end(0, ZeroDivisionError())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_lastFailureMakesDeadLetter(self) -> None:
        """
        After its last failure a message is sent to the dead letters, and then the queue
        goes on.
        """
        self.consuming = self.make(self.slow, maxTimes=1)
        self.came(0, 1)
        self.slow.end(0, ConsumeLater())
        self.clock.advance(1)
        self.assertEqual((self.times(), self.backs), ([(0, 0), (0, 1)], []))
        self.slow.end(1, ConsumeLater())
        self.assertEqual([each[:2] for each in self.backs], [(0, -1)])
        self.assertEqual(self.times(), [(0, 0), (0, 1)])
        self.returned(0)
        self.assertEqual(self.times(), [(0, 0), (0, 1), (1, 0)])
        self.assertEqual((self.commits, self.window.size), ([0, 1], 4))

    def test_unsentDeadLetterSuspendsQueue(self) -> None:
        """
        If it cannot be sent there, it suspends its queue as before.
        """
        self.consuming = self.make(self.slow, maxTimes=0)
        self.came(0, 1)
        self.slow.end(0, ConsumeLater())
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.assertIn("dead letters: gone", self.logged(LogLevel.warn)[0])
        self.assertEqual(self.slow.offsets, [0])
        self.clock.advance(1)
        self.assertEqual(self.times(), [(0, 0), (0, 1)])

    def test_exhaustedMessagesOfBatchAreDead(self) -> None:
        """
        Of a batch, only the exhausted messages are dead.  The others are tried again, and
        the offset passes none of them.
        """
        self.consuming = self.make(self.slow, batch=3, maxTimes=5)
        fresh = self.window.add([pulled(0, times=5), pulled(1), pulled(2, times=5)])
        self.consuming.submit(self.window, fresh)
        self.slow.end(0, ConsumeLater())
        for back in self.backs:
            back[2].callback(None)
        self.assertEqual([each[0] for each in self.backs], [0, 2])
        self.assertEqual((self.commits, len(self.window), self.window.size), ([1], 1, 4))
        self.clock.advance(1)
        self.assertEqual(self.slow.offsets, [[0, 1, 2], [1]])
        self.slow.end(1)
        self.assertEqual(self.commits, [1, 3])

    # --- stop ------------------------------------------------------------

    def test_stopCancelsSuspension(self) -> None:
        """
        After a stop a suspended queue stays so, and no timer is left.
        """
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.successResultOf(self.consuming.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopWaitsForDeadLetter(self) -> None:
        """
        A stop waits for messages that are being sent to the dead letters.
        """
        self.consuming = self.make(self.slow, maxTimes=0)
        self.came(0)
        self.slow.end(0, ConsumeLater())
        stopped = self.consuming.stop()
        self.assertNoResult(stopped)
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.successResultOf(stopped)
        self.assertEqual((self.window.commitOffset, self.clock.getDelayedCalls()), (0, []))

    def test_restartWaitsForRunningCall(self) -> None:
        """
        After a stop it can start again, and waits for a call that still runs.
        """
        self.came(0)
        self.consuming.stop()
        self.window.dropped = True
        self.consuming.start()
        again = self.opened(QUEUE)
        self.came(0, window=again)
        self.assertEqual(self.slow.offsets, [0])
        self.slow.end(0)
        self.slow.end(1)
        self.assertEqual((self.slow.offsets, self.commits), ([0, 0], [1]))

    def test_orderlyListenerIsNeverLate(self) -> None:
        """
        In order, a listener may take as long as it likes.
        """
        self.came(0)
        self.clock.advance(10_000)
        self.consuming.expire([self.window], 1.0)
        self.assertEqual(self.backs, [])
