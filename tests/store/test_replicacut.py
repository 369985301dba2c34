# SPDX-License-Identifier: Apache-2.0
"""
Tests for the cut of a follower's log, for setting it aside, and for its restarts.
"""

from __future__ import annotations

from typing import Any

from tests.store.disk import Disk, full, ioError
from tests.store.ledger import ROOT, SMALL
from tests.store.replicas import ReplicaTestCase, bodies, copy, logOf, put
from tests.store.support import Held
from txrocket.errors import DiskFull, StoreCorrupt, StoreError, StoreFailed
from txrocket.protocol.record import decodeRecords
from txrocket.store.messagestore import MessageStore
from txrocket.store.replica.cut import Cut

_FILE = SMALL.mappedFileSizeCommitLog
_EVER = 1 << 50


class RestartTests(ReplicaTestCase):
    """
    A follower that starts again.
    """

    def _restarted(self, until: int) -> None:
        """
        A slave that has the log up to an offset is killed or stopped, and goes on.
        """
        expected = self.expected(until)
        for restart in (self.killSlave, self.stopSlave):
            self.slaveDisk = Disk()
            self.slave = self.startSlave()
            copy(self.master, self.slave, until=until)
            restart()
            # The pad of a file is not asked for again.
            fileEnd = until - until % -_FILE
            self.assertIn(self.slave.replica.end, (*range(until + 1), fileEnd))
            self.assertEqual(expected, bodies(self.slave))
            self.assertTrue(self.slave.replica.isFollower)
            copy(self.master, self.slave, 700)
            self.assertEqualLogs()
            self.assertEqual(bodies(self.master), bodies(self.slave))
            self.assertEqual(6, len(self.slave.query("T", "k", 0, _EVER, 32)[0]))
            self.assertEqual([], self.slaveDisk.names(f"{ROOT}/damaged"))

    def expected(self, until: int) -> list[bytes]:
        """
        The messages that end before an offset.
        """
        found = self.master.log.records(0, strict=True)
        whole = [each for each in found if each.offset + each.size <= until]
        return [b"%d" % number * 900 for number in range(len(whole))]

    def test_halfRecordDropped(self) -> None:
        """
        Wherever a stream has ended, inside a record, a blank, at the end of a file or behind
        it: a start finds the whole records, nothing fills the place of the rest, and the
        slave goes on to the same bytes as its master.
        """
        for number in range(6):
            put(self.master, b"%d" % number * 900, TAGS="a", KEYS="k")
        end = self.master.replica.end
        ends = [each.offset + each.size for each in self.master.log.records(0, strict=True)]
        near = [each + by for each in ends for by in (-15, -9, -1, 0, 1, 7, 8, 9)]
        for until in {*range(50, end, 331), *near, _FILE - 1, _FILE, _FILE + 1}:
            if until <= end:
                self._restarted(until)

    def test_damageCutAndSaved(self) -> None:
        """
        A record that was damaged on the disk, with sound ones behind it, ends the log of a
        follower: its bytes and those behind are saved, and the master's take their place.
        """
        second = put(self.master, b"one").end
        for body in (b"two" * 50, b"three"):
            put(self.master, body)
        copy(self.master, self.slave)
        self.slave.tasks.stop()
        self.slaveDisk.kill()
        data = self.slaveDisk.file(f"{ROOT}/commitlog/{0:020d}").data
        data[second + 100] ^= 1
        self.slave = self.startSlave()
        self.assertEqual(second, self.slave.replica.end)
        self.assertEqual([b"one"], bodies(self.slave))
        [name] = self.slaveDisk.names(f"{ROOT}/damaged")
        self.assertIn(b"three", self.slaveDisk.file(f"{ROOT}/damaged/{name}").data)
        copy(self.master, self.slave)
        self.assertEqualLogs()
        self.assertEqual([b"one", b"two" * 50, b"three"], bodies(self.slave))

    def test_missingFileRefused(self) -> None:
        """
        A follower whose log lacks a file does not start, and says what to do; nothing is
        changed.
        """
        for _ in range(7):
            put(self.master, bytes(1500))
        copy(self.master, self.slave)
        self.successResultOf(self.slave.stop())
        self.slaveDisk.remove(f"{ROOT}/commitlog/{_FILE:020d}")
        error = self.assertRaises(StoreCorrupt, self.startSlave)
        self.assertIn("have copies of this log", str(error))
        self.slaveDisk.kill()
        # As a master it keeps the rest.
        self.assertEqual(5, len(bodies(self.start(self.slaveDisk))))

    def test_retentionGoesOwnWay(self) -> None:
        """
        A slave deletes its old files by itself, goes on, and starts again.
        """
        for number in range(8):
            put(self.master, b"%d" % number * 1500)
        copy(self.master, self.slave)
        self.successResultOf(self.slave.checkpointer.checkpoint())
        self.slaveDisk.free = self.slaveDisk.total // 8
        self.slave.retention.clean()
        self.slaveDisk.free = self.slaveDisk.total // 2
        self.slave.retention.clean()
        first = self.slave.replica.first
        self.assertGreater(first, 0)
        put(self.master, b"8" * 1500)
        copy(self.master, self.slave)
        self.killSlave()
        self.assertEqual(first, self.slave.replica.first)
        self.assertEqual(logOf(self.master, first), logOf(self.slave))


