# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.flush.flusher}: when data gets to the disk, and when senders get their
answer.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from twisted.internet.defer import Deferred

from tests.store.support import START, Held, StoreCase, abandon
from txrocket.errors import FlushDiskTimeout, StoreError, StoreFailed
from txrocket.store.settings import FlushDiskType

PAGE = 4096


class AsyncTests(StoreCase):
    """
    ASYNC_FLUSH.
    """

    def setUp(self) -> None:
        super().setUp()
        self.store = self.start(mappedFileSizeCommitLog=1 << 20)

    def tearDown(self) -> None:
        abandon(self.store)

    def putSized(self, size: int) -> None:
        """
        Put a message whose record has a size.
        """
        self.put(self.store, b"x" * (size - 92))

    @property
    def flushed(self) -> int:
        """
        How far the log is on the disk.
        """
        return self.store.flusher.flushed.offset

    def test_writtenMessageIsStored(self) -> None:
        """
        A sender is answered as soon as the message is in the files, not before.
        """
        appended = self.gather(self.store)
        stored = self.store.stored(appended.end)
        self.assertNoResult(stored)
        self.clock.advance(0)
        self.successResultOf(stored)
        self.assertEqual(0, self.flushed)

    def test_fourPagesAreSynced(self) -> None:
        """
        Every 500 ms the log is synced if there are at least four pages.
        """
        self.putSized(4 * PAGE)
        self.clock.advance(0.499)
        self.assertEqual(0, self.flushed)
        self.clock.advance(0.001)
        self.assertEqual(4 * PAGE, self.flushed)

    def test_lessThanFourPages(self) -> None:
        """
        Less waits, until ten seconds after the last sync.
        """
        self.putSized(4 * PAGE - 1)
        # The checkpoint of the queues would have it synced sooner.
        self.store.tasks.loops.pop(1).stop()
        self.clock.pump([0.5] * 19)
        self.assertEqual(0, self.flushed)
        self.clock.advance(0.5)
        self.assertEqual(4 * PAGE - 1, self.flushed)

    def test_nothingWrittenSyncsNothing(self) -> None:
        """
        Where nothing was written nothing is synced.
        """
        del self.disk.synced[:]
        self.clock.pump([0.5] * 50)
        self.assertEqual([], self.disk.synced)

    def test_checkpointByPages(self) -> None:
        """
        Every second a checkpoint is made if the queues have two pages more.
        """
        self.putSized(2 * PAGE)
        self.clock.advance(0.999)
        self.assertIsNone(self.store.checkpointer.last.offset)
        self.clock.advance(0.001)
        last = self.store.checkpointer.last
        self.assertEqual(
            (2 * PAGE, START * 1000, START * 1000),
            (last.offset, last.logTimestamp, last.queueTimestamp),
        )

    def test_fewEntriesWaitAMinute(self) -> None:
        """
        Less waits for 60 seconds.
        """
        self.putSized(2 * PAGE - 1)
        self.clock.pump([1] * 59)
        self.assertIsNone(self.store.checkpointer.last.offset)
        self.clock.advance(1)
        self.assertEqual(2 * PAGE - 1, self.store.checkpointer.last.offset)

    def test_failedSyncRefusesMessages(self) -> None:
        """
        After a failed sync no message is taken, and the error has the reason.
        """
        self.putSized(4 * PAGE)
        self.disk.failing["sync"] = OSError(errno.EIO, "broken")
        self.clock.advance(0.5)
        self.disk.failing.clear()
        error = self.assertRaises(StoreFailed, self.put, self.store)
        self.assertIn("broken; no write is accepted until", str(error))
        self.assertIs(self.store.failure, error)
        self.assertEqual(1, len(self.all(self.store)))
        # A later sync that succeeds says nothing about what was lost.
        self.clock.pump([1] * 30)
        self.assertRaises(StoreFailed, self.put, self.store)
        self.assertEqual(0, self.flushed)


