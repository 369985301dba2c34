# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.config.propertiesfile}.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from txrocket.config.propertiesfile import PropertiesFile
from txrocket.errors import ConfigError
from txrocket.protocol.configtext import ConfigEntry


class PropertiesFileTests(SynchronousTestCase):
    """
    Tests for L{PropertiesFile}.
    """

    def setUp(self) -> None:
        """
        Create a file in a new folder.
        """
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.path = self.folder / "broker.conf"
        self.path.write_bytes(b"# mine\r\na = 1\r\nb=2\r\n")
        self.file = PropertiesFile(str(self.path))

    def test_entriesHaveLines(self) -> None:
        """
        Keys and values come in order and with their lines.
        """
        self.assertEqual(
            self.file.entries(), [ConfigEntry(2, 2, "a", "1"), ConfigEntry(3, 3, "b", "2")]
        )

    def test_onlyChangedLinesChange(self) -> None:
        """
        Only the lines of changed values change, and no other file is left in the folder.
        """
        self.file.amend({"a": "3", "c": "4"})
        self.assertEqual(self.path.read_bytes(), b"# mine\r\na = 3\r\nb=2\r\nc=4\r\n")
        self.assertEqual(os.listdir(self.folder), ["broker.conf"])

    def test_commentsThatAreNotUtf8AreKept(self) -> None:
        """
        A comment that is not UTF-8 is no error, as in Java, and stays as it is.
        """
        comment = "# 监听端口\n".encode("gbk")
        self.path.write_bytes(comment + b"a=1\n")
        self.assertEqual(self.file.entries(), [ConfigEntry(2, 2, "a", "1")])
        self.file.amend({"a": "中"})
        self.assertEqual(self.path.read_bytes(), comment + b"a=\\u4E2D\n")

    def test_modeAndOwnerStay(self) -> None:
        """
        The file's permissions and owner stay.
        """
        owned: list[tuple[int, int]] = []
        self.patch(os, "fchown", lambda handle, user, group: owned.append((user, group)))
        self.path.chmod(0o640)
        self.file.amend({"a": "3"})
        status = self.path.stat()
        self.assertEqual(status.st_mode & 0o777, 0o640)
        self.assertEqual(owned, [(status.st_uid, status.st_gid)])

    def test_fileOfOtherOwnerIsReplaced(self) -> None:
        """
        A file of another owner is changed if its folder permits it.
        """

        def refuse(*arguments: Any) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        self.patch(os, "fchown", refuse)
        self.file.amend({"a": "3"})
        self.assertIn(b"a = 3", self.path.read_bytes())

    def test_linkTargetIsChanged(self) -> None:
        """
        A link stays a link, and its target is changed.
        """
        link = self.folder / "link.conf"
        link.symlink_to(self.path)
        PropertiesFile(str(link)).amend({"a": "3"})
        self.assertTrue(link.is_symlink())
        self.assertIn(b"a = 3", self.path.read_bytes())

    def test_pathIsRelativeToStartFolder(self) -> None:
        """
        A path is relative to the working directory at the start, even if it changes
        later.
        """
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        file = PropertiesFile("broker.conf")
        os.chdir("/")
        file.amend({"a": "3"})
        self.assertEqual(file.entries()[0].value, "3")

    def test_missingFileIsNamedAsGiven(self) -> None:
        """
        The error of a missing file names the path as given.
        """
        error = self.assertRaises(ConfigError, PropertiesFile("no/such.conf").entries)
        self.assertEqual(str(error), "no/such.conf: No such file or directory")

    def test_malformedFileIsNotOverwritten(self) -> None:
        """
        The error of a malformed file names the line, and the file is not overwritten.
        """
        self.path.write_bytes(b"a=1\nb=\\u12\n")
        for attempt in (self.file.entries, lambda: self.file.amend({"a": "3"})):
            error = self.assertRaises(ConfigError, attempt)
            self.assertTrue(str(error).startswith(f"{self.path}: Properties, line 2: "), error)
        self.assertEqual(self.path.read_bytes(), b"a=1\nb=\\u12\n")

    def test_failedWriteKeepsOldFile(self) -> None:
        """
        If the new file cannot be written, only the old one is there.
        """

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        self.patch(os, "fsync", full)
        error = self.assertRaises(ConfigError, self.file.amend, {"a": "3"})
        self.assertEqual(str(error), f"{self.path}: cannot be written: No space left on device")
        self.assertEqual(self.path.read_bytes(), b"# mine\r\na = 1\r\nb=2\r\n")
        self.assertEqual(os.listdir(self.folder), ["broker.conf"])

    def test_fileIsSyncedBeforeReplace(self) -> None:
        """
        The new file is synced before it replaces the old one, and then the folder is
        synced.
        """
        events: list[str] = []
        fsync, replace = os.fsync, os.replace

        def syncing(handle: int) -> None:
            events.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))[:12])
            fsync(handle)

        def replacing(old: str, new: str) -> None:
            events.append("replace")
            replace(old, new)

        self.patch(os, "fsync", syncing)
        self.patch(os, "replace", replacing)
        self.file.amend({"a": "3"})
        self.assertEqual(events, [".broker.conf", "replace", self.folder.name[:12]])
