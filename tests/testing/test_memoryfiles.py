# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.testing.memory.files}: it is held against the real one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import StoreInUse
from txrocket.store.files import Files, Locked
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import StoreSettings
from txrocket.testing.memory.files import MemoryFiles

PATHS = st.sampled_from(["a", "b", "f/a", "f/b", "f/g", "f/g/a", "f/./b", "n/a"])
# Around the ends of pages, where mistakes are.
PLACES = st.integers(0, 10) | st.integers(4090, 4100) | st.integers(8180, 12300)
DATA = st.binary(max_size=20) | st.builds(bytes.__mul__, st.binary(max_size=3), PLACES)

OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["makeFolder", "removeFolder", "remove", "size", "names"]), PATHS),
    st.tuples(st.sampled_from(["open", "syncPath", "syncFolder"]), PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("pread"), PLACES, PLACES),
    st.tuples(st.just("pwrite"), DATA, PLACES),
    st.tuples(st.just("allocate"), PLACES.filter(bool)),
    st.tuples(st.just("truncate"), PLACES),
    st.tuples(st.sampled_from(["sync", "close"])),
)


class Tried:
    """
    One of the two, in a folder.
    """

    def __init__(self, files: Files, root: str) -> None:
        self.files = files
        self.root = root
        self.handle: int | None = None
        files.makeFolder(root)

    def do(self, operation: str, *arguments: Any) -> Any:
        """
        Do something, with the file that was opened last where one is needed.

        @return: what came of it.
        """
        paths = [f"{self.root}/{each}" for each in arguments if isinstance(each, str)]
        try:
            result = getattr(self.files, operation)(*(paths or (self.handle, *arguments)))
        except OSError as error:
            return type(error)
        if operation == "open":
            if self.handle is not None:
                self.files.close(self.handle)
            self.handle = result
            return None
        if operation == "close":
            self.handle = None
        return result


def allowed(real: Tried, operation: str, arguments: tuple[Any, ...]) -> bool:
    """
    Whether a store does such a thing: it has a file open that it reads, and does
    not take folders for files, nor files for folders.
    """
    paths = [f"{real.root}/{each}" for each in arguments if isinstance(each, str)]
    if not paths:
        return real.handle is not None
    if any(os.path.isfile(os.path.dirname(each)) for each in paths):
        return False
    if operation in ("remove", "rename", "size", "syncPath"):
        return not any(os.path.isdir(each) for each in paths)
    if operation == "makeFolder":
        return not os.path.isfile(paths[0])
    return True


class SameTests(SynchronousTestCase):
    """
    Files in memory do the same as real ones.
    """

    @settings(max_examples=150)
    @given(st.lists(OPERATIONS, min_size=20, max_size=40))
    def test_operationsMatchRealFiles(self, operations: list[tuple[Any, ...]]) -> None:
        """
        Any operations of a store have the same results.
        """
        with tempfile.TemporaryDirectory() as folder:
            real = Tried(Files(), folder)
            memory = Tried(MemoryFiles(lambda: 0.0), "/disk")
            try:
                for operation, *arguments in operations:
                    if allowed(real, operation, tuple(arguments)):
                        self.assertEqual(
                            memory.do(operation, *arguments),
                            real.do(operation, *arguments),
                            (operation, arguments),
                        )
            finally:
                if real.handle is not None:
                    real.files.close(real.handle)