class SyncTests(StoreCase):
    """
    SYNC_FLUSH and group commit.
    """

    def setUp(self) -> None:
        super().setUp()
        self.held = Held()
        self.store = self.start(self.held, flushDiskType=FlushDiskType.SYNC_FLUSH)

    def tearDown(self) -> None:
        abandon(self.store)

    def send(self) -> Deferred[None]:
        """
        Put a message and wait for it to be stored.
        """
        return self.store.stored(self.gather(self.store).end)

    def test_syncedMessageIsStored(self) -> None:
        """
        A sender is answered once the message is on the disk, and not before.
        """
        sent = self.send()
        self.assertEqual([], self.held.jobs)
        self.clock.advance(0)
        self.assertNoResult(sent)
        self.held.work()
        self.successResultOf(sent)
        self.assertIn("commitlog", self.disk.synced[-2])
        self.successResultOf(self.store.stored(self.store.log.written))

    def test_oneSyncServesAllWaiters(self) -> None:
        """
        One sync serves all that wait when it begins; those that come meanwhile
        wait for the next, which serves all of them.
        """
        first = [self.send() for _ in range(10)]
        self.clock.advance(0)
        second = []
        for _ in range(10):
            second.append(self.send())
            self.clock.advance(0)
        self.assertEqual(1, len(self.held.jobs))
        self.held.work()
        for each in first:
            self.successResultOf(each)
        for each in second:
            self.assertNoResult(each)
        self.assertEqual(1, len(self.held.jobs))
        self.held.work()
        for each in second:
            self.successResultOf(each)
        self.assertEqual([], self.held.jobs)

    def test_nextSyncRunsBeforeAnswers(self) -> None:
        """
        When the waiters of a sync are answered, the next sync is under way.
        """
        underWay = []
        self.send().addCallback(lambda _: underWay.append(len(self.held.jobs)))
        self.clock.advance(0)
        last = self.send()
        self.clock.advance(0)
        self.held.work()
        self.assertEqual([1], underWay)
        self.held.work()
        self.successResultOf(last)
        self.assertFalse(self.store.flusher.running)

    def test_sendFromCallbackGetsAnotherSync(self) -> None:
        """
        A producer that sends again from its callback is served by another sync.
        """
        again: list[Deferred[None]] = []
        sent = self.send().addCallback(lambda _: again.append(self.send()))
        self.clock.advance(0)
        self.held.work()
        self.successResultOf(sent)
        self.clock.advance(0)
        self.held.work()
        self.successResultOf(again[0])

    def test_slowSyncTimesSenderOut(self) -> None:
        """
        A sender that waits for syncFlushTimeout gets FLUSH_DISK_TIMEOUT;
        others wait on, and the message may still get to the disk.
        """
        late = self.send()
        self.clock.advance(0)
        self.clock.advance(2)
        other = self.send()
        self.clock.advance(2.999)
        self.assertNoResult(late)
        self.clock.advance(0.001)
        error = self.failureResultOf(late, FlushDiskTimeout).value
        self.assertIn("5 s", str(error))
        self.held.work()
        self.held.work()
        self.successResultOf(other)
        self.assertIsNone(self.store.failure)

    def test_timeoutIsTheSetting(self) -> None:
        """
        The limit is the setting's.
        """
        abandon(self.store)
        self.store = self.start(
            self.held, flushDiskType=FlushDiskType.SYNC_FLUSH, syncFlushTimeout=200
        )
        late = self.send()
        self.clock.advance(0)
        self.clock.advance(0.2)
        self.failureResultOf(late, FlushDiskTimeout)

    def test_failedSyncFailsAllWaiters(self) -> None:
        """
        When a sync fails, no sender gets a success: not the waiters of this sync, not those
        of the next, not later ones.
        """
        before = self.send()
        self.clock.advance(0)
        self.held.work()
        self.successResultOf(before)
        during, meanwhile = self.send(), None
        self.clock.advance(0)
        meanwhile = self.send()
        self.clock.advance(0)
        unwritten = self.send()
        self.disk.failing["sync"] = OSError(errno.EIO, "broken")
        self.held.work()
        self.disk.failing.clear()
        for each in (during, meanwhile, unwritten):
            self.assertIn("broken", str(self.failureResultOf(each, StoreFailed).value))
        self.assertRaises(StoreFailed, self.send)
        self.assertEqual([], self.held.jobs)
        # What had been on the disk still is.
        self.successResultOf(self.store.stored(93))
        self.failureResultOf(self.store.stored(94), StoreFailed)

    def test_syncCoversAllWrittenFiles(self) -> None:
        """
        A sync covers every file written to since the last.
        """
        self.gather(self.store, b"x" * 3000)
        self.gather(self.store, b"y" * 3000)
        self.clock.advance(0)
        self.store.flusher.flush()
        del self.disk.synced[:]
        self.held.work()
        self.assertEqual(
            ["00000000000000000000", "00000000000000004096", "commitlog"],
            sorted(each.rpartition("/")[2] for each in self.disk.synced),
        )

    def test_deletedWhileSynced(self) -> None:
        """
        A file may be deleted while it is synced.
        """
        self.gather(self.store, b"x" * 3000)
        self.gather(self.store, b"y" * 3000)
        self.clock.advance(0)
        flushed = self.store.flusher.flush()
        handles = len(self.disk.opened)
        self.store.log.segments.removeFirst()
        self.held.work()
        self.successResultOf(flushed)
        self.assertEqual(handles - 1, len(self.disk.opened))


