# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.log.commitlog}.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from tests.store.support import AROUND, HOST, LOG_SIZE, StoreCase
from txrocket.errors import DiskFull, MessageTooLarge, StoreFailed
from txrocket.protocol.record import decodeRecord, encodeRecord, encodeTopic
from txrocket.store.files.handles import Handles
from txrocket.store.log.commitlog import CommitLog

# A record of topic "T" without properties whose body has this size fills a file up
# to the 8 bytes that a blank needs.
FULL = LOG_SIZE - 8 - AROUND - 1


class RollTests(StoreCase):
    """
    The log's files, seen through a store.
    """

    def test_firstRecordIsAtZero(self) -> None:
        """
        The first record is at 0, in a file of the full size.
        """
        store = self.start()
        appended = self.put(store, b"hello")
        self.assertEqual(0, appended.offset)
        self.assertEqual((AROUND + 1 + 5,), appended.sizes)
        data = self.bytesOf("commitlog", "00000000000000000000")
        self.assertEqual(LOG_SIZE, len(data))
        self.assertEqual(b"hello", decodeRecord(data).body)
        self.assertEqual(b"\0" * 100, data[appended.end : appended.end + 100])
        store.stop()

    def test_largeRecordBeginsNewFile(self) -> None:
        """
        A record that does not fit goes to the next file; the rest of the file
        is a blank, whose 8 bytes state its size and its magic code.
        """
        store = self.start()
        first = self.put(store, b"x" * 3000)
        second = self.put(store, b"y" * 1000)
        self.assertEqual(LOG_SIZE, second.offset)
        data = self.bytesOf("commitlog", "00000000000000000000")
        self.assertEqual(
            bytes.fromhex(
                "000003ec"  # 4096 - 3092: all that is left of the file
                "cbd43194"  # BLANK_MAGIC_CODE
            ),
            data[first.end : first.end + 8],
        )
        self.assertEqual(b"\0" * 996, data[first.end + 8 :])
        self.assertEqual(["00000000000000000000", "00000000000000004096"], self.logFiles())
        self.assertEqual([b"x" * 3000, b"y" * 1000], self.bodies(store))
        store.stop()

    def test_recordLeavesRoomForBlank(self) -> None:
        """
        A record may leave 8 bytes for the blank, as in Java, but not 7.
        """
        store = self.start()
        self.assertEqual(0, self.put(store, b"x" * FULL).offset)
        self.assertEqual(LOG_SIZE, self.put(store, b"y" * (FULL - AROUND - 1)).offset)
        # There would be 7 bytes left.
        self.assertEqual(2 * LOG_SIZE, self.put(store, b"z").offset)
        store.stop()

    def test_batchAcrossRoll(self) -> None:
        """
        A batch is never parted: where it does not fit it goes to a new file as a
        whole, and its records tell where they are.
        """
        store = self.start()
        self.put(store, b"x" * 3500)
        appended = self.appendBatch(store, b"a" * 100, b"b" * 200, b"c" * 300)
        self.assertEqual(LOG_SIZE, appended.offset)
        self.assertEqual(tuple(AROUND + 1 + each for each in (100, 200, 300)), appended.sizes)
        self.assertEqual(1, appended.queueOffset)
        records = self.all(store)[1:]
        self.assertEqual([1, 2, 3], [each.queueOffset for each in records])
        self.assertEqual(
            [LOG_SIZE, LOG_SIZE + 192, LOG_SIZE + 192 + 292],
            [each.commitLogOffset for each in records],
        )
        self.assertEqual(sum(appended.sizes) + LOG_SIZE, appended.end)
        store.stop()

    def test_gatheredBeforeRoll(self) -> None:
        """
        The records of the old file and its blank are written by one write.
        """
        store = self.start()
        self.gather(store, b"a" * 1000)
        self.gather(store, b"b" * 1000)
        self.gather(store, b"c" * 3000)
        self.assertEqual(LOG_SIZE, store.log.written)
        store.write()
        self.assertEqual([b"a" * 1000, b"b" * 1000, b"c" * 3000], self.bodies(store))
        store.stop()