class MemoryFilesTests(SynchronousTestCase):
    """
    Tests for L{MemoryFiles}.
    """

    def setUp(self) -> None:
        self.time = 5.0
        self.files = MemoryFiles(lambda: self.time)
        self.files.makeFolder("/store/commitlog")

    def write(self, path: str, data: bytes) -> None:
        """
        Write a file.
        """
        handle = self.files.open(path)
        self.files.pwrite(handle, data, 0)
        self.files.close(handle)

    def raises(self, kind: type[OSError], function: Callable[..., object], *args: Any) -> None:
        """
        An error has a number and a text, as the system's have.
        """
        error = self.assertRaises(kind, function, *args)
        assert isinstance(error, OSError)
        self.assertEqual(error.strerror, os.strerror(error.errno or 0))

    def test_largeFileTakesWrittenPagesOnly(self) -> None:
        """
        A file of a gibibyte costs what was written to it.
        """
        total, free = self.files.space("/store")
        handle = self.files.open("/store/commitlog/0")
        self.files.allocate(handle, 1 << 30)
        self.assertEqual(self.files.space("/store"), (total, free))
        self.files.pwrite(handle, b"x" * 10, (1 << 30) - 10)
        self.files.pwrite(handle, b"y" * 10, 4090)
        self.assertEqual(self.files.space("/store"), (total, free - 3 * 4096))
        self.assertEqual(self.files.size("/store/commitlog/0"), 1 << 30)
        self.assertEqual(self.files.pread(handle, 20, 4085), bytes(5) + b"y" * 10 + bytes(5))
        self.assertEqual(self.files.pread(handle, 99, (1 << 30) - 11), b"\0" + b"x" * 10)

    def test_writeSetsModificationTime(self) -> None:
        """
        A file has the time of its last write.
        """
        self.write("/store/a", b"a")
        self.assertEqual(self.files.modified("/store/a"), 5.0)
        self.time = 6.0
        handle = self.files.open("/store/a")
        self.assertEqual(self.files.modified("/store/a"), 5.0)
        self.files.truncate(handle, 0)
        self.assertEqual(self.files.modified("/store/a"), 6.0)
        self.raises(FileNotFoundError, self.files.modified, "/store/b")

    def test_missingFileRaisesOSError(self) -> None:
        """
        A missing file, a missing folder and a closed file are errors as the system's.
        """
        self.raises(FileNotFoundError, self.files.rename, "/store/a", "/store/b")
        self.raises(FileNotFoundError, self.files.space, "/nowhere")
        self.raises(FileNotFoundError, self.files.open, "/nowhere/a")
        self.raises(IsADirectoryError, self.files.open, "/store")
        self.write("/store/a", b"a")
        self.raises(NotADirectoryError, self.files.makeFolder, "/store/a/b")
        self.raises(OSError, self.files.sync, 99)

    def test_holesAreSkippedByPage(self) -> None:
        """
        Holes are skipped, a page at a time.
        """
        handle = self.files.open("/store/file")
        self.files.truncate(handle, 1 << 30)
        self.assertIsNone(self.files.nextData(handle, 0))
        self.files.pwrite(handle, b"x", 3 * 4096 + 100)
        self.assertEqual(3 * 4096, self.files.nextData(handle, 5))
        self.assertEqual(3 * 4096 + 50, self.files.nextData(handle, 3 * 4096 + 50))
        self.assertIsNone(self.files.nextData(handle, 4 * 4096))

    def test_logSharedRefused(self) -> None:
        """
        Two stores with roots of their own do not share a folder for the log.
        """
        stores = [
            MessageStore(
                StoreSettings(root, "/store/commitlog", mappedFileSizeCommitLog=4096),
                Clock(),
                maybeDeferred,
                bytes(8),
                files=self.files,
            )
            for root in ("/a", "/b")
        ]
        stores[0].start()
        error = self.assertRaises(StoreInUse, stores[1].start)
        self.assertEqual("/store/commitlog is in use by another process", str(error))
        self.successResultOf(stores[0].stop())
        stores[1].start()
        self.successResultOf(stores[1].stop())

    def test_lockExcludesSecondHolder(self) -> None:
        """
        A lock keeps a second holder out.
        """
        unlock = self.files.lock("/store/lock")
        self.assertRaises(Locked, self.files.lock, "/store/lock")
        unlock()
        self.files.lock("/store/lock")()

    def test_crashKeepsDataAndFreesLock(self) -> None:
        """
        After a crash the data are there and the lock is free.  A late clean-up of the ended
        process does no harm.
        """
        unlock = self.files.lock("/store/lock")
        handle = self.files.open("/store/a")
        self.files.pwrite(handle, b"kept", 0)
        self.files.crash()
        self.raises(OSError, self.files.pwrite, handle, b"lost", 0)
        self.files.lock("/store/lock")
        unlock()
        self.assertRaises(Locked, self.files.lock, "/store/lock")
        again = self.files.open("/store/a")
        self.files.close(handle)
        self.assertEqual(self.files.pread(again, 9, 0), b"kept")

    def test_removedFileStaysOpen(self) -> None:
        """
        An open file stays open when its name is removed.
        """
        self.write("/store/a", b"a")
        handle = self.files.open("/store/a")
        self.files.removeFolder("/store")
        self.assertEqual(self.files.pread(handle, 1, 0), b"a")
        self.assertIsNone(self.files.size("/store/a"))
