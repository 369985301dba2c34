# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.index}.
"""

from __future__ import annotations

import errno
import os
import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import START, Disk
from txrocket.bulk import keyHash
from txrocket.store.files.handles import Handles
from txrocket.store.files.syncjob import SyncJob
from txrocket.store.index import Index, IndexMark, Queried
from txrocket.store.index import file as indexModule

SLOTS = 8
CAPACITY = 6
NOW = START * 1000
EVER = 1 << 60


class IndexCase(SynchronousTestCase):
    """
    Index files of 8 slots and 5 entries (the first place is never used).
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.folder = self.mktemp()
        self.now = NOW + 7
        self.handles = Handles(self.disk)
        self.addCleanup(self.handles.close)
        self.index = self.make()

    def make(self) -> Index:
        """
        Look at the folder with new eyes.
        """
        return Index(self.handles, self.folder, SLOTS, CAPACITY, lambda: self.now)

    def loaded(self) -> Index:
        """
        The index as a restart finds it.
        """
        index = self.make()
        index.load()
        return index

    def checkpoint(self, index: Index | None = None) -> IndexMark | None:
        """
        Bring everything into the files, as a checkpoint does.
        """
        index = index or self.index
        mark = index.seal(SyncJob(self.handles))
        index.settle(SyncJob(self.handles))
        return mark

    def put(self, offset: int, *keys: str, at: int = 0) -> None:
        """
        Add a record's keys.
        """
        self.index.put("T", keys, offset, NOW + at)

    def find(self, key: str, begin: int = 0, end: int = EVER, most: int = 100) -> list[int]:
        """
        Where the records of a key are.
        """
        return self.index.query("T", key, begin, end, most).offsets

    def timeOf(self, offset: int) -> int | None:
        """
        The log: record n was stored n seconds after the first.
        """
        return NOW + offset * 1000

    def counts(self) -> list[int]:
        """
        The counts in the headers of the files.
        """
        return [
            int.from_bytes(self.bytesOf(each)[36:40], "big")
            for each in self.disk.names(self.folder)
        ]

    def bytesOf(self, name: str) -> bytes:
        """
        A file's bytes.
        """
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()