class LimitTests(StoreCase):
    """
    The largest message.
    """

    def test_largeBodyIsRefused(self) -> None:
        """
        A body over the limit is refused, and the error states its real size and
        the real limit.
        """
        store = self.start(maxMessageSize=1000)
        self.put(store, b"x" * 1000)
        error = self.assertRaises(MessageTooLarge, self.put, store, b"x" * 1001)
        self.assertEqual((1001, 1000), (error.size, error.limit))
        self.assertIn("1001 bytes is larger than the limit of 1000", str(error))
        self.assertEqual(1, len(self.all(store)))
        store.stop()

    def test_defaultLimitIsFourMebibytes(self) -> None:
        """
        4 MiB is the limit of RocketMQ's configuration.
        """
        store = self.start(mappedFileSizeCommitLog=16 << 20)
        self.put(store, bytes(4 << 20))
        error = self.assertRaises(MessageTooLarge, self.put, store, bytes((4 << 20) + 1))
        self.assertEqual(4 << 20, error.limit)
        self.assertEqual([bytes(4 << 20)], self.bodies(store))
        store.stop()

    def test_recordFitsIntoFile(self) -> None:
        """
        A record never exceeds a file.
        """
        store = self.start()
        error = self.assertRaises(MessageTooLarge, self.put, store, b"x" * (FULL + 1))
        self.assertEqual((LOG_SIZE - 7, LOG_SIZE - 8), (error.size, error.limit))
        self.assertEqual([], os.listdir(self.path("commitlog")))
        store.stop()

    def test_batchMayExceedRoomAroundBody(self) -> None:
        """
        The records of a batch may have more than 64 KiB around their bodies: Java's
        encoder looks at the batch as it was sent, whose messages are smaller than
        their records.
        """
        store = self.start(mappedFileSizeCommitLog=1 << 20, maxMessageSize=60_000)
        self.appendBatch(store, *[b"x"] * 2000)
        self.assertGreater(store.log.end, 60_000 + 65536)
        self.assertEqual([b"x"] * 2000, self.bodies(store))
        store.stop()

    def test_batchCountsAsOneBody(self) -> None:
        """
        For a batch the limit is that of all its messages together.
        """
        store = self.start(maxMessageSize=1000)
        error = self.assertRaises(MessageTooLarge, self.appendBatch, store, b"x" * 500, b"y" * 500)
        self.assertEqual((1044, 1000), (error.size, error.limit))
        store.stop()


