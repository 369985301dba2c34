# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.queue.consumequeue}.
"""

from __future__ import annotations

import errno
import os
import struct

from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk
from txrocket.store.files.handles import Handles
from txrocket.store.files.syncjob import SyncJob
from txrocket.store.queue import consumequeue
from txrocket.store.queue.consumequeue import ConsumeQueue
from txrocket.store.queue.consumequeues import ConsumeQueues
from txrocket.store.queue.entry import entries, packEntry
from txrocket.store.queue.queueend import Confirm

# Java's fillPreBlank: offset 0, size Integer.MAX_VALUE, hash 0.
FILLER = bytes.fromhex("00000000000000007fffffff0000000000000000")


def never(queueOffset: int, offset: int, size: int, hashed: int) -> bool:
    """
    A log that confirms nothing.
    """
    return False


def honest(queueOffset: int, offset: int, size: int, hashed: int) -> bool:
    """
    A log that has the records which L{QueueTests.fill} tells of.
    """
    return (offset, size, hashed) == (1000 + 10 * queueOffset, 10, queueOffset)


def cut(queue: ConsumeQueue, bound: int, confirm: Confirm) -> None:
    """
    Forget what belongs past an offset of the log, as a start after a crash does.
    """
    queue.endAt(queue.sureEnd(bound, confirm), doubt=True)


class QueueTests(SynchronousTestCase):
    """
    Tests for L{ConsumeQueue}, with files of 5 entries.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.folder = self.mktemp()
        self.handles = Handles(self.disk)
        self.addCleanup(self.handles.close)
        self.queue = self.make()

    def make(self) -> ConsumeQueue:
        """
        Look at the folder with new eyes.
        """
        return ConsumeQueue(self.handles, self.folder, 100)

    def loaded(self) -> ConsumeQueue:
        """
        The queue as a restart finds it.
        """
        queue = self.make()
        queue.load()
        return queue

    def fill(self, count: int, first: int = 0) -> None:
        """
        Put entries: that of queue offset n tells of a record at 1000 + 10 n.
        """
        for number in range(first, first + count):
            self.queue.put(number, 1000 + 10 * number, 10, number)
        self.queue.write()

    def bytesOf(self, name: int) -> bytes:
        """
        A file's bytes.
        """
        with open(os.path.join(self.folder, f"{name:020d}"), "rb") as file:
            return file.read()

    def bounds(self, queue: ConsumeQueue) -> tuple[int, int]:
        """
        Where a queue begins and ends.
        """
        return queue.minOffset, queue.maxOffset

    def test_entryHasLayoutOfJava(self) -> None:
        """
        An entry is Java's: offset, size, hash, big-endian; files are of full
        size and zeros where nothing was put.
        """
        self.queue.put(0, 0x0102030405, 0x99, -2)
        self.queue.write()
        self.assertEqual(
            bytes.fromhex(
                "0000000102030405"  # offset in the log
                "00000099"  # size of the record
                "fffffffffffffffe"  # hash of the tag
            )
            + bytes(80),
            self.bytesOf(0),
        )

    def test_unwrittenEntryIsRead(self) -> None:
        """
        An entry is in the queue at once, and read with the entries of the files.
        """
        self.fill(3)
        self.queue.put(3, 1030, 10, 3)
        self.queue.put(4, 1040, 10, 4)
        self.assertEqual((0, 5), self.bounds(self.queue))
        self.assertEqual(40, self.queue.unwritten)
        self.assertEqual(bytes(40), self.bytesOf(0)[60:])
        for first in range(6):
            for count in range(7):
                self.assertEqual(
                    [(1000 + 10 * each, 10, each) for each in range(5)][first : first + count],
                    list(entries(self.queue.read(first, count))),
                )
        self.assertEqual((1040, 10, 4), self.queue.entry(4))
        self.queue.write()
        self.assertEqual(0, self.queue.unwritten)
        self.assertEqual((1040, 10, 4), self.loaded().entry(4))

    def test_failedWriteIsRepeated(self) -> None:
        """
        Entries that cannot be written stay in memory and are written later, once,
        even if they are put again and a part of them had been written.
        """
        self.fill(3)
        for number in range(3, 7):
            self.queue.put(number, 1000 + 10 * number, 10, number)
        # The fourth and fifth go to the first file, the others need a new one.
        self.disk.failing["truncate"] = OSError(errno.ENOSPC, "full")
        self.assertRaises(OSError, self.queue.write)
        self.assertEqual((0, 7), self.bounds(self.queue))
        self.assertEqual(80, self.queue.unwritten)
        self.disk.failing.clear()
        self.fill(4, 3)
        self.assertEqual((0, 7), self.bounds(self.loaded()))
        self.assertEqual(
            [(1000 + 10 * number, 10, number) for number in range(7)],
            [self.queue.entry(number) for number in range(7)],
        )

    def test_existingEntryStays(self) -> None:
        """
        An entry that is there is left as it is.
        """
        self.fill(3)
        self.queue.put(1, 5, 5, 5)
        self.queue.write()
        self.assertEqual((1010, 10, 1), self.queue.entry(1))
        self.assertEqual(3, self.queue.maxOffset)

    def test_readEndsWithFileQueueOrCount(self) -> None:
        """
        A read ends with its file, with the queue, or with the count.
        """
        self.fill(7)
        self.assertEqual(40, len(self.queue.read(3, 100)))
        self.assertEqual(40, len(self.queue.read(5, 100)))
        self.assertEqual(20, len(self.queue.read(0, 1)))
        self.assertEqual(b"", self.queue.read(7, 1))
        self.assertEqual(b"", self.queue.read(8, 1))

    def test_nextReadNeedsNoDisk(self) -> None:
        """
        A reader that goes on where it stopped reads the entries of a file once.  It finds
        later entries, and no entries that were cut.
        """
        self.fill(4)
        self.queue.write()
        self.disk.preads.clear()
        found = [number for at in range(4) for _, _, number in entries(self.queue.read(at, 2))]
        self.assertEqual((found, len(self.disk.preads)), ([0, 1, 1, 2, 2, 3, 3], 1))
        self.fill(3, 4)
        self.queue.write()
        for at, expected in ((3, [3, 4]), (4, [4]), (5, [5, 6]), (6, [6])):
            self.assertEqual([each[2] for each in entries(self.queue.read(at, 3))], expected)
        self.queue.endAt(2, doubt=False)
        self.queue.put(2, 5, 10, 99)
        self.queue.write()
        self.assertEqual([each[2] for each in entries(self.queue.read(1, 3))], [1, 99])

    def test_restartFindsEnd(self) -> None:
        """
        A restart finds where the queue ends, at every count, by halves.
        """
        for count in range(1, 12):
            self.fill(1, count - 1)
            self.assertEqual((0, count), self.bounds(self.loaded()))

    def test_queueWithoutFilesIsEmpty(self) -> None:
        """
        A queue without files is empty.
        """
        self.assertEqual((0, 0), self.bounds(self.loaded()))

    def test_loadEmptyFile(self) -> None:
        """
        A last file that was made and not written to does not end the queue.
        """
        self.fill(5)
        self.queue.segments.create(100)
        queue = self.loaded()
        self.assertEqual((0, 5), self.bounds(queue))
        queue.put(5, 1, 1, 1)
        queue.write()
        self.assertEqual((1, 1, 1), queue.entry(5))

    def test_laterStartIsFilled(self) -> None:
        """
        A queue that starts at an offset other than 0 has Java's fillers in front
        of its first entry, in the file that holds it, and no file before that.
        """
        self.queue.put(7, 1070, 10, 7)
        self.queue.write()
        self.assertEqual(["00000000000000000100"], self.disk.names(self.folder))
        entry = bytes.fromhex("000000000000042e0000000a0000000000000007")
        self.assertEqual(FILLER * 2 + entry + bytes(40), self.bytesOf(100))
        self.assertEqual((7, 8), self.bounds(self.queue))
        self.assertIsNone(self.queue.entry(6))

    def test_startsLaterAfterRestart(self) -> None:
        """
        Fillers are no messages after a restart either, wherever the log begins.
        """
        self.queue.put(7, 1070, 10, 7)
        self.queue.write()
        queue = self.loaded()
        queue.follow(0)
        self.assertEqual((7, 8), self.bounds(queue))

    def test_missingEntriesAreFilled(self) -> None:
        """
        Entries that are missing in between are filled, so that each is in its
        place, with fillers that keep to the log's order.
        """
        self.fill(2)
        self.queue.put(4, 1040, 10, 4)
        self.queue.write()
        # The offset of the next entry, a size of no record, no hash.
        filler = bytes.fromhex("00000000000004103fffffff0000000000000000")
        self.assertEqual(filler * 2, self.bytesOf(0)[40:80])
        self.assertEqual(
            [(1010, 10, 1), None, None, (1040, 10, 4)],
            [self.queue.entry(number) for number in range(1, 5)],
        )
        self.assertEqual((0, 5), self.bounds(self.loaded()))

    def test_gapAtFront(self) -> None:
        """
        Entries missing in front of the first that a queue ever had are Java's
        fillers, also if its file is there already.
        """
        self.queue.segments.create(0)
        self.queue.put(2, 1020, 10, 2)
        self.queue.write()
        self.assertEqual(FILLER * 2, self.bytesOf(0)[:40])
        self.queue.follow(0)
        self.assertEqual((2, 3), self.bounds(self.queue))

    def test_gapTooWide(self) -> None:
        """
        An entry more than a file's entries away comes from a damaged record and
        is dropped; the entries that follow have their places.
        """
        self.fill(2)
        self.queue.put(8, 1080, 10, 8)
        self.queue.put(1 << 60, 1090, 10, 9)
        self.queue.put(2, 1100, 10, 2)
        self.queue.write()
        self.assertEqual((0, 3), self.bounds(self.queue))
        self.assertEqual((1100, 10, 2), self.queue.entry(2))
        self.queue.put(8, 1110, 10, 8)
        self.queue.write()
        self.assertEqual((0, 9), self.bounds(self.queue))
        self.assertEqual((1110, 10, 8), self.queue.entry(8))

    def test_queueBeginsBehindGap(self) -> None:
        """
        A queue does not begin with a gap: of what is in the log, the first
        message counts.  What lies before a gap is served.
        """
        self.fill(2)
        self.queue.put(4, 1040, 10, 4)
        self.queue.write()
        for first, minimum in ((1000, 0), (1010, 1), (1011, 4), (1040, 4), (1041, 5)):
            queue = self.loaded()
            queue.follow(first)
            self.assertEqual((minimum, 5), self.bounds(queue))

    def test_queueFollowsLog(self) -> None:
        """
        The queue begins at the first message that is in the log; files that
        tell of none any more are deleted, the last one never.
        """
        self.fill(12)
        self.queue.follow(1000)
        self.assertEqual((0, 12), self.bounds(self.queue))
        self.queue.follow(1031)
        self.assertEqual((4, 12), self.bounds(self.queue))
        self.assertEqual(3, len(self.disk.names(self.folder)))
        self.queue.follow(1050)
        self.assertEqual((5, 12), self.bounds(self.queue))
        self.assertEqual(2, len(self.disk.names(self.folder)))
        self.queue.follow(9999)
        self.assertEqual((12, 12), self.bounds(self.queue))
        self.assertEqual(["00000000000000000200"], self.disk.names(self.folder))
        queue = self.loaded()
        queue.follow(9999)
        self.assertEqual((12, 12), self.bounds(queue))
        queue.put(12, 10000, 10, 0)
        queue.write()
        self.assertEqual((12, 13), self.bounds(queue))

    def damage(self, queueOffset: int, entry: bytes) -> None:
        """
        Let an entry be another one on the disk.
        """
        base = queueOffset - queueOffset % 5
        with open(os.path.join(self.folder, f"{base * 20:020d}"), "r+b") as file:
            file.seek((queueOffset - base) * 20)
            file.write(entry)

    def test_wildFirstEntryStaysFirst(self) -> None:
        """
        An entry with a size that neither a record nor a filler has does not move the
        beginning of its queue.
        """
        self.fill(3)
        for size in (0x40000001, 0x7FFFFFFE):
            self.damage(0, packEntry(1000, size, 0))
            queue = self.loaded()
            queue.follow(0)
            self.assertEqual((0, 3), self.bounds(queue))

    def test_entryBeforeLogAmongOthersHidesNone(self) -> None:
        """
        One entry that names a deleted place does not hide the sound entries before it,
        wherever it is.
        """
        self.fill(12)
        for damaged in range(3, 12):
            with self.subTest(damaged=damaged):
                sound = self.loaded().read(damaged, 1)
                self.damage(damaged, packEntry(7, 10, 0))
                queue = self.loaded()
                queue.follow(1020)
                self.assertEqual((2, 12), self.bounds(queue))
                self.damage(damaged, sound)

    def test_damagedLastEntryRemovesNoFile(self) -> None:
        """
        A file of which only the last entry names a deleted place is kept, and one that
        is garbage is.
        """
        self.fill(12)
        self.damage(4, packEntry(7, 10, 0))
        queue = self.loaded()
        queue.follow(1010)
        self.assertEqual((1, 12), self.bounds(queue))
        for queueOffset in range(5):
            self.damage(queueOffset, packEntry(-7 << 40, 0x50000000, 0))
        queue = self.loaded()
        queue.follow(1010)
        self.assertEqual((0, 12), self.bounds(queue))
        self.assertEqual(3, len(self.disk.names(self.folder)))

    def test_wildLastEntryKeepsNoFile(self) -> None:
        """
        A file whose records were deleted is removed, though its last entry names a place
        far away.
        """
        self.fill(12)
        self.damage(4, packEntry(1 << 50, 10, 0))
        queue = self.loaded()
        queue.follow(1060)
        self.assertEqual((6, 12), self.bounds(queue))
        self.assertEqual(2, len(self.disk.names(self.folder)))

    def test_emptyQueueMakesNoFiles(self) -> None:
        """
        A queue without files follows without making any.
        """
        self.queue.follow(1000)
        self.assertEqual((0, 0), self.bounds(self.queue))
        self.assertEqual([], self.disk.names(self.folder))

    def test_cutEntriesReadAsZeros(self) -> None:
        """
        Entries of records past the log's end are forgotten, read as zeros, and
        can be put again, at every length.
        """
        for keep in range(13):
            self.disk.removeFolder(self.folder)
            self.handles.close()
            self.queue = self.make()
            self.fill(12)
            self.assertEqual(keep, self.queue.sureEnd(1000 + 10 * keep, honest))
            self.assertEqual((0, 12), self.bounds(self.queue))
            cut(self.queue, 1000 + 10 * keep, honest)
            self.assertEqual((0, keep), self.bounds(self.queue))
            self.assertEqual((0, keep), self.bounds(self.loaded()))
            self.queue.put(keep, 7, 7, 7)
            self.queue.put(keep + 1, 8, 8, 8)
            self.queue.write()
            self.assertEqual((7, 7, 7), self.queue.entry(keep))
            self.assertEqual((8, 8, 8), self.queue.entry(keep + 1))
            self.assertEqual((0, keep + 2), self.bounds(self.loaded()))

    def test_unconfirmedEndIsWalked(self) -> None:
        """
        If the log does not agree with what a search by halves finds, the
        entries are gone through: they end where they do not grow, or where
        the log does not agree.
        """
        # After a crash of the power: what looks like old ones, with or without
        # a lost one before it; one that grows; one of a size or hash not its own.
        for places, entry in (
            ((2,), (1000, 10, 0)),
            ((2, 3, 4), (1000, 10, 0)),
            ((3,), (1000, 10, 0)),
            ((4,), (1010, 10, 1)),
            ((2,), (1015, 10, 2)),
            ((2,), (1020, 11, 2)),
            ((2,), (1020, 10, 3)),
        ):
            self.disk.removeFolder(self.folder)
            self.handles.close()
            self.queue = self.make()
            self.fill(2)
            for place in places:
                self.queue.segments.write(place * 20, struct.pack(">qiq", *entry))
            queue = self.loaded()
            cut(queue, 1025, honest)
            self.assertEqual((0, 2), self.bounds(queue))
            self.assertEqual(bytes(60), self.bytesOf(0)[40:])
            self.assertEqual((0, 2), self.bounds(self.loaded()))

    def test_cutUnconfirmedHole(self) -> None:
        """
        Gone through, entries end where they do not grow, though the log agrees
        with one behind that.
        """
        self.fill(5)
        for place in (2, 4):
            self.queue.segments.write(place * 20, self.queue.segments.read(0, 20))
        cut(self.queue, 1050, honest)
        self.assertEqual((0, 2), self.bounds(self.queue))
        self.assertEqual(bytes(60), self.bytesOf(0)[40:])

    def test_cutUnconfirmedFile(self) -> None:
        """
        A file none of whose entries the log knows goes, and the queue ends in
        the one before it.
        """
        self.fill(5)
        self.queue.segments.create(100)
        self.queue.segments.write(100, struct.pack(">qiq", 7, 10, 5))
        queue = self.loaded()
        self.assertEqual((0, 6), self.bounds(queue))
        cut(queue, 1050, honest)
        self.assertEqual((0, 5), self.bounds(queue))
        self.assertEqual(["00000000000000000000"], self.disk.names(self.folder))

    def test_cutUnconfirmedFillers(self) -> None:
        """
        Going through the entries, fillers do not count as going back, and need
        no record.
        """
        self.queue.put(2, 1020, 10, 2)
        self.queue.put(3, 1030, 10, 3)
        self.queue.write()
        self.queue.segments.write(80, self.queue.segments.read(40, 20))
        queue = self.loaded()
        self.assertEqual(5, queue.maxOffset)
        cut(queue, 1040, honest)
        self.assertEqual(4, queue.maxOffset)
        self.assertEqual(2, queue.sureEnd(1040, never))

    def test_gapIsCutWithRecord(self) -> None:
        """
        A gap goes with the record behind it.
        """
        self.fill(2)
        self.queue.put(4, 1040, 10, 4)
        self.queue.write()
        self.assertEqual(5, self.queue.sureEnd(1041, honest))
        self.assertEqual(2, self.queue.sureEnd(1040, honest))
        self.queue.segments.write(60, self.queue.segments.read(0, 20))
        self.assertEqual(5, self.queue.sureEnd(1041, honest))
        self.queue.segments.write(80, self.queue.segments.read(0, 20))
        # Gone through: two, a filler, and two that go back.
        self.assertEqual(3, self.queue.sureEnd(1041, honest))

    def test_cutBeforeFirst(self) -> None:
        """
        A queue that only fillers remain of has no message.
        """
        self.queue.put(7, 1070, 10, 7)
        self.queue.write()
        cut(self.queue, 1000, never)
        self.queue.follow(0)
        self.assertEqual((7, 7), self.bounds(self.queue))

    def test_emptyQueueHasNothingToCut(self) -> None:
        """
        A queue without files has nothing to cut.
        """
        self.assertEqual(0, self.queue.sureEnd(1000, never))
        cut(self.queue, 0, never)
        self.assertEqual((0, 0), self.bounds(self.queue))
        self.assertFalse(os.path.exists(self.folder))

    def test_newEndDropsTail(self) -> None:
        """
        The tail is dropped with the entries that are cut.  Without doubt, files change only
        if entries are cut; with doubt, all bytes behind the last entry read as zeros.
        """
        self.fill(3)
        self.queue.segments.write(80, b"x")
        self.queue.put(3, 1, 1, 1)
        self.queue.endAt(3, doubt=False)
        self.queue.write()
        self.assertEqual((0, 3), self.bounds(self.queue))
        self.assertEqual(b"x", self.bytesOf(0)[80:81])
        self.queue.endAt(3, doubt=True)
        self.assertEqual(bytes(40), self.bytesOf(0)[60:])
        self.queue.endAt(2, doubt=False)
        self.assertEqual(bytes(60), self.bytesOf(0)[40:])
        self.fill(1, 2)
        self.assertEqual([(1020, 10, 2)], [self.loaded().entry(2)])

    def test_queueReachesLastRecord(self) -> None:
        """
        A queue reaches as far as the record of its last entry, or to where a filler
        stands; without an entry it tells nothing.
        """
        self.assertEqual(0, self.queue.reach(0))
        self.queue.put(7, 1070, 10, 7)
        self.queue.write()
        self.fill(4, 8)
        self.queue.put(14, 1140, 10, 14)
        self.queue.write()
        reaches = {end: self.queue.reach(end) for end in range(5, 16)}
        self.assertEqual(
            {5: 0, 6: 0, 7: 0, 8: 1080, 9: 1090, 10: 1100, 11: 1110, 12: 1120}
            | {13: 1140, 14: 1140, 15: 1150},
            reaches,
        )

    def test_clearedQueueBeginsAtZero(self) -> None:
        """
        A queue that is cleared begins at 0 again.
        """
        self.fill(7)
        self.queue.put(7, 1, 1, 1)
        self.queue.clear()
        self.assertEqual((0, 0), self.bounds(self.queue))
        self.assertFalse(os.path.exists(self.folder))
        self.fill(1)
        self.assertEqual((1000, 10, 0), self.queue.entry(0))


