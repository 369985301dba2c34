# SPDX-License-Identifier: Apache-2.0
"""
Tests for the write that appended messages share, for messages that wait for the disk, and
for settings that change meanwhile.
"""

from __future__ import annotations

import errno
import os

import attrs

from tests.store.support import HOST, LOG_SIZE, Held, StoreCase, abandon, atOnce
from txrocket.errors import DiskFull, FlushDiskTimeout, StoreError, StoreFailed
from txrocket.store.log.write import Write
from txrocket.store.messagestore import MessageStore
from txrocket.store.read.getresult import GetMessageStatus
from txrocket.store.settings import FlushDiskType

FULL = OSError(errno.ENOSPC, "full")
BROKEN = OSError(errno.EIO, "broken")


class WriteTests(StoreCase):
    """
    L{MessageStore.pendingWrite} and L{MessageStore.commit}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.store = self.start()

    def tearDown(self) -> None:
        abandon(self.store)

    def commit(self) -> Write:
        """
        Commit, and return the write of the messages that were appended last.
        """
        write = self.store.pendingWrite
        self.store.commit()
        return write

    def test_commitWritesMessages(self) -> None:
        """
        Committed messages are in the files and in their queue, and no timer is left.
        """
        before = len(self.clock.getDelayedCalls())
        for body in (b"a", b"b"):
            self.gather(self.store, body)
        write = self.store.pendingWrite
        self.assertFalse(write.isWritten)
        self.assertEqual(self.bodies(self.store), [])
        self.store.commit()
        self.assertTrue(write.isWritten)
        self.assertIsNone(write.error)
        self.assertEqual(self.bodies(self.store), [b"a", b"b"])
        self.assertEqual(len(self.clock.getDelayedCalls()), before)

    def test_nothingAppendedLosesNothing(self) -> None:
        """
        A commit without messages loses nothing.
        """
        self.assertIsNone(self.commit().error)

    def test_fullDiskLosesMessagesOnce(self) -> None:
        """
        A full disk loses the messages of one write.  The next messages get their queue
        offsets.
        """
        self.gather(self.store, b"lost")
        self.disk.failing["pwrite"] = FULL
        lost = self.commit()
        self.disk.failing.clear()
        self.assertEqual(self.gather(self.store, b"kept").queueOffset, 0)
        self.assertTrue(self.commit().isWritten)
        self.assertIsInstance(lost.error, DiskFull)
        self.assertFalse(lost.isWritten)
        self.assertEqual(self.bodies(self.store), [b"kept"])

    def test_brokenDiskEndsWriting(self) -> None:
        """
        After the disk fails, the store takes no more messages.
        """
        self.gather(self.store)
        self.disk.failing["pwrite"] = BROKEN
        self.assertIsInstance(self.commit().error, StoreFailed)
        self.disk.failing.clear()
        self.assertRaises(StoreFailed, self.gather, self.store)

    def test_failedSyncLosesUnwrittenMessages(self) -> None:
        """
        Messages that are not written when a sync fails are lost.
        """
        self.put(self.store)
        self.gather(self.store)
        self.disk.failing["sync"] = BROKEN
        self.failureResultOf(self.store.flusher.flush(), StoreFailed)
        self.disk.failing.clear()
        self.assertIsInstance(self.commit().error, StoreFailed)
        self.assertEqual(len(self.bodies(self.store)), 1)

    def test_failedRollLosesEarlierMessages(self) -> None:
        """
        If the last file cannot be ended, its messages are lost, and stay lost when messages
        after them are written.
        """
        self.gather(self.store, b"a" * 3000)
        lost = self.store.pendingWrite
        self.disk.failing["pwrite"] = FULL
        self.assertRaises(DiskFull, self.gather, self.store, b"b" * 3000)
        self.disk.failing.clear()
        self.gather(self.store, b"c")
        self.assertIsInstance(lost.error, DiskFull)
        self.assertTrue(self.commit().isWritten)
        self.assertIsInstance(lost.error, DiskFull)
        self.assertEqual(self.bodies(self.store), [b"c"])

    def test_rollSplitsWrites(self) -> None:
        """
        A message that needs a new file has another write than the messages before it.
        """
        self.gather(self.store, b"a" * 3000)
        first = self.store.pendingWrite
        self.gather(self.store, b"b" * 3000)
        self.assertTrue(first.isWritten)
        second = self.commit()
        self.assertIsNot(first, second)
        self.assertTrue(second.isWritten)

    def answering(self, *bodies: bytes, topic: str = "U") -> None:
        """
        Have a store whose consumer answers each message to T with another message, as long
        as there are bodies.
        """
        left = list(bodies)

        def arrived(*told: object) -> None:
            if left and told[0] == "T":
                self.gather(self.store, left.pop(0), topic=topic)

        abandon(self.store)
        self.store = MessageStore(self.store.settings, self.clock, atOnce, HOST, arrived, self.disk)
        self.store.start()

    def test_commitDuringRollKeepsLaterWrite(self) -> None:
        """
        A message that needs a new file is written when the turn ends, although a consumer of
        the messages before it has called commit in between.
        """

        def arrived(*told: object) -> None:
            self.store.commit()

        abandon(self.store)
        self.store = MessageStore(self.store.settings, self.clock, atOnce, HOST, arrived, self.disk)
        self.store.start()
        size = LOG_SIZE // 2
        self.gather(self.store, b"a" * size)
        self.gather(self.store, b"b" * size)
        stored = self.store.stored(self.store.log.end)
        self.assertNoResult(stored)
        self.clock.advance(0)
        self.successResultOf(stored)

    def assertHolds(self, **expected: list[bytes]) -> None:
        """
        Each queue holds its messages, numbered in order, also after a crash.
        """
        self.store.commit()
        self.clock.advance(0)
        for _ in range(2):
            for topic, bodies in expected.items():
                found = self.all(self.store, topic)
                self.assertEqual([each.body[:4] for each in found], bodies)
                self.assertEqual([each.queueOffset for each in found], list(range(len(bodies))))
            abandon(self.store)
            self.store = self.start()

    def test_appendOnArrivalIsWrittenLater(self) -> None:
        """
        A message that is appended when another arrives belongs to the next write, and no
        offset is given twice.
        """
        self.answering(b"one", b"two")
        for body in (b"a", b"b"):
            self.gather(self.store, body)
        self.assertTrue(self.commit().isWritten)
        self.assertEqual(self.bodies(self.store, "U"), [])
        self.assertHolds(T=[b"a", b"b"], U=[b"one", b"two"])

    def test_appendDuringRollKeepsOffsets(self) -> None:
        """
        The same if the other arrives because a new file of the log is begun.
        """
        self.answering(b"one", b"two")
        self.gather(self.store, b"aaaa" * 800)
        self.gather(self.store, b"bbbb" * 800)
        self.assertHolds(T=[b"aaaa", b"bbbb"], U=[b"one", b"two"])

    def test_appendFillingNewFileKeepsOffsets(self) -> None:
        """
        The same if the message that is appended on arrival fills the new file.
        """
        self.answering(b"fill" * 800)
        self.gather(self.store, b"aaaa" * 800)
        self.gather(self.store, b"bbbb" * 800)
        self.assertHolds(T=[b"aaaa", b"bbbb"], U=[b"fill"])

    def test_appendBeforeBatchKeepsQueueOffsets(self) -> None:
        """
        The same if a batch begins the new file, and the message goes to the batch's queue.
        """
        self.answering(b"told", topic="T")
        self.gather(self.store, b"aaaa" * 800)
        appended = self.appendBatch(self.store, b"bbbb" * 400, b"cccc" * 400)
        self.assertEqual(appended.queueOffset, 2)
        self.assertHolds(T=[b"aaaa", b"told", b"bbbb", b"cccc"])


class WaitingTests(StoreCase):
    """
    L{MessageStore.waiting} and L{MessageStore.flushed}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.held = Held()
        self.store = self.start(self.held, flushDiskType=FlushDiskType.SYNC_FLUSH)

    def tearDown(self) -> None:
        abandon(self.store)

    def test_waitingMessagesAreCounted(self) -> None:
        """
        The store counts the messages that wait for the disk, and since when the first does.
        """
        self.assertEqual(self.store.waiting, (0, 0.0))
        sent = [self.store.stored(self.gather(self.store).end) for _ in range(3)]
        self.clock.advance(0)
        self.clock.advance(2)
        sent.append(self.store.stored(self.gather(self.store).end))
        # Four senders, and the sync itself.
        self.assertEqual(self.store.waiting, (5, 2.0))
        self.held.work()
        for each in sent[:3]:
            self.successResultOf(each)
        self.assertEqual(self.store.waiting, (1, 0.0))
        self.clock.advance(0)
        self.held.work()
        self.successResultOf(sent[3])
        self.assertEqual(self.store.waiting, (0, 0.0))

    def test_timedOutMessageIsNotFirst(self) -> None:
        """
        A message whose sender got a time-out no longer counts as the first.
        """
        late = self.store.stored(self.gather(self.store).end)
        self.clock.advance(0)
        self.clock.advance(4)
        other = self.store.stored(self.gather(self.store).end)
        self.clock.advance(1)
        self.failureResultOf(late, FlushDiskTimeout)
        self.assertEqual(self.store.waiting[1], 1.0)
        other.addErrback(lambda failure: None)

    def test_syncAloneWaitsNoTime(self) -> None:
        """
        A sync without a sender that waits for it has waited for no time.
        """
        self.put(self.store)
        self.store.flusher.flush()
        self.assertEqual(self.store.waiting, (1, 0.0))

    def test_flushedCoversUnwrittenMessages(self) -> None:
        """
        L{MessageStore.flushed} waits for all messages: those that a running sync covers, and
        those that are not written yet.
        """
        self.put(self.store)
        self.store.flusher.flush()
        self.gather(self.store)
        flushed = self.store.flushed()
        self.held.work()
        self.assertNoResult(flushed)
        self.held.work()
        self.successResultOf(flushed)
        self.assertEqual(self.store.flusher.flushed.offset, self.store.log.end)

    def test_flushedWithoutMessagesFires(self) -> None:
        """
        L{MessageStore.flushed} fires at once if no message was appended.
        """
        self.successResultOf(self.store.flushed())

    def test_failedWriteOrSyncIsReported(self) -> None:
        """
        L{MessageStore.flushed} fails if a message cannot be written or synced.
        """
        self.gather(self.store)
        self.disk.failing["pwrite"] = FULL
        self.assertRaises(DiskFull, self.store.flushed)
        self.disk.failing.clear()
        self.gather(self.store)
        flushed = self.store.flushed()
        self.disk.failing["sync"] = BROKEN
        self.held.work()
        self.failureResultOf(flushed, StoreFailed)
        self.disk.failing.clear()