class TroubleTests(StoreCase):
    """
    A disk that does not take what is written.
    """

    def full(self, *operations: str) -> None:
        """
        Let the disk be full for the log.
        """
        for each in operations:
            self.disk.failing[each] = OSError(errno.ENOSPC, "no space")
        self.disk.only = "commitlog"

    def test_noRoomForFirst(self) -> None:
        """
        Where not even the log's folder can be made, the error states the bytes
        needed and free.
        """
        store = self.start()
        self.full("makeFolder")
        error = self.assertRaises(DiskFull, self.put, store)
        self.assertIn("no room for 4096 bytes, 900 bytes are free", str(error))
        self.disk.failing.clear()
        self.assertEqual(0, self.put(store).offset)
        store.stop()

    def test_noRoomForNext(self) -> None:
        """
        A full disk refuses a record that needs a new file, and nothing else:
        what was gathered is written, reads go on, and writes too once there is
        room.
        """
        store = self.start()
        self.put(store, b"a" * 2000)
        gathered = self.gather(store, b"b" * 1000)
        stored = store.stored(gathered.end)
        self.full("allocate")
        self.assertRaises(DiskFull, self.gather, store, b"c" * 2000)
        self.assertNoResult(stored)
        self.gather(store, b"d" * 100)
        self.clock.advance(0)
        self.successResultOf(stored)
        self.assertEqual([b"a" * 2000, b"b" * 1000, b"d" * 100], self.bodies(store))
        self.assertEqual(["00000000000000000000"], self.logFiles())
        self.disk.failing.clear()
        self.assertEqual(3, self.put(store, b"c" * 2000).queueOffset)
        self.assertEqual(b"c" * 2000, self.bodies(store)[-1])
        store.stop()

    def test_rollNotWritten(self) -> None:
        """
        If the old file's rest cannot be written, the log stays in the old file,
        without the unwritten records, and their senders get the error.
        """
        store = self.start()
        self.put(store, b"a" * 2000)
        gathered = self.gather(store, b"b" * 1000)
        stored = store.stored(gathered.end)
        self.full("pwrite")
        self.assertRaises(DiskFull, self.gather, store, b"c" * 2000)
        self.failureResultOf(stored, DiskFull)
        self.assertEqual(["00000000000000000000"], self.logFiles())
        self.disk.failing.clear()
        # It fits into the old file, but would not if that were taken for two.
        again = self.put(store, b"d" * 1500)
        self.assertEqual((2092, 1), (again.offset, again.queueOffset))
        self.assertEqual(LOG_SIZE, self.put(store, b"e" * 3000).offset)
        self.assertEqual([b"a" * 2000, b"d" * 1500, b"e" * 3000], self.bodies(store))
        store.stop()

    def test_fullDiskLosesUnwrittenRecords(self) -> None:
        """
        Records that a full disk does not take are forgotten: the next records get their
        offsets, and the waiters get the error once.
        """
        store = self.start()
        self.put(store, b"a")
        lost = [self.gather(store, b"b"), self.gather(store, b"c", queueId=1)]
        stored = [store.stored(each.end) for each in lost]
        self.full("pwrite")
        self.clock.advance(0)
        for each in stored:
            error = self.failureResultOf(each, DiskFull).value
            self.assertIn("900 bytes are free", str(error))
        self.assertTrue(error.retriable)
        self.disk.failing.clear()
        again = self.put(store, b"d")
        self.assertEqual((lost[0].offset, 1), (again.offset, again.queueOffset))
        self.assertEqual(0, self.put(store, b"e", queueId=1).queueOffset)
        self.assertEqual([b"a", b"d"], self.bodies(store))
        store.stop()

    def test_failedDiskEndsWriting(self) -> None:
        """
        A disk that fails ends writing, with the reason, and not reading.
        """
        store = self.start()
        self.put(store, b"a")
        lost = self.gather(store, b"b")
        stored = store.stored(lost.end)
        self.disk.failing["pwrite"] = OSError(errno.EIO, "broken")
        self.clock.advance(0)
        self.assertIn("broken", str(self.failureResultOf(stored, StoreFailed).value))
        self.disk.failing.clear()
        error = self.assertRaises(StoreFailed, self.put, store, b"c")
        self.assertIn("commitlog failed", str(error))
        self.assertEqual([b"a"], self.bodies(store))
        store.stop()
        self.flushLoggedErrors()

    def test_directWriteRaisesError(self) -> None:
        """
        A caller of write gets the error directly.
        """
        store = self.start()
        self.put(store, b"a")
        self.gather(store, b"b")
        self.full("pwrite")
        self.assertRaises(DiskFull, store.write)
        self.disk.failing.clear()
        store.write()
        self.assertEqual([b"a"], self.bodies(store))
        store.stop()


