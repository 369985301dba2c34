# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{pyspark_rocketmq.storefiles.segments} and L{pyspark_rocketmq.columns.positions}.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from pyspark_rocketmq.columns.positions import SMALLEST, positionsIn
from pyspark_rocketmq.storefiles.segments import (
    LogFile,
    Segment,
    Split,
    firstTime,
    segmentsIn,
    splits,
)
from twisted.trial.unittest import SynchronousTestCase

from tests.spark.logs import record, writeLog
from txrocket.errors import ConfigError

MAGIC = b"\xda\xa3\x20\xa7"
SIZE = 2000

# Bodies that look like the beginning of a record, or are one that lies elsewhere.
bodies = st.one_of(
    st.binary(max_size=900),
    st.binary(max_size=20).map(lambda each: each + MAGIC * 5),
    st.integers(0, 5000).map(record),
)


def refuse(what: str) -> None:
    """
    What nothing should be.
    """
    raise AssertionError(what)


class LogCase(SynchronousTestCase):
    """
    Tests with a log.
    """

    def setUp(self) -> None:
        self.folder = self.mktemp()

    def offsets(self, parts: list[Split], lost: Callable[[str], None] = refuse) -> list[int]:
        """
        The offsets in the log of all records of some parts.
        """
        found = []
        for part in parts:
            with LogFile(part.segment) as file:
                for positions in file.records(part.start, part.stop, lost):
                    found += [part.segment.base + each for each in positions]
        return found

    def damage(self, offset: int, data: bytes) -> None:
        """
        Write over a log.
        """
        path = os.path.join(self.folder, "commitlog", f"{offset // SIZE * SIZE:020d}")
        with open(path, "r+b") as file:
            file.seek(offset % SIZE)
            file.write(data)

    def write(self, messages: list[dict[str, Any]]) -> list[int]:
        """
        Write the log.
        """
        return writeLog(self.folder, messages, SIZE)


class SplitTests(LogCase):
    """
    Every record once.
    """

    @given(
        st.lists(bodies, max_size=12),
        st.integers(1, SIZE + 100),
        st.sampled_from((0, 7 * SIZE)),
        st.booleans(),
    )
    def test_everyRecordIsReadOnce(
        self, written: list[bytes], most: int, base: int, holes: bool
    ) -> None:
        """
        However files are divided, each record is read once, whatever bodies hold, and
        whether or not the file system tells what was written.
        """
        with tempfile.TemporaryDirectory() as folder:
            expected = writeLog(folder, [{"body": each} for each in written], SIZE, base)
            parts = splits(segmentsIn(folder), most)
            if holes:
                found = self.offsets(parts)
            else:
                with mock.patch("os.lseek", side_effect=OSError(22, "no such thing")):
                    found = self.offsets(parts)
        self.assertEqual(found, expected)
        for part in parts:
            self.assertLessEqual(part.stop - part.start, most)

    def test_unfinishedRecordEndsLog(self) -> None:
        """
        A record that is being written, or was when the broker died, is the end of the
        last file.
        """
        *whole, torn = self.write([{}] * 5)
        for data in (b"\0\0\0\x64", b"\0\0\0\x64" + MAGIC, b"\0\0\0\x64" + MAGIC + b"\xff" * 20):
            self.damage(torn, data.ljust(120, b"\0"))
            self.assertEqual(self.offsets(splits(segmentsIn(self.folder), SIZE)), whole)

    def test_preparedFilesAreNotBegun(self) -> None:
        """
        Files that were made ahead are not begun, and the one before them is the last.
        """
        written = self.write([{"body": b"x" * 500}] * 4)
        for base in (2 * SIZE, 3 * SIZE):
            with open(os.path.join(self.folder, "commitlog", f"{base:020d}"), "wb") as file:
                file.truncate(SIZE)
        found = segmentsIn(self.folder)
        self.assertEqual([each.last for each in found], [False, True, True, True])
        self.assertEqual(self.offsets(splits(found, 700)), written)
        with open(found[-1].path, "wb"):
            pass
        self.assertEqual(self.offsets(splits(segmentsIn(self.folder), 700)), written)

    def test_storeOrLogFolderIsRead(self) -> None:
        """
        A store's folder will do, and that of its log.  Other files are not looked at.
        """
        self.write([{}])
        log = os.path.join(self.folder, "commitlog")
        open(os.path.join(log, "notes"), "w").close()
        self.assertEqual(segmentsIn(self.folder), segmentsIn(log))
        os.remove(os.path.join(log, "0" * 20))
        self.assertEqual(segmentsIn(self.folder), [])
        for wrong in (log, os.path.join(log, "none")):
            error = self.assertRaises(ConfigError, segmentsIn, wrong)
            self.assertIn(wrong, str(error))

    def test_unmappableFileIsClosed(self) -> None:
        """
        A file that cannot be mapped leaves nothing open.
        """
        self.write([{}])
        path = segmentsIn(self.folder)[0].path
        with open(path, "wb"):
            pass
        before = os.listdir("/proc/self/fd")
        self.assertRaises(ValueError, LogFile, Segment(path, 0, 0, True))
        self.assertEqual(len(os.listdir("/proc/self/fd")), len(before))


