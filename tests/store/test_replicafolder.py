# SPDX-License-Identifier: Apache-2.0
"""
Tests for C{verify} and C{dump} on the folder of a replica, and for files of records.
"""

from __future__ import annotations

import io
import json
import os

from tests.store.support import LOG_SIZE, StoreCase
from txrocket.errors import MalformedRecord
from txrocket.protocol.record.recordfile import readRecordFile
from txrocket.store.__main__ import DAMAGED, SOUND, main
from txrocket.store.files import Files
from txrocket.store.replica.epochs import EPOCH_FILE, EpochFile


class FolderTests(StoreCase):
    """
    The folder of a replica.
    """

    def setUp(self) -> None:
        """
        Have a folder with a cut, epochs, and content that was set aside.
        """
        super().setUp()
        store = self.start()
        for number in range(9):
            self.put(store, b"%d" % number * 300, topic=f"T{number % 2}", KEYS="k")
        store.replica.follow()
        store.replica.beginAt(0)
        store.replica.lead()
        ends = [self.put(store, b"%d" % n * 300, topic=f"T{n % 2}", KEYS="k").end for n in range(9)]
        epochs = EpochFile(Files(), self.path(EPOCH_FILE))
        epochs.append(1, 0)
        epochs.append(4, ends[2])
        store.replica.follow()
        self.cut = store.replica.cut(ends[4], 4)
        self.successResultOf(store.stop())

    def run_(self, *argv: str) -> tuple[int, str, str]:
        """
        Run a command.

        @return: the exit code, the output, and the errors.
        """
        out, errors = io.StringIO(), io.StringIO()
        return main(argv, out, errors), out.getvalue(), errors.getvalue()

    def test_soundAndCounted(self) -> None:
        """
        A folder with all of it is sound, and each is counted.
        """
        code, out, _ = self.run_("verify", "--slots", "8", self.root)
        self.assertEqual(SOUND, code, out)
        self.assertIn("epochs            2\n", out)
        self.assertIn("cut off           1 files, 4 records\n", out)
        self.assertIn("set aside         1 folders\n", out)
        self.assertIn("records         5,", out)

    def test_logThatEndsWithBlank(self) -> None:
        """
        The log of a follower may end with a blank, or inside its pad.
        """
        data = self._filled()
        for end in (LOG_SIZE, LOG_SIZE - 10):
            self.root = self.mktemp()
            store = self.make()
            store.replica.follow()
            store.start()
            store.replica.append(0, data[:end])
            self.successResultOf(store.stop())
            code, out, _ = self.run_("verify", "--slots", "8", self.root)
            self.assertEqual(SOUND, code, out)

    def _filled(self) -> bytes:
        """
        A file of a master's log, with a blank at its end.
        """
        self.root = self.mktemp()
        store = self.start()
        for _ in range(12):
            self.put(store, b"x" * 400, KEYS="k")
        return self.bytesOf("commitlog", f"{0:020d}")

    def test_damageTold(self) -> None:
        """
        Damaged records of a cut, and damaged epochs, are told.
        """
        with open(self.cut.path, "r+b") as file:
            file.seek(500)
            file.write(b"?")
        with open(self.path(EPOCH_FILE), "wb") as file:
            file.write(b"1\n5\n1-0\n")
        code, out, _ = self.run_("verify", "--slots", "8", self.root)
        self.assertEqual(DAMAGED, code)
        self.assertIn(f"problem           {EPOCH_FILE}: does not parse", out)
        self.assertIn(os.path.join("cut", os.path.basename(self.cut.path)) + ": bad record", out)

    def test_epochBehindEndTold(self) -> None:
        """
        Of a folder that was closed, an epoch that starts behind the end of the log is told.
        """
        EpochFile(Files(), self.path(EPOCH_FILE)).append(9, 1 << 40)
        code, out, _ = self.run_("verify", "--slots", "8", self.root)
        self.assertEqual(DAMAGED, code)
        self.assertIn("epoch 9 starts at 1099511627776", out)

    def test_cutDumped(self) -> None:
        """
        The records of a cut are dumped as those of a log are.
        """
        code, out, errors = self.run_("dump", "--body", self.cut.path)
        self.assertEqual((SOUND, ""), (code, errors))
        shown = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(4, len(shown))
        self.assertEqual(self.cut.offset, shown[0]["offset"])
        code, out, _ = self.run_("dump", "--topic", "T1", "--limit", "1", self.cut.path)
        self.assertEqual(["T1"], [json.loads(line)["topic"] for line in out.splitlines()])
        code, out, _ = self.run_("dump", "--from", str(shown[2]["offset"]), self.cut.path)
        self.assertEqual(2, len(out.splitlines()))

    def test_damagedCutDumped(self) -> None:
        """
        A cut is dumped up to its first damaged record.
        """
        with open(self.cut.path, "r+b") as file:
            file.seek(500)
            file.write(b"?")
        code, out, errors = self.run_("dump", self.cut.path)
        self.assertEqual((DAMAGED, 1), (code, len(out.splitlines())))
        self.assertIn("record at", errors)

    def test_asideDumped(self) -> None:
        """
        Content that was set aside is a store of its own.
        """
        [name] = os.listdir(self.path("aside"))
        code, out, _ = self.run_("dump", self.path("aside", name))
        self.assertEqual((SOUND, 9), (code, len(out.splitlines())))

    def test_readInPieces(self) -> None:
        """
        A file of records is read whatever each read gives, and one that ends early is refused
        with the place of the record.
        """
        with open(self.cut.path, "rb") as file:
            data = file.read()
        for size in (1, 7, 100, len(data)):
            found = self._read(data, size)
            self.assertEqual((4, 0), (len(found), found[0]))
        for cut in (1, 50, 300):
            error = self.assertRaises(MalformedRecord, self._read, data[:-cut], 100)
            self.assertIn(f"record at {found[-1]}", str(error))

    def _read(self, data: bytes, size: int) -> list[int]:
        """
        The places of the records in a file that gives so many bytes at a time.
        """
        stream = io.BytesIO(data)
        return [place for place, _ in readRecordFile(lambda most: stream.read(min(size, most)))]