class LayoutTests(IndexCase):
    """
    The contents of the files.
    """

    def test_fileHasLayoutOfJava(self) -> None:
        """
        Header, slots and entries are where Java's IndexHeader and IndexFile have
        them.
        """
        self.put(0x100, "k")
        self.put(0x200, "k", at=2500)
        self.checkpoint()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(START)) + "007"
        self.assertEqual([name], self.disk.names(self.folder))
        data = self.bytesOf(name)
        self.assertEqual(40 + SLOTS * 4 + CAPACITY * 20, len(data))
        self.assertEqual(
            bytes.fromhex(
                "0000018bcfe56800"  # begin timestamp: 1,700,000,000,000
                "0000018bcfe571c4"  # end timestamp: 2,500 more
                "0000000000000100"  # begin offset
                "0000000000000200"  # end offset
                "00000001"  # slots in use
                "00000003"  # one more than the entries
            ),
            data[:40],
        )
        # "T#k".hashCode() = 84 * 31^2 + 35 * 31 + 107 = 81916; 81916 % 8 = 4
        self.assertEqual(bytes(16) + bytes.fromhex("00000002") + bytes(12), data[40:72])
        self.assertEqual(
            bytes(20)  # entry 0: never used
            + bytes.fromhex("00013ffc00000000000001000000000000000000")
            # 2 seconds after the first; the entry before it is 1
            + bytes.fromhex("00013ffc00000000000002000000000200000001")
            + bytes(60),
            data[72:],
        )

    def test_hashIsThatOfJava(self) -> None:
        """
        The hash is the absolute value of Java's, and 0 where that has none.
        """
        self.assertEqual(81916, keyHash("T", "k"))
        # "T#abcdef".hashCode() = -59348110
        self.assertEqual(59348110, keyHash("T", "abcdef"))
        # "T#jllgvmc".hashCode() = Integer.MIN_VALUE
        self.assertEqual(0, keyHash("T", "jllgvmc"))

    def test_timesAreRelativeToFile(self) -> None:
        """
        An entry's time is in seconds after the file's first, neither negative
        nor larger than an int.
        """
        self.put(1, "k", at=5000)
        self.put(2, "k", at=0)
        self.put(3, "k", at=1 << 50)
        self.checkpoint()
        data = self.bytesOf(self.disk.names(self.folder)[0])
        seconds = [data[72 + 20 * at + 12 : 72 + 20 * at + 16].hex() for at in (1, 2, 3)]
        self.assertEqual(["00000000", "00000000", "7fffffff"], seconds)

    def test_rollAfterSetBack(self) -> None:
        """
        If the clock is set back by years, the name of the next file is still later, and
        is found at once.
        """
        asked: list[int] = []

        def now() -> int:
            asked.append(0)
            return NOW - len(asked) * 10 * 365 * 86_400_000

        self.index._now = now
        for number in range(11):
            self.put(number, "k")
        names = self.disk.names(self.folder)
        self.assertEqual(len(asked), 3)
        self.assertEqual([int(names[0]) + each for each in range(3)], [int(each) for each in names])
        self.assertEqual({17}, {len(each) for each in names})

    def test_fullFileIsFollowed(self) -> None:
        """
        A full file is followed by another, whose name is later even if the
        clock has not moved.
        """
        for number in range(11):
            self.put(number, "k")
        self.checkpoint()
        names = self.disk.names(self.folder)
        self.assertEqual(["007", "008", "009"], [each[-3:] for each in names])
        self.assertEqual(list(range(10, -1, -1)), self.find("k"))
        self.assertEqual(
            [6, 6, 2], [int.from_bytes(self.bytesOf(each)[36:40], "big") for each in names]
        )

    def test_recordAcrossFiles(self) -> None:
        """
        A record's keys may part over two files, and all of them are found.
        """
        for number in range(4):
            self.put(number, "x")
        self.put(4, "a", "b", "c")
        self.assertEqual([[4], [4], [4]], [self.find(each) for each in "abc"])
        self.checkpoint()
        self.index = self.loaded()
        self.assertEqual([[4], [4], [4]], [self.find(each) for each in "abc"])


