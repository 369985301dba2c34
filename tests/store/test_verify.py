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
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.ours import Driver
from tests.interop.samples import commands, small
from txrocket.store.__main__ import Bar, main
from txrocket.store.readonly import inUse
from txrocket.store.verify import Report, Verifier


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
    What the tests have in common: a folder with one of everything.
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

    def test_beingDeleted(self) -> None:
        """
        Queues that were put aside to be deleted are no topic's, and not looked at.
        """
        aside = self.folder / "consumequeue" / ".gone-0" / "0"
        aside.mkdir(parents=True)
        (aside / ("0" * 20)).write_bytes(b"anything")
        self.assertEqual([], self.verify().problems)

    def test_counts(self) -> None:
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

    def test_indexEntries(self) -> None:
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

    def test_exitCode(self) -> None:
        """
        The last line says that the folder is sound, and the exit code is 0.
        """
        code, lines, errors = self.run_("verify", "--slots", "50")
        self.assertEqual((code, lines[-1], errors), (0, "sound", ""))

    def test_empty(self) -> None:
        """
        A store that has no message yet is sound.
        """
        self.folder = Path(self.mktemp())
        Driver(small(str(self.folder))).stop()
        (self.folder / "commitlog").mkdir(exist_ok=True)
        report = self.verify()
        self.assertEqual((report.problems, report.records), ([], 0))

    def test_notClosed(self) -> None:
        """
        A folder that was not closed is told from one that was.
        """
        (self.folder / "abort").touch()
        self.assertFalse(self.verify().closed)
        _, lines, _ = self.run_("verify", "--slots", "50")
        self.assertIn("closed cleanly    no: the next start will check it", lines)

    def test_killed(self) -> None:
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

    def test_firstDeleted(self) -> None:
        """
        Entries that tell of records in deleted files are no problem.
        """
        self.log[0].unlink()
        report = self.verify()
        self.assertEqual(report.problems, [])
        self.assertEqual(report.first, 16384)

    def test_noIndex(self) -> None:
        """
        A store without an index is sound: it can be told to keep none.
        """
        for each in self.index:
            each.unlink()
        report = self.verify()
        self.assertEqual((report.problems, report.indexFiles), ([], 0))

    def test_filler(self) -> None:
        """
        What stands in front of a queue's first entry is neither counted nor a
        problem.
        """
        folder = Path(self.mktemp())
        driver = Driver(small(str(folder)))
        command = next(commands("Sample"))
        driver.store._next[command["topic"], command["queueId"]] = 5
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
        driver.store.log.end = driver.store.log.written = driver.store.follow.position = 16 * 1024
        driver.store._next[command["topic"], command["queueId"]] = 3
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

    def test_body(self) -> None:
        """
        A body that does not match its checksum is found, with its place.
        """
        path, position, record = self.record(30)
        self.patchFile(path, position + 90, b"\xff\xff")
        report = self.verify()
        self.assertEqual(report.bad, (record["offset"], "the body does not match its CRC"))
        self.assertEqual(report.records, 30)
        self.assertProblem("commitlog", "bad record", f"at {record['offset']}: the body")
        _, lines, _ = self.run_("verify", "--slots", "50")
        self.assertIn(
            f"first bad record  at {record['offset']}: the body does not match its CRC", lines
        )

    def test_magic(self) -> None:
        """
        What is no record is found.
        """
        path, position, record = self.record(31)
        self.patchFile(path, position + 4, b"\1\2\3\4")
        self.assertProblem("commitlog", "bad record", f"at {record['offset']}: magic code 01020304")

    def test_size(self) -> None:
        """
        A size that cannot be is found.
        """
        path, position, _ = self.record(31)
        self.patchFile(path, position, struct.pack(">i", -7))
        self.assertProblem("commitlog", "bad record", "size -7")

    def test_displaced(self) -> None:
        """
        A record that says that it is elsewhere is found.
        """
        path, position, _ = self.record(31)
        self.patchFile(path, position + 28, struct.pack(">q", 5))
        self.assertProblem("commitlog", "bad record", "it says that it is at 5")

    def test_torn(self) -> None:
        """
        A record whose end never reached the disk is found.
        """
        path, position, record = self.record(-1)
        end = position + record["size"]
        self.patchFile(path, end - 3, bytes(3))
        self.assertProblem("commitlog", "bad record", "a part of it was never written")

    def test_behind(self) -> None:
        """
        Files that hold data behind the log's end are found.
        """
        path, position, _ = self.record(10)
        self.patchFile(path, position, bytes(8))
        self.assertProblem("commitlog", "data behind the log's end", self.log[1].name)

    def test_blank(self) -> None:
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

    def test_fileMissing(self) -> None:
        """
        A file that is missing between others is found.
        """
        self.log[1].unlink()
        self.assertProblem("commitlog", "a file does not follow the one before", self.log[2].name)

    def test_fileShort(self) -> None:
        """
        A file of another size than the first is found.
        """
        os.truncate(self.log[-1], 16000)
        self.assertProblem("commitlog", "a file has another size than the first", "16000 bytes")

    def test_entryOffset(self) -> None:
        """
        A queue entry that points to another record is found.
        """
        self.patchFile(self.queue, 20, struct.pack(">q", 77))
        self.assertProblem("consumequeue/Topic1/1", "wrong offset", "entry 1 has 77, not")

    def test_entrySize(self) -> None:
        """
        A queue entry with another size than its record is found.
        """
        self.patchFile(self.queue, 28, struct.pack(">i", 77))
        self.assertProblem("consumequeue/Topic1/1", "wrong size", "entry 1 has 77, not")

    def test_entryTag(self) -> None:
        """
        A queue entry with another hash than that of its record's tag is found.
        """
        self.patchFile(self.queue, 32, struct.pack(">q", 77))
        self.assertProblem("consumequeue/Topic1/1", "wrong tag's hash", "entry 1 has 77, not")

    def test_delay(self) -> None:
        """
        When a delayed message is due depends on the levels, which can be given.
        """
        code, lines, _ = self.run_("verify", "--slots", "50", "--levels", "1s 5s")
        self.assertEqual(code, 1)
        self.assertIn("SCHEDULE_TOPIC_XXXX/17: wrong tag's hash", "\n".join(lines))

    def test_entriesSwapped(self) -> None:
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

    def test_entryMissing(self) -> None:
        """
        A record without its queue entry is found.
        """
        self.patchFile(self.queue, 40, bytes(20))
        self.assertProblem("consumequeue/Topic1/1", "missing entry", "2, of the record at")

    def test_queueMissing(self) -> None:
        """
        A record without its queue is found.
        """
        self.queue.unlink()
        self.queue.parent.rmdir()
        self.assertProblem("consumequeue/Topic1/1", "missing entry", "no such queue")

    def test_queueEmpty(self) -> None:
        """
        A record whose queue has no files is found.
        """
        self.queue.unlink()
        self.assertProblem("consumequeue/Topic1/1", "missing entry", "0, of the record at")

    def test_queueSize(self) -> None:
        """
        A file whose size is that of no number of entries is found.
        """
        os.truncate(self.queue, 239)
        self.assertProblem("consumequeue/Topic1/1", "no queue's file", "239 bytes")

    def test_entrySurplus(self) -> None:
        """
        An entry behind the last record's is found.
        """
        data = self.queue.read_bytes()
        count = next(n for n in range(12) if not any(data[n * 20 : n * 20 + 20]))
        self.patchFile(self.queue, count * 20, struct.pack(">qiq", 100, 100, 0))
        self.assertProblem("consumequeue/Topic1/1", "surplus entry", f"{count} points to 100")

    def test_queueSurplus(self) -> None:
        """
        A queue that no record belongs to is found.
        """
        folder = self.folder / "consumequeue" / "Nobody" / "0"
        folder.mkdir(parents=True)
        (folder / ("0" * 20)).write_bytes(struct.pack(">qiq", 100, 100, 0) + bytes(220))
        self.assertProblem("consumequeue/Nobody/0", "surplus entry", "0 points to 100")

    def test_order(self) -> None:
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

    def test_indexNowhere(self) -> None:
        """
        An index entry that points to no record is found, and the keys of which
        nothing leads to their record; others are not hidden by it.
        """
        for offset in (3, 16384 * 2 - 1, 1 << 50):
            self.patchFile(self.index[0], self.entryAt(7) + 4, struct.pack(">q", offset))
            self.assertProblem("index/", "entry points nowhere", f"7 to {offset}, where")
            missing = [each for each in self.verify().problems if each.kind == "missing key"]
            self.assertEqual([each.count for each in missing], [1])

    def test_indexLast(self) -> None:
        """
        The same with the very last entry.
        """
        count = struct.unpack(">i", self.index[-1].read_bytes()[36:40])[0]
        self.patchFile(self.index[-1], self.entryAt(count - 1) + 4, struct.pack(">q", 5))
        self.assertProblem("index/", "entry points nowhere", f"{count - 1} to 5, where")

    def test_indexHash(self) -> None:
        """
        A key whose hash is not in the index is found.
        """
        self.patchFile(self.index[0], self.entryAt(8), struct.pack(">i", 12345))
        self.assertProblem("index", "missing key", "of the record at")

    def test_indexChain(self) -> None:
        """
        An entry that does not lead to the one before it is found.
        """
        self.patchFile(self.index[0], self.entryAt(100) + 16, struct.pack(">i", 99))
        self.assertProblem("index/", "broken chain", "entry 100 leads to 99, not")

    def test_indexSlot(self) -> None:
        """
        A slot that does not lead to its newest entry is found.
        """
        self.patchFile(self.index[0], 40, struct.pack(">50i", *[0] * 50))
        self.assertProblem("index/", "slot without its newest entry", "of them, the first is")

    def test_indexCount(self) -> None:
        """
        A count beyond the file's end is found.
        """
        self.patchFile(self.index[0], 36, struct.pack(">i", 10**6))
        self.assertProblem("index/", "wrong count", "1000000, there is room for 120")

    def test_indexSize(self) -> None:
        """
        An index file of another size than the others is found.
        """
        os.truncate(self.index[1], 100)
        self.assertProblem("index/", "wrong size", "100 bytes are not those of")

    def test_checkpointAhead(self) -> None:
        """
        A checkpoint that speaks of more than there is is found.
        """
        for each in self.log[1:]:
            each.unlink()
        self.assertProblem("checkpoint", "ahead of the log")

    def test_checkpointSize(self) -> None:
        """
        A checkpoint of a wrong size is found.
        """
        os.truncate(self.folder / "checkpoint", 1000)
        self.assertProblem("checkpoint", "wrong size", "1000 bytes, not 4096")

    def test_table(self) -> None:
        """
        A table that is no JSON, not even fastjson's, is found.
        """
        (self.folder / "config" / "topics.json").write_bytes(b'{"topicConfigTable":{')
        self.assertProblem("config/topics.json", "does not parse")

    def test_tableEmpty(self) -> None:
        """
        A table without content is found.
        """
        (self.folder / "config" / "topics.json.bak").touch()
        self.assertProblem("config/topics.json.bak", "does not parse")