class CheckpointerTests(StoreCase):
    """
    Tests for L{Checkpointer<txrocket.store.flush.checkpointer.Checkpointer>}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.held = Held()
        self.store = self.start(self.held)

    def tearDown(self) -> None:
        abandon(self.store)

    def work(self) -> None:
        """
        Let the thread do all there is.
        """
        while self.held.jobs:
            self.held.work()

    def read(self) -> Any:
        """
        The checkpoint in the file.
        """
        return self.store.checkpointer._file.read()

    def test_checkpointSyncsLogFirst(self) -> None:
        """
        The log is synced first, then queues and the index's entries, then its
        slots, and then the checkpoint.
        """
        self.put(self.store, KEYS="k")
        done = self.store.checkpointer.checkpoint()
        del self.disk.synced[:]
        steps = []
        while self.held.jobs:
            self.held.work()
            steps.append(
                {os.path.relpath(each, self.root).split("/")[0] for each in self.disk.synced}
            )
            del self.disk.synced[:]
        self.successResultOf(done)
        self.assertEqual(
            [{"commitlog"}, {".", "consumequeue", "index"}, {"index"}, {"checkpoint"}], steps
        )
        self.assertEqual(self.store.log.written, self.read().offset)

    def test_speaksOfItsBeginning(self) -> None:
        """
        A checkpoint speaks of what was there when it began.
        """
        first = self.put(self.store, KEYS="k")
        self.store.checkpointer.checkpoint()
        self.put(self.store, KEYS="k")
        self.work()
        read = self.read()
        self.assertEqual((first.end, 2), (read.offset, read.index.count))

    def test_oneAtATime(self) -> None:
        """
        The next checkpoint waits for the one that is being made.
        """
        self.put(self.store)
        first = self.store.checkpointer.checkpoint()
        self.put(self.store)
        second = self.store.checkpointer.checkpoint()
        self.assertTrue(self.store.checkpointer.running)
        while self.held.jobs and not first.called:
            self.assertEqual(1, len(self.held.jobs))
            self.held.work()
        self.assertNoResult(second)
        self.work()
        self.successResultOf(second)
        self.assertEqual(self.store.log.written, self.read().offset)
        self.assertFalse(self.store.checkpointer.running)

    def test_slowCheckpointRunsAlone(self) -> None:
        """
        While a slow checkpoint is being made, the clock starts no other.
        """
        self.put(self.store, b"x" * 3000)
        self.clock.pump([60, 1, 60, 1])
        self.assertTrue(self.store.checkpointer.running)
        self.assertEqual(1, len(self.held.jobs))

    def test_fullDiskPostponesCheckpoint(self) -> None:
        """
        A checkpoint that a full disk keeps from its end says nothing, stops
        nothing, and what it owed is synced by the next one.
        """
        self.put(self.store, KEYS="k")
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.disk.only = "index"
        self.clock.advance(60)
        self.work()
        self.disk.failing.clear()
        self.assertIsNone(self.read().offset)
        self.assertIsNone(self.store.failure)
        del self.disk.synced[:]
        done = self.store.checkpointer.checkpoint()
        self.work()
        self.successResultOf(done)
        self.assertEqual(self.store.log.written, self.read().offset)
        queue = [each for each in self.disk.synced if "consumequeue" in each]
        # The file, its folder, and the two above.
        self.assertEqual(4, len(queue))

    def test_longCheckpointIsFollowedByRest(self) -> None:
        """
        After a long checkpoint the next one waits for five times as long.
        """
        for _ in range(6):
            self.put(self.store, b"x" * 2000)
        self.clock.advance(1)
        self.clock.advance(3)
        self.work()
        first = self.read().offset
        self.assertEqual(self.store.log.written, first)
        for _ in range(6):
            self.put(self.store, b"x" * 2000)
        for _ in range(14):
            self.clock.advance(1)
            self.work()
        self.assertEqual(first, self.read().offset)
        for _ in range(2):
            self.clock.advance(1)
            self.work()
        self.assertEqual(self.store.log.written, self.read().offset)

    def test_failedSyncEndsCheckpoints(self) -> None:
        """
        If queues, index or checkpoint cannot be synced, there is never a
        checkpoint again, and no message is taken.
        """
        self.put(self.store, KEYS="k")
        self.disk.failing["syncPath"] = OSError(errno.EIO, "broken")
        self.clock.advance(60)
        self.work()
        self.disk.failing.clear()
        self.assertIsNone(self.read().offset)
        self.assertRaises(StoreFailed, self.put, self.store)
        done = self.store.checkpointer.checkpoint()
        self.work()
        self.failureResultOf(done, StoreFailed)
        self.assertIsNone(self.read().offset)
        self.clock.advance(60)
        self.assertEqual([], self.held.jobs)

    def test_logSyncFails(self) -> None:
        """
        If the log cannot be synced for a checkpoint, no message is taken.
        """
        waits = self.store.stored(self.gather(self.store).end)
        self.clock.advance(0)
        self.successResultOf(waits)
        self.disk.failing["sync"] = OSError(errno.EIO, "broken")
        self.clock.advance(60)
        self.work()
        self.assertRaises(StoreFailed, self.put, self.store)
        self.assertIsNone(self.read().offset)


class HandlesTests(StoreCase):
    """
    No more files can be opened for a while.
    """

    def setUp(self) -> None:
        super().setUp()
        self.store = self.start(mappedFileSizeCommitLog=1 << 20)
        self.none = OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def tearDown(self) -> None:
        abandon(self.store)

    def test_checkpointTriedAgain(self) -> None:
        """
        A checkpoint that can open no file stops nothing, and the next one syncs all that
        it owed: queues, index, the slots of the index, the checkpoint.
        """
        for only in ("consumequeue", "index", "checkpoint"):
            self.put(self.store, b"x" * 2 * PAGE, KEYS="k")
            self.disk.failing["syncPath"] = self.none
            self.disk.only = only
            before = self.store.checkpointer.last.offset
            self.clock.advance(1)
            self.assertIsNone(self.store.failure)
            self.assertEqual(before, self.store.checkpointer.last.offset)
            self.disk.failing.clear()
            del self.disk.synced[:]
            self.put(self.store, b"x")
            self.clock.advance(60)
            self.assertEqual(self.store.log.written, self.store.checkpointer.last.offset)
            synced = {os.path.relpath(each, self.root).split("/")[0] for each in self.disk.synced}
            self.assertLessEqual({"consumequeue", "index", "checkpoint"}, synced)

    def test_unsyncedSlotsAreSyncedLater(self) -> None:
        """
        If the slots of the index were written and could not be synced, the next checkpoint
        syncs them though nothing was added to that file since.
        """
        self.put(self.store, b"x" * 2 * PAGE, KEYS="k")
        syncPath = self.disk.syncPath
        calls: list[str] = []

        def second(path: str) -> None:
            if "index" in path:
                calls.append(path)
                if len(calls) == 2:
                    raise self.none
            syncPath(path)

        self.patch(self.disk, "syncPath", second)
        self.clock.advance(1)
        self.assertEqual(2, len(calls))
        self.assertIsNone(self.store.checkpointer.last.offset)
        self.put(self.store, b"x" * 2 * PAGE)
        self.clock.advance(1)
        self.assertEqual(3, len(calls))
        self.assertEqual(self.store.log.written, self.store.checkpointer.last.offset)

    def test_logSyncTriedAgain(self) -> None:
        """
        If the log's file, or its folder, cannot be opened for its sync, the waiters
        get an error, and the next sync covers their messages.
        """
        for operation in ("open", "syncFolder"):
            self.put(self.store)
            self.store._handles.close()
            self.store.log.segments.dirtyFolders.add(self.path("commitlog"))
            self.disk.failing[operation] = self.none
            self.failureResultOf(self.store.flusher.flush(), FlushDiskTimeout)
            self.assertIsNone(self.store.failure)
            self.assertFalse(self.store.flusher.running)
            self.disk.failing.clear()
            del self.disk.synced[:]
            self.successResultOf(self.store.flusher.flush())
            self.assertEqual(
                [self.path("commitlog", "00000000000000000000"), self.path("commitlog")],
                self.disk.synced,
            )
            self.assertEqual(self.store.log.written, self.store.flusher.flushed.offset)

    def test_newFileTriedAgain(self) -> None:
        """
        If a new file of the log cannot be opened, that message is refused, and the next one
        is taken.
        """
        size = (1 << 19) + 1
        self.put(self.store, b"x" * size)
        self.disk.failing["open"] = self.none
        self.disk.only = "commitlog"
        error = self.assertRaises(StoreError, self.put, self.store, b"x" * size)
        self.assertNotIsInstance(error, StoreFailed)
        self.assertIn("Too many open files", str(error))
        self.disk.failing.clear()
        self.assertEqual(1, self.put(self.store, b"x" * size).queueOffset)
        self.assertEqual(2, len(self.all(self.store)))


class StopTests(StoreCase):
    """
    The work that a stop waits for.
    """

    def test_waitsForCheckpoint(self) -> None:
        """
        A stop during a checkpoint waits for it and makes another, and calls the
        folder clean only then.
        """
        held = Held()
        store = self.start(held)
        self.put(store, b"a")
        store.checkpointer.checkpoint()
        self.put(store, b"b")
        stopped = store.stop()
        while held.jobs:
            self.assertIsNotNone(self.disk.size(self.path("abort")))
            self.assertNoResult(stopped)
            held.work()
        self.successResultOf(stopped)
        self.assertIsNone(self.disk.size(self.path("abort")))
        self.assertEqual(store.log.written, store.flusher.flushed.offset)

    def test_stopServesWaiters(self) -> None:
        """
        Senders that wait when the store stops are answered.
        """
        held = Held()
        store = self.start(held, flushDiskType=FlushDiskType.SYNC_FLUSH)
        sent = store.stored(self.gather(store).end)
        stopped = store.stop()
        while held.jobs:
            held.work()
        self.successResultOf(sent)
        self.successResultOf(stopped)

    def test_handlesInUse(self) -> None:
        """
        A stop that fails while a sync is under way leaves it its handle.
        """
        held = Held()
        store = self.start(held)
        self.put(store)
        store.flusher.flush()
        self.put(store)
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.gather(store)
        self.successResultOf(store.stop())
        path = self.path("commitlog", "00000000000000000000")
        self.assertIn(path, self.disk.opened.values())
        held.work()
        self.assertNotIn(path, self.disk.opened.values())