class QueryTests(IndexCase):
    """
    Tests for L{Index.query}.
    """

    def test_noFilesFindNothing(self) -> None:
        """
        Without files nothing is found.
        """
        self.assertEqual(Queried([], 0, 0), self.index.query("T", "k", 0, EVER, 10))
        self.assertIsNone(self.index.seal(SyncJob(self.handles)))

    def test_newestRecordsComeFirst(self) -> None:
        """
        Records come newest first, bounded in number, over files, with how far
        the index reaches.
        """
        for number in range(8):
            self.put(number, "k", at=number * 1000)
        self.assertEqual([7, 6, 5, 4, 3, 2, 1, 0], self.find("k"))
        self.assertEqual([7, 6, 5], self.find("k", most=3))
        self.assertEqual(Queried([7], NOW + 7000, 7), self.index.query("T", "k", 0, EVER, 1))

    def test_timesBoundQuery(self) -> None:
        """
        Records are of a range of store times, both ends included.
        """
        for number in range(8):
            self.put(number, "k", at=number * 1000)
        self.assertEqual([5, 4, 3, 2], self.find("k", NOW + 2000, NOW + 5000))
        self.assertEqual([2], self.find("k", NOW + 2000, NOW + 2000))
        self.assertEqual([], self.find("k", NOW + 8000, EVER))
        self.assertEqual([], self.find("k", 0, NOW - 1))
        self.assertEqual([0], self.find("k", 0, NOW))

    def test_oldFilesUnread(self) -> None:
        """
        Files that end before the range are not looked at.
        """
        for number in range(11):
            self.put(number, "k", at=number * 1000)
        self.checkpoint()
        del self.disk.preads[:]
        self.assertEqual([10], self.find("k", NOW + 10_000, EVER))
        newest = self.disk.names(self.folder)[-1]
        self.assertEqual({newest}, {os.path.basename(path) for path, _, _ in self.disk.preads})

    def test_eachKeyIsFound(self) -> None:
        """
        Each key of a record is found; an empty key is no key, and topics do not mix.
        """
        self.put(1, "", "a", "b")
        self.index.put("U", ["a"], 2, NOW)
        self.assertEqual([1], self.find("a"))
        self.assertEqual([1], self.find("b"))
        self.assertEqual([], self.find(""))
        self.assertEqual([2], self.index.query("U", "a", 0, EVER, 10).offsets)

    def test_keysOfOneSlotAreFound(self) -> None:
        """
        Keys that fall into one slot do not hide each other.
        """
        # 8 slots and 5 entries of a file: several slots are shared.
        keys = [f"key{number}" for number in range(40)]
        for number, key in enumerate(keys):
            self.put(number, key)
        self.assertEqual([[number] for number in range(40)], [self.find(each) for each in keys])
        self.checkpoint()
        self.index = self.loaded()
        self.assertEqual([[number] for number in range(40)], [self.find(each) for each in keys])

    def test_keysOfOneHashAreFoundTogether(self) -> None:
        """
        Keys of one hash are found together: the index knows hashes only.
        """
        # "Aa" and "BB" have the same hash in Java.
        self.put(1, "Aa")
        self.put(2, "BB")
        self.assertEqual([2, 1], self.find("Aa"))

    def test_repeatedKeyCountsOnce(self) -> None:
        """
        A record counts once, however often it has a key, in one file or two.
        """
        self.put(0, "k")
        self.put(1, "k", "x", "k")
        self.put(2, "k", "k", "k")
        self.assertEqual([2, 1, 0], self.find("k"))
        self.assertEqual([2, 1], self.find("k", most=2))

    def test_earlierRecordsNotIndexedAgain(self) -> None:
        """
        Records before the last one are in the index and not taken again.
        """
        self.put(10, "k")
        self.put(20, "k")
        self.put(10, "k")
        self.put(10, "other")
        self.assertEqual([20, 10], self.find("k"))
        self.assertEqual([], self.find("other"))

    def test_damagedChainEnds(self) -> None:
        """
        A chain that does not lead to older entries ends there.
        """
        self.put(1, "k")
        self.put(2, "k")
        self.checkpoint()
        path = os.path.join(self.folder, self.disk.names(self.folder)[0])
        with open(path, "r+b") as file:
            file.seek(72 + 40 + 16)
            file.write((2).to_bytes(4, "big"))
        self.index = self.loaded()
        self.assertEqual([2], self.find("k"))

    def test_damagedSlotIsEmpty(self) -> None:
        """
        A slot that leads nowhere is empty.
        """
        self.put(1, "k")
        self.checkpoint()
        path = os.path.join(self.folder, self.disk.names(self.folder)[0])
        for value in (-5, 3, 999):
            with open(path, "r+b") as file:
                file.seek(40 + 16)
                file.write(value.to_bytes(4, "big", signed=True))
            self.index = self.loaded()
            self.assertEqual([], self.find("k"))


