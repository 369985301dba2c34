# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.replica}.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError

from tests.store.disk import Disk, full, ioError
from tests.store.ledger import HOST, ROOT, SMALL, START
from tests.store.replicas import ReplicaTestCase, bodies, copy, logOf, put
from txrocket.errors import DiskFull, MalformedLog, StoreError, StoreFailed, StoreIsReplica
from txrocket.protocol.record import encodeBlank
from txrocket.testing.memory.files import MemoryFiles

_FILE = SMALL.mappedFileSizeCommitLog


class ReadTests(ReplicaTestCase):
    """
    The master's half.
    """

    def test_readGivesBytesOfFile(self) -> None:
        """
        What is read are the bytes of the file, never more than were asked for.
        """
        appended = put(self.master, b"hello", KEYS="k")
        path = f"{ROOT}/commitlog/{0:020d}"
        expected = bytes(self.masterDisk.file(path).data[: appended.end])
        replica = self.master.replica
        self.assertEqual((0, appended.end), (replica.first, replica.end))
        self.assertEqual(expected, replica.read(0, 1 << 20))
        self.assertEqual(expected[10:17], replica.read(10, 7))
        self.assertEqual(b"", replica.read(appended.end, 1 << 20))

    def test_readEndsWithFile(self) -> None:
        """
        A read ends where its file ends, behind the blank and the zeros that fill it.
        """
        for _ in range(3):
            put(self.master, bytes(1500))
        last = self.master.log.recordAt(_FILE)
        assert last is not None
        rest = self.master.replica.read(_FILE - 1000, 1 << 20)
        self.assertEqual(1000, len(rest))
        self.assertIn(encodeBlank(0)[4:], self.master.replica.read(3000, 1 << 20))
        self.assertEqual(last[0], self.master.replica.read(_FILE, 1 << 20))

    def test_unwrittenIsNotRead(self) -> None:
        """
        A message that is not written yet is not read.
        """
        self.master.put("T", 0, b"x", b"", 1, HOST)
        self.assertEqual((0, b""), (self.master.replica.end, self.master.replica.read(0, 100)))

    def test_offsetOutsideRefused(self) -> None:
        """
        An offset before the first file, or beyond the end, is refused.
        """
        for _ in range(6):
            put(self.master, bytes(1500))
        self.master.log.segments.removeFirst()
        replica = self.master.replica
        self.assertEqual(_FILE, replica.first)
        for offset in (-1, 0, _FILE - 1, replica.end + 1):
            self.assertRaises(StoreError, replica.read, offset, 10)

    def test_growthFires(self) -> None:
        """
        Growth is told once the log ends behind the offset, at once if it does already.
        """
        replica = self.master.replica
        grown = replica.whenGrown(0)
        self.assertNoResult(grown)
        appended = put(self.master)
        self.successResultOf(grown)
        self.successResultOf(replica.whenGrown(appended.end - 1))
        further = replica.whenGrown(appended.end)
        self.assertNoResult(further)
        put(self.master)
        self.successResultOf(further)

    def test_cancelledWaiterForgotten(self) -> None:
        """
        A waiter that is cancelled is not kept.
        """
        replica = self.master.replica
        for _ in range(3):
            waiting = replica.whenGrown(0)
            waiting.cancel()
            self.failureResultOf(waiting, CancelledError)
        self.assertEqual([], self.master.written._followers)
        put(self.master)

    def test_growthOutlivesFullDisk(self) -> None:
        """
        A write that fails does not end the wait for more.
        """
        grown = self.master.replica.whenGrown(0)

        def fail(operation: str, path: str) -> None:
            if operation == "pwrite" and "/commitlog/" in path:
                raise full()

        self.masterDisk.before = fail
        self.assertRaises(DiskFull, put, self.master)
        self.assertNoResult(grown)
        self.masterDisk.before = lambda operation, path: None
        put(self.master)
        self.successResultOf(grown)


