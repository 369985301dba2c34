# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.files}.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk
from txrocket.store import files
from txrocket.store.files import Files, Locked, SyncFailed
from txrocket.store.files.handles import Handles


class FilesTests(SynchronousTestCase):
    """
    Tests for L{Files}.
    """

    def setUp(self) -> None:
        self.files = Files()
        self.folder = self.mktemp()
        self.files.makeFolder(self.folder)
        self.path = os.path.join(self.folder, "file")

    def open(self) -> int:
        """
        Open the test's file until the test's end.
        """
        handle = self.files.open(self.path)
        self.addCleanup(self.files.close, handle)
        return handle

    def test_readAndWrite(self) -> None:
        """
        Bytes are read where they were written; nothing is read past the end.
        """
        handle = self.open()
        self.files.pwrite(handle, b"hello", 3)
        self.assertEqual(b"\0\0\0he", self.files.pread(handle, 5, 0))
        self.assertEqual(b"llo", self.files.pread(handle, 100, 5))
        self.assertEqual(b"", self.files.pread(handle, 1, 100))

    def test_unwrittenBytesArePassedOver(self) -> None:
        """
        Bytes that were never written are passed over where the system knows them; written
        bytes are not.
        """
        handle = self.open()
        self.files.truncate(handle, 1 << 24)
        self.files.pwrite(handle, b"x", 1 << 22)
        found = self.files.nextData(handle, 0)
        assert found is not None
        self.assertLessEqual(found, 1 << 22)
        self.assertEqual(1 << 22, self.files.nextData(handle, 1 << 22))
        self.assertIsNone(self.files.nextData(handle, 1 << 24))
        self.patch(os, "SEEK_DATA", None)
        del os.SEEK_DATA
        self.assertEqual(7, self.files.nextData(handle, 7))

    def test_openFailsNoSyncFailed(self) -> None:
        """
        A file that cannot be opened is an OSError; only a sync that failed is a SyncFailed.
        """
        folder = os.path.dirname(self.path)
        error = self.assertRaises(IsADirectoryError, self.files.syncPaths, [folder])
        self.assertEqual((error.errno, error.filename), (errno.EISDIR, folder))
        self.assertNotIsInstance(error, SyncFailed)
        # Such as a pipe, which can be opened but not synced.
        pipe = self.path + "-pipe"
        os.mkfifo(pipe)
        self.assertRaises(SyncFailed, self.files.syncPaths, [pipe])

    def test_noHandlesLeftNoSyncFailed(self) -> None:
        """
        Too many open files are an OSError that says so.
        """
        with open(self.path, "wb"):
            path = self.path
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.ExitStack() as stack:
            opened = stack.enter_context(open(path, "rb"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (opened.fileno(), hard))
            try:
                error = self.assertRaises(OSError, self.files.syncPaths, [path])
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual(error.errno, errno.EMFILE)
        self.assertNotIsInstance(error, SyncFailed)

    def test_noHandlesIsNoFailedSync(self) -> None:
        """
        A file that cannot be opened for its sync is another error than a failed sync.
        """
        number = errno.EMFILE
        self.patch(files, "syncPaths", lambda paths: number)
        error = self.assertRaises(OSError, self.files.syncPaths, [self.path])
        self.assertNotIsInstance(error, SyncFailed)
        number = errno.EIO
        self.assertRaises(SyncFailed, self.files.syncPaths, [self.path])

    def test_partialCallIsContinued(self) -> None:
        """
        Where the system reads or writes a part only, the rest follows.
        """
        pread, pwrite = os.pread, os.pwrite
        self.patch(os, "pread", lambda handle, size, at: pread(handle, min(size, 2), at))
        self.patch(os, "pwrite", lambda handle, data, at: pwrite(handle, bytes(data[:2]), at))
        handle = self.open()
        self.files.pwrite(handle, b"hello", 0)
        self.assertEqual(b"hello", self.files.pread(handle, 5, 0))
        self.assertEqual(b"hello", self.files.pread(handle, 9, 0))

    def test_allocatedFileHasRoom(self) -> None:
        """
        An allocated file has its size and the room for it; a truncated one has
        its size only.
        """
        handle = self.open()
        self.files.allocate(handle, 1 << 20)
        self.assertEqual(1 << 20, self.files.size(self.path))
        self.assertGreaterEqual(os.stat(self.path).st_blocks * 512, 1 << 20)
        self.files.truncate(handle, 0)
        self.files.truncate(handle, 1 << 20)
        self.assertLess(os.stat(self.path).st_blocks * 512, 1 << 20)

    def test_unsupportedAllocationSetsSize(self) -> None:
        """
        Where the system cannot allocate, the file has its size all the same;
        a full disk is an error.
        """

        def refuse(code: int) -> None:
            def allocate(handle: int, offset: int, size: int) -> None:
                raise OSError(code, os.strerror(code))

            self.patch(os, "posix_fallocate", allocate)

        handle = self.open()
        refuse(errno.EOPNOTSUPP)
        self.files.allocate(handle, 4096)
        self.assertEqual(4096, self.files.size(self.path))
        refuse(errno.ENOSPC)
        self.assertRaises(OSError, self.files.allocate, handle, 8192)
        self.assertEqual(4096, self.files.size(self.path))

    def test_syncCoversData(self) -> None:
        """
        A sync is one of the data; where the system has none, of everything.
        """
        done: list[str] = []
        self.patch(os, "fdatasync", lambda handle: done.append("data"))
        self.patch(os, "fsync", lambda handle: done.append("all"))
        handle = self.open()
        self.files.sync(handle)
        self.files.syncPath(self.path)
        self.files.syncFolder(self.folder)
        self.assertEqual(["data", "data", "all"], done)
        del done[:]
        monkey = self.patch(os, "fdatasync", None)
        del os.fdatasync
        self.files.sync(handle)
        monkey.restore()
        self.assertEqual(["all"], done)

    def test_failedSyncHasItsOwnError(self) -> None:
        """
        A failed sync has an error of its own, with the number of the system.
        """

        def fail(handle: int) -> None:
            raise OSError(errno.ENOSPC, "full")

        self.patch(os, "fdatasync", fail)
        self.patch(os, "fsync", fail)
        handle = self.open()
        for sync in (
            lambda: self.files.sync(handle),
            lambda: self.files.syncPath(self.path),
            lambda: self.files.syncFolder(self.folder),
        ):
            error = self.assertRaises(SyncFailed, sync)
            self.assertEqual((errno.ENOSPC, "full"), error.args)

    def test_syncOfWhatIsGone(self) -> None:
        """
        A deleted file or folder needs no sync.
        """
        done: list[int] = []
        self.patch(os, "fdatasync", done.append)
        self.patch(os, "fsync", done.append)
        self.files.syncPath(self.path)
        self.files.syncFolder(os.path.join(self.folder, "none"))
        self.assertEqual([], done)
        self.assertIsNone(self.files.size(self.path))

    def test_renamedFileReplacesOther(self) -> None:
        """
        A file takes the place of another.
        """
        for name, text in (("a", "new"), ("b", "old")):
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(text)
        self.files.rename(os.path.join(self.folder, "a"), os.path.join(self.folder, "b"))
        self.assertEqual(["b"], self.files.names(self.folder))
        self.assertEqual(3, self.files.size(os.path.join(self.folder, "b")))

    def test_namesAreSorted(self) -> None:
        """
        Names come sorted; a path that is no folder has no names.
        """
        for name in ("2", "1", "10"):
            os.close(os.open(os.path.join(self.folder, name), os.O_CREAT))
        self.assertEqual(["1", "10", "2"], self.files.names(self.folder))
        self.assertEqual([], self.files.names(os.path.join(self.folder, "1")))
        self.assertEqual([], self.files.names(os.path.join(self.folder, "none")))

    def test_newFoldersAreSynced(self) -> None:
        """
        A folder is made with the folders above it, each name synced in the one above,
        unless another process has made it.
        """
        synced: list[str] = []
        self.patch(self.files, "syncFolder", synced.append)
        path = os.path.join(self.folder, "a", "b")
        self.files.makeFolder(path)
        self.assertEqual([self.folder, os.path.join(self.folder, "a")], synced)
        self.patch(os.path, "isdir", lambda path: path == self.folder)
        self.files.makeFolder(path)
        self.assertEqual(2, len(synced))

    def test_makeFolderHere(self) -> None:
        """
        A folder of a single name is made where the process is.
        """
        name = os.path.basename(self.folder) + "-here"
        self.addCleanup(self.files.removeFolder, name)
        self.files.makeFolder(name)
        self.assertTrue(os.path.isdir(name))

    def test_missingFileIsRemovedSilently(self) -> None:
        """
        Removing what is not there is no error.
        """
        self.files.close(self.files.open(self.path))
        self.assertGreater(self.files.modified(self.path), 1_000_000_000)
        self.files.remove(self.path)
        self.files.remove(self.path)
        self.files.removeFolder(self.folder)
        self.files.removeFolder(self.folder)
        self.assertFalse(os.path.exists(self.folder))

    def test_spaceIsInBytes(self) -> None:
        """
        The disk's size and what is free of it are in bytes.
        """
        total, free = self.files.space(self.folder)
        self.assertTrue(0 < free <= total <= shutil.disk_usage(self.folder).total)

    def test_reservedBlocksAreNotCounted(self) -> None:
        """
        Blocks that the system keeps for itself are neither used nor free: with 300
        of 1000 in use and 200 kept back, a disk is three eighths full, as Java's
        C{UtilAll.getDiskPartitionSpaceUsedPercent} has it.
        """
        usage = os.statvfs_result((4096, 512, 1000, 700, 500, 9, 9, 9, 0, 255))
        self.patch(os, "statvfs", lambda path: usage)
        self.assertEqual((800 * 512, 500 * 512), self.files.space(self.folder))


# What Java's FileChannel.tryLock(0, 1, false) does: a lock of the process.
AS_JAVA = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError:
        print("refused")
    else:
        print("locked")
"""


class LockTests(SynchronousTestCase):
    """
    Tests for L{Files.lock}.
    """

    def setUp(self) -> None:
        self.files = Files()
        self.path = self.mktemp()

    def other(self) -> str:
        """
        The answer of another process about the lock.
        """
        return subprocess.run(
            [sys.executable, "-c", AS_JAVA, self.path], capture_output=True, text=True, check=True
        ).stdout.strip()

    def test_otherProcessIsLockedOut(self) -> None:
        """
        Another process, Java's among them, is kept out until the lock is let go.
        """
        release = self.files.lock(self.path)
        self.assertEqual("refused", self.other())
        release()
        self.assertEqual("locked", self.other())

    def test_secondStoreIsLockedOut(self) -> None:
        """
        A second store of the same process is refused, which does not take the
        lock from the first.
        """
        release = self.files.lock(self.path)
        self.assertRaises(Locked, self.files.lock, self.path)
        self.assertEqual("refused", self.other())
        release()
        self.files.lock(self.path)()

    def test_lockedFolderIsRefused(self) -> None:
        """
        A folder that is locked is refused, by whatever path, until it is let go of.
        """
        folder = self.mktemp()
        os.mkdir(folder)
        os.symlink(os.path.abspath(folder), self.path)
        release = self.files.lockFolder(folder)
        assert release is not None
        for path in (folder, self.path):
            self.assertRaises(Locked, self.files.lockFolder, path)
        release()
        again = self.files.lockFolder(self.path)
        assert again is not None
        again()
        self.assertEqual([], os.listdir(folder))

    def test_folderOfNetwork(self) -> None:
        """
        A file system that cannot lock folders is no error; one that fails is.
        """
        folder = self.mktemp()
        os.mkdir(folder)

        def flock(error: int) -> Callable[[int, int], None]:
            def fail(handle: int, operation: int) -> None:
                raise OSError(error, os.strerror(error))

            return fail

        self.patch(fcntl, "flock", flock(errno.EBADF))
        self.assertIsNone(self.files.lockFolder(folder))
        self.patch(fcntl, "flock", flock(errno.EIO))
        self.assertRaises(OSError, self.files.lockFolder, folder)

    def test_lockNotWrittenLetGo(self) -> None:
        """
        A lock file that cannot be written is closed, so that the next start can lock it.
        """

        def full(*arguments: object) -> int:
            raise OSError(errno.ENOSPC, "full")

        patch = self.patch(os, "pwrite", full)
        self.assertRaises(OSError, self.files.lock, self.path)
        patch.restore()
        self.files.lock(self.path)()

    def test_lockOfTheProcess(self) -> None:
        """
        Where the system locks for processes only, that keeps others out.
        """
        self.patch(fcntl, "F_OFD_SETLK", None)
        del fcntl.F_OFD_SETLK
        release = self.files.lock(self.path)
        self.assertEqual("refused", self.other())
        release()

    def test_lockFileHasContentOfJava(self) -> None:
        """
        The file holds the word that Java writes into it.
        """
        self.files.lock(self.path)()
        with open(self.path, "rb") as file:
            self.assertEqual(b"lock", file.read())


class HandlesTests(SynchronousTestCase):
    """
    Tests for L{Handles}.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.folder = self.mktemp()
        self.disk.makeFolder(self.folder)
        self.handles = Handles(self.disk, 2)
        self.addCleanup(self.handles.close)

    def at(self, name: str) -> str:
        """
        A path.
        """
        return os.path.join(self.folder, name)

    def names(self) -> set[str]:
        """
        The files that are open.
        """
        return {os.path.basename(each) for each in self.disk.opened.values()}

    def test_openFileIsReused(self) -> None:
        """
        A file that is open is not opened again.
        """
        self.assertEqual(self.handles.get(self.at("a")), self.handles.get(self.at("a")))
        self.assertEqual(1, len(self.handles))

    def test_leastRecentlyUsed(self) -> None:
        """
        Past the limit, the file that was not used for longest is closed.
        """
        for name in "abac":
            self.handles.get(self.at(name))
        self.assertEqual({"a", "c"}, self.names())

    def test_pinnedFileStaysOpen(self) -> None:
        """
        A file that is being synced stays open whatever else is opened, until it is
        synced.
        """
        handle = self.handles.pin(self.at("a"))
        self.assertEqual(handle, self.handles.pin(self.at("a")))
        for name in "bcde":
            self.handles.get(self.at(name))
        self.assertEqual(handle, self.handles.get(self.at("a")))
        for name in "bcde":
            self.handles.get(self.at(name))
        self.assertEqual({"a", "e"}, self.names())
        self.handles.unpin(self.at("a"))
        self.handles.get(self.at("b"))
        self.assertEqual({"a", "b"}, self.names())
        self.handles.unpin(self.at("a"))
        self.handles.get(self.at("c"))
        self.assertEqual({"b", "c"}, self.names())

    def test_pinnedFilesAllowOneMore(self) -> None:
        """
        If all that may be open are being synced, one more is opened all the same, and
        is good until the next.
        """
        for name in "abc":
            self.handles.pin(self.at(name))
            self.addCleanup(self.handles.unpin, self.at(name))
        handle = self.handles.get(self.at("d"))
        self.assertEqual("d", os.path.basename(self.disk.opened[handle]))
        self.handles.get(self.at("e"))
        self.assertEqual({"a", "b", "c", "e"}, self.names())

    def test_forgottenFileIsClosed(self) -> None:
        """
        A file that is to be removed is closed; one that is not open is no error.
        """
        self.handles.get(self.at("a"))
        self.handles.forget(self.at("a"))
        self.handles.forget(self.at("b"))
        self.assertEqual(set(), self.names())

    def test_forgottenPinnedFileIsClosedLater(self) -> None:
        """
        A removed file that is being synced is closed as soon as that is over,
        for its room is free only then; a new file of that name is another.
        """
        path = self.at("a")
        old = self.handles.pin(path)
        self.handles.forget(path)
        self.disk.remove(path)
        self.assertIn(old, self.disk.opened)
        new = self.handles.get(path)
        self.assertNotEqual(old, new)
        self.handles.unpin(path)
        self.assertEqual([new], list(self.disk.opened))

    def test_closeSparesPinnedFiles(self) -> None:
        """
        Closing all leaves open what a thread syncs, until it has done so.
        """
        self.handles.pin(self.at("a"))
        self.handles.get(self.at("b"))
        self.handles.close()
        self.assertEqual({"a"}, self.names())
        self.handles.unpin(self.at("a"))
        self.assertEqual(set(), self.names())
