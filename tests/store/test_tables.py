# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.tables}.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk
from txrocket.errors import DiskFull, MalformedBody, StoreCorrupt, StoreFailed
from txrocket.store.tables import TABLES, Table


def decode(data: bytes) -> bytes:
    """
    Take everything but what begins with "bad".
    """
    if data.startswith(b"bad"):
        raise MalformedBody("no JSON")
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
        What a restart finds, and warns of.
        """
        # Not capturedLogs: it goes on for ever after an error, and keeps all events.
        events: list[LogEvent] = []
        observer: Any = events.append
        globalLogPublisher.addObserver(observer)
        try:
            found = Table(self.disk, self.path).load(decode)
        finally:
            globalLogPublisher.removeObserver(observer)
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

    def test_names(self) -> None:
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

    def test_none(self) -> None:
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

    def test_unchanged(self) -> None:
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

    def test_order(self) -> None:
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

    def test_fallback(self) -> None:
        """
        A table that is damaged, empty or missing gives way to its C{.bak}, and
        a warning says so and why.
        """
        for data, reason in (
            (b"bad", "is damaged: no JSON"),
            (b"", "is empty"),
            (None, "is missing"),
        ):
            self.lay(data, b"older")
            self.assertEqual(b"older", self.load())
            self.assertEqual(1, len(self.warnings))
            self.assertTrue(self.warnings[0].startswith(self.path + ".bak: "))
            self.assertIn(reason, self.warnings[0])

    def test_fallbackIsKept(self) -> None:
        """
        What was recovered from the C{.bak} stays there when a new table is
        saved over the damaged one.
        """
        self.lay(b"bad", b"older")
        table = Table(self.disk, self.path)
        table.load(decode)
        table.save(b"new")
        self.assertEqual((b"new", b"older"), (self.load(), self.bytesOf(self.path + ".bak")))

    def test_bothDamaged(self) -> None:
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

    def test_saveFails(self) -> None:
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