class CutTests(ReplicaTestCase):
    """
    Cutting a log.
    """

    def diverge(self, common: int, mine: int, theirs: int = 0) -> int:
        """
        Let a slave have messages in common with its master, and others of its own.

        @return: where the common ones end.
        """
        for number in range(common):
            put(self.master, b"common%d" % number * 60, queueId=number % 2, KEYS="k")
        copy(self.master, self.slave)
        self.slave.replica.lead()
        for number in range(mine):
            put(self.slave, b"mine%d" % number * 70, queueId=number % 2, KEYS="k")
        end = self.master.replica.end
        for number in range(theirs):
            put(self.master, b"theirs%d" % number * 80, queueId=number % 2, KEYS="k")
        self.slave.replica.follow()
        return end

    def cut(self, offset: int, epoch: int = 3) -> Cut:
        """
        Cut the slave's log.
        """
        return self.slave.replica.cut(offset, epoch)

    def assertFollows(self) -> None:
        """
        The slave takes the master's log, and has its messages then.
        """
        copy(self.master, self.slave, 500)
        self.assertEqualLogs()
        for queueId in (0, 1):
            self.assertEqual(
                bodies(self.master, queueId=queueId), bodies(self.slave, queueId=queueId)
            )
        self.assertEqual(
            sorted(self.master.query("T", "k", 0, _EVER, 60)[0]),
            sorted(self.slave.query("T", "k", 0, _EVER, 60)[0]),
        )

    def test_logQueuesAndIndexEnd(self) -> None:
        """
        After a cut, log, queues and index have what is before it, the next messages take the
        numbers of those that were cut off, and the records of these are in a file.
        """
        end = self.diverge(5, 12, 3)
        before = logOf(self.slave, end)
        lost = [b"mine%d" % number * 70 for number in range(12)]
        size = self.slave.replica.end - end
        cut = self.cut(end)
        self.assertEqual((end, size, 12, f"{ROOT}/cut/3-{end}.log"), cut)
        self.assertEqual((end, end), (self.slave.replica.end, self.slave.replica.flushed))
        self.assertEqual([3, 2], [self.slave.maxOffset("T", each) for each in (0, 1)])
        self.assertEqual(5, len(self.slave.query("T", "k", 0, _EVER, 32)[0]))
        kept = bytes(self.slaveDisk.file(cut.path).data)
        self.assertEqual(lost, [each.body for each in decodeRecords(kept, checkCrc=True)])
        self.assertTrue(before.startswith(kept[:500]))
        self.assertFollows()

    def test_atEveryRecord(self) -> None:
        """
        A log is cut at any of its records, with a checkpoint before or behind it, and the slave
        follows then, killed in between or not.
        """
        for checkpointAt in (0, 4, 99):
            for keep in range(9):
                self.tearDown()
                self.setUp()
                ends = [0]
                for number in range(9):
                    ends.append(put(self.master, b"%d" % number * 500, KEYS="k").end)
                    copy(self.master, self.slave)
                    if number == checkpointAt:
                        self.successResultOf(self.slave.checkpointer.checkpoint())
                if checkpointAt == 99:
                    self.successResultOf(self.slave.checkpointer.checkpoint())
                self.cut(ends[keep])
                self.assertEqual(ends[keep], self.slave.replica.end)
                self.assertEqual(keep, len(bodies(self.slave)))
                if keep % 2:
                    self.killSlave()
                    self.assertEqual(ends[keep], self.slave.replica.end)
                    self.assertEqual(keep, len(bodies(self.slave)))
                self.assertFollows()
                self.stopSlave()
                self.assertFollows()

    def test_insideRecord(self) -> None:
        """
        A cut inside a record, inside a blank or behind it lets the log end before it.
        """
        for number in range(4):
            put(self.master, b"%d" % number * 1500)
        ends = [each.offset + each.size for each in self.master.log.records(0, strict=True)]
        for offset, end in (
            (ends[1] + 1, ends[1]),
            (ends[1] + 700, ends[1]),
            (ends[2] + 10, ends[2]),
            (_FILE - 1, ends[1]),
            (ends[0] - 1, 0),
        ):
            self.slaveDisk = Disk()
            self.slave = self.startSlave()
            copy(self.master, self.slave)
            self.assertEqual(end, self.cut(offset).offset, offset)
            self.assertEqual(end, self.slave.replica.end)
            copy(self.master, self.slave)
            self.assertEqualLogs()

    def test_atEndOfFile(self) -> None:
        """
        A cut between two files lets the log end there, and not before the blank: the master
        may have no file before.
        """
        for number in range(5):
            put(self.master, b"%d" % number * 1500)
        for checkpoint in (False, True):
            self.slaveDisk = Disk()
            self.slave = self.startSlave()
            copy(self.master, self.slave)
            if checkpoint:
                self.successResultOf(self.slave.checkpointer.checkpoint())
            self.assertEqual(_FILE, self.cut(_FILE).offset)
            self.assertEqual((_FILE, 2), (self.slave.replica.end, len(bodies(self.slave))))
            self.assertFollows()

    def test_halfRecordAtEnd(self) -> None:
        """
        Of a log that ends with half a record, the whole ones behind the cut are kept.
        """
        ends = [put(self.master, b"%d" % number * 100).end for number in range(4)]
        copy(self.master, self.slave, until=ends[2] + 60)
        cut = self.cut(ends[0])
        self.assertEqual((ends[0], ends[2] - ends[0], 2), cut[:3])
        kept = decodeRecords(bytes(self.slaveDisk.file(cut.path).data))
        self.assertEqual([b"1" * 100, b"2" * 100], [each.body for each in kept])
        self.assertFollows()

    def test_halfRecordAlone(self) -> None:
        """
        A cut behind the last whole record drops the half record alone.
        """
        ends = [put(self.master, b"%d" % number * 100).end for number in range(2)]
        for offset in (ends[0], ends[0] + 1):
            copy(self.master, self.slave, until=ends[0] + 60)
            self.assertEqual((ends[0], 0, 0, ""), self.cut(offset))
        self.assertFollows()

    def test_nothingToCut(self) -> None:
        """
        A cut at the end of the log changes nothing, and makes no file; outside of the log it
        is refused.
        """
        end = put(self.master).end
        copy(self.master, self.slave)
        self.assertEqual((end, 0, 0, ""), self.cut(end))
        self.assertEqual([], self.slaveDisk.names(f"{ROOT}/cut"))
        self.assertRaises(StoreError, self.cut, end + 1)
        self.assertRaises(StoreError, self.cut, -1)

    def test_leaderIsNotCut(self) -> None:
        """
        A store that takes messages is not cut, nor set aside.
        """
        put(self.master)
        self.assertRaises(StoreError, self.master.replica.cut, 0, 1)
        self.assertRaises(StoreError, self.master.replica.beginAt, 0)

    def test_secondCutHasOwnFile(self) -> None:
        """
        If the same place is cut twice in one epoch, each time with other records, both files
        are kept; the same records make one file.
        """
        end = self.diverge(2, 2)
        self.cut(end)
        for body in (b"again", b"again"):
            self.slave.replica.lead()
            put(self.slave, body)
            self.slave.replica.follow()
            self.clock.advance(1)
            self.cut(end)
        names = self.slaveDisk.names(f"{ROOT}/cut")
        self.assertEqual([f"3-{end}-2.log", f"3-{end}-3.log", f"3-{end}.log"], names)
        # A process that died before it cut the log has left its file.
        self.slave.replica.lead()
        put(self.slave, b"last")
        self.slave.replica.follow()
        disk = self.slaveDisk.fork()
        self.cut(end)
        self.slaveDisk.kill()
        handle = disk.open(f"{ROOT}/cut/3-{end}-4.log")
        path = f"{ROOT}/cut/3-{end}-4.log"
        disk.pwrite(handle, bytes(self.slaveDisk.file(path).data), 0)
        disk.kill()
        self.slaveDisk = disk
        self.slave = self.startSlave()
        self.assertEqual(path, self.cut(end).path)

    def test_fullDiskCutsNothing(self) -> None:
        """
        If there is no room to keep what is cut off, nothing is changed.
        """
        end = self.diverge(3, 3)
        before = logOf(self.slave)

        def fail(operation: str, path: str) -> None:
            if operation == "pwrite" and "/cut/" in path:
                raise full()

        self.slaveDisk.before = fail
        self.assertRaises(DiskFull, self.cut, end)
        self.assertEqual(before, logOf(self.slave))
        self.assertEqual([], self.slaveDisk.names(f"{ROOT}/cut"))
        self.slaveDisk.before = lambda operation, path: None
        self.assertEqual(3, self.cut(end).records)

    def test_brokenDiskStops(self) -> None:
        """
        If the disk fails while the log is cut, the store takes nothing any more; a start puts
        it right.
        """
        end = self.diverge(3, 3, 2)

        def fail(operation: str, path: str) -> None:
            if operation == "truncate" and "/commitlog/" in path:
                raise ioError()

        self.slaveDisk.before = fail
        self.assertRaises(StoreFailed, self.cut, end)
        self.slaveDisk.before = lambda operation, path: None
        self.assertRaises(StoreFailed, self.cut, end)
        self.assertRaises(StoreFailed, self.slave.replica.append, self.slave.replica.end, b"x")
        self.killSlave()
        self.cut(end)
        self.assertFollows()

    def test_checkpointUnderWay(self) -> None:
        """
        A checkpoint that is being made when the log is cut is not written, whatever it waits
        for; nor does a sync that is under way count for what is written after the cut.
        """
        for turns in range(6):
            self.tearDown()
            self.setUp()
            held = Held()
            self.slave.tasks.stop()
            self.slaveDisk.kill()
            self.slave = self.startSlave(inThread=held)
            end = self.diverge(2, 3, 4)
            made = self.slave.checkpointer.checkpoint()
            made.addErrback(lambda failure: failure.trap(StoreError))
            for _ in range(turns):
                if held.jobs:
                    held.work()
            self.cut(end)
            copy(self.master, self.slave, 100, until=end + 200)
            flushed = self.slave.replica.flushed
            while held.jobs:
                held.work()
            if flushed == end:
                self.assertEqual(end, self.slave.replica.flushed)
            self.killSlave()
            self.assertFollows()

    def test_waitersTold(self) -> None:
        """
        A sender that waits for the disk gets an error if its message is cut off.
        """
        held = Held()
        self.slave.tasks.stop()
        self.slaveDisk.kill()
        self.slave = self.startSlave(inThread=held)
        self.slave.replica.lead()
        first = put(self.slave, b"kept")
        waits = [self.slave.stored(put(self.slave, b"cut").end)]
        self.slave.replica.follow()
        self.cut(first.end)
        self.failureResultOf(waits[0], StoreError)

    def test_numbersGivenAgain(self) -> None:
        """
        A store that leads after a cut goes on behind what is left.
        """
        end = self.diverge(3, 5)
        self.cut(end)
        self.slave.replica.lead()
        self.assertEqual((end, 2), put(self.slave, b"new")[:3:2])

    def test_folderOfJava(self) -> None:
        """
        A folder whose checkpoint only Java has written is cut as well.
        """
        end = self.diverge(4, 4, 2)
        for data in (bytes(4096), (1 << 50).to_bytes(8, "big") * 3 + bytes(4072)):
            disk = self.slaveDisk.fork()
            disk.kill()
            handle = disk.open(f"{ROOT}/checkpoint")
            disk.pwrite(handle, data, 0)
            kept, self.slaveDisk = self.slaveDisk, disk
            self.slave = self.startSlave()
            handle = disk.open(f"{ROOT}/checkpoint")
            disk.pwrite(handle, data, 0)
            self.assertEqual(4, self.cut(end).records)
            self.killSlave()
            self.assertFollows()
            self.slaveDisk = kept