class SettingsTests(StoreCase):
    """
    Settings that change while the store is open, and where the log may be.
    """

    def test_newFlushDiskTypeIsObeyed(self) -> None:
        """
        With C{SYNC_FLUSH}, senders wait for the disk from the change on.
        """
        held = Held()
        store = self.start(held)
        self.addCleanup(abandon, store)
        self.put(store)
        self.successResultOf(store.stored(store.log.end))
        store.apply(attrs.evolve(store.settings, flushDiskType=FlushDiskType.SYNC_FLUSH))
        stored = store.stored(store.log.end)
        self.assertNoResult(stored)
        held.work()
        self.successResultOf(stored)

    def test_newPullLimitIsObeyed(self) -> None:
        """
        The number of messages in the answer of a pull can be changed.
        """
        store = self.start()
        self.addCleanup(abandon, store)
        for _ in range(3):
            self.put(store)
        store.apply(attrs.evolve(store.settings, maxTransferCountOnMessageInMemory=2))
        self.assertEqual(store.get("T", 0, 0, 32).count, 2)

    def test_newReservedTimeIsObeyed(self) -> None:
        """
        C{fileReservedTime} can be changed.
        """
        store = self.start()
        self.addCleanup(abandon, store)
        for _ in range(3):
            self.put(store, b"x" * 3000)
        self.successResultOf(store.checkpointer.checkpoint())
        self.assertEqual(store.retention.clean(asked=True), 0)
        for name in self.logFiles():
            os.utime(self.path("commitlog", name), (0, self.clock.seconds() - 7200))
        self.assertEqual(store.retention.clean(asked=True), 0)
        store.apply(attrs.evolve(store.settings, fileReservedTime=1))
        self.assertEqual(store.retention.clean(asked=True), 2)

    def test_logPathHoldsLog(self) -> None:
        """
        The log is in C{storePathCommitLog}, and all else in C{storePathRootDir}.  The next
        start finds it there.
        """
        elsewhere = os.path.join(self.mktemp(), "deep", "log")
        store = self.start(storePathCommitLog=elsewhere)
        self.put(store, b"far")
        self.successResultOf(store.stop())
        self.assertEqual(os.listdir(elsewhere), [f"{0:020}"])
        self.assertFalse(os.path.exists(self.path("commitlog")))
        self.assertTrue(os.path.exists(self.path("consumequeue", "T", "0")))
        store = self.start(storePathCommitLog=elsewhere)
        self.addCleanup(abandon, store)
        self.assertEqual(self.bodies(store), [b"far"])

    def test_retentionWatchesDiskOfLog(self) -> None:
        """
        The retention watches the disk of the log.
        """
        elsewhere = self.mktemp()
        store = self.start(storePathCommitLog=elsewhere)
        self.addCleanup(abandon, store)
        asked: list[str] = []

        def space(path: str) -> tuple[int, int]:
            asked.append(path)
            return 1000, 50

        self.patch(self.disk, "space", space)
        store.retention.clean()
        self.assertEqual(asked, [elsewhere])
        self.assertRaises(DiskFull, self.gather, store)

    def test_mountedLogFolderIsWatched(self) -> None:
        """
        The folder of the log may be a disk of its own: the retention looks at the folder, and
        not at the root of the store.
        """
        store = self.start()
        self.addCleanup(abandon, store)
        full = self.path("commitlog")
        self.patch(self.disk, "space", lambda path: (1000, 50 if path == full else 900))
        store.retention.clean()
        self.assertRaises(DiskFull, self.gather, store)
        self.assertEqual(store.space(), ((1000, 50), (1000, 900)))

    def test_fullDiskOfLogIsNamed(self) -> None:
        """
        If the disk has no room for a file of the log, the error tells the size of the file.
        """
        store = self.start(storePathCommitLog=self.mktemp())
        self.addCleanup(abandon, store)
        self.disk.failing["allocate"] = FULL
        error = self.assertRaises(StoreError, self.gather, store, b"x")
        self.assertIn(f"no room for {LOG_SIZE} bytes", str(error))
        self.disk.failing.clear()
        self.put(store)
        self.assertEqual(store.get("T", 0, 0, 1).status, GetMessageStatus.FOUND)
