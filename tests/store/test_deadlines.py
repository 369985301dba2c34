# SPDX-License-Identifier: Apache-2.0
"""
Tests for waiting for the disk: one timer and one sync for all waiters.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import DiskFull, FlushDiskTimeout
from txrocket.protocol.record import encodeHost
from txrocket.store.files import Files
from txrocket.store.flush.deadlines import Deadlines
from txrocket.store.messagestore import Appended, MessageStore
from txrocket.store.settings import FlushDiskType, StoreSettings

HOST = encodeHost("127.0.0.1", 10911)


class DeadlinesTests(SynchronousTestCase):
    """
    One time limit for many.
    """

    def setUp(self) -> None:
        """
        Give everyone five seconds.
        """
        self.clock = Clock()
        self.deadlines = Deadlines(self.clock, 5, lambda after: FlushDiskTimeout(f"{after:g} s"))

    def watch(self) -> Deferred[None]:
        """
        Someone begins to wait.
        """
        waiting: Deferred[None] = Deferred()
        self.deadlines.watch(waiting)
        return waiting

    def test_lateWaiterFailsOnTime(self) -> None:
        """
        Each has its own five seconds, to the moment.
        """
        first = self.watch()
        self.clock.advance(2)
        second = self.watch()
        self.clock.advance(2.999)
        self.assertNoResult(first)
        self.clock.advance(0.001)
        self.assertIn("5 s", str(self.failureResultOf(first, FlushDiskTimeout).value))
        self.clock.advance(1.999)
        self.assertNoResult(second)
        self.clock.advance(0.001)
        self.failureResultOf(second, FlushDiskTimeout)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_servedWaiterIsLeftAlone(self) -> None:
        """
        A waiter that was served is left alone.
        """
        waiting = self.watch()
        waiting.callback(None)
        self.clock.advance(5)
        self.assertIsNone(self.successResultOf(waiting))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_manyWaitersShareTimer(self) -> None:
        """
        Many waiters share one timer, and a waiter that was served is not kept.
        """
        for _ in range(1000):
            self.watch().callback(None)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.assertLess(len(self.deadlines._watched), 2)

    def test_lateWaiterMayWaitAgain(self) -> None:
        """
        A waiter that got a time-out may wait again at once.
        """
        again: list[Deferred[None]] = []
        self.watch().addErrback(lambda _: again.append(self.watch()))
        self.clock.advance(5)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(5)
        self.failureResultOf(again[0], FlushDiskTimeout)

    def test_stopLeavesNoCall(self) -> None:
        """
        After a stop nothing is left in the reactor.
        """
        self.watch()
        self.deadlines.stop()
        self.deadlines.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class _FullDisk(Files):
    full = False

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        """
        Write, if there is room.
        """
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().pwrite(handle, data, offset)


class SyncFlushTests(SynchronousTestCase):
    """
    C{stored} with SYNC_FLUSH.
    """

    def setUp(self) -> None:
        """
        Open a store whose syncs are done when the test says so.
        """
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.jobs: list[tuple[Callable[[], None], Deferred[None]]] = []
        self.files = _FullDisk()
        settings = StoreSettings(
            self.mktemp(),
            mappedFileSizeCommitLog=1 << 20,
            flushDiskType=FlushDiskType.SYNC_FLUSH,
        )
        self.store = MessageStore(settings, self.clock, self.inThread, HOST, files=self.files)
        self.store.start()
        self.addCleanup(self.store.session.release)

    def inThread(self, job: Callable[[], None]) -> Deferred[None]:
        """
        Keep a job for later.
        """
        done: Deferred[None] = Deferred()
        self.jobs.append((job, done))
        return done

    def sync(self) -> None:
        """
        Let the thread do its next job.
        """
        job, done = self.jobs.pop(0)
        maybeDeferred(job).chainDeferred(done)

    def put(self) -> Appended:
        """
        Put a message.
        """
        return self.store.put("T", 0, b"body", b"", bornTimestamp=1, bornHost=HOST)

    def test_oneSyncServesEarlierMessages(self) -> None:
        """
        One sync serves all that were written before it began, and the next one
        those that came meanwhile.
        """
        first = [self.store.stored(self.put().end) for _ in range(10)]
        self.clock.advance(0)
        self.assertEqual(len(self.jobs), 1)
        second = [self.store.stored(self.put().end) for _ in range(10)]
        self.clock.advance(0)
        self.assertEqual(len(self.jobs), 1)
        self.sync()
        for each in first:
            self.assertIsNone(self.successResultOf(each))
        for each in second:
            self.assertNoResult(each)
        self.assertEqual(len(self.jobs), 1)
        self.sync()
        for each in second:
            self.assertIsNone(self.successResultOf(each))
        self.assertEqual(self.jobs, [])

    def test_lateCallerGetsSync(self) -> None:
        """
        A caller that asks after the message was written gets a sync too.  A caller that asks
        after the sync is answered at once.
        """
        end = self.put().end
        self.clock.advance(0)
        self.assertEqual(self.jobs, [])
        stored = self.store.stored(end)
        self.sync()
        self.assertIsNone(self.successResultOf(stored))
        self.assertIsNone(self.successResultOf(self.store.stored(end)))

    def test_slowDiskTimesSenderOut(self) -> None:
        """
        If the disk takes longer than C{syncFlushTimeout}, the sender gets a time-out, and the
        end of the sync changes nothing.
        """
        stored = self.store.stored(self.put().end)
        self.clock.advance(0)
        self.clock.advance(5)
        self.failureResultOf(stored, FlushDiskTimeout)
        self.sync()

    def test_fullDiskFailsItsMessagesOnly(self) -> None:
        """
        A message that could not be written fails; one that was written before
        still waits for its sync.
        """
        before = self.store.stored(self.put().end)
        self.clock.advance(0)
        self.files.full = True
        lost = self.store.stored(self.put().end)
        self.clock.advance(0)
        self.failureResultOf(lost, DiskFull)
        self.assertNoResult(before)
        self.sync()
        self.assertIsNone(self.successResultOf(before))
