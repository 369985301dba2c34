# SPDX-License-Identifier: Apache-2.0
"""
Tests for C{python -m txrocket.store}: folders that are sound, and folders that were
damaged in one place each.
"""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.ours import Driver
from tests.interop.samples import commands, small
from txrocket.store.__main__ import Bar, main
from txrocket.store.jsontable import sealed
from txrocket.store.verify import Report, Verifier
from txrocket.store.verify.readonly import inUse


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        """
        Pretend to be one.
        """
        return True


def _state(folder: Path) -> dict[str, Any]:
    """
    All that a look at a folder must not change.
    """
    return {
        str(each): (each.stat().st_mtime_ns, each.read_bytes() if each.is_file() else b"")
        for each in sorted(folder.rglob("*"))
    }


class _FolderTests(SynchronousTestCase):
    """
    A folder with one of everything.
    """

    def setUp(self) -> None:
        """
        Make the folder.
        """
        self.folder = Path(self.mktemp())
        driver = Driver(small(str(self.folder)))
        for each in commands("Sample"):
            driver.put(each)
        driver.stop()
        config = self.folder / "config"
        config.mkdir()
        (config / "consumerOffset.json").write_bytes(b'{"offsetTable":{"T@G":{0:1,1:2}}}')
        self.log = sorted((self.folder / "commitlog").iterdir())
        self.index = sorted((self.folder / "index").iterdir())
        self.queue = self.folder / "consumequeue" / "Topic1" / "1" / ("0" * 20)

    def verify(self) -> Report:
        """
        Check the folder.
        """
        before = _state(self.folder)
        report = Verifier(str(self.folder), slots=50).run()
        self.assertEqual(_state(self.folder), before)
        return report

    def run_(self, *argv: str) -> tuple[int, list[str], str]:
        """
        Run a command on the folder.

        @return: the exit code, the lines of output, and the errors.
        """
        out, errors = io.StringIO(), io.StringIO()
        code = main([argv[0], str(self.folder), *argv[1:]], out, errors)
        return code, out.getvalue().splitlines(), errors.getvalue()

    def patchFile(self, path: Path, position: int, data: bytes) -> None:
        """
        Damage a file.
        """
        with path.open("r+b") as file:
            file.seek(position)
            file.write(data)

    def dumped(self, *argv: str) -> list[dict[str, Any]]:
        """
        The records that C{dump} prints.
        """
        code, lines, errors = self.run_("dump", *argv)
        self.assertEqual((code, errors), (0, ""))
        return [json.loads(each) for each in lines]