class DurabilityTests(IndexCase):
    """
    The contents of the files at each step, and after a crash.
    """

    def test_slotsAfterEntries(self) -> None:
        """
        Slots and header change only after the entries they speak of have been
        given to be synced, and the query does not depend on it.
        """
        self.put(1, "k")
        self.index.seal(SyncJob(self.handles))
        name = self.disk.names(self.folder)[0]
        data = self.bytesOf(name)
        self.assertEqual(bytes(72), data[:72])
        self.assertNotEqual(bytes(20), data[92:112])
        self.put(2, "k")
        self.assertEqual([2, 1], self.find("k"))
        self.index.settle(SyncJob(self.handles))
        data = self.bytesOf(name)
        self.assertEqual(2, int.from_bytes(data[36:40], "big"))
        self.assertEqual(1, int.from_bytes(data[56:60], "big"))
        self.assertEqual([2, 1], self.find("k"))

    def test_sealAndSettleSyncFile(self) -> None:
        """
        A seal has the file, and a new name in the folder, synced; a settle the
        file again; and a second seal nothing.
        """
        self.put(1, "k")
        job = SyncJob(self.handles)
        mark = self.index.seal(job)
        del self.disk.synced[:]
        job.run()
        path = os.path.join(self.folder, self.disk.names(self.folder)[0])
        self.assertEqual([path, self.folder], self.disk.synced)
        self.assertEqual(IndexMark(os.path.basename(path), 2), mark)
        job = SyncJob(self.handles)
        self.index.settle(job)
        del self.disk.synced[:]
        job.run()
        self.assertEqual([path], self.disk.synced)
        job = SyncJob(self.handles)
        self.assertEqual(mark, self.index.seal(job))
        self.index.settle(job)
        del self.disk.synced[:]
        job.run()
        self.assertEqual([], self.disk.synced)

    def test_failedSealIsRepeated(self) -> None:
        """
        Entries that a full disk does not take are written the next time.
        """
        self.put(1, "k")
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.assertRaises(OSError, self.index.seal, SyncJob(self.handles))
        self.assertEqual([1], self.find("k"))
        self.disk.failing.clear()
        self.checkpoint()
        self.index = self.loaded()
        self.assertEqual([1], self.find("k"))

    def test_crashRewindsIndexToMark(self) -> None:
        """
        After a crash the index goes back to its mark, over files, and takes the
        same records again.
        """
        for number in range(3):
            self.put(number, "k", at=number * 1000)
        mark = self.checkpoint()
        for number in range(3, 9):
            self.put(number, "k", at=number * 1000)
        self.checkpoint()
        self.index = self.loaded()
        self.assertTrue(self.index.rewind(mark, self.timeOf, doubt=True))
        self.assertEqual([2, 1, 0], self.find("k"))
        self.assertEqual(1, len(self.disk.names(self.folder)))
        self.assertEqual(Queried([], NOW + 2000, 2), self.index.query("T", "none", 0, EVER, 1))
        for number in range(1, 9):
            self.put(number, "k", at=number * 1000)
        self.assertEqual([8, 7, 6, 5, 4, 3, 2, 1, 0], self.find("k"))
        self.checkpoint()
        self.index = self.loaded()
        self.assertEqual([8, 7, 6, 5, 4, 3, 2, 1, 0], self.find("k"))

    def test_rewindCorrectsSlots(self) -> None:
        """
        Slots that point to entries that do not count lead back to the last that
        do, or are emptied.  That is on the disk before entries are written over,
        and a crash that follows at once finds the same again.
        """
        for number in range(2):
            self.put(number, "k", at=number * 1000)
        mark = self.checkpoint()
        # "T#j" falls into the slot before that of "T#k".
        for number, key in ((2, "k"), (3, "j"), (4, "k")):
            self.put(number, key, at=number * 1000)
        self.checkpoint()
        name = self.disk.names(self.folder)[0]
        self.assertEqual("0000000400000005", self.bytesOf(name)[52:60].hex())
        self.index = self.loaded()
        del self.disk.synced[:]
        self.assertTrue(self.index.rewind(mark, self.timeOf, doubt=True))
        self.assertEqual("0000000000000002", self.bytesOf(name)[52:60].hex())
        self.assertEqual([os.path.join(self.folder, name)], self.disk.synced)
        # Others take their places, and only the entries reach the disk.
        for number in (5, 6):
            self.put(number, "x", at=number * 1000)
        self.index.seal(SyncJob(self.handles))
        self.index = self.loaded()
        del self.disk.synced[:]
        self.assertTrue(self.index.rewind(mark, self.timeOf, doubt=True))
        self.assertEqual([], self.disk.synced)
        self.assertEqual([1, 0], self.find("k"))
        self.assertEqual([[], []], [self.find("j"), self.find("x")])

    def test_rewindDamagedSlot(self) -> None:
        """
        A slot that leads through entries that do not grow older is emptied, not
        followed forever.
        """
        self.put(0, "k")
        mark = self.checkpoint()
        self.put(1, "k")
        self.put(2, "k")
        self.checkpoint()
        name = self.disk.names(self.folder)[0]
        with open(os.path.join(self.folder, name), "r+b") as file:
            file.seek(72 + 3 * 20 + 16)
            file.write((3).to_bytes(4, "big"))
        self.index = self.loaded()
        self.assertTrue(self.index.rewind(mark, self.timeOf, doubt=True))
        self.assertEqual(bytes(32), self.bytesOf(name)[40:72])

    def test_rewindWithoutDoubt(self) -> None:
        """
        After a clean stop slots are not looked at.
        """
        self.put(0, "k")
        mark = self.checkpoint()
        self.index = self.loaded()
        del self.disk.preads[:], self.disk.synced[:]
        self.assertTrue(self.index.rewind(mark, self.timeOf, doubt=False))
        self.assertEqual([], [each for each in self.disk.preads if 40 <= each[1] < 72])
        self.assertEqual([], self.disk.synced)
        self.assertEqual([0], self.find("k"))

    def test_rewindMakesHeaderAnew(self) -> None:
        """
        Where the header may be anything, its values come from the entries and
        from the log; where the log does not know, the last second counts whole,
        so that nothing is left out by a query.
        """
        for number in range(3):
            self.put(number, "k", at=number * 1000)
        mark = self.checkpoint()
        name = self.disk.names(self.folder)[0]
        whole = self.bytesOf(name)[:32]
        path = os.path.join(self.folder, name)
        with open(path, "r+b") as file:
            file.write(bytes(8) + whole[8:16] * 3)
        self.index = self.loaded()
        self.assertTrue(self.index.rewind(mark, self.timeOf, doubt=True))
        self.assertEqual(Queried([2], NOW + 2000, 2), self.index.query("T", "k", NOW, EVER, 1))
        self.put(3, "k", at=3000)
        self.checkpoint()
        self.assertEqual(
            whole[:8] + (NOW + 3000).to_bytes(8, "big") + bytes(15) + b"\3",
            self.bytesOf(name)[:32],
        )
        self.index = self.loaded()
        self.assertTrue(self.index.rewind(mark, lambda offset: None, doubt=True))
        self.assertEqual(Queried([2], NOW + 2999, 2), self.index.query("T", "k", NOW, EVER, 1))

    def test_rewindToNothing(self) -> None:
        """
        If the checkpoint had no index, or an index without entries, so has the store.
        """
        self.put(5, "k")
        self.checkpoint()
        name = self.disk.names(self.folder)[0]
        self.index = self.loaded()
        self.assertTrue(self.index.rewind(IndexMark(name, 1), self.timeOf, doubt=True))
        self.assertEqual(Queried([], 0, 0), self.index.query("T", "k", 0, EVER, 1))
        self.put(1, "k")
        self.assertEqual([1], self.find("k"))
        self.assertTrue(self.index.rewind(None, self.timeOf, doubt=True))
        self.assertEqual([], self.disk.names(self.folder))

    def test_impossibleMarkIsRefused(self) -> None:
        """
        A mark of a missing file, or of more entries than the file has, is refused.
        """
        self.put(1, "k")
        self.checkpoint()
        name = self.disk.names(self.folder)[0]
        for mark in (IndexMark("20200101000000000", 2), IndexMark(name, 3), IndexMark(name, 0)):
            for doubt in (False, True):
                self.assertFalse(self.index.rewind(mark, self.timeOf, doubt=doubt))
        self.assertEqual([1], self.find("k"))

    def test_distrustedFilesAreRemoved(self) -> None:
        """
        If only a time is known, the files that do not end before it are removed, and the last
        record that is left is returned.
        """
        for number in range(12):
            self.put(number, "k", at=number * 1000)
        self.assertEqual(11, self.index.distrust(NOW + 11_001))
        self.assertEqual(list(range(11, -1, -1)), self.find("k"))
        self.assertEqual(9, self.index.distrust(NOW + 11_000))
        self.assertEqual(list(range(9, -1, -1)), self.find("k"))
        self.assertEqual(4, self.index.distrust(NOW + 4001))
        self.assertEqual([4, 3, 2, 1, 0], self.find("k"))
        self.assertEqual(0, self.index.distrust(0))
        self.assertEqual([], self.find("k"))
        self.assertEqual([], self.disk.names(self.folder))
        self.assertEqual(0, self.index.distrust(EVER))

    def test_distrustEmptyFile(self) -> None:
        """
        A file without entries goes as well: it does not tell how far it reaches.
        """
        for number in range(6):
            self.put(number, "k")
        self.checkpoint()
        with open(os.path.join(self.folder, self.disk.names(self.folder)[1]), "r+b") as file:
            file.write(bytes(40))
        self.index = self.loaded()
        self.assertEqual(4, self.index.distrust(EVER))
        self.assertEqual(1, len(self.disk.names(self.folder)))

    def test_brokenFileIsRemoved(self) -> None:
        """
        A file that is not whole is removed, others of odd names are left alone.
        """
        self.put(1, "k")
        self.checkpoint()
        name = self.disk.names(self.folder)[0]
        for other, size in (("notes", 10), ("20300101000000000", 10)):
            with open(os.path.join(self.folder, other), "wb") as file:
                file.write(bytes(size))
        self.index = self.loaded()
        self.assertEqual([name, "notes"], self.disk.names(self.folder))
        self.assertEqual([1], self.find("k"))

    def test_javasEmptyFile(self) -> None:
        """
        Java leaves the count at 0 in a file without entries.
        """
        self.put(1, "k")
        self.checkpoint()
        path = os.path.join(self.folder, self.disk.names(self.folder)[0])
        with open(path, "r+b") as file:
            file.write(bytes(72))
        self.index = self.loaded()
        self.put(2, "k")
        self.assertEqual([2], self.find("k"))


