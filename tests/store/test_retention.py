# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.retention}, by the rules of Java's
C{CleanCommitLogService} and C{CleanConsumeQueueService}.
"""

from __future__ import annotations

import os
import time

from tests.store.support import LOG_SIZE, Held, StoreCase, abandon
from txrocket.errors import DiskFull
from txrocket.protocol.record import decodeRecords
from txrocket.store.messagestore import MessageStore
from txrocket.store.read.getresult import GetMessageStatus

HOUR = 3600


class RetentionTests(StoreCase):
    """
    A log of five files with two messages each, the last of which is written to.
    """

    def setUp(self) -> None:
        super().setUp()
        self.store = self.start()
        for number in range(10):
            self.put(self.store, bytes([number]) * 1900, KEYS="k")
        self.assertEqual(5, len(self.logFiles()))
        for name in self.logFiles():
            self.age(name, 0)

    def tearDown(self) -> None:
        abandon(self.store)

    def age(self, name: str, hours: float) -> None:
        """
        Let a file have been written to so long ago.
        """
        modified = self.clock.seconds() - hours * HOUR
        os.utime(self.path("commitlog", name), (modified, modified))

    def ageFirst(self, count: int, hours: float = 72) -> None:
        """
        Let the oldest files be that old.
        """
        for name in self.logFiles()[:count]:
            self.age(name, hours)

    def until(self, hour: int) -> None:
        """
        Let it be an hour of the day, with files as old as they were.
        """
        while time.localtime(self.clock.seconds()).tm_hour != hour:
            self.clock.rightNow += HOUR

    def clean(self, used: float = 0.1, *, asked: bool = False) -> int:
        """
        Let the disk be so full, and all be safe, and look at it.
        """
        self.disk.used = used
        self.successResultOf(self.store.checkpointer.checkpoint())
        return self.store.retention.clean(asked=asked)

    def test_notBeforeItIsSafe(self) -> None:
        """
        A file that queues might still have to be made from does not go, however
        full the disk is: a queue that is lost with it would count anew.
        """
        self.disk.used = 0.99
        self.assertEqual(0, self.store.retention.clean(asked=True))
        self.successResultOf(self.store.checkpointer.checkpoint())
        self.assertEqual(4, self.store.retention.clean(asked=True))

    def test_neededFileIsKept(self) -> None:
        """
        An old file does not go while messages in it, or after it, wait to be delivered;
        but if the disk is too full it does.
        """
        self.ageFirst(4)
        self.store.retention.needed = lambda: LOG_SIZE * 2 - 1
        self.assertEqual(1, self.clean(asked=True))
        self.store.retention.needed = lambda: LOG_SIZE * 2
        self.assertEqual(1, self.clean(asked=True))
        self.assertEqual(0, self.clean(asked=True))
        self.assertEqual(2, self.clean(0.86))

    def test_oldFilesGoAtTheirHour(self) -> None:
        """
        At the hour of deleteWhen files of 72 hours go, and at no other.
        """
        self.until(3)
        self.ageFirst(2)
        self.assertEqual(0, self.clean())
        self.until(4)
        self.ageFirst(2)
        self.assertEqual(2, self.clean())
        self.assertEqual(3, len(self.logFiles()))

    def test_severalHoursAreAllowed(self) -> None:
        """
        deleteWhen may name several hours.
        """
        abandon(self.store)
        self.store = self.start(deleteWhen="2;15")
        self.until(15)
        self.ageFirst(1)
        self.assertEqual(1, self.clean())
        self.until(2)
        self.ageFirst(1)
        self.assertEqual(1, self.clean())
        self.until(4)
        self.ageFirst(1)
        self.assertEqual(0, self.clean())

    def test_fileGoesAtReservedTime(self) -> None:
        """
        A file goes at 72 hours of age and not a minute before.
        """
        self.ageFirst(1, 72 - 1 / 60)
        self.assertEqual(0, self.clean(asked=True))
        self.ageFirst(1, 72)
        self.assertEqual(1, self.clean(asked=True))

    def test_onlyFromTheFront(self) -> None:
        """
        An old file behind a young one stays.
        """
        self.age(self.logFiles()[1], 100)
        self.assertEqual(0, self.clean(asked=True))

    def test_crowdedDiskDeletesOldFiles(self) -> None:
        """
        Above 75 % old files go at any hour, young ones do not.
        """
        self.until(12)
        for name in self.logFiles():
            self.age(name, 0)
        self.ageFirst(2)
        self.assertEqual(0, self.clean(0.75))
        self.assertEqual(2, self.clean(0.76))
        self.assertEqual(0, self.clean(0.76))
        self.assertEqual(3, len(self.logFiles()))

    def test_fullDiskDeletesYoungFiles(self) -> None:
        """
        Above 85 % files go however young, except the one that is written to.
        """
        self.assertEqual(0, self.clean(0.85))
        self.assertEqual(4, self.clean(0.86))
        self.assertEqual([f"{4 * LOG_SIZE:020d}"], self.logFiles())
        self.assertEqual(0, self.clean(0.86))
        self.assertIsNone(self.store.retention.full)
        self.assertEqual(10, self.put(self.store).queueOffset)

    def test_disabledForceSparesYoungFiles(self) -> None:
        """
        cleanFileForciblyEnable=false spares young files.
        """
        abandon(self.store)
        self.store = self.start(cleanFileForciblyEnable=False)
        self.assertEqual(0, self.clean(0.95))

    def test_fullDiskRefusesMessages(self) -> None:
        """
        Above 90 % no message is taken, with an error that states the bytes
        free; reads go on; and messages are taken again below.
        """
        self.clean(0.90)
        self.put(self.store)
        self.clean(0.91)
        error = self.assertRaises(DiskFull, self.put, self.store)
        self.assertIn("91% full, 90 bytes are free", str(error))
        self.assertTrue(error.retriable)
        self.assertRaises(DiskFull, self.appendBatch, self.store, b"x")
        self.assertGreater(len(self.all(self.store)), 0)
        self.clean(0.92)
        self.assertRaises(DiskFull, self.put, self.store)
        self.clean(0.90)
        self.put(self.store)

    def test_tenFilesGoAtOnce(self) -> None:
        """
        Ten files go at a time, as in Java.
        """
        for _ in range(24):
            self.put(self.store, b"x" * 1900)
        self.assertEqual(17, len(self.logFiles()))
        self.assertEqual([10, 6, 0], [self.clean(0.86) for _ in range(3)])

    def test_lastFileUnwritten(self) -> None:
        """
        If the newest file has been made and not written to, the one before it
        is still written to, and stays.
        """
        self.store.log.segments.create(self.store.log.segments.end)
        self.store.log.end = self.store.log.written
        self.assertEqual(4, self.clean(0.86))
        self.assertEqual(
            [f"{4 * LOG_SIZE:020d}", f"{5 * LOG_SIZE:020d}"],
            self.logFiles(),
        )

    def test_onlyFileIsKept(self) -> None:
        """
        The only file never goes.
        """
        self.clean(0.86)
        self.age(self.logFiles()[0], 1000)
        self.assertEqual(0, self.clean(0.99, asked=True))
        self.assertEqual(1, len(self.logFiles()))

    def test_queuesFollowDeletion(self) -> None:
        """
        Queues begin with the first message that is left, and a consumer
        that asks for an older one is sent there.
        """
        self.ageFirst(2)
        self.clean(asked=True)
        self.assertEqual((4, 10), (self.store.minOffset("T", 0), self.store.maxOffset("T", 0)))
        got = self.store.get("T", 0, 1, 32)
        self.assertEqual((GetMessageStatus.OFFSET_TOO_SMALL, 4), (got.status, got.nextOffset))
        self.assertEqual(list(range(4, 10)), [each.queueOffset for each in self.all(self.store)])

    def test_indexFollowsDeletion(self) -> None:
        """
        Messages that are gone are found by no key, and the index loses the
        files that tell only of such.
        """
        for number in range(120):
            self.put(self.store, b"x", KEYS=f"n{number}")
        self.assertEqual(4, len(os.listdir(self.path("index"))))
        self.assertGreater(self.clean(0.86), 4)
        self.assertEqual(2, len(os.listdir(self.path("index"))))
        self.assertEqual([], self.store.query("T", "k", 0, 1 << 60, 32)[0])
        self.assertEqual(1, len(self.store.query("T", "n119", 0, 1 << 60, 32)[0]))

    def test_restartKeepsBeginning(self) -> None:
        """
        After a restart, clean or not, the store begins where it began.
        """
        self.ageFirst(2)
        self.clean(asked=True)
        for end in (MessageStore.stop, abandon):
            end(self.store)
            self.store = self.start()
            self.assertEqual((4, 10), (self.store.minOffset("T", 0), self.store.maxOffset("T", 0)))
            self.assertEqual(2 * LOG_SIZE, self.store.log.first)
            self.assertEqual(6, len(self.all(self.store)))

    def test_onTheClock(self) -> None:
        """
        The disk is looked at every cleanResourceInterval, 10 s.
        """
        self.disk.used = 0.86
        self.clock.advance(9.9)
        self.assertEqual(5, len(self.logFiles()))
        self.clock.advance(0.1)
        self.assertEqual(1, len(self.logFiles()))

    def test_setAheadDeletesNothing(self) -> None:
        """
        A clock that is set ahead by a year makes no file old: it has to stand for a day
        before files are judged by it.  A disk that is too full is emptied all the same.
        """
        self.assertEqual(0, self.clean(asked=True))
        self.shift += 365 * 24 * HOUR
        self.assertEqual(0, self.clean(asked=True))
        self.clock.advance(23 * HOUR)
        self.assertEqual(0, self.clean(asked=True))
        self.assertEqual(5, len(self.logFiles()))
        self.assertEqual(4, self.clean(0.86))

    def test_setAheadForLongCounts(self) -> None:
        """
        If the clock still says so after a day it is believed.
        """
        self.shift += 365 * 24 * HOUR
        self.clean(asked=True)
        self.clock.advance(25 * HOUR)
        self.assertEqual(4, self.clean(asked=True))

    def test_setBackDeletesLater(self) -> None:
        """
        A clock that is set back makes files younger, and those that are old by it go.
        """
        self.ageFirst(1, 200)
        self.ageFirst(0)
        self.shift -= 100 * HOUR
        self.assertEqual(1, self.clean(asked=True))
        self.ageFirst(1, 100)
        self.assertEqual(0, self.clean(asked=True))

    def test_failedLookIsRepeated(self) -> None:
        """
        A disk that cannot be looked at does not end the looking.
        """

        def space(path: str) -> tuple[int, int]:
            raise OSError("gone")

        patch = self.patch(self.disk, "space", space)
        self.clock.advance(10)
        patch.restore()
        self.disk.used = 0.86
        self.clock.advance(10)
        self.assertEqual(1, len(self.logFiles()))

    def test_sizelessDiskIsEmpty(self) -> None:
        """
        A disk that states no size is taken for an empty one.
        """
        self.patch(self.disk, "space", lambda path: (0, 0))
        self.assertEqual(0, self.store.retention.clean())
        self.assertIsNone(self.store.retention.full)

    def test_deletionSparesReaders(self) -> None:
        """
        A file that goes while it is synced or read takes nothing from either.
        """
        self.successResultOf(self.store.checkpointer.checkpoint())
        abandon(self.store)
        held = Held()
        self.store = self.start(held)
        got = self.store.get("T", 0, 0, 2)
        path = self.path("commitlog", "00000000000000000000")
        handle = self.store._handles.pin(path)
        self.put(self.store)
        flushed = self.store.flusher.flush()
        self.disk.used = 0.86
        self.assertEqual(4, self.store.retention.clean())
        self.assertEqual(2, len(decodeRecords(got.data, checkCrc=True)))
        self.assertEqual(got.data, self.disk.pread(handle, len(got.data), 0))
        self.store._handles.unpin(path)
        while held.jobs:
            held.work()
        self.successResultOf(flushed)
        self.assertNotIn(path, self.disk.opened.values())