class DamageTests(LogCase):
    """
    Bytes that are no record.
    """

    def setUp(self) -> None:
        super().setUp()
        self.written = self.write([{"body": b"x" * 400}] * 9)
        self.lost: list[str] = []

    def found(self, most: int = SIZE) -> list[int]:
        """
        The offsets of all that is found.
        """
        return self.offsets(splits(segmentsIn(self.folder), most), self.lost.append)

    def test_damageIsReportedAndSkipped(self) -> None:
        """
        Between records it is told, and the next record is found; in the last file as
        well, and however files are divided.
        """
        for index in (1, len(self.written) - 2):
            at = self.written[index]
            for wrong in (b"\xff" * 8, bytes(8), b"\0\0\0\1" + MAGIC, bytes(300)):
                good = record(at, b"x" * 400, number=index)
                for most in (SIZE, 700):
                    self.lost.clear()
                    self.damage(at, wrong)
                    expected = [each for each in self.written if each != at]
                    self.assertEqual(self.found(most), expected)
                    (told,) = self.lost
                    self.assertIn(f"which is {at} in the log", told)
                self.damage(at, good)
        self.assertEqual(self.found(), self.written)

    def test_damageAtEndIsReported(self) -> None:
        """
        At the end of a file that is not the last it is told too.
        """
        last = max(each for each in self.written if each < SIZE)
        self.damage(last, b"\xff" * 8)
        self.assertEqual(self.found(), [each for each in self.written if each != last])
        self.assertEqual(len(self.lost), 1)

    def test_damageMayRaise(self) -> None:
        """
        The callback of a damage may raise an error.
        """
        self.damage(self.written[1], b"\xff" * 8)
        self.assertRaises(
            AssertionError, self.offsets, splits(segmentsIn(self.folder), SIZE), refuse
        )


class TimeTests(LogCase):
    """
    Files that are too old, or too new.
    """

    def test_fileOutsideTimesIsLeftOut(self) -> None:
        """
        A file is left out if nothing in it can be of the time that is asked for.
        """
        self.write([{"body": b"x" * 500, "stored": 100 * number} for number in range(12)])
        files = segmentsIn(self.folder)
        self.assertEqual([firstTime(each) for each in files], [0, 300, 600, 900])

        def bases(starting: int | None, ending: int | None) -> list[int]:
            return [each.segment.base // SIZE for each in splits(files, SIZE, starting, ending)]

        self.assertEqual(bases(None, None), [0, 1, 2, 3])
        self.assertEqual(bases(601, None), [2, 3])
        # Another of the same time may be the last of the file before.
        self.assertEqual(bases(600, None), [1, 2, 3])
        self.assertEqual(bases(None, 600), [0, 1])
        self.assertEqual(bases(301, 601), [1, 2])

    def test_fileWithoutTimeIsRead(self) -> None:
        """
        A file without a record at its beginning has no time, and is not left out.
        """
        self.write([{"stored": 5}])
        (file,) = segmentsIn(self.folder)
        for wrong in (bytes(8), b"\0\0\0\1" + MAGIC):
            self.damage(0, wrong)
            self.assertIsNone(firstTime(file))
        with open(file.path, "wb") as empty:
            empty.write(b"\0\1")
        self.assertIsNone(firstTime(file))
        self.assertEqual(len(splits([file], SIZE, 10, 20)), 1)

    def test_unwrittenEndIsNoTask(self) -> None:
        """
        The unwritten end of a file is no task, whether the file system reports a hole or
        zeros.
        """
        writeLog(self.folder, [{}], 8 << 20)
        (found,) = splits(segmentsIn(self.folder), 1 << 20)
        with mock.patch("os.lseek", side_effect=OSError(22, "no such thing")):
            (same,) = splits(segmentsIn(self.folder), 1 << 20)
        self.assertEqual(same, found)
        with open(found.segment.path, "rb") as file:
            self.assertEqual(found.stop, len(file.read().rstrip(b"\0")))
        with open(found.segment.path, "r+b") as file:
            file.write(bytes(found.stop))
        self.assertEqual(splits(segmentsIn(self.folder), 1 << 20), [])


class PositionsTests(SynchronousTestCase):
    """
    From record to record.
    """

    def test_smallestRecordHasItsSize(self) -> None:
        """
        The smallest record is as small as that.
        """
        self.assertEqual(len(record(0, b"", topic="")), SMALLEST)

    def test_positionsEndBeforeBrokenRecord(self) -> None:
        """
        It ends where there is no record, or not all of one, or where it is to end.
        """
        one, two = record(0), record(0, b"longer")
        data = one + two
        self.assertEqual(positionsIn(data), ([0, len(one)], len(data)))
        self.assertEqual(positionsIn(data, len(one)), ([len(one)], len(data)))
        self.assertEqual(positionsIn(data, 0, len(one)), ([0], len(one)))
        self.assertEqual(positionsIn(data, 0, len(one) + 1), ([0, len(one)], len(data)))
        for rest in (b"x", two[:-1], b"\0\0\0\1" + two[4:], two[:4] + b"y" * 200, b""):
            self.assertEqual(positionsIn(one + rest), ([0], len(one)))
        self.assertEqual(positionsIn(b""), ([], 0))