class UnreadableTests(_FolderTests):
    """
    Folders that cannot be read.
    """

    def test_noStore(self) -> None:
        """
        A folder without a log is no store, and one that is not there neither.
        """
        for name in (self.mktemp(), str(self.folder / "config")):
            errors = io.StringIO()
            for command in ("verify", "dump"):
                self.assertEqual(main([command, name], io.StringIO(), errors), 2)
            self.assertIn("is no store", errors.getvalue())

    def test_slots(self) -> None:
        """
        Index files that cannot have so many slots ask for the right number.
        """
        code, lines, errors = self.run_("verify")
        self.assertEqual((code, lines), (2, []))
        self.assertIn("maxHashSlotNum", errors)

    def test_levels(self) -> None:
        """
        Levels that are none are refused.
        """
        code, _, errors = self.run_("verify", "--levels", "soon")
        self.assertEqual(code, 2)
        self.assertIn("'soon' is no delay", errors)

    def test_arguments(self) -> None:
        """
        Arguments that are none are refused with exit code 2.
        """
        self.patch(sys, "stderr", io.StringIO())
        for argv in ([], ["mend", "x"], ["dump", "x", "--limit", "-1"], ["verify"]):
            with self.assertRaises(SystemExit) as raised:
                main(argv)
            self.assertEqual(raised.exception.code, 2)

    def test_inUse(self) -> None:
        """
        A folder that another process has open is refused, unless one insists;
        and asking disturbs nobody.
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

    def test_neverOpened(self) -> None:
        """
        A folder without a lock file is in nobody's use.
        """
        self.assertFalse(inUse(self.mktemp()))


class DumpTests(_FolderTests):
    """
    Showing records.
    """

    def test_all(self) -> None:
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

    def test_fields(self) -> None:
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

    def test_topic(self) -> None:
        """
        One topic's records can be asked for.
        """
        found = self.dumped("--topic", "Batches")
        self.assertEqual({each["topic"] for each in found}, {"Batches"})
        self.assertEqual([each["queueOffset"] for each in found], list(range(len(found))))

    def test_from(self) -> None:
        """
        One can begin at any record.
        """
        everything = self.dumped()
        start = everything[40]["offset"]
        self.assertEqual(self.dumped("--from", str(start)), everything[40:])

    def test_fromNowhere(self) -> None:
        """
        Where no record begins, one cannot begin.
        """
        code, lines, errors = self.run_("dump", "--from", "7")
        self.assertEqual((code, lines), (2, []))
        self.assertIn("no record begins at 7", errors)

    def test_damaged(self) -> None:
        """
        Records before a damaged one are shown, and why it is not.
        """
        bad = self.dumped()[20]
        self.patchFile(self.log[bad["offset"] // 16384], bad["offset"] % 16384 + 4, b"\1")
        code, lines, errors = self.run_("dump")
        self.assertEqual((code, len(lines)), (1, 20))
        self.assertIn(f"bad record at {bad['offset']}: magic code", errors)

    def test_unchanged(self) -> None:
        """
        Showing changes nothing.
        """
        before = _state(self.folder)
        self.dumped("--body")
        self.assertEqual(_state(self.folder), before)

    def test_pipe(self) -> None:
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

    def test_terminal(self) -> None:
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

    def test_elsewhere(self) -> None:
        """
        Elsewhere there is none.
        """
        stream = io.StringIO()
        Bar(stream).show(1, 2)
        self.assertEqual(stream.getvalue(), "")

    def test_nothing(self) -> None:
        """
        An empty log is done at once.
        """
        stream = _Terminal()
        Bar(stream).show(0, 0)
        self.assertIn("100 %\n", stream.getvalue())
