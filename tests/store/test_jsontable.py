# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.jsontable}.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from twisted.logger import LogEvent, LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk
from txrocket.errors import DiskFull, MalformedBody, StoreCorrupt, StoreFailed
from txrocket.protocol.fastjson import parse
from txrocket.store.jsontable import TABLES, Table, checked, sealed


def decode(data: bytes) -> bytes:
    """
    Take everything but what begins with "bad".
    """
    if data.startswith(b"bad"):
        raise MalformedBody("no JSON")
    return data


def _parsed(data: bytes) -> bytes:
    """
    Take what is JSON as fastjson speaks it.
    """
    parse(data, str)
    return data


class TableTests(SynchronousTestCase):
    """
    Tests for L{Table}.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.path = os.path.join(self.mktemp(), "config", "topics.json")
        self.table = Table(self.disk, self.path)
        self.warnings: list[str] = []

    def load(self) -> bytes | None:
        """
        The table that a restart finds, and its warnings.
        """
        # Not capturedLogs: it goes on for ever after an error, and keeps all events.
        events: list[LogEvent] = []
        observer: Any = events.append
        globalLogPublisher.addObserver(observer)
        try:
            found = Table(self.disk, self.path).load(decode)
        finally:
            globalLogPublisher.removeObserver(observer)
        self.levels = [each["log_level"] for each in events]
        self.warnings = [f"{each['path']}: {each['problems']}" for each in events]
        return found

    def lay(self, data: bytes | None, bak: bytes | None) -> None:
        """
        Put the two files there, or leave them out.
        """
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        for path, content in ((self.path, data), (self.path + ".bak", bak)):
            self.disk.remove(path)
            if content is not None:
                with open(path, "wb") as file:
                    file.write(content)

    def bytesOf(self, path: str) -> bytes:
        """
        A file's bytes.
        """
        with open(path, "rb") as file:
            return file.read()

    def test_tablesAreThoseOfRocketMQ(self) -> None:
        """
        The tables are those that RocketMQ keeps.
        """
        self.assertEqual(
            {
                "topics.json",
                "subscriptionGroup.json",
                "consumerOffset.json",
                "delayOffset.json",
                "consumerFilter.json",
            },
            set(TABLES),
        )

    def test_missingTableIsNoError(self) -> None:
        """
        No table is no error.
        """
        self.assertIsNone(self.load())
        self.assertEqual([], self.warnings)

    def test_saveAndLoad(self) -> None:
        """
        The last table saved is found, the one before it is the C{.bak}, and
        nothing else is left.
        """
        self.table.save(b"one")
        self.assertEqual(["topics.json"], self.names())
        self.table.save(b"two")
        self.table.save(b"three")
        self.assertEqual(b"three", self.load())
        self.assertEqual(b"two", self.bytesOf(self.path + ".bak"))
        self.assertEqual(["topics.json", "topics.json.bak"], self.names())

    def names(self) -> list[str]:
        """
        The files in the folder.
        """
        return self.disk.names(os.path.dirname(self.path))

    def test_unchangedTableIsNotWritten(self) -> None:
        """
        A table that is as it was is not written, so the C{.bak} stays older.
        """
        self.table.save(b"one")
        self.table.save(b"two")
        self.table.save(b"two")
        self.assertEqual(b"one", self.bytesOf(self.path + ".bak"))
        again = Table(self.disk, self.path)
        again.load(decode)
        del self.disk.synced[:]
        again.save(b"two")
        self.assertEqual([], self.disk.synced)

    def test_tableSyncedBeforeRename(self) -> None:
        """
        A new table is on the disk before it is renamed, and its name after.
        """
        done: list[str] = []
        rename = self.disk.rename

        def renamed(old: str, new: str) -> None:
            done.append(f"rename {os.path.basename(old)} {os.path.basename(new)}")
            self.assertEqual(old, self.disk.synced[-1])
            rename(old, new)

        self.patch(self.disk, "rename", renamed)
        self.table.save(b"one")
        self.assertEqual(["rename topics.json.tmp topics.json"], done)
        self.assertEqual(os.path.dirname(self.path), self.disk.synced[-1])

    def test_damagedTableGivesWayToOlder(self) -> None:
        """
        A table that is damaged, empty or missing gives way to its C{.bak}, and
        an error in the log says so and why.
        """
        for data, reason in (
            (b"bad", "is damaged: no JSON"),
            (b"", "is empty"),
            (None, "is missing"),
        ):
            self.lay(data, b"older")
            self.assertEqual(b"older", self.load())
            self.assertEqual([LogLevel.error], self.levels)
            self.assertTrue(self.warnings[0].startswith(self.path + ".bak: "))
            self.assertIn(reason, self.warnings[0])

    def test_damagedIsKeptAside(self) -> None:
        """
        A damaged table is kept under another name, once, however often it is found, and
        stays in its place until the next save.
        """
        self.lay(b"bad", b"older")
        for _ in range(2):
            self.load()
        aside = f"topics.json.damaged-{crc32(b'bad'):08x}"
        self.assertEqual(["topics.json", "topics.json.bak", aside], self.names())
        self.assertEqual(b"bad", self.bytesOf(os.path.join(os.path.dirname(self.path), aside)))
        self.assertEqual(b"bad", self.bytesOf(self.path))
        self.assertIn(aside, self.warnings[0])

    def test_asideFailsIsTold(self) -> None:
        """
        If there is no room to keep a damaged text, an error is logged and the start goes on.
        """
        self.lay(b"bad", b"older")
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.assertEqual(b"older", self.load())
        self.assertIn("could not be kept", self.warnings[0])

    def test_checksumCoversText(self) -> None:
        """
        An object ends with a member that has the CRC-32 of the text without it,
        which a load removes.
        """
        for text, expected in (
            (b'{"a":{0:1}}', b'{"a":{0:1},"txrocketCrc32":"%08x"}' % crc32(b'{"a":{0:1}}')),
            (b"{}", b'{"txrocketCrc32":"%08x"}' % crc32(b"{}")),
        ):
            self.table.save(text)
            self.assertEqual(expected, self.bytesOf(self.path))
            self.assertEqual(text, self.load())

    def test_flippedBitTakesTheTableBefore(self) -> None:
        """
        Whichever bit of a table flips, another text is never loaded: the table before is
        taken, or the text as it was saved.
        """
        older, newer = b'{"a":{0:7}}', b'{"a":{0:8}}'
        self.table.save(older)
        self.table.save(newer)
        whole = self.bytesOf(self.path)
        for bit in range(len(whole) * 8):
            data = bytearray(whole)
            data[bit // 8] ^= 1 << bit % 8
            self.lay(bytes(data), sealed(older))
            try:
                found = Table(self.disk, self.path).load(_parsed)
            finally:
                for name in self.names():
                    if "damaged" in name:
                        os.remove(os.path.join(os.path.dirname(self.path), name))
            self.assertIn(found, (older, newer))
            if bit // 8 < len(newer):
                self.assertEqual(older, found)

    def test_javasTableIsNotChecked(self) -> None:
        """
        A table without a checksum is taken as it is.
        """
        self.lay(b'{\n\t"offsetTable":{}\n}', None)
        self.assertEqual(b'{\n\t"offsetTable":{}\n}', self.load())
        self.assertEqual([], self.warnings)

    def test_strictTellsOfTheChecksumsOwnDamage(self) -> None:
        """
        One damaged bit of the checksum itself spares the text, and is reported.
        """
        data = sealed(b'{"a":1}').replace(b"txrocket", b"uxrocket")
        self.assertEqual(b'{"a":1}', checked(data))
        self.assertRaises(MalformedBody, checked, data, strict=True)

    def test_damagedTextsAreOffered(self) -> None:
        """
        Damaged texts are offered for mending, the newest first, with the table before if
        it can be read; the outcome is what is loaded.
        """
        offered: list[object] = []

        def mend(older: bytes | None, spoiled: Sequence[bytes]) -> bytes | None:
            offered.append((older, list(spoiled)))
            return b"mended"

        for data, bak in ((b"bad", b"older"), (b"bad", b"bad too"), (None, b"older")):
            self.lay(data, bak)
            table = Table(self.disk, self.path)
            self.assertEqual(b"mended", table.load(decode, mend))
            self.assertTrue(table.damaged)
        self.assertEqual(
            [(b"older", [b"bad"]), (None, [b"bad", b"bad too"]), (b"older", [])], offered
        )
        self.lay(b"fine", b"older")
        table = Table(self.disk, self.path)
        self.assertEqual(b"fine", table.load(decode, mend))
        self.assertFalse(table.damaged)

    def test_fallbackIsKept(self) -> None:
        """
        A table that was recovered from the C{.bak} stays there when a new table is
        saved over the damaged one.
        """
        self.lay(b"bad", b"older")
        table = Table(self.disk, self.path)
        table.load(decode)
        table.save(b"new")
        self.assertEqual((b"new", b"older"), (self.load(), self.bytesOf(self.path + ".bak")))

    def test_twoDamagedTablesAreNamed(self) -> None:
        """
        If neither can be read, the error names both and what to do.
        """
        for data, bak in ((b"bad", b"bad"), (b"bad", None), (b"", b""), (None, b"bad")):
            self.lay(data, bak)
            error = self.assertRaises(StoreCorrupt, self.load)
            self.assertIn("restore one of them, or remove both", str(error))
        self.lay(b"bad", b"bad")
        error = self.assertRaises(StoreCorrupt, self.load)
        self.assertIn(f"{self.path} is damaged", str(error))
        self.assertIn(f"{self.path}.bak is damaged", str(error))

    def test_failedSaveKeepsTable(self) -> None:
        """
        A save that fails leaves the table as it was, closes its file, and can be
        repeated; the error says what failed, and if there is no room, how much
        there is.
        """
        self.table.save(b"one")
        opened = len(self.disk.opened)
        for number, expected, said in (
            (errno.ENOSPC, DiskFull, f"{self.path}: no room, 900 bytes are free"),
            (errno.EDQUOT, DiskFull, f"{self.path}: no room, 900 bytes are free"),
            (errno.EIO, StoreFailed, f"writing {self.path} failed: [Errno 5] broken"),
        ):
            for operation in ("makeFolder", "open", "truncate", "pwrite", "sync"):
                self.disk.failing = {operation: OSError(number, "broken")}
                error = self.assertRaises(expected, self.table.save, b"two")
                self.assertEqual(said, str(error))
                self.assertEqual(b"one", self.bytesOf(self.path))
                self.assertEqual(opened, len(self.disk.opened))
            self.disk.failing.clear()
            self.assertEqual(b"one", self.load())
        self.table.save(b"two")
        self.assertEqual(b"two", self.load())

    def test_saveNotNamed(self) -> None:
        """
        A table whose name is not known to be on the disk is not taken for
        saved: the same again is written again.
        """
        self.table.save(b"one")
        self.disk.failing["syncFolder"] = OSError(errno.EIO, "broken")
        self.assertRaises(StoreFailed, self.table.save, b"two")
        self.disk.failing.clear()
        del self.disk.synced[:]
        self.table.save(b"two")
        folder = os.path.dirname(self.path)
        self.assertEqual([f"{self.path}.tmp", folder], self.disk.synced[-2:])
        self.assertEqual(b"two", self.load())
