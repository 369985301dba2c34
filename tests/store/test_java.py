# SPDX-License-Identifier: Apache-2.0
"""
Tests with folders that RocketMQ 4.9.7's own store has written; what is expected
is what that store read in them.  C{tests/fixtures/javastore.rst} tells how they
were made.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.content import comparable, content, describe
from tests.interop.ours import Driver
from tests.interop.samples import commands, small
from tests.store.replicas import copy, logOf
from txrocket.protocol.record import decodeRecord, decodeRecords
from txrocket.store.read.getresult import GetMessageStatus

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "javastore.tar.xz"

# Python 3.11.2, as Debian has it, knows no filters; the archives are our own.
SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


class _Folder:
    """
    The tests, for each of the two folders.
    """

    name: str

    def setUp(self: Any) -> None:
        root = self.mktemp()
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(root, **SAFELY)
        self.folder = os.path.join(root, self.name)
        self.settings = small(self.folder)
        lines = Path(root, f"{self.name}.jsonl").read_text(encoding="utf-8").splitlines()
        self.expected = [json.loads(each) for each in lines]
        self.driver = Driver(self.settings)
        self.store = self.driver.store
        self.addCleanup(lambda: self.store.folder.isOpen and self.driver.stop())

    def ofKind(self: Any, kind: str) -> list[dict[str, Any]]:
        """
        The answers of Java of one kind.
        """
        found = [each for each in self.expected if each["kind"] == kind]
        self.assertTrue(found)
        return found

    def files(self: Any) -> dict[str, int]:
        """
        The files that have a size to keep, and their sizes.
        """
        return {
            os.path.relpath(os.path.join(folder, name), self.folder): os.path.getsize(
                os.path.join(folder, name)
            )
            for folder, _, names in os.walk(self.folder)
            for name in names
            if len(name) in (17, 20) and name.isdigit()
        }

    def test_folderOfJavaIsReadAlike(self: Any) -> None:
        """
        Everything is read as Java read it.
        """
        size = self.settings.mappedFileSizeConsumeQueue
        self.assertEqual(comparable(content(self.store), size), comparable(self.expected, size))

    def test_slaveHasTheSame(self: Any) -> None:
        """
        A slave that gets the log of Java in pieces of any size has its bytes, and reads
        everything as Java did; so does a start on the slave's folder.
        """
        size = self.settings.mappedFileSizeConsumeQueue
        for most in (100, 4099, 32 * 1024):
            slave = Driver(small(self.mktemp()))
            self.addCleanup(slave.stop)
            slave.store.replica.follow()
            copy(self.store, slave.store, most)
            self.assertEqual(logOf(self.store), logOf(slave.store))
            expected = comparable(self.expected, size)
            self.assertEqual(comparable(content(slave.store), size), expected)
        slave.stop()
        slave = Driver(slave.store.settings)
        self.addCleanup(slave.stop)
        self.assertEqual(comparable(content(slave.store), size), expected)

    def test_queuesGiveTheirMessages(self: Any) -> None:
        """
        Every queue gives its messages, in order, equal in every field.
        """
        records = {each["offset"]: each for each in self.ofKind("record")}
        for queue in self.ofKind("queue"):
            topic, queueId = queue["topic"], queue["queueId"]
            found: list[dict[str, Any]] = []
            while queue["min"] + len(found) < queue["max"]:
                got = self.store.get(topic, queueId, queue["min"] + len(found), 5)
                self.assertIs(got.status, GetMessageStatus.FOUND)
                found += map(describe, decodeRecords(got.data, checkCrc=True, inflate=False))
                self.assertEqual(got.nextOffset, queue["min"] + len(found))
            self.assertEqual(found, [records[each[0]] for each in queue["entries"]])

    def test_recordsAreFoundByOffset(self: Any) -> None:
        """
        Every record is found by its place in the log, those too that are in no
        queue.
        """
        for record in self.ofKind("record"):
            data = self.store.messageAt(record["offset"])
            self.assertIsNotNone(data)
            self.assertEqual(describe(decodeRecord(data, checkCrc=True)), record)

    def test_recordsAreFoundByKey(self: Any) -> None:
        """
        Every key and unique id leads to the records that Java found, the newest
        first.
        """
        for line in self.ofKind("key"):
            found, _, _ = self.store.query(line["topic"], line["key"], 0, 2**62, 64)
            offsets = [decodeRecord(each).commitLogOffset for each in found]
            self.assertEqual(offsets, sorted(set(line["offsets"]), reverse=True))

    def test_tagHashesSelectMessages(self: Any) -> None:
        """
        The hashes in the queues are those of the tags: a filter that knows one
        tag gets its messages and no other.
        """
        for queue in self.ofKind("queue"):
            wanted = queue["entries"][0][2]
            found: list[Any] = []
            offset = queue["min"]
            while offset < queue["max"]:
                got = self.store.get(queue["topic"], queue["queueId"], offset, 32, wanted.__eq__)
                found += decodeRecords(got.data, inflate=False)
                offset = got.nextOffset
            self.assertEqual(
                [each.commitLogOffset for each in found],
                [each[0] for each in queue["entries"] if each[2] == wanted],
            )
            if queue["topic"] == "Topic1":
                self.assertEqual({each.tags for each in found}, {found[0].tags})
                self.assertLess(len(found), len(queue["entries"]))

    def test_folderHasAllFeatures(self: Any) -> None:
        """
        The folder has what it is there for.
        """
        records = self.ofKind("record")
        flags = {each["sysFlag"] for each in records}
        for flag in (0x1, 0x4, 0x8, 0xC, 0x10, 0x20, 0x30):
            self.assertTrue(any(each & flag == flag for each in flags), hex(flag))
        queues = {(each["topic"], each["queueId"]): each for each in self.ofKind("queue")}
        delayed = queues["SCHEDULE_TOPIC_XXXX", 17]
        self.assertEqual(
            [each[2] for each in delayed["entries"]],
            [each + 7200_000 for each in delayed["times"]],
        )
        names = [each.split(os.sep)[0] for each in self.files()]
        for folder in ("commitlog", "index"):
            self.assertGreater(names.count(folder), 1)

    def test_newMessagesFollowThoseOfJava(self: Any) -> None:
        """
        More messages go behind those of Java, and are there with them when the
        folder is opened again.
        """
        before = content(self.store)
        for each in commands("More"):
            self.driver.put(each)
        after = content(self.store)
        for kind, key in (("record", "offset"), ("key", "key")):
            old = {(each["topic"], each[key]): each for each in before if each["kind"] == kind}
            new = {(each["topic"], each[key]): each for each in after if each["kind"] == kind}
            self.assertLess(len(old), len(new))
            self.assertLessEqual(old.keys(), new.keys())
        self.assertEqual(
            [each for each in before if each["kind"] == "record"],
            [each for each in after if each["kind"] == "record"][: len(self.ofKind("record"))],
        )
        self.driver.stop()
        again = Driver(self.settings)
        self.addCleanup(again.stop)
        self.assertEqual(content(again.store), after)

    def test_filesHaveSizesOfJava(self: Any) -> None:
        """
        Every file has the one size that Java accepts, after work and a clean
        stop, and nothing tells of a crash.
        """
        for each in commands("More"):
            self.driver.put(each)
        self.driver.stop()
        found = self.files()
        self.assertTrue(found)
        sizes = {"commitlog": 16384, "consumequeue": 240, "index": 40 + 50 * 4 + 120 * 20}
        for path, size in found.items():
            self.assertEqual(size, sizes[path.split(os.sep)[0]], path)
        self.assertEqual(os.path.getsize(os.path.join(self.folder, "checkpoint")), 4096)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "abort")))


class ClosedTests(_Folder, SynchronousTestCase):
    """
    A folder that Java has closed.
    """

    name = "closed"


class KilledTests(_Folder, SynchronousTestCase):
    """
    A folder whose Java process was killed.
    """

    name = "killed"

    def test_tornRecordIsGone(self) -> None:
        """
        Without its last bytes the last record is gone, and all others stay.
        """
        self.driver.stop()
        root = self.mktemp()
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(root, **SAFELY)
        folder = os.path.join(root, self.name)
        last = self.ofKind("record")[-1]
        base = last["offset"] // 16384 * 16384
        path = os.path.join(folder, "commitlog", f"{base:020d}")
        with open(path, "r+b") as file:
            file.seek(last["offset"] - base + last["size"] - 40)
            file.write(bytes(40))
        driver = Driver(small(folder))
        self.addCleanup(driver.stop)
        found = [each for each in content(driver.store) if each["kind"] == "record"]
        self.assertEqual(found, self.ofKind("record")[:-1])
