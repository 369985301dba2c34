# SPDX-License-Identifier: Apache-2.0
"""
The comparison of folders in C{make interop} finds what is not equal.
"""

from __future__ import annotations

import struct
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.replicationfiles import differences, tableDifferences

_LOG = b"a record, and another one"


def _entry(offset: int, tag: int) -> bytes:
    return struct.pack(">qiq", offset, 12, tag)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class FolderDifferencesTests(SynchronousTestCase):
    """
    Two folders.
    """

    def setUp(self) -> None:
        self.master, self.slave = Path(self.mktemp()), Path(self.mktemp())
        for each in (self.master, self.slave):
            self.write(each)

    def write(self, store: Path, log: bytes = _LOG, tag: int = 7, topic: str = "Topic") -> None:
        """
        Write a folder with a log and a queue of two entries.
        """
        _write(store / "commitlog" / ("0" * 20), log + bytes(100))
        queue = store / "consumequeue" / topic / "0" / ("0" * 20)
        _write(queue, _entry(0, 5) + _entry(12, tag) + bytes(40))

    def found(self, isJava: bool = False) -> list[str]:
        """
        What is not equal.
        """
        return differences(self.master, self.slave, len(_LOG), isJava)

    def test_equalFoldersHaveNoDifferences(self) -> None:
        """
        Equal content is equal, though one file has more zeros behind it.
        """
        _write(self.slave / "commitlog" / ("0" * 20), _LOG)
        self.assertEqual(self.found(), [])

    def test_turnedByteIsFound(self) -> None:
        """
        One byte that is other tells its place.
        """
        self.write(self.slave, _LOG.replace(b"another", b"anothes"))
        self.assertEqual(len(self.found()), 1)
        self.assertIn(f"the log at {_LOG.index(b'another') + 6}", self.found()[0])

    def test_missingBytesAreFound(self) -> None:
        """
        A log that is shorter than it should be is told, also if both are.
        """
        for each in (self.master, self.slave):
            self.write(each, b"")
        self.assertEqual(len(differences(self.master, self.slave, 1 << 40, False)), 1)
        self.write(self.master)
        self.assertIn("25 and 0 bytes", self.found()[0])

    def test_entryOfOtherTagIsFound(self) -> None:
        """
        An entry with another hash is other, also if RocketMQ's broker made it.
        """
        self.write(self.slave, tag=8)
        for isJava in (False, True):
            [told] = self.found(isJava)
            self.assertIn("2 and 2 entries, from 1", told)

    def test_timeOfLateMessageIsForgivenToJava(self) -> None:
        """
        The time of a late message's entry counts unless RocketMQ's broker made it.
        """
        for each, tag in ((self.master, 7), (self.slave, 8)):
            self.write(each, tag=tag, topic="SCHEDULE_TOPIC_XXXX")
        self.assertEqual(len(self.found()), 1)
        self.assertEqual(self.found(True), [])

    def test_entryOfTableThatSlaveLacksIsFound(self) -> None:
        """
        A table of the master's is compared entry by entry, and its version is not.
        """
        path = self.slave / "config" / "delayOffset.json"
        _write(path, b'{"offsetTable":{1:5},"dataVersion":{"counter":1}}')
        tables = {path.name: b'{"offsetTable":{1:5,2:3},"dataVersion":{"counter":2}}'}
        [told] = tableDifferences(tables, self.slave)
        self.assertIn("2: 3, and the slave has None", told)