class ScanTests(StoreCase):
    """
    Tests for L{CommitLog.scan}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.handles = Handles(self.disk)
        self.addCleanup(self.handles.close)
        self.log = CommitLog(self.handles, self.root, 1 << 16, 1 << 16, lambda offset, data: None)

    def add(self, body: bytes, properties: bytes = b"", **changes: Any) -> int:
        """
        Put a record into the log.
        """
        field = encodeTopic("T")
        offset = self.log.reserve(AROUND + 1 + len(body) + len(properties), len(body))
        values = {"queueId": 0, "queueOffset": 0, "offset": offset, "timestamp": 1} | changes
        self.log.add(
            encodeRecord(
                field,
                body,
                properties,
                values["queueId"],
                0,
                values["queueOffset"],
                values["offset"],
                0,
                1,
                HOST,
                values["timestamp"],
                HOST if changes.get("host", 1) else bytes(8),
            )
        )
        self.log.write()
        return offset

    def found(self, start: int = 0, strict: bool = True) -> list[int]:
        """
        Where a scan finds records.
        """
        return [each.offset for each in self.log.records(start, strict=strict)]

    def test_scanCrossesFiles(self) -> None:
        """
        Records are found in order over all files, and blanks are passed over.
        """
        offsets = [self.add(b"x" * 30_000) for _ in range(5)]
        self.assertEqual([0, 30092, 65536, 65536 + 30092, 131072], offsets)
        self.assertEqual(offsets, self.found())
        self.assertEqual(offsets[2:], self.found(65536))

    def test_largeRecordIsReadWhole(self) -> None:
        """
        Records that do not lie in one read are read again as a whole.
        """
        self.log = CommitLog(self.handles, self.root, 8 << 20, 4 << 20, lambda offset, data: None)
        offsets = [self.add(bytes(size)) for size in (600_000, 600_000, 3_000_000, 10)]
        self.assertEqual(offsets, self.found())

    def test_scanEndsAtUnwrittenBytes(self) -> None:
        """
        A scan ends where nothing was written, and behind a blank without a file
        after it.
        """
        self.assertEqual([], self.found())
        first = self.add(b"x" * 40_000)
        self.add(b"y" * 40_000)
        self.log.segments.removeLast()
        self.assertEqual([first], self.found())

    def test_damagedRecordEndsScan(self) -> None:
        """
        A scan ends at a record whose magic code, size, place or body is wrong;
        the body counts only if all is doubted.
        """
        for at, strict in ((5, False), (2, False), (0, False), (35, False), (100, True)):
            self.disk.removeFolder(self.root)
            self.handles.close()
            self.log = CommitLog(
                self.handles, self.root, 1 << 16, 1 << 16, lambda offset, data: None
            )
            first, second = self.add(b"a" * 50), self.add(b"b" * 50)
            self.log.segments.write(second + at, b"\x7f")
            self.assertEqual([first], self.found(strict=strict))
            if strict:
                self.assertEqual([first, second], self.found(strict=False))

    def test_tornRecordEndsScan(self) -> None:
        """
        The fields beside the body show lost sectors: no store time, no address, negative
        numbers, properties that end in NUL or have NULs from a sector's start on.
        """
        for changes in ({"timestamp": 0}, {"host": 0}, {"queueId": -1}, {"queueOffset": -1}):
            self.disk.removeFolder(self.root)
            self.handles.close()
            self.log = CommitLog(
                self.handles, self.root, 1 << 16, 1 << 16, lambda offset, data: None
            )
            first = self.add(b"a")
            second = self.add(b"b", b"", **changes)
            self.assertEqual([first], self.found(), changes)
            self.assertEqual([first, second], self.found(strict=False))

    def test_tornPropertiesEndScan(self) -> None:
        """
        A sector lost in the properties is seen; NULs elsewhere in them are not
        taken for one.
        """
        harmless = self.add(b"a", b"name\x01a" + bytes(20) + b"b")
        self.assertEqual([harmless], self.found())
        start = self.log.end
        properties = b"p\x01" + b"v" * 1000
        torn = self.add(b"b", properties)
        at = start + AROUND + 2
        sector = -(-at // 512) * 512
        self.assertEqual([harmless, torn], self.found())
        self.log.segments.write(sector, bytes(512))
        self.assertEqual([harmless], self.found())
        self.log.segments.write(sector, b"v" * 512)
        self.log.segments.write(self.log.end - 5, bytes(5))
        self.assertEqual([harmless], self.found())

    def test_emptyTopicEndsScan(self) -> None:
        """
        A record without a topic is not sound.
        """
        first = self.add(b"a")
        second = self.add(b"b")
        self.log.segments.write(second + 89, b"\0")
        self.assertEqual([first], self.found())

    def test_impossibleTopicEndsScan(self) -> None:
        """
        Nor is one whose topic could not be a folder's name, or has lost a part.
        """
        first = self.add(b"a")
        second = self.add(b"b")
        for odd in (b"/", b"\0"):
            self.log.segments.write(second + 90, odd)
            self.assertEqual([first], self.found())
        self.log.segments.write(second + 90, b"T")
        self.assertEqual([first, second], self.found())

    def test_droppedRecordsFreeTheirPlace(self) -> None:
        """
        Records that are not written can be dropped, and their place is free.
        """
        first = self.add(b"a")
        end = self.log.end
        self.assertEqual(end, self.log.reserve(100, 10))
        self.log.add(b"x" * 100)
        self.log.drop()
        self.assertEqual((end, end), (self.log.end, self.log.written))
        self.log.write()
        second = self.add(b"b")
        self.assertEqual(end, second)
        self.assertEqual([first, second], self.found())

    def test_emptyWriteDoesNothing(self) -> None:
        """
        To write nothing is to do nothing.
        """
        told: list[int] = []
        log = CommitLog(
            self.handles, self.root, 1 << 16, 1 << 16, lambda offset, data: told.append(offset)
        )
        log.write()
        self.assertEqual([], told)