class ShrinkTests(IndexCase):
    """
    Following the log at both ends.
    """

    def setUp(self) -> None:
        super().setUp()
        for number in range(12):
            self.put(number * 10, "k")

    def test_filesBeforeLogAreRemoved(self) -> None:
        """
        Files that end before the log begins go, but the newest stays.
        """
        self.index.follow(40)
        self.assertEqual(3, len(self.disk.names(self.folder)))
        self.index.follow(41)
        self.assertEqual(2, len(self.disk.names(self.folder)))
        self.index.follow(9999)
        self.assertEqual(1, len(self.disk.names(self.folder)))
        self.assertEqual([110, 100], self.find("k"))

    def test_deletedFileStaysDeleted(self) -> None:
        """
        A file that is deleted between seal and settle stays deleted.
        """
        self.index.seal(SyncJob(self.handles))
        self.index.follow(9999)
        self.index.settle(SyncJob(self.handles))
        self.assertEqual(1, len(self.disk.names(self.folder)))

    def test_filesBehindLogAreRemoved(self) -> None:
        """
        Files that begin behind the log's end go.
        """
        self.index.cut(100, self.timeOf)
        self.assertEqual([90, 80, 70, 60, 50, 40, 30, 20, 10, 0], self.find("k"))
        self.index.cut(0, self.timeOf)
        self.assertEqual([], self.disk.names(self.folder))
        self.index.cut(0, self.timeOf)

    def test_entriesBehindLogAreRemoved(self) -> None:
        """
        Of a file that the log's end falls into, the entries behind it go, from
        the slots too, and others can take their places, at every offset.
        """
        for end in range(1, 130):
            self.index.clear()
            for number in range(12):
                self.put(number * 10, "k", at=number * 10_000)
            self.checkpoint()
            self.index = self.loaded()
            self.index.cut(end, self.timeOf)
            kept = list(range(min((end - 1) // 10 * 10, 110), -1, -10))
            self.assertEqual(
                Queried(kept, NOW + kept[0] * 1000, kept[0]),
                self.index.query("T", "k", 0, EVER, 100),
            )
            self.put(end, "x", at=end * 1000)
            self.checkpoint()
            self.index = self.loaded()
            self.assertEqual([kept, [end]], [self.find("k"), self.find("x")])
            self.assertEqual(len(kept) + 1 + len(self.counts()), sum(self.counts()))

    def test_clearRemovesEverything(self) -> None:
        """
        Everything goes.
        """
        self.index.clear()
        self.assertEqual([], self.disk.names(self.folder))


class TableTests(SynchronousTestCase):
    """
    Slots that are kept in memory.
    """

    def make(self, reads: int) -> tuple[Index, Disk, Handles, str]:
        """
        An index that keeps its slots in memory after a number of reads.
        """
        self.patch(indexModule, "_FEW", reads)
        disk = Disk()
        handles = Handles(disk)
        self.addCleanup(handles.close)
        folder = self.mktemp()
        return Index(handles, folder, 50, 200, lambda: START * 1000), disk, handles, folder

    def bytesOf(self, disk: Disk, folder: str) -> list[bytes]:
        """
        The contents of the files.
        """
        found = []
        for name in disk.names(folder):
            with open(os.path.join(folder, name), "rb") as file:
                found.append(file.read())
        return found

    def work(self, reads: int) -> list[Any]:
        """
        Add keys, with checkpoints in between, and look at the files each time.
        """
        self.patch(indexModule, "_RUN", 4)
        index, disk, handles, folder = self.make(reads)
        seen: list[Any] = []
        for number in range(600):
            index.put("T", [f"k{number * 7 % 150}"], number, START * 1000 + number)
            if number % 40 == 19:
                index.seal(SyncJob(handles))
                seen.append(self.bytesOf(disk, folder))
            if number % 40 == 29:
                index.settle(SyncJob(handles))
                seen.append(self.bytesOf(disk, folder))
                seen.append(index.query("T", "k7", 0, 1 << 60, 100))
        return seen

    def test_slotsInMemoryMakeSameFiles(self) -> None:
        """
        The files are the same at every checkpoint, whether all slots are in memory
        at once, after some time, or never; so is what is found.
        """
        never = self.work(1 << 30)
        self.assertEqual(never, self.work(0))
        self.assertEqual(never, self.work(25))

    def test_slotsInMemoryAreNotRead(self) -> None:
        """
        Once all slots are in memory, none is read any more.
        """
        index, disk, handles, folder = self.make(3)
        for number in range(60):
            index.put("T", [f"k{number}"], number, START * 1000)
            index.seal(SyncJob(handles))
            index.settle(SyncJob(handles))
        path = os.path.join(folder, disk.names(folder)[0])
        self.assertEqual(
            [(path, 4), (path, 4), (path, 4), (path, 200)],
            [(each, size) for each, _, size in disk.preads],
        )

    def test_fullFileForgetsSlots(self) -> None:
        """
        The slots of a file that is full need not be in memory any longer, once they are
        in the file.
        """
        index, _, handles, _ = self.make(0)
        for number in range(250):
            index.put("T", [f"k{number % 90}"], number, START * 1000)
        first, second = index._indexFiles
        index.seal(SyncJob(handles))
        self.assertIsNotNone(first._table)
        index.settle(SyncJob(handles))
        self.assertIsNone(first._table)
        self.assertIsNotNone(second._table)
        self.assertEqual([187, 97, 7], index.query("T", "k7", 0, 1 << 60, 9).offsets)

    def test_cutReadsSlotsAnew(self) -> None:
        """
        Slots that were corrected in the file are read anew.
        """
        index, _, handles, _ = self.make(0)
        index.put("T", ["a"], 1, START * 1000)
        index.put("T", ["a"], 2, START * 1000)
        index.seal(SyncJob(handles))
        index.settle(SyncJob(handles))
        index.cut(2, lambda offset: START * 1000)
        self.assertEqual([1], index.query("T", "a", 0, 1 << 60, 9).offsets)
        index.put("T", ["a"], 3, START * 1000)
        index.seal(SyncJob(handles))
        index.settle(SyncJob(handles))
        self.assertEqual([3, 1], index.query("T", "a", 0, 1 << 60, 9).offsets)
        again = Index(handles, index._folder, 50, 200, lambda: 0)
        again.load()
        self.assertEqual([3, 1], again.query("T", "a", 0, 1 << 60, 9).offsets)
