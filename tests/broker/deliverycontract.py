# SPDX-License-Identifier: Apache-2.0
"""
The rules of late delivery that delay levels and timers share.

    messages of a level    --> DelayLevels --+
                                             +--> one contract: crashes, disks, files
    messages with a time   --> Timers -------+

L{DelayLevels<txrocket.broker.delivery.delaylevels.DelayLevels>} and
L{Timers<txrocket.broker.delivery.timers.Timers>} park messages in two ways and make the
same promises.  Each promise is one test here, which both run.

A test module imports this module and not the class, else trial would run the class itself.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from twisted.logger import LogLevel, capturedLogs

from tests.broker.late import LateCase
from tests.store.support import LOG_SIZE, Held
from txrocket.errors import DiskFull
from txrocket.store.settings import FlushDiskType

FULL = OSError(errno.ENOSPC, "full")
BROKEN = OSError(errno.EIO, "broken")


class DeliveryContract(LateCase):
    """
    The promises of one late delivery.

    @cvar tableName: the file that keeps how far messages are delivered.
    @cvar later: a delay in seconds whose messages are parked apart from those of one second.
    @cvar unreadable: texts that the file cannot hold.
    """

    tableName: str
    later: int
    unreadable: tuple[str, ...]

    @property
    def delivery(self) -> Any:
        """
        The delivery under test.
        """
        raise NotImplementedError

    def sendLate(self, seconds: int, body: bytes = b"x", /) -> int:
        """
        Send a message that is due in some seconds.

        @return: its offset in the log.
        """
        raise NotImplementedError

    def savedCount(self) -> int:
        """
        How many messages of one second are delivered, as the file says.
        """
        raise NotImplementedError

    def hasTable(self) -> bool:
        """
        Whether the file exists.
        """
        return os.path.exists(self.path("config", self.tableName))

    def sendThirds(self) -> list[bytes]:
        """
        Send six messages of a third of a log file each, and go on to half a second before
        they are due.
        """
        bodies = [b"%d" % number * (LOG_SIZE // 3) for number in range(6)]
        for body in bodies:
            self.sendLate(1, body)
        self.wait(0.5)
        return bodies

    def work(self) -> None:
        """
        Let the threads do all their jobs.
        """
        while self.thread.jobs:
            self.thread.work()

    # --- stop and crash ----------------------------------------------------

    def test_stopEndsDelivery(self) -> None:
        """
        A stopped delivery delivers nothing, neither what was sent before the stop nor what
        is sent after it, and may be stopped twice.
        """
        self.open()
        self.sendLate(1)
        self.sendLate(self.later)
        self.wait(0.5)
        self.delivery.stop()
        self.sendLate(1)
        self.wait(60)
        self.delivery.stop()
        self.assertEqual(self.delivered(), [])

    def test_crashMayDeliverTwice(self) -> None:
        """
        After a crash, messages delivered since the last save come once more, and none is
        lost.
        """
        self.open()
        self.sendLate(1, b"a")
        self.wait(1)
        self.save()
        self.sendLate(1, b"b")
        self.sendLate(self.later, b"c")
        self.wait(1)
        self.assertEqual(self.delivered(), [b"a", b"b"])
        self.crash()
        self.open()
        self.wait(self.later - 1)
        self.assertEqual(self.delivered(), [b"a", b"b", b"b", b"c"])

    def test_crashDuringDeliveryDeliversAgain(self) -> None:
        """
        A message that was appended and not written when the process ended is delivered
        again.
        """
        self.open()
        count, self.onDelivered = self.onDelivered, lambda *told: self.crash()
        self.sendLate(1, b"a")
        self.wait(0.5)
        clock = self.clock
        clock.advance(0.5)
        self.assertIsNot(self.clock, clock)
        self.onDelivered = count
        self.open()
        self.wait()
        self.assertEqual(self.delivered(), [b"a"])

    def test_neededIsTheFirstParkedMessage(self) -> None:
        """
        C{needed} is the place in the log of the first message that is still parked.
        """
        self.open()
        self.assertEqual(self.delivery.needed(), self.store.log.written)
        first = self.sendLate(1)
        second = self.sendLate(self.later)
        self.store.write()
        self.assertEqual(self.delivery.needed(), first)
        self.wait(1)
        self.assertEqual(self.delivery.needed(), second)
        self.wait(self.later)
        self.assertEqual(self.delivery.needed(), self.store.log.written)

    def test_damagedFileIsSetAside(self) -> None:
        """
        If the file cannot be read, the broker starts, logs an error, and keeps the file
        under another name.
        """
        os.makedirs(self.path("config"))
        for count, text in enumerate(self.unreadable, 1):
            with open(self.path("config", self.tableName), "w") as file:
                file.write(text)
            with capturedLogs() as events:
                self.open()
            told = [each["log_level"] for each in events if "problems" in each]
            self.assertEqual(told, [LogLevel.error])
            aside = [each for each in os.listdir(self.path("config")) if "damaged-" in each]
            self.assertEqual(len(aside), count)
            self.close()

    def test_unexpectedErrorIsLoggedAndRetried(self) -> None:
        """
        An unexpected error is logged, and the next look tries again.
        """
        raised = [RuntimeError("what?")]

        def failing(*told: Any) -> None:
            if raised:
                raise raised.pop()

        self.open()
        self.onDelivered = failing
        self.sendLate(1, b"a")
        self.wait(5)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.delivery.look()
        self.wait()
        # Appended before the error, and once more.
        self.assertEqual(self.delivered(), [b"a", b"a"])
        self.close()
        self.assertEqual(self.savedCount(), 1)

    # --- disks -------------------------------------------------------------

    def assertLateLogs(self, logs: Any, count: int) -> None:
        """
        So many times it was logged that messages are late.
        """
        self.assertEqual(sum("are late" in each["log_format"] for each in logs), count)

    def test_fullDiskDelaysDelivery(self) -> None:
        """
        While the disk is full messages wait.  Once there is room they come, each once and
        in order.  Each such time is logged once.
        """
        self.open()
        with capturedLogs() as logs:
            for start in (0, 5):
                for number in range(start, start + 5):
                    self.sendLate(1, b"%d" % number)
                    self.wait(0.1)
                self.disk.failing["pwrite"] = FULL
                self.wait(20)
                self.assertEqual(len(self.delivered()), start)
                self.disk.failing.clear()
                self.wait(1)
        self.assertEqual(self.delivered(), [b"%d" % number for number in range(10)])
        self.assertLateLogs(logs, 2)

    def test_crowdedDiskDelaysDelivery(self) -> None:
        """
        While the store takes no messages because the disk is nearly full, messages wait.
        """
        self.open()
        self.sendLate(1, b"a")
        self.wait(0.5)
        self.disk.used = 0.95
        self.store.retention.clean()
        self.wait(8)
        self.assertEqual(self.delivered(), [])
        self.disk.used = 0.1
        self.store.retention.clean()
        self.wait(1)
        self.assertEqual(self.delivered(), [b"a"])

    def test_noNewFileDeliversTheRestLater(self) -> None:
        """
        If the disk has room for some messages only, these do not come a second time with
        the others.
        """
        self.open()
        bodies = self.sendThirds()
        self.disk.failing["allocate"] = FULL
        self.wait(5)
        some = len(self.delivered())
        self.disk.failing.clear()
        self.wait(1)
        self.assertEqual(self.delivered(), bodies)
        self.assertLess(some, 6)

    def test_unwrittenNextFileDeliversTheRestLater(self) -> None:
        """
        If a log file was filled and the next cannot be written, the messages of the first
        are delivered, and the others come later.
        """
        self.open()
        bodies = self.sendThirds()
        self.disk.failing["pwrite"] = FULL
        self.disk.only = f"{self.store.log.segments.end + LOG_SIZE:020d}"
        self.wait(3)
        self.assertEqual(self.delivered(), bodies[:2])
        self.disk.failing.clear()
        self.wait(1)
        self.wait(1)
        self.assertEqual(self.delivered(), bodies)

    def test_messagesLostDuringDeliveryComeLater(self) -> None:
        """
        If another part of the broker writes in the middle of a delivery and the write
        fails, the lost messages come later and no message comes twice.
        """
        self.open()

        def failing(*told: Any) -> None:
            self.counted.append(told)
            if len(self.counted) == 2:
                self.disk.failing["pwrite"] = FULL
                self.assertRaises(DiskFull, self.store.write)
                self.disk.failing.clear()

        self.onDelivered = failing
        bodies = [b"%d" % number for number in range(4)]
        for body in bodies:
            self.sendLate(1, body)
        self.wait(1)
        self.assertEqual(self.delivered(), [])
        self.wait(1)
        self.assertEqual(self.delivered(), bodies)

    def test_unreadableDiskIsTriedAgain(self) -> None:
        """
        A parked message that the disk does not read is logged as late, and tried again.
        """
        self.open()
        self.sendLate(1, b"a")
        self.wait(0.5)
        pread = self.disk.pread
        self.disk.pread = lambda *args: (_ for _ in ()).throw(BROKEN)  # type: ignore
        with capturedLogs() as logs:
            self.wait(3)
        self.assertLateLogs(logs, 1)
        self.disk.pread = pread  # type: ignore[method-assign]
        self.wait(1)
        self.assertEqual(self.delivered(), [b"a"])

    # --- the file ----------------------------------------------------------

    def test_failedSyncWritesNoFile(self) -> None:
        """
        If delivered messages cannot be brought to the disk, the file is not written, and
        after a crash they come again.
        """
        self.open()
        self.sendLate(1, b"a")
        self.wait(1)
        self.disk.failing["sync"] = BROKEN
        self.save()
        self.assertFalse(self.hasTable())
        self.disk.failing.clear()
        self.crash()
        self.open()
        self.wait()
        self.assertEqual(self.delivered(), [b"a", b"a"])

    def test_unwrittenFileIsWrittenNextTime(self) -> None:
        """
        A file that could not be written is written by the next save.
        """
        self.open()
        self.sendLate(1, b"a")
        self.wait(1)
        self.disk.failing["truncate"] = FULL
        self.disk.only = "config"
        self.save()
        self.assertFalse(self.hasTable())
        self.disk.failing.clear()
        self.save()
        self.assertEqual(self.savedCount(), 1)

    def test_unchangedProgressIsNotWritten(self) -> None:
        """
        If nothing was delivered since the last save, a save writes nothing.
        """
        self.open()
        self.sendLate(1, b"a")
        self.wait(1)
        self.save()
        self.disk.synced.clear()
        self.save()
        self.assertEqual(self.disk.synced, [])

    def test_fileIsWrittenAfterMessages(self) -> None:
        """
        The file is written after the delivered messages are on the disk, and counts no
        others.
        """
        self.thread = Held()
        self.open()
        self.sendLate(1, b"a")
        self.wait(1)
        self.store.flusher.running = False
        self.thread.jobs.clear()
        self.disk.synced.clear()
        saved = self.delivery.save()
        self.sendLate(1, b"b")
        self.wait(1)
        self.assertNoResult(saved)
        self.work()
        self.successResultOf(saved)
        folders = [os.path.basename(os.path.dirname(each)) for each in self.disk.synced]
        first = next(each for each in folders if each != "temp")
        self.assertEqual((first, folders[-2]), ("commitlog", "config"))
        self.assertEqual(self.delivered(), [b"a", b"b"])
        self.assertEqual(self.savedCount(), 1)

    # --- SYNC_FLUSH --------------------------------------------------------

    def openSync(self) -> None:
        """
        Open with SYNC_FLUSH and threads that wait to be told, and deliver a message that
        is not on the disk yet.
        """
        self.thread = Held()
        self.open(flushDiskType=FlushDiskType.SYNC_FLUSH)
        self.sendLate(1, b"a")
        self.wait(0.5)
        self.work()
        self.wait(0.5)

    def test_slowDiskDeliversOnce(self) -> None:
        """
        If the disk takes longer than C{syncFlushTimeout}, a message is not delivered again,
        and the file is not written before the message is on the disk.
        """
        self.openSync()
        self.wait(6)
        self.assertEqual(self.delivered(), [b"a"])
        saved = self.delivery.save()
        self.assertNoResult(saved)
        self.work()
        self.successResultOf(saved)
        self.assertEqual(self.savedCount(), 1)

    def test_failedDiskEndsDelivery(self) -> None:
        """
        If the disk fails for good, nothing more is delivered and the file is not written.
        """
        self.openSync()
        self.disk.failing["sync"] = BROKEN
        self.work()
        self.wait(5)
        self.assertEqual(self.delivered(), [b"a"])
        self.successResultOf(self.delivery.save())
        self.assertFalse(self.hasTable())
