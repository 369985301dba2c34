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
        What calls a listener.
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

    def test_oneAtATime(self) -> None:
        """
        The next message of a queue is given once the one before is dealt with, and by
        then its offset is told.
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

    def test_queues(self) -> None:
        """
        Queues do not wait for each other, but for more of them than may be consumed at
        a time; the one that has waited longest goes first.
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

    def test_batch(self) -> None:
        """
        A batch has what is there, in order, and not more than wanted.
        """
        self.consuming = self.make(self.slow, batch=3)
        self.came(0)
        self.came(1, 2, 3, 4)
        self.slow.end(0)
        self.slow.end(1)
        self.assertEqual(self.slow.offsets, [[0], [1, 2, 3], [4]])
        self.assertEqual(self.commits, [1, 4])

    def test_plain(self) -> None:
        """
        Plain functions, and promises that are kept as soon as they are given, are
        called for any number of messages without the stack growing.
        """
        for listener in (lambda message: None, lambda message: succeed(None)):
            self.commits = []
            self.window = self.opened(QUEUE)
            self.consuming = self.make(listener)
            self.came(*range(5000))
            self.assertEqual(self.commits, list(range(1, 5001)))

    # --- queues that go --------------------------------------------------

    def test_droppedUndone(self) -> None:
        """
        Nor is it held up, or sent to the dead letters.
        """
        self.consuming = self.make(self.slow, maxTimes=0)
        self.came(0)
        self.window.dropped = True
        self.slow.end(0, ConsumeLater())
        self.assertEqual((self.backs, self.clock.getDelayedCalls()), ([], []))

    def test_droppedSending(self) -> None:
        """
        If it is lost while messages are on their way to the dead letters, no timer is
        left for it.
        """
        self.consuming = self.make(self.slow, maxTimes=0)
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.window.dropped = True
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.assertEqual((self.commits, self.clock.getDelayedCalls()), ([], []))
        self.assertEqual(self.consuming.running, 0)

    def test_newWindow(self) -> None:
        """
        A queue that comes back while the listener is still about with it waits for
        that call: one call at a time.
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

    def test_oldTimer(self) -> None:
        """
        The end of a lost window's suspension does not get into the way of the new
        one.
        """
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.window.dropped = True
        again = self.opened(QUEUE)
        self.came(0, 1, window=again)
        self.clock.advance(1)
        self.slow.end(1)
        self.assertEqual((self.slow.offsets, self.commits), ([0, 0, 1], [0, 1]))

    def test_free(self) -> None:
        """
        A queue is free once its call is over, and not before.
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

    def test_lockExpired(self) -> None:
        """
        Who has not had his lock confirmed for 30 seconds begins no more calls; the
        one that is under way goes on.
        """
        self.came(0, 1)
        self.clock.advance(30)
        self.slow.end(0)
        self.assertEqual(self.slow.offsets, [0, 1])
        self.clock.advance(0.1)
        self.slow.end(1)
        self.came(2)
        self.assertEqual((self.slow.offsets, self.commits), ([0, 1], [1, 2]))

    def test_noLock(self) -> None:
        """
        Who broadcasts needs none.
        """
        self.consuming = self.make(self.slow, needsLock=False)
        self.clock.advance(1000)
        self.came(0)
        self.assertEqual(self.slow.offsets, [0])

    # --- messages that were not dealt with -------------------------------

    def test_suspended(self) -> None:
        """
        A message that was not dealt with holds up its queue for a while, and then
        comes again, before all others, and counts one more time.
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

    def test_othersGoOn(self) -> None:
        """
        Other queues are not held up.
        """
        self.consuming = self.make(self.slow, limit=1)
        self.came(0)
        self.came(10, window=self.opened(OTHER))
        self.slow.end(0, ConsumeLater())
        self.assertEqual(self.slow.offsets, [0, 10])

    def test_howLong(self) -> None:
        """
        For how long is the listener's to say, within Java's bounds: 10 ms and 30 s.
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

    def test_forEver(self) -> None:
        """
        Without a number of times a message is tried for ever.
        """
        self.came(0)
        for index in range(40):
            self.window.lockedAt = self.clock.seconds()
            self.slow.end(index, ConsumeLater())
            self.clock.advance(1)
        self.assertEqual((self.times()[-1], self.backs), ((0, 40), []))

    def test_failingListenerHoldsUpQueue(self) -> None:
        """
        A listener that fails holds up its queue, too; what it raised is logged.
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

    def test_deadLetter(self) -> None:
        """
        After its last time a message leaves for the dead letters; once it is there,
        the queue goes on.
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

    def test_noDeadLetter(self) -> None:
        """
        If it cannot go there, it holds up its queue as before.
        """
        self.consuming = self.make(self.slow, maxTimes=0)
        self.came(0, 1)
        self.slow.end(0, ConsumeLater())
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.assertIn("dead letters: gone", self.logged(LogLevel.warn)[0])
        self.assertEqual(self.slow.offsets, [0])
        self.clock.advance(1)
        self.assertEqual(self.times(), [(0, 0), (0, 1)])

    def test_deadPartly(self) -> None:
        """
        Of a batch, those that have times left are tried again, and the others are
        not; the offset passes none that is left.
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

    def test_stopSuspended(self) -> None:
        """
        A queue that is held up stays so, and no timer is left behind.
        """
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.successResultOf(self.consuming.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopSending(self) -> None:
        """
        What is on its way to the dead letters is waited for.
        """
        self.consuming = self.make(self.slow, maxTimes=0)
        self.came(0)
        self.slow.end(0, ConsumeLater())
        stopped = self.consuming.stop()
        self.assertNoResult(stopped)
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.successResultOf(stopped)
        self.assertEqual((self.window.commitOffset, self.clock.getDelayedCalls()), (0, []))

    def test_start(self) -> None:
        """
        After a stop it can begin again; a call that is still under way is waited for.
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

    def test_expire(self) -> None:
        """
        In order, a listener may take as long as it likes.
        """
        self.came(0)
        self.clock.advance(10_000)
        self.consuming.expire([self.window], 1.0)
        self.assertEqual(self.backs, [])