class QueuesTests(SynchronousTestCase):
    """
    Tests for L{ConsumeQueues}.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.folder = self.mktemp()
        self.handles = Handles(self.disk, 100)
        self.addCleanup(self.handles.close)
        self.queues = ConsumeQueues(self.handles, self.folder, 100)

    def test_abandonedListsNoOtherTopics(self) -> None:
        """
        To put a topic aside costs the same however many others there are: their names are
        not listed.
        """
        for topic in ("T", "U"):
            self.queues.put(topic, 0, 0, 0, 100, 7)
        self.queues.write(room=1 << 40)
        listed: list[str] = []
        names = self.disk.names

        def listing(path: str) -> list[str]:
            listed.append(path)
            return names(path)

        self.patch(self.disk, "names", listing)
        delete = self.queues.abandon("T")
        self.assertNotIn(self.folder, listed)
        self.assertEqual([".gone-0", "U"], names(self.folder))
        self.queues.abandon("absent")
        delete()
        self.assertEqual(["U"], names(self.folder))

    def test_restartFindsQueues(self) -> None:
        """
        A queue's files are in TOPIC/QUEUE, and are found there by a restart,
        which ignores what is no queue.
        """
        self.queues.put("A", 0, 0, 0, 10, 0)
        self.queues.put("A", 3, 0, 10, 10, 0)
        self.queues.put("%RETRY%g", 0, 0, 20, 10, 0)
        self.queues.write()
        os.mkdir(os.path.join(self.folder, "A", "x"))
        self.assertEqual(["3", "x"], self.disk.names(os.path.join(self.folder, "A"))[1:])
        again = ConsumeQueues(self.handles, self.folder, 100)
        again.load()
        self.assertEqual(
            [("%RETRY%g", 0, 1), ("A", 0, 1), ("A", 3, 1)],
            [(topic, queueId, queue.maxOffset) for topic, queueId, queue in again],
        )
        self.assertEqual(["%RETRY%g", "A"], again.topics())
        self.assertIsNone(again.get("A", 1))
        self.assertIsNone(again.get("B", 0))

    def test_syncCoversChangedFiles(self) -> None:
        """
        A sync covers the files that were written since the last one, and no others.
        """
        self.queues.put("A", 0, 0, 0, 10, 0)
        self.queues.write()
        self.synced()
        self.queues.put("A", 0, 1, 10, 10, 0)
        self.queues.write()
        self.assertEqual(
            [os.path.join(self.folder, "A", "0", "00000000000000000000")], self.synced()
        )
        self.assertEqual([], self.synced())

    def test_namesAreSyncedWithFile(self) -> None:
        """
        To make a queue waits for no sync: the names of its folders are synced with its
        file.  After a crash they are synced again.
        """
        self.queues.put("A", 0, 0, 0, 10, 0)
        self.queues.write()
        self.assertEqual([], self.disk.synced)
        folders = [
            os.path.dirname(self.folder),
            self.folder,
            *(os.path.join(self.folder, "A"), os.path.join(self.folder, "A", "0")),
        ]
        self.assertEqual(folders, self.synced()[1:])
        self.assertEqual([], self.synced())
        again = ConsumeQueues(self.handles, self.folder, 100)
        again.load()
        for _, _, queue in again:
            queue.endAt(1, doubt=True)
            job = SyncJob(self.handles)
            job.add(queue.segments)
            del self.disk.synced[:]
            job.run()
        self.assertEqual(folders, self.disk.synced[1:])

    def test_fullMemoryWritesOldestTails(self) -> None:
        """
        When there are more entries in memory than there is room for, those of the
        queues that have waited longest are written.
        """

        def put(queueId: int, count: int) -> None:
            queue = self.queues.get("A", queueId)
            first = queue.maxOffset if queue else 0
            for queueOffset in range(first, first + count):
                self.queues.put("A", queueId, queueOffset, 1, 10, 0)
            self.queues.write(room=0)

        self.patch(self.queues, "_room", 100)
        put(0, 2)
        put(1, 2)
        put(0, 1)
        unwritten = [queue.unwritten for _, _, queue in self.queues]
        self.assertEqual([60, 40], unwritten)
        put(1, 1)
        self.assertEqual([0, 60], [queue.unwritten for _, _, queue in self.queues])
        put(0, 3)
        self.assertEqual([60, 0], [queue.unwritten for _, _, queue in self.queues])
        self.queues.remove("A")
        put(0, 5)
        self.assertEqual([100], [queue.unwritten for _, _, queue in self.queues])

    def test_totalCountsAllEntries(self) -> None:
        """
        The total counts all that the queues have ever had.
        """
        self.assertEqual(0, self.queues.total)
        self.queues.put("A", 0, 0, 0, 10, 0)
        self.queues.put("A", 0, 1, 10, 10, 0)
        self.assertEqual(2, self.queues.total)
        self.queues.put("B", 3, 7, 20, 10, 0)
        self.queues.write()
        self.assertEqual(10, self.queues.total)
        self.queues.follow(20)
        self.assertEqual(10, self.queues.total)
        self.queues.remove("A")
        self.assertEqual(8, self.queues.total)

    def synced(self) -> list[str]:
        """
        Sync, and tell what was.
        """
        del self.disk.synced[:]
        job = SyncJob(self.handles)
        self.queues.sync(job)
        job.run()
        return self.disk.synced

    def test_failedQueueIsWrittenLater(self) -> None:
        """
        A queue that cannot be written is written the next time.
        """
        self.queues.put("A", 0, 0, 0, 10, 0)
        self.queues.put("A", 1, 0, 10, 10, 0)
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.assertRaises(OSError, self.queues.write)
        self.disk.failing.clear()
        self.queues.write()
        self.assertEqual([1, 1], [queue.maxOffset for _, _, queue in self.queues])

    def test_removedTopicLosesFiles(self) -> None:
        """
        A topic goes with its files and with what was not written yet; others
        stay, and a topic that is not there is no error.
        """
        self.queues.put("A", 0, 0, 0, 10, 0)
        self.queues.put("B", 0, 0, 10, 10, 0)
        self.queues.write()
        self.queues.put("A", 0, 1, 20, 10, 0)
        self.queues.remove("A")
        self.queues.remove("C")
        self.queues.write()
        self.assertEqual(["B"], self.disk.names(self.folder))
        self.assertEqual(["B"], self.queues.topics())

    def test_readAheadBounded(self) -> None:
        """
        Entries are read ahead for a bounded number of queues, and for none that is gone.
        """
        self.patch(consumequeue, "_AHEAD_QUEUES", 3)
        for queueId in range(8):
            self.queues.put("T", queueId, 0, 1000, 10, queueId)
        self.queues.write()
        for queueId in range(8):
            queue = self.queues.get("T", queueId)
            assert queue is not None
            self.assertEqual(queue.read(0, 1), packEntry(1000, 10, queueId))
            self.assertLessEqual(len(self.queues._ahead), 3)
        self.assertTrue(self.queues._ahead)
        self.queues.remove("T")
        self.assertEqual(self.queues._ahead, {})

    def test_tenThousandQueuesShareHandles(self) -> None:
        """
        Ten thousand queues are written, synced, read and loaded within the
        handles that are allowed, each keeping its own.
        """
        for round in range(2):
            for number in range(10_000):
                offset = (round * 10_000 + number) * 10
                self.queues.put(f"T{number // 100}", number % 100, round, offset, 10, number)
            self.queues.write()
        job = SyncJob(self.handles)
        self.queues.sync(job)
        job.run()
        again = ConsumeQueues(self.handles, self.folder, 100)
        again.load()
        for number in range(10_000):
            queue = again.get(f"T{number // 100}", number % 100)
            assert queue is not None
            self.assertEqual(2, queue.maxOffset)
            self.assertEqual((100_000 + number * 10, 10, number), queue.entry(1))
        self.assertLessEqual(self.disk.most, 101)