class BeginTests(ReplicaTestCase):
    """
    Setting everything aside.
    """

    def test_contentSetAside(self) -> None:
        """
        A store that begins anew has nothing of its old content, which is in another folder and
        can be opened there, and takes a log that begins at any file.
        """
        for number in range(7):
            put(self.master, b"%d" % number * 1500, topic="New", KEYS="k")
        self.slave.replica.lead()
        for number in range(5):
            put(self.slave, b"old%d" % number * 400, topic="Old", KEYS="k")
        self.slave.replica.follow()
        before = logOf(self.slave)
        self.clock.advance(1)
        self.master.log.segments.removeFirst()
        first = self.master.replica.first
        folder = self.slave.replica.beginAt(first)
        self.assertTrue(folder.startswith(f"{ROOT}/aside/20"))
        self.assertEqual((first, first), (self.slave.replica.first, self.slave.replica.end))
        self.assertEqual([], self.slave.queues.topics())
        self.assertEqual(0, len(self.slave.query("Old", "k", 0, _EVER, 32)[0]))
        copy(self.master, self.slave, 999)
        self.assertEqualLogs()
        expected = [b"%d" % number * 1500 for number in range(2, 7)]
        self.assertEqual(expected, bodies(self.slave, "New"))
        self.assertEqual(2, self.slave.minOffset("New", 0))
        aside = self._opened(folder)
        self.assertEqual(before, logOf(aside))
        self.assertEqual(5, len(bodies(aside, "Old")))
        self.killSlave()
        self.assertEqual(expected, bodies(self.slave, "New"))

    def _opened(self, folder: str) -> MessageStore:
        """
        A store on the content that was set aside.
        """
        root = self.slaveDisk.fork()
        root.kill()
        node: Any = root._find(folder)
        disk = type(root)()
        disk.root.names["store"] = node
        return self.start(disk)

    def test_emptyBegins(self) -> None:
        """
        A new slave begins where its master's log does; there is nothing to set aside.  After a
        restart before the first byte it has to begin there again.
        """
        for number in range(5):
            put(self.master, b"%d" % number * 1500)
        self.master.log.segments.removeFirst()
        self.assertEqual("", self.slave.replica.beginAt(_FILE))
        self.assertEqual([], self.slaveDisk.names(f"{ROOT}/aside"))
        for restart in (self.killSlave, self.stopSlave):
            self.assertEqual((_FILE, _FILE), (self.slave.replica.first, self.slave.replica.end))
            self.clock.advance(70)
            restart()
            self.assertEqual((0, 0), (self.slave.replica.first, self.slave.replica.end))
            self.assertEqual("", self.slave.replica.beginAt(_FILE))
        copy(self.master, self.slave)
        self.assertEqualLogs()

    def test_atZero(self) -> None:
        """
        A store may begin anew at the beginning of the log.
        """
        put(self.master, b"theirs")
        self.slave.replica.lead()
        put(self.slave, b"mine")
        self.slave.replica.follow()
        self.assertNotEqual("", self.slave.replica.beginAt(0))
        self.assertEqual((0, 0), (self.slave.replica.first, self.slave.replica.end))
        copy(self.master, self.slave)
        self.assertEqual([b"theirs"], bodies(self.slave))

    def test_twiceAtOneTime(self) -> None:
        """
        Content that is set aside twice has two folders.
        """
        for _ in range(2):
            put(self.master)
            copy(self.master, self.slave)
            self.slave.replica.beginAt(0)
        self.assertEqual(2, len(self.slaveDisk.names(f"{ROOT}/aside")))

    def test_quietQueues(self) -> None:
        """
        A slave whose log has no message of a queue goes on with the queue offsets that its
        master tells: if it leads, none is given twice, also after a crash.
        """
        for _ in range(3):
            put(self.master, b"quiet", topic="Quiet")
        for number in range(6):
            put(self.master, b"%d" % number * 1500)
        self.successResultOf(self.master.checkpointer.checkpoint())
        self.master.log.segments.removeFirst()
        self.master.retention.follow()
        first = self.master.replica.first
        begins = self.master.replica.queueBegins()
        self.assertEqual({("Quiet", 0): 3, ("T", 0): 2}, begins)
        self.slave.replica.beginAt(first)
        for _ in range(2):
            self.slave.replica.beginQueues(begins)
            copy(self.master, self.slave)
        self.killSlave()
        self.assertEqual(
            [3, 3, 2, 6],
            [
                *(self.slave.minOffset("Quiet", 0), self.slave.maxOffset("Quiet", 0)),
                *(self.slave.minOffset("T", 0), self.slave.maxOffset("T", 0)),
            ],
        )
        self.assertEqualLogs()
        self.slave.replica.lead()
        self.assertEqual(3, put(self.slave, b"next", topic="Quiet").queueOffset)
        self.assertEqual([b"next"], bodies(self.slave, "Quiet"))
        self.assertRaises(StoreError, self.slave.replica.beginQueues, {})

    def test_fullDisk(self) -> None:
        """
        If there is no room for a folder, nothing is changed; if there is none for the first
        file, bytes are refused until there is.
        """
        for number in range(3):
            put(self.master, b"%d" % number * 1500)
        copy(self.master, self.slave)
        broken = "/aside"

        def fail(operation: str, path: str) -> None:
            if broken in path and operation in ("makeFolder", "allocate"):
                raise full()

        self.slaveDisk.before = fail
        self.assertRaises(DiskFull, self.slave.replica.beginAt, 0)
        self.assertEqual(bodies(self.master), bodies(self.slave))
        broken = "/store/commitlog/"
        self.slave.replica.beginAt(0)
        self.assertRaises(DiskFull, copy, self.master, self.slave)
        broken = "?"
        copy(self.master, self.slave)
        self.assertEqual(bodies(self.master), bodies(self.slave))

    def test_noFileBeginsThere(self) -> None:
        """
        A log begins where a file does.
        """
        for offset in (-_FILE, 1, _FILE - 1):
            self.assertRaises(StoreError, self.slave.replica.beginAt, offset)