class SoundTests(_FolderTests):
    """
    Folders that nothing is wrong with.
    """

    def test_asideQueuesAreIgnored(self) -> None:
        """
        Queues that were put aside to be deleted are no topic's, and not looked at.
        """
        aside = self.folder / "consumequeue" / ".gone-0" / "0"
        aside.mkdir(parents=True)
        (aside / ("0" * 20)).write_bytes(b"anything")
        self.assertEqual([], self.verify().problems)

    def test_soundFolderIsCounted(self) -> None:
        """
        A sound folder has no problems, and everything in it is counted.
        """
        report = self.verify()
        self.assertEqual(report.problems, [])
        self.assertIsNone(report.bad)
        self.assertTrue(report.closed)
        sent = sum(len(each.get("messages", [each])) for each in commands("Sample"))
        self.assertEqual(report.records, sent)
        # Of each three odd lots, one is prepared and one is rolled back.
        self.assertEqual(report.entries, sent - 2 * 3)
        self.assertEqual(report.queues, 8)
        self.assertEqual(report.logFiles, len(self.log))
        self.assertEqual(report.logBytes, len(self.log) * 16384)
        self.assertEqual(report.indexFiles, len(self.index))
        self.assertEqual(report.tables, 1)
        self.assertEqual(report.first, 0)

    def test_indexEntriesAreCounted(self) -> None:
        """
        Index entries are counted: one for each key and unique id of records that
        were not rolled back.
        """
        expected = 0
        for command in commands("Sample"):
            for each in command.get("messages", [command]):
                properties = each["properties"]
                if command.get("sysFlag", 0) & 0xC != 0xC:
                    expected += len(properties.get("KEYS", "").split())
                    expected += "UNIQ_KEY" in properties
        self.assertEqual(self.verify().indexEntries, expected)

    def test_soundFolderExitsWithZero(self) -> None:
        """
        The last line says that the folder is sound, and the exit code is 0.
        """
        code, lines, errors = self.run_("verify", "--slots", "50")
        self.assertEqual((code, lines[-1], errors), (0, "sound", ""))

    def test_emptyStoreIsSound(self) -> None:
        """
        A store that has no message yet is sound.
        """
        self.folder = Path(self.mktemp())
        Driver(small(str(self.folder))).stop()
        (self.folder / "commitlog").mkdir(exist_ok=True)
        report = self.verify()
        self.assertEqual((report.problems, report.records), ([], 0))

    def test_openFolderIsReported(self) -> None:
        """
        A folder that was not closed is reported as such.
        """
        (self.folder / "abort").touch()
        self.assertFalse(self.verify().closed)
        _, lines, _ = self.run_("verify", "--slots", "50")
        self.assertIn("closed cleanly    no: the next start will check it", lines)

    def test_missingEntriesAfterKillAreNoDamage(self) -> None:
        """
        In a folder that was not closed, what queues and index lack of records
        after the checkpoint is no damage: the next start makes it.  What they lack
        of records before it is, and so it is in a folder that was closed.
        """
        self.queue.write_bytes(bytes(self.queue.stat().st_size))
        self.assertNotEqual(self.verify().problems, [])
        (self.folder / "abort").touch()
        self.assertNotEqual(self.verify().problems, [])
        # The checkpoint of a store that had only just been started.
        (self.folder / "checkpoint").write_bytes(bytes(4096))
        report = self.verify()
        self.assertEqual(report.problems, [])
        self.assertGreater(report.unfiled, 0)
        _, lines, _ = self.run_("verify", "--slots", "50")
        self.assertIn(
            f"to be made        {report.unfiled} entries of queues and index, by the next start",
            lines,
        )

    def test_entriesOfDeletedFilesAreNoDamage(self) -> None:
        """
        Entries that tell of records in deleted files are no problem.
        """
        self.log[0].unlink()
        report = self.verify()
        self.assertEqual(report.problems, [])
        self.assertEqual(report.first, 16384)

    def test_missingIndexIsNoDamage(self) -> None:
        """
        A store without an index is sound: it can be told to keep none.
        """
        for each in self.index:
            each.unlink()
        report = self.verify()
        self.assertEqual((report.problems, report.indexFiles), ([], 0))

    def test_fillersAreNoDamage(self) -> None:
        """
        The fillers in front of a queue's first entry are neither counted nor a problem.
        """
        folder = Path(self.mktemp())
        driver = Driver(small(str(folder)))
        command = next(commands("Sample"))
        driver.store.appender.nexts[command["topic"], command["queueId"]] = 5
        driver.put(command)
        driver.stop()
        self.folder = folder
        report = self.verify()
        self.assertEqual((report.problems, report.entries), ([], 1))

    def test_gapAtStart(self) -> None:
        """
        Nor is a gap in a queue once the log begins behind it.
        """
        folder = Path(self.mktemp())
        driver = Driver(small(str(folder)))
        command = next(commands("Sample"))
        driver.put(command)
        driver.store.log.segments.create(driver.store.log.segments.end)
        driver.store.log.end = driver.store.log.written = driver.store.dispatcher.position = (
            16 * 1024
        )
        driver.store.appender.nexts[command["topic"], command["queueId"]] = 3
        driver.put(command)
        driver.store.log.segments.removeFirst()
        driver.store.retention.follow()
        driver.stop()
        self.folder = folder
        report = self.verify()
        self.assertEqual((report.problems, report.entries), ([], 2))