class AppendTests(ReplicaTestCase):
    """
    The slave's half.
    """

    def test_bytesAndQueuesFollow(self) -> None:
        """
        A slave has the master's bytes, serves its messages by queue and key, and tells of
        their arrival.
        """
        for number in range(20):
            put(self.master, b"%d" % number * 50, queueId=number % 2, KEYS=f"k{number}")
        self.arrived.clear()
        copy(self.master, self.slave)
        self.assertEqualLogs()
        for queueId in (0, 1):
            self.assertEqual(
                bodies(self.master, queueId=queueId), bodies(self.slave, queueId=queueId)
            )
            self.assertEqual(10, self.slave.maxOffset("T", queueId))
        self.assertEqual(1, len(self.slave.query("T", "k7", 0, 1 << 50, 32)[0]))
        self.assertEqual([("T", n % 2, n // 2) for n in range(20)], self.arrived)

    def test_piecesOfAnySize(self) -> None:
        """
        Pieces may end inside a record, inside the 8 bytes of a blank or behind them: the slave
        has the same bytes and messages.
        """
        for number in range(12):
            put(self.master, b"%d" % number * (400 + 61 * number), TAGS="a", KEYS="k")
        for size in (1, 3, 7, 8, 9, 35, 36, 37, 511, 4095, 4096):
            self.slaveDisk = Disk()
            self.slave = self.startSlave()
            copy(self.master, self.slave, size)
            self.assertEqualLogs()
            self.assertEqual(bodies(self.master), bodies(self.slave))

    def test_halfRecordInNoQueue(self) -> None:
        """
        A record whose last byte is still to come is in no queue, whatever is asked meanwhile,
        and is dispatched when the byte has come.
        """
        end = put(self.master, b"one").end
        put(self.master, b"two")
        for until in range(end, self.master.replica.end):
            copy(self.master, self.slave, until=until)
            self.slave.dispatcher.catchUp(self.slave.log)
            self.assertEqual(end, self.slave.dispatcher.position)
            self.assertEqual([b"one"], bodies(self.slave))
        copy(self.master, self.slave)
        self.assertEqual([b"one", b"two"], bodies(self.slave))

    def test_wrongPlaceRefused(self) -> None:
        """
        Bytes belong at the end of the log and within one file; others are refused, and nothing
        is changed.
        """
        for _ in range(3):
            put(self.master, bytes(1500))
        data = logOf(self.master)
        replica = self.slave.replica
        self.assertRaises(StoreError, replica.append, 1, data[1:10])
        self.assertRaises(StoreError, replica.append, 0, data)
        replica.append(0, data[:_FILE])
        self.assertRaises(StoreError, replica.append, 0, data[:_FILE])
        self.assertRaises(StoreError, replica.append, _FILE + 1, data[_FILE + 1 :])
        replica.append(_FILE, data[_FILE:])
        self.assertEqualLogs()

    def test_masterTakesNoLog(self) -> None:
        """
        A store that takes messages takes no bytes of another log.
        """
        self.assertRaises(StoreError, self.master.replica.append, 0, b"x")

    def test_damageRefused(self) -> None:
        """
        Bytes with one bit changed where a record or a blank tells of it are refused, nothing
        of them is written, and the right bytes are taken then.
        """
        sizes = [put(self.master, b"body" * 20, KEYS="key").end]
        for _ in range(2):
            put(self.master, bytes(1900))
        data = logOf(self.master)
        blank = data.index(encodeBlank(0)[4:]) - 4
        checked = [
            # Size, magic code, CRC, physical offset, body and its length.
            *(0, 3, 4, 7, 8, 11, 28, 35, 84, 87, 88, sizes[0] - 30),
            *range(blank, blank + 8),
        ]
        for place in checked:
            bad = bytearray(data[:_FILE])
            bad[place] ^= 1
            with self.assertRaises(MalformedLog, msg=str(place)):
                self.slave.replica.append(0, bytes(bad))
            self.assertEqual((0, []), (self.slave.replica.end, self.slave.queues.topics()))
        self.slave.replica.append(0, data[:_FILE])
        self.slave.replica.append(_FILE, data[_FILE:])
        self.assertEqualLogs()

    def test_damagedHalfDropped(self) -> None:
        """
        If a record turns out to be damaged when its last bytes come, its first bytes are
        dropped as well: the link asks for all of it again.
        """
        end = put(self.master, b"one").end
        put(self.master, b"two" * 100, KEYS="k")
        data = logOf(self.master)
        bad = bytearray(data)
        bad[end + 120] ^= 1
        replica = self.slave.replica
        replica.append(0, bytes(bad[: end + 200]))
        self.assertEqual(end + 200, replica.end)
        self.successResultOf(self.slave.flushed())
        self.assertEqual(end, replica.flushed)
        self.assertRaises(MalformedLog, replica.append, end + 200, bytes(bad[end + 200 :]))
        self.assertEqual((end, end), (replica.end, replica.flushed))
        replica.append(end, data[end:])
        self.successResultOf(self.slave.flushed())
        self.assertEqual((len(data), len(data)), (replica.end, replica.flushed))
        self.assertEqualLogs()

    def test_halfRecordInNoFile(self) -> None:
        """
        Nothing of a record is in a file before it is whole, and nothing of it is read.
        """
        end = put(self.master, b"one").end
        put(self.master, b"two" * 100)
        copy(self.master, self.slave, 50, until=end + 150)
        replica = self.slave.replica
        file = self.slaveDisk.file(f"{ROOT}/commitlog/{0:020d}")
        self.assertFalse(any(file.data[end:]))
        self.assertEqual((end + 150, b""), (replica.end, replica.read(end, 1000)))
        replica.dropHalf()
        self.assertEqual(end, replica.end)
        copy(self.master, self.slave)
        self.assertEqualLogs()

    def test_longRecordTellsSetting(self) -> None:
        """
        A record that is longer than this broker takes is refused with the setting to change.
        """
        put(self.master, bytes(2900))
        self.slave.replica._stream._limit = 2000
        error = self.assertRaises(MalformedLog, copy, self.master, self.slave)
        self.assertIn("maxMessageSize", str(error))

    def test_otherFileSizeTold(self) -> None:
        """
        A blank that ends a file of another size is refused with the setting to compare.
        """
        record = logOf(self.master, 0) if put(self.master) else b""
        data = record + encodeBlank(100)
        error = self.assertRaises(MalformedLog, self.slave.replica.append, 0, data)
        self.assertIn("mappedFileSizeCommitLog", str(error))

    def test_blankOfJava(self) -> None:
        """
        Whatever lies behind the 8 bytes of a blank is kept, as Java's broker leaves there what
        was cut.
        """
        for _ in range(3):
            put(self.master, bytes(1500))
        data = bytearray(logOf(self.master))
        data[_FILE - 90 : _FILE] = b"rubbish --" * 9
        for size in (8, 100, _FILE):
            self.slaveDisk = Disk()
            self.slave = self.startSlave()
            for start in (0, _FILE):
                for at in range(start, min(start + _FILE, len(data)), size):
                    piece = data[at : min(at + size, start + _FILE, len(data))]
                    self.slave.replica.append(at, bytes(piece))
            self.assertEqual(bytes(data), logOf(self.slave))
            self.assertEqual(3, len(bodies(self.slave)))

    def test_fullDiskRefusesAndGoesOn(self) -> None:
        """
        While the disk has no room, bytes are refused with DiskFull and nothing is changed;
        with room, the same bytes are taken.
        """
        for _ in range(3):
            put(self.master, bytes(1500))
        broken = ["allocate"]

        def fail(operation: str, path: str) -> None:
            if operation in broken and "/commitlog/" in path:
                raise full()

        self.slaveDisk.before = fail
        self.assertRaises(DiskFull, copy, self.master, self.slave, 1000)
        self.assertEqual((1000, 0), (self.slave.replica.end, self.slave.log.written))
        broken[:] = ["pwrite"]
        self.assertRaises(DiskFull, copy, self.master, self.slave, 1000)
        self.assertEqual((1000, 0), (self.slave.replica.end, self.slave.log.written))
        broken.clear()
        copy(self.master, self.slave, 1000, until=4000)
        broken[:] = ["pwrite", "allocate"]
        self.assertRaises(DiskFull, copy, self.master, self.slave, 1000)
        self.assertEqual(4000, self.slave.replica.end)
        broken.clear()
        copy(self.master, self.slave, 1000)
        self.assertEqualLogs()
        self.assertEqual(3, len(bodies(self.slave)))

    def test_crowdedDiskRefuses(self) -> None:
        """
        A slave whose disk is too full for messages takes no bytes either, until files were
        deleted.
        """
        put(self.master)
        self.slaveDisk.free = self.slaveDisk.total // 20
        self.slave.retention.clean()
        self.assertRaises(DiskFull, copy, self.master, self.slave)
        self.slaveDisk.free = self.slaveDisk.total // 2
        self.slave.retention.clean()
        copy(self.master, self.slave)
        self.assertEqualLogs()

    def test_brokenDiskStops(self) -> None:
        """
        A disk that fails ends the store, as it does a master's.
        """
        put(self.master)

        def fail(operation: str, path: str) -> None:
            if operation == "pwrite" and "/commitlog/" in path:
                raise ioError()

        self.slaveDisk.before = fail
        self.assertRaises(StoreFailed, copy, self.master, self.slave)
        self.slaveDisk.before = lambda operation, path: None
        self.assertRaises(StoreFailed, copy, self.master, self.slave)


class RoleTests(ReplicaTestCase):
    """
    Following and leading.
    """

    def test_followerTakesNoMessages(self) -> None:
        """
        A store that follows refuses messages, alone, many and in batches.
        """
        self.assertTrue(self.slave.replica.isFollower)
        self.assertRaises(StoreIsReplica, put, self.slave)
        self.assertRaises(StoreIsReplica, self.slave.appendMany, [], [])
        self.assertEqual(0, self.slave.replica.end)

    def test_leaderGoesOn(self) -> None:
        """
        A store that begins to lead takes messages behind the last ones of each queue, at a
        time that is not before theirs.
        """
        for number in range(5):
            put(self.master, queueId=number % 2)
        last = self.master.log.recordAt(put(self.master, b"last").offset)
        assert last is not None
        copy(self.master, self.slave)
        self.slave.appender.schedule._wall = lambda: START - 10
        self.slave.replica.lead()
        self.assertFalse(self.slave.replica.isFollower)
        appended = put(self.slave, b"mine")
        self.assertEqual((self.master.replica.end, 4), (appended.offset, appended.queueOffset))
        self.assertGreaterEqual(appended.storeTimestamp, last[1].storeTimestamp)
        self.assertEqual(2, put(self.slave, b"mine", queueId=1).queueOffset)
        self.assertEqual([b"x", b"x", b"x", b"last", b"mine"], bodies(self.slave))

    def test_leaderDropsHalfRecord(self) -> None:
        """
        Wherever the stream has ended, the first message of a store that begins to lead stands
        behind the last whole record, and the folder is sound.
        """
        ends = [put(self.master, b"%d" % n * 700, TAGS="t", KEYS="k").end for n in range(4)]
        for until in (*range(1, ends[-1], 97), ends[1] + 4, ends[1] + 8, ends[1] + 20, _FILE):
            self.slaveDisk = Disk()
            self.slave = self.startSlave()
            copy(self.master, self.slave, until=until)
            self.slave.replica.lead()
            whole = sum(end <= until for end in ends)
            appended = put(self.slave, b"mine")
            self.assertEqual(whole, appended.queueOffset)
            expected = [b"%d" % n * 700 for n in range(whole)] + [b"mine"]
            self.assertEqual(expected, bodies(self.slave))
            self.slaveDisk.kill()
            self.slave = self.start(self.slaveDisk)
            self.assertEqual(expected, bodies(self.slave))

    def test_formerMasterFollows(self) -> None:
        """
        A store that begins to follow writes what was appended before, and refuses the next
        message.
        """
        self.master.put("T", 0, b"x", b"", 1, HOST)
        self.master.replica.follow()
        self.assertEqual([b"x"], bodies(self.master))
        self.assertRaises(StoreIsReplica, put, self.master)
        self.slave.replica.lead()
        put(self.slave, b"y")
        copy(self.slave, self.master)
        put(self.slave, b"z")
        copy(self.slave, self.master)
        self.assertEqual([b"x", b"z"], bodies(self.master))

    def test_deliveryTimesByOwnLevels(self) -> None:
        """
        Entries of delayed messages have the times of the slave's own delay levels.
        """
        topic = "SCHEDULE_TOPIC_XXXX"
        put(self.master, topic=topic, queueId=2, DELAY="3")
        self.slaveDisk = Disk()
        self.slave = self.startSlave(settings=attrs.evolve(SMALL, messageDelayLevel="1s 2s 7s"))
        copy(self.master, self.slave)
        [(*place, time)] = self.master.entries(topic, 2, 0, 10)
        self.assertEqual([(*place, time - 3000)], self.slave.entries(topic, 2, 0, 10))

    def test_queuesThatFallBehind(self) -> None:
        """
        If entries cannot be written, the log is taken all the same, and the queues catch up
        when there is room; meanwhile the store does not begin to lead.
        """
        broken = True

        def fail(operation: str, path: str) -> None:
            if broken and "/consumequeue/" in path and operation in ("create", "pwrite"):
                raise full()

        self.slaveDisk.before = fail
        for number in range(3):
            put(self.master, b"%d" % number, topic="SCHEDULE_TOPIC_XXXX", DELAY="1")
        copy(self.master, self.slave, 60)
        self.assertEqual(self.master.replica.end, self.slave.replica.end)
        self.assertRaises(OSError, self.slave.replica.lead)
        self.assertTrue(self.slave.replica.isFollower)
        broken = False
        self.clock.advance(1.5)
        self.assertEqual(3, self.slave.maxOffset("SCHEDULE_TOPIC_XXXX", 0))
        self.slave.replica.lead()
        appended = put(self.slave, b"next", topic="SCHEDULE_TOPIC_XXXX", DELAY="1")
        self.assertEqual(3, appended.queueOffset)
        self.assertEqualStart()

    def assertEqualStart(self) -> None:
        """
        The slave's log begins with the bytes of the master's.
        """
        mine, theirs = logOf(self.slave), logOf(self.master)
        self.assertEqual(theirs, mine[: len(theirs)])

    def test_cleanStop(self) -> None:
        """
        A follower that is stopped, also with half a record in memory, has closed its folder:
        the checkpoint tells of all that is in the log.
        """
        ends = [put(self.master, b"%d" % number * 100).end for number in range(3)]
        copy(self.master, self.slave, until=ends[1] + 50)
        self.successResultOf(self.slave.stop())
        self.assertNotIn("abort", self.slaveDisk.names(ROOT))
        self.slave = self.startSlave()
        self.assertEqual(ends[1], self.slave.checkpointer.last.offset)
        self.assertEqual(ends[1], self.slave.replica.end)

    def test_memoryFiles(self) -> None:
        """
        On the disk of the memory cluster, a log is followed, cut and set aside as well.
        """
        disk: Any = MemoryFiles(self.clock.seconds)
        slave = self.start(disk, follow=True)
        ends = [put(self.master, b"%d" % number * 900).end for number in range(8)]
        copy(self.master, slave, 1000)
        self.assertEqual(3, slave.replica.cut(ends[4], 1).records)
        copy(self.master, slave)
        self.assertEqual(logOf(self.master), logOf(slave))
        self.assertTrue(slave.replica.beginAt(0))
        copy(self.master, slave)
        self.assertEqual(bodies(self.master), bodies(slave))


class PieceTests(ReplicaTestCase):
    """
    Pieces of any size.
    """

    @given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(0, 60))
    def test_anyPieces(self, sizes: list[int], stop: int) -> None:
        """
        Whatever the pieces, a slave has the master's bytes and messages in the end; and if
        they stop anywhere, it leads behind its last whole record.
        """
        if not self.master.replica.end:
            for number in range(9):
                put(self.master, b"%d" % number * (number * 150), TAGS="t" * number)
        self.slaveDisk = Disk()
        self.slave = self.startSlave()
        copy(self.master, self.slave, cycle(sizes))
        self.assertEqualLogs()
        self.assertEqual(bodies(self.master), bodies(self.slave))
        self.slaveDisk = Disk()
        self.slave = self.startSlave()
        until = sum(islice(cycle(sizes), stop)) % (self.master.replica.end + 1)
        copy(self.master, self.slave, cycle(sizes), until)
        whole = len(bodies(self.slave))
        self.slave.replica.lead()
        self.assertEqual(whole, put(self.slave, b"mine").queueOffset)
        self.assertEqual([*bodies(self.master)[:whole], b"mine"], bodies(self.slave))