class DamagedTests(_FolderTests):
    """
    Folders that are damaged in one place.
    """

    def assertProblem(self, where: str, kind: str, detail: str = "") -> None:
        """
        There is one problem, and this is it.
        """
        found = [
            each
            for each in self.verify().problems
            if each.where.startswith(where) and each.kind == kind and detail in each.detail
        ]
        self.assertEqual(len(found), 1, self.verify().problems)
        code, lines, _ = self.run_("verify", "--slots", "50")
        self.assertEqual(code, 1)
        self.assertTrue(lines[-1].startswith("damaged"), lines)
        self.assertIn(f"problem           {found[0]}", lines)

    def record(self, number: int) -> tuple[Path, int, dict[str, Any]]:
        """
        Where a record is.
        """
        found = self.dumped()[number]
        return self.log[found["offset"] // 16384], found["offset"] % 16384, found

    def test_damagedBodyIsFound(self) -> None:
        """
        A body that does not match its checksum is found, with its place, and the records
        behind it are checked too.
        """
        self.count = len(self.dumped())
        path, position, record = self.record(30)
        self.patchFile(path, position + 90, b"\xff\xff")
        report = self.verify()
        self.assertEqual(report.bad, (record["offset"], "the body does not match its CRC"))
        self.assertEqual(report.records, self.count - 1)
        self.assertProblem("commitlog", "bad record", f"at {record['offset']}: the body")
        _, lines, _ = self.run_("verify", "--slots", "50")
        self.assertIn(
            f"first bad record  at {record['offset']}: the body does not match its CRC", lines
        )

    def test_damagedMagicCodeIsFound(self) -> None:
        """
        Bytes that are no record are found.
        """
        path, position, record = self.record(31)
        self.patchFile(path, position + 4, b"\1\2\3\4")
        self.assertProblem("commitlog", "bad record", f"at {record['offset']}: magic code 01020304")

    def test_damagedSizeIsFound(self) -> None:
        """
        A size that cannot be is found.
        """
        path, position, _ = self.record(31)
        self.patchFile(path, position, struct.pack(">i", -7))
        self.assertProblem("commitlog", "bad record", "size -7")

    def test_displacedRecordIsFound(self) -> None:
        """
        A record that says that it is elsewhere is found.
        """
        path, position, _ = self.record(31)
        self.patchFile(path, position + 28, struct.pack(">q", 5))
        self.assertProblem("commitlog", "bad record", "it says that it is at 5")

    def test_tornRecordIsFound(self) -> None:
        """
        A record whose end never reached the disk is found.
        """
        path, position, record = self.record(-1)
        end = position + record["size"]
        self.patchFile(path, end - 3, bytes(3))
        self.assertProblem("commitlog", "bad record", "a part of it was never written")

    def test_zeroedRecordIsFound(self) -> None:
        """
        Zeros in the place of a record are found by the records behind them.
        """
        path, position, record = self.record(10)
        self.patchFile(path, position, bytes(8))
        next_ = record["offset"] + record["size"]
        self.assertProblem(
            "commitlog", "bad record", f"at {record['offset']}: there are zeros; the next record"
        )
        self.assertProblem("commitlog", "bad record", f"at {next_}")

    def test_dataBehindTheEnd(self) -> None:
        """
        A byte behind the last record, queue entry or index entry is found if it is not
        zero.
        """
        self.patchFile(self.log[-1], 16380, b"\1")
        self.assertProblem("commitlog", "data behind the log's end", f"{self.log[-1].name}, at")

    def test_dataBehindTheQueue(self) -> None:
        """
        Bytes behind the last entry of a queue are found, though they are no entry.
        """
        last = sorted(self.queue.parent.iterdir())[-1]
        self.patchFile(last, last.stat().st_size - 1, b"\1")
        self.assertProblem("consumequeue/Topic1/1", "data behind the queue's end")

    def test_dataBehindTheIndex(self) -> None:
        """
        Bytes behind the last entry of an index file are found, and in the entry that is
        never used.
        """
        size = self.index[-1].stat().st_size
        self.patchFile(self.index[-1], size - 1, b"\1")
        self.assertProblem("index/", "data behind the last entry", "entry 119")
        self.patchFile(self.index[0], self.entryAt(0) + 3, b"\1")
        self.assertProblem("index/", "data where there is none", "in the first entry")

    def test_shortBlankIsFound(self) -> None:
        """
        A blank that does not fill its file is found.
        """
        last = max(
            (each for each in self.dumped() if each["offset"] < 16384),
            key=lambda each: each["offset"],
        )
        end = last["offset"] + last["size"]
        self.patchFile(self.log[0], end, struct.pack(">i", 9))
        self.assertProblem("commitlog", "wrong blank", f"at {end}: 9 bytes, not {16384 - end}")

    def test_missingFileIsFound(self) -> None:
        """
        A file that is missing between others is found.
        """
        self.log[1].unlink()
        self.assertProblem("commitlog", "a file does not follow the one before", self.log[2].name)

    def test_shortFileIsFound(self) -> None:
        """
        A file of another size than the first is found.
        """
        os.truncate(self.log[-1], 16000)
        self.assertProblem("commitlog", "a file has another size than the first", "16000 bytes")

    def test_wrongEntryOffsetIsFound(self) -> None:
        """
        A queue entry that points to another record is found.
        """
        self.patchFile(self.queue, 20, struct.pack(">q", 77))
        self.assertProblem("consumequeue/Topic1/1", "wrong offset", "entry 1 has 77, not")

    def test_wrongEntrySizeIsFound(self) -> None:
        """
        A queue entry with another size than its record is found.
        """
        self.patchFile(self.queue, 28, struct.pack(">i", 77))
        self.assertProblem("consumequeue/Topic1/1", "wrong size", "entry 1 has 77, not")

    def test_wrongEntryTagIsFound(self) -> None:
        """
        A queue entry with another hash than that of its record's tag is found.
        """
        self.patchFile(self.queue, 32, struct.pack(">q", 77))
        self.assertProblem("consumequeue/Topic1/1", "wrong tag's hash", "entry 1 has 77, not")

    def test_wrongDelayIsFound(self) -> None:
        """
        When a delayed message is due depends on the levels, which can be given, also by
        the broker's file.
        """
        config = Path(self.mktemp())
        config.write_text("messageDelayLevel = 1s 5s\nmaxHashSlotNum = 50\nbrokerName = b\n")
        code, lines, _ = self.run_("verify", "--config", str(config))
        self.assertEqual(code, 1)
        self.assertIn("SCHEDULE_TOPIC_XXXX/17: wrong tag's hash", "\n".join(lines))
        code, lines, _ = self.run_("verify", "--slots", "50", "--levels", "1s 5s")
        self.assertEqual(code, 1)
        self.assertIn("SCHEDULE_TOPIC_XXXX/17: wrong tag's hash", "\n".join(lines))

    def test_swappedEntriesAreFound(self) -> None:
        """
        Entries in another order than their records are found, and told once with
        a count.
        """
        data = self.queue.read_bytes()
        self.patchFile(self.queue, 0, data[20:40] + data[:20])
        self.assertProblem("consumequeue/Topic1/1", "wrong offset", "entry 0")
        found = [each for each in self.verify().problems if each.kind == "wrong offset"]
        self.assertEqual(found[0].count, 2)
        self.assertIn("(and 1 more)", str(found[0]))

    def test_missingEntryIsFound(self) -> None:
        """
        A record without its queue entry is found.
        """
        self.patchFile(self.queue, 40, bytes(20))
        self.assertProblem("consumequeue/Topic1/1", "missing entry", "2, of the record at")

    def test_missingQueueIsFound(self) -> None:
        """
        A record without its queue is found.
        """
        self.queue.unlink()
        self.queue.parent.rmdir()
        self.assertProblem("consumequeue/Topic1/1", "missing entry", "no such queue")

    def test_emptyQueueIsFound(self) -> None:
        """
        A record whose queue has no files is found.
        """
        self.queue.unlink()
        self.assertProblem("consumequeue/Topic1/1", "missing entry", "0, of the record at")

    def test_wrongQueueSizeIsFound(self) -> None:
        """
        A file whose size is that of no number of entries is found.
        """
        os.truncate(self.queue, 239)
        self.assertProblem("consumequeue/Topic1/1", "no queue's file", "239 bytes")

    def test_surplusEntryIsFound(self) -> None:
        """
        An entry behind the last record's is found.
        """
        data = self.queue.read_bytes()
        count = next(n for n in range(12) if not any(data[n * 20 : n * 20 + 20]))
        self.patchFile(self.queue, count * 20, struct.pack(">qiq", 100, 100, 0))
        self.assertProblem("consumequeue/Topic1/1", "surplus entry", f"{count} points to 100")

    def test_surplusQueueIsFound(self) -> None:
        """
        A queue that no record belongs to is found.
        """
        folder = self.folder / "consumequeue" / "Nobody" / "0"
        folder.mkdir(parents=True)
        (folder / ("0" * 20)).write_bytes(struct.pack(">qiq", 100, 100, 0) + bytes(220))
        self.assertProblem("consumequeue/Nobody/0", "surplus entry", "0 points to 100")

    def test_queueOffsetsOutOfOrderFound(self) -> None:
        """
        Records whose queue offsets do not follow each other are found.
        """
        found = [
            each for each in self.dumped() if (each["topic"], each["queueId"]) == ("Topic1", 1)
        ]
        offset = found[3]["offset"]
        self.patchFile(self.log[offset // 16384], offset % 16384 + 20, struct.pack(">q", 9999))
        self.assertProblem(
            "consumequeue/Topic1/1", "out of order", f"record at {offset} has queue offset 9999"
        )

    def entryAt(self, number: int) -> int:
        """
        Where an index entry is in its file.
        """
        return 40 + 50 * 4 + number * 20

    def test_lostIndexEntryIsFound(self) -> None:
        """
        An index entry that points to no record is found, and the keys of which
        nothing leads to their record; others are not hidden by it.
        """
        for offset in (3, 16384 * 2 - 1, 1 << 50):
            self.patchFile(self.index[0], self.entryAt(7) + 4, struct.pack(">q", offset))
            self.assertProblem("index/", "entry points nowhere", f"7 to {offset}, where")
            missing = [each for each in self.verify().problems if each.kind == "missing key"]
            self.assertEqual([each.count for each in missing], [1])

    def test_lostLastIndexEntryIsFound(self) -> None:
        """
        The same with the very last entry.
        """
        count = struct.unpack(">i", self.index[-1].read_bytes()[36:40])[0]
        self.patchFile(self.index[-1], self.entryAt(count - 1) + 4, struct.pack(">q", 5))
        self.assertProblem("index/", "entry points nowhere", f"{count - 1} to 5, where")

    def test_missingIndexHashIsFound(self) -> None:
        """
        A key whose hash is not in the index is found.
        """
        self.patchFile(self.index[0], self.entryAt(8), struct.pack(">i", 12345))
        self.assertProblem("index", "missing key", "of the record at")

    def test_brokenIndexChainIsFound(self) -> None:
        """
        An entry that does not lead to the one before it is found.
        """
        self.patchFile(self.index[0], self.entryAt(100) + 16, struct.pack(">i", 99))
        self.assertProblem("index/", "broken chain", "entry 100 leads to 99, not")

    def test_wrongIndexSlotIsFound(self) -> None:
        """
        A slot that does not lead to its newest entry is found.
        """
        self.patchFile(self.index[0], 40, struct.pack(">50i", *[0] * 50))
        self.assertProblem("index/", "slot without its newest entry", "of them, the first is")

    def test_wrongIndexCountIsFound(self) -> None:
        """
        A count beyond the file's end is found.
        """
        self.patchFile(self.index[0], 36, struct.pack(">i", 10**6))
        self.assertProblem("index/", "wrong count", "1000000, there is room for 120")

    def test_wrongIndexSizeIsFound(self) -> None:
        """
        An index file of another size than the others is found.
        """
        os.truncate(self.index[1], 100)
        self.assertProblem("index/", "wrong size", "100 bytes are not those of")

    def test_checkpointAheadOfLogIsFound(self) -> None:
        """
        A checkpoint that speaks of more than there is is found.
        """
        for each in self.log[1:]:
            each.unlink()
        self.assertProblem("checkpoint", "ahead of the log")

    def test_wrongCheckpointSizeIsFound(self) -> None:
        """
        A checkpoint of a wrong size is found.
        """
        os.truncate(self.folder / "checkpoint", 1000)
        self.assertProblem("checkpoint", "wrong size", "1000 bytes, not 4096")

    def fixCrc(self, data: bytearray) -> bytes:
        """
        Give our part of a checkpoint the checksum that it should have.
        """
        data[117:121] = zlib.crc32(bytes(data[64:117])).to_bytes(4, "big")
        return bytes(data)

    def changed(self, position: int, layout: str, change: int) -> None:
        """
        Change a number of the checkpoint, so that the checksum is right.
        """
        path = self.folder / "checkpoint"
        data = bytearray(path.read_bytes())
        (value,) = struct.unpack_from(layout, data, position)
        struct.pack_into(layout, data, position, value + change)
        path.write_bytes(self.fixCrc(data))

    def test_flippedCheckpointBitIsFound(self) -> None:
        """
        Whichever bit of a checkpoint flips, it is found.
        """
        path = self.folder / "checkpoint"
        whole = path.read_bytes()
        for position in (*range(0, 128, 3), 511, 512, 4095):
            data = bytearray(whole)
            data[position] ^= 1 << position % 8
            path.write_bytes(bytes(data))
            self.assertIn("checkpoint", self.damagedPlaces(), position)

    def damagedPlaces(self) -> list[str]:
        """
        Where something is wrong.
        """
        return [each.where for each in Verifier(str(self.folder), slots=50).run().problems]

    def test_emptyCheckpointIsFound(self) -> None:
        """
        A checkpoint that tells of nothing, or is gone, is found if there are records.
        """
        path = self.folder / "checkpoint"
        self.patchFile(path, 0, bytes(512))
        self.assertProblem("checkpoint", "empty")
        path.unlink()
        self.assertProblem("checkpoint", "no file")

    def test_foreignCheckpointIsFound(self) -> None:
        """
        A checkpoint with a sound checksum that tells of another log is found.
        """
        for position, layout, change, kind in (
            (72, ">q", -1, "behind the log"),
            (72, ">q", 1 << 40, "ahead of the log"),
            (88, ">q", 1, "wrong number of entries"),
            (113, ">i", -1, "wrong index"),
        ):
            whole = (self.folder / "checkpoint").read_bytes()
            self.changed(position, layout, change)
            self.assertProblem("checkpoint", kind)
            (self.folder / "checkpoint").write_bytes(whole)

    def test_checkpointWithinARecord(self) -> None:
        """
        Where a log was not closed, the checkpoint must be where a record begins or ends.
        """
        (self.folder / "abort").touch()
        self.assertEqual([], self.verify().problems)
        self.changed(72, ">q", -1)
        self.assertProblem("checkpoint", "wrong offset", "where no record begins or ends")

    def test_foreignLockFileIsFound(self) -> None:
        """
        A lock file with another content is found.
        """
        self.patchFile(self.folder / "lock", 1, b"u")
        self.assertProblem("lock", "wrong content", "b'luck'")

    def test_impossibleFieldIsFound(self) -> None:
        """
        A field of a record that has a value that it cannot have is found.
        """
        _, _, record = self.record(2)
        v6 = sum(12 for each in ("bornHost", "storeHost") if ":" in record[each][0])
        for position, data, said in (
            (36, b"\x40", "unknown flags 0x40000000"),
            (38, b"\x03", "a kind of compression, and is not compressed"),
            (39, bytes([record["sysFlag"] | 1]), "is marked as compressed"),
            (40, b"\x7f", "a born timestamp of"),
            (40, b"\x80", "a born timestamp of"),
            (72 + v6, b"\x80", "reconsume times of"),
            (76 + v6, struct.pack(">q", 5), "a prepared transaction at 5"),
            (76 + v6, b"\x80", "a prepared transaction at"),
        ):
            path, at, _ = self.record(2)
            whole = path.read_bytes()
            self.patchFile(path, at + position, data)
            self.assertProblem("commitlog", "wrong field", said)
            path.write_bytes(whole)

    def test_damagedPropertyIsFound(self) -> None:
        """
        A property that is not a name and a value is found.
        """
        path, position, record = self.record(31)
        data = path.read_bytes()
        at = data.index(b"WAIT\1", position)
        self.assertLess(at, position + record["size"])
        self.patchFile(path, at + 4, b"\3")
        self.assertProblem("commitlog", "wrong field", "a property that is not a name")

    def test_wrongCrcOfEmptyBodyIsFound(self) -> None:
        """
        The checksum of an empty body is 0, and another one is found.
        """
        record = next(each for each in self.dumped() if not each["bodySize"])
        path = self.log[record["offset"] // 16384]
        self.patchFile(path, record["offset"] % 16384 + 10, b"\1")
        self.assertProblem("commitlog", "wrong field", "no body, and a CRC of")

    def test_impossibleDelayIsFound(self) -> None:
        """
        Without the levels, an entry of a delayed message may have any time that some
        delay leads to, and no other.
        """
        [queue] = (self.folder / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "17").iterdir()
        whole = queue.read_bytes()
        (time,) = struct.unpack_from(">q", whole, 12)
        self.patchFile(queue, 12, struct.pack(">q", time - 3600_000))
        self.assertEqual([], self.verify().problems)
        self.patchFile(queue, 12, struct.pack(">q", time + 1))
        self.assertProblem("consumequeue/SCHEDULE_TOPIC_XXXX/17", "wrong tag's hash")

    def test_queueFileCut(self) -> None:
        """
        A queue's file that is shorter than those of other queues is found, though none of
        its entries is missing.
        """
        last = self.folder / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "17" / ("0" * 20)
        os.truncate(last, 220)
        self.assertProblem(
            "consumequeue/SCHEDULE_TOPIC_XXXX/17", "a file has another size than other queues'"
        )

    def test_queueOffsetFarAway(self) -> None:
        """
        A record with an absurd queue offset is reported, and costs no long search.
        """
        path, position, _ = self.record(0)
        self.patchFile(path, position + 20, struct.pack(">q", 1 << 61))
        self.assertProblem("consumequeue/Topic0/0", "missing entry", f"{1 << 61}, of the record")

    def test_flippedIndexHeaderBitIsFound(self) -> None:
        """
        Whichever bit of an index file's header flips, it is found, but for the number of
        slots, which may be too large after a crash.
        """
        whole = self.index[0].read_bytes()
        for position in (*range(0, 32, 3), 36, 37, 38, 39):
            data = bytearray(whole)
            data[position] ^= 1 << position % 8
            self.index[0].write_bytes(bytes(data))
            self.assertIn(f"index/{self.index[0].name}", self.damagedPlaces(), position)

    def test_wrongIndexTimeIsFound(self) -> None:
        """
        An index entry with another time than its record's is found.
        """
        self.patchFile(self.index[0], self.entryAt(30) + 15, b"\x77")
        self.assertProblem("index/", "wrong time", "entry 30: 119 s, not")

    def test_indexFileCut(self) -> None:
        """
        An index file that is shorter than the others is found, though no entry is missing.
        """
        os.truncate(self.index[-1], self.index[-1].stat().st_size - 20)
        self.assertProblem("index/", "wrong size", "other index files have")

    def writeTable(self, name: str, text: bytes) -> None:
        """
        Lay a table without a checksum, as Java does.
        """
        (self.folder / "config" / name).write_bytes(text)

    def test_impossibleTableValueIsFound(self) -> None:
        """
        A table without a checksum is damaged if what it says cannot be.
        """
        for name, text, said in (
            ("topics.json", b'{"topicConfigTablf":{}}', "it has no topicConfigTable"),
            ("topics.json", b'{"topicConfigTable":{"T":{"topicName":"U"}}}', "topic 'T' is"),
            ("topics.json", b'{"topicConfigTable":{"T":{"perm":9}}}', "a perm of 9"),
            ("topics.json", b'{"topicConfigTable":{"T":{"readQueueNums":-1}}}', "of -1"),
            ("topics.json", b'{"topicConfigTable":{},"dataVersion":{"x":1}}', "its dataVersion"),
            ("subscriptionGroup.json", b"[]", "it has no subscriptionGroupTable"),
            (
                "subscriptionGroup.json",
                b'{"subscriptionGroupTable":{"G":{"groupName":"H"}}}',
                "group 'G' is",
            ),
            (
                "subscriptionGroup.json",
                b'{"subscriptionGroupTable":{"G":{"retryQueueNums":-2}}}',
                "a retryQueueNums of -2",
            ),
            (
                "consumerOffset.json",
                b'{"offsetTable":{"Topic1@G":{0:9999}}}',
                "has 9999 in queue 0",
            ),
            ("consumerOffset.json", b'{"offsetTable":{"Topic1@G":{0:-1}}}', "has -1 in queue 0"),
            ("consumerOffset.json", b'{"offsetTable":{"Topic1":{0:1}}}', "'Topic1' is"),
            ("delayOffset.json", b'{"offsetTable":{18:9999}}', "level 18 has 9999"),
            ("delayOffset.json", b'{"offsetTable":{0:0}}', "level 0 has 0"),
            ("consumerFilter.json", b'{"filterDataByTopic":{"T":{"topic":"U"}}}', "topic 'T' is"),
        ):
            self.writeTable(name, text)
            self.assertProblem(f"config/{name}", "wrong content", said)
            self.writeTable(name, b'{"offsetTable":{}}')
            (self.folder / "config" / name).unlink()

    def test_flippedTableBitIsFound(self) -> None:
        """
        Whichever bit of a table with a checksum flips, it is found, in its C{.bak} too.
        """
        whole = sealed(b'{"offsetTable":{"Topic1@G":{0:1}}}')
        for name in ("consumerOffset.json", "consumerOffset.json.bak"):
            for position in range(0, len(whole), 5):
                data = bytearray(whole)
                data[position] ^= 1 << position % 8
                self.writeTable(name, bytes(data))
                self.assertEqual([f"config/{name}"], self.damagedPlaces(), position)
            self.writeTable(name, whole)
            self.assertEqual([], self.verify().problems)

    def test_anyDamageIsFound(self) -> None:
        """
        A flipped bit, a lost sector or a cut anywhere in queues, index, checkpoint and
        tables is found.
        """
        for name in ("consumerOffset.json", "consumerOffset.json.bak"):
            self.writeTable(name, sealed(b'{"offsetTable":{"Topic1@G":{0:1,1:2}}}'))
        seed = int.from_bytes(os.urandom(4), "big")
        random = Random(seed)
        for kind in ("consumequeue", "index", "checkpoint", "config"):
            files = [each for each in sorted(self.folder.rglob("*")) if each.is_file()]
            files = [each for each in files if kind in str(each.relative_to(self.folder))]
            for _ in range(15):
                path = random.choice(files)
                what, damaged = self.damaged(random, path.read_bytes())
                whole = path.read_bytes()
                path.write_bytes(damaged)
                if damaged != whole and not self.sparesTheIndex(path, whole, damaged):
                    self.assertNotEqual([], self.damagedPlaces(), f"{path}: {what}, seed {seed}")
                path.write_bytes(whole)

    @staticmethod
    def damaged(random: Random, data: bytes) -> tuple[str, bytes]:
        """
        The damages to a file, and their outcome.
        """
        position = random.randrange(len(data))
        what = random.choice(("bit", "sector", "cut"))
        if what == "cut":
            return f"cut at {position}", data[:position]
        if what == "sector":
            position -= position % 512
            lost = bytes(len(data[position : position + 512]))
            return f"sector at {position}", data[:position] + lost + data[position + 512 :]
        flipped = bytearray(data)
        flipped[position] ^= 1 << random.randrange(8)
        return f"bit at {position}", bytes(flipped)

    @staticmethod
    def sparesTheIndex(path: Path, whole: bytes, damaged: bytes) -> bool:
        """
        Whether only the number of slots of an index file is another one, which may be
        too large after a crash.
        """
        return (
            path.parent.name == "index"
            and len(whole) == len(damaged)
            and (whole[:32], whole[36:]) == (damaged[:32], damaged[36:])
        )

    def test_unreadableTableIsFound(self) -> None:
        """
        A table that is no JSON, not even fastjson's, is found.
        """
        (self.folder / "config" / "topics.json").write_bytes(b'{"topicConfigTable":{')
        self.assertProblem("config/topics.json", "does not parse")

    def test_emptyTableIsFound(self) -> None:
        """
        A table without content is found.
        """
        (self.folder / "config" / "topics.json.bak").touch()
        self.assertProblem("config/topics.json.bak", "does not parse")


class UnreadableTests(_FolderTests):
    """
    Folders that cannot be read.
    """

    def test_folderWithoutLogIsRefused(self) -> None:
        """
        A folder without a log is no store, and one that is not there neither.
        """
        for name in (self.mktemp(), str(self.folder / "config")):
            errors = io.StringIO()
            for command in ("verify", "dump"):
                self.assertEqual(main([command, name], io.StringIO(), errors), 2)
            self.assertIn("is no store", errors.getvalue())

    def test_wrongSlotCountIsRefused(self) -> None:
        """
        If the index files cannot have the given number of slots, the error asks for it.
        """
        code, lines, errors = self.run_("verify")
        self.assertEqual((code, lines), (2, []))
        self.assertIn("maxHashSlotNum", errors)

    def test_wrongLevelsAreRefused(self) -> None:
        """
        A text that is no list of levels is refused.
        """
        code, _, errors = self.run_("verify", "--levels", "soon")
        self.assertEqual(code, 2)
        self.assertIn("'soon' is no delay", errors)

    def test_invalidArgumentsRefused(self) -> None:
        """
        Unknown arguments are refused with exit code 2.
        """
        self.patch(sys, "stderr", io.StringIO())
        for argv in ([], ["mend", "x"], ["dump", "x", "--limit", "-1"], ["verify"]):
            with self.assertRaises(SystemExit) as raised:
                main(argv)
            self.assertEqual(raised.exception.code, 2)

    def test_usedFolderIsRefused(self) -> None:
        """
        A folder that another process has open is refused, unless the operator
        insists; and the question disturbs no process.
        """
        self.assertFalse(inUse(str(self.folder)))
        program = (
            "import sys; from txrocket.store.files import Files; "
            "Files().lock(sys.argv[1]); print(flush=True); sys.stdin.read()"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", program, str(self.folder / "lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            self.assertTrue(inUse(str(self.folder)))
            code, lines, errors = self.run_("dump")
            self.assertEqual((code, lines), (2, []))
            self.assertIn("is in use by another process", errors)
            code, lines, _ = self.run_("verify", "--slots", "50", "--force")
            self.assertEqual((code, lines[-1]), (0, "sound"))
        finally:
            holder.communicate()

    def test_folderWithoutLockIsFree(self) -> None:
        """
        A folder without a lock file is not in use.
        """
        self.assertFalse(inUse(self.mktemp()))


class DumpTests(_FolderTests):
    """
    Showing records.
    """

    def test_everyRecordIsALine(self) -> None:
        """
        Every record is a line, in the log's order, with what was sent in it.
        """
        found = self.dumped("--body")
        sent = [
            each["body"]
            for command in commands("Sample")
            for each in command.get("messages", [command])
        ]
        self.assertEqual([each["body"] for each in found], sent)
        self.assertEqual(
            [each["offset"] for each in found], sorted(each["offset"] for each in found)
        )

    def test_dumpShowsFields(self) -> None:
        """
        A record shows where it is, when and whence it came, and what it says;
        its body only on demand.
        """
        command = next(commands("Sample"))
        found = self.dumped("--limit", "1")[0]
        self.assertEqual(
            found,
            {
                "offset": 0,
                "size": found["size"],
                "topic": "Topic0",
                "queueId": 0,
                "queueOffset": 0,
                "storeTimestamp": found["storeTimestamp"],
                "bornTimestamp": 1700000000000,
                "storeHost": ["2001:db8::ff", 10911],
                "bornHost": ["2001:db8::7", 50124],
                "sysFlag": 0x30,
                "flag": 0,
                "reconsumeTimes": 0,
                "preparedTransactionOffset": 0,
                "properties": command["properties"],
                "bodySize": 0,
            },
        )

    def test_topicSelectsRecords(self) -> None:
        """
        One topic's records can be asked for.
        """
        found = self.dumped("--topic", "Batches")
        self.assertEqual({each["topic"] for each in found}, {"Batches"})
        self.assertEqual([each["queueOffset"] for each in found], list(range(len(found))))

    def test_dumpBeginsAtAnyRecord(self) -> None:
        """
        One can begin at any record.
        """
        everything = self.dumped()
        start = everything[40]["offset"]
        self.assertEqual(self.dumped("--from", str(start)), everything[40:])

    def test_dumpBeginsAtRecordsOnly(self) -> None:
        """
        Where no record begins, one cannot begin.
        """
        code, lines, errors = self.run_("dump", "--from", "7")
        self.assertEqual((code, lines), (2, []))
        self.assertIn("no record begins at 7", errors)

    def test_damagedRecordEndsDump(self) -> None:
        """
        Records before a damaged one are shown, and why it is not.
        """
        bad = self.dumped()[20]
        self.patchFile(self.log[bad["offset"] // 16384], bad["offset"] % 16384 + 4, b"\1")
        code, lines, errors = self.run_("dump")
        self.assertEqual((code, len(lines)), (1, 20))
        self.assertIn(f"bad record at {bad['offset']}: magic code", errors)

    def test_dumpChangesNothing(self) -> None:
        """
        Showing changes nothing.
        """
        before = _state(self.folder)
        self.dumped("--body")
        self.assertEqual(_state(self.folder), before)

    def test_closedPipeIsNoError(self) -> None:
        """
        A reader that has had enough is no error.
        """
        program = [sys.executable, "-m", "txrocket.store", "dump", "--body", str(self.folder)]
        for _ in range(2):
            process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.close()
            _, errors = process.communicate()
            self.assertEqual((process.returncode, errors), (0, b""))


class BarTests(SynchronousTestCase):
    """
    The progress bar.
    """

    def test_terminalShowsBar(self) -> None:
        """
        On a terminal one line grows, and ends when all is done.
        """
        stream = _Terminal()
        bar = Bar(stream)
        for done in (0, 1, 500, 1000):
            bar.show(done, 1000)
        shown = stream.getvalue().split("\r")[1:]
        self.assertEqual(
            shown,
            [
                f"[{'':40}]   0 %",
                f"[{'#' * 20:40}]  50 %",
                f"[{'#' * 40}] 100 %\n",
            ],
        )

    def test_fileShowsNoBar(self) -> None:
        """
        A file gets no bar.
        """
        stream = io.StringIO()
        Bar(stream).show(1, 2)
        self.assertEqual(stream.getvalue(), "")

    def test_emptyLogIsDoneAtOnce(self) -> None:
        """
        An empty log is done at once.
        """
        stream = _Terminal()
        Bar(stream).show(0, 0)
        self.assertIn("100 %\n", stream.getvalue())
