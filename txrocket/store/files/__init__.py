# SPDX-License-Identifier: Apache-2.0
"""
The operating system, as far as the store needs it.

Everything that the store does to a disk goes through L{Files}, so that a test
can put a disk in its place that fails, fills up, or loses power.  Data are read
and written by C{pread} and C{pwrite} and never through a mapping: a full disk
is then an error, where a mapping would end the process with SIGBUS.  Only L{collectRecords
<txrocket.bulk.interface.Bulk.collectRecords>} reads through one, once it is guarded.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import struct
from collections.abc import Callable, Iterable
from mmap import ACCESS_READ, mmap

from txrocket.bulk import syncPaths

__all__ = [
    "FIRST_BYTE",
    "FLOCK",
    "FULL",
    "NO_HANDLES",
    "Files",
    "Locked",
    "SyncFailed",
]


class Locked(Exception):
    """
    Another process, or another store, holds the lock.
    """


# C's C{struct flock}: type, whence (0: the file's start), start, length, process.
FLOCK = struct.Struct("hhqqi0q")
FIRST_BYTE = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)

# The errors of a disk, or of a quota, that has no room.
FULL = (errno.ENOSPC, errno.EDQUOT)

# The errors of a process that may open no more files.  No sync raises them.
NO_HANDLES = (errno.EMFILE, errno.ENFILE)

# The errors of a file system that cannot lock folders, as some network file systems.
_NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOLCK, errno.EOPNOTSUPP)


class SyncFailed(OSError):
    """
    A sync failed.  The system may have thrown away data that it could not write, so a second
    sync proves nothing.
    """


class Files:
    """
    The real one.

    @cvar direct: whether handles and paths are the system's, so that
        L{txrocket.bulk} may use them.
    """

    direct = True

    def open(self, path: str) -> int:
        """
        Open a file for reading and writing, making it if it is not there.
        """
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def close(self, handle: int) -> None:
        """
        Close a file.
        """
        os.close(handle)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """
        Read; short only at the file's end.
        """
        data = os.pread(handle, size, offset)
        while 0 < len(data) < size:
            more = os.pread(handle, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def nextData(self, handle: int, offset: int) -> int | None:
        """
        The first place at an offset or behind it where a file may have other bytes than
        zeros; L{None} if there is no such place.
        """
        if not hasattr(os, "SEEK_DATA"):
            return offset
        try:
            return os.lseek(handle, offset, os.SEEK_DATA)
        except OSError as error:
            # Nothing but holes up to the end; any other answer tells nothing.
            return None if error.errno == errno.ENXIO else offset

    def map(self, handle: int, size: int) -> mmap:
        """
        A file's bytes.  If another process makes the file shorter, reading them raises SIGBUS,
        which the caller must handle.
        """
        return mmap(handle, size, access=ACCESS_READ)

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        """
        Write all of it.
        """
        written = os.pwrite(handle, data, offset)
        while written < len(data):
            written += os.pwrite(handle, memoryview(data)[written:], offset + written)

    def allocate(self, handle: int, size: int) -> None:
        """
        Give a file its size and the room for it, where the system can.
        """
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(handle, 0, size)
                return
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise
        os.ftruncate(handle, size)

    def truncate(self, handle: int, size: int) -> None:
        """
        Give a file its size; added bytes take no room on the disk, and read as zeros.
        """
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        """
        Wait until a file is on the disk.  Blocks.

        @raise SyncFailed: if it did not come there.
        """
        try:
            if hasattr(os, "fdatasync"):
                os.fdatasync(handle)
            else:
                os.fsync(handle)
        except OSError as error:
            raise SyncFailed(*error.args) from error

    def syncPath(self, path: str) -> None:
        """
        Wait until a file is on the disk, unless it is gone.  Blocks.

        @raise SyncFailed: if it did not come there.
        """
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            self.sync(handle)
        finally:
            os.close(handle)

    def syncPaths(self, paths: Iterable[str]) -> None:
        """
        L{syncPath} of many.

        @raise SyncFailed: if one did not come to the disk.
        @raise OSError: if one could not be opened; its data is not lost.
        """
        if self.direct:
            number = syncPaths(paths)
            if number in NO_HANDLES:
                raise OSError(number, os.strerror(number))
            if number:
                raise SyncFailed(number, os.strerror(number))
        else:
            for path in paths:
                self.syncPath(path)

    def syncFolder(self, path: str) -> None:
        """
        Wait until the names in a folder are on the disk.

        @raise SyncFailed: if they did not come there.
        """
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fsync(handle)
        except OSError as error:
            raise SyncFailed(*error.args) from error
        finally:
            os.close(handle)

    def size(self, path: str) -> int | None:
        """
        A file's size, or L{None} if there is no such file.
        """
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def modified(self, path: str) -> float:
        """
        When a file was last written to, in seconds.
        """
        return os.stat(path).st_mtime

    def rename(self, old: str, new: str) -> None:
        """
        Put a file into the place of another.
        """
        os.replace(old, new)

    def remove(self, path: str) -> None:
        """
        Remove a file, if it is there.
        """
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def removeFolder(self, path: str) -> None:
        """
        Remove a folder with all that is in it, if it is there.
        """
        shutil.rmtree(path, ignore_errors=True)

    def names(self, path: str) -> list[str]:
        """
        The names in a folder, sorted; none if there is no such folder.
        """
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def makeFolder(self, path: str, *, synced: bool = True) -> None:
        """
        Make a folder, and the folders above it.

        @param synced: whether its name is synced; else the caller syncs the folders above.
        """
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        if parent:
            self.makeFolder(parent, synced=synced)
        try:
            os.mkdir(path)
        except FileExistsError:
            return
        if synced:
            self.syncFolder(parent or ".")

    def space(self, path: str) -> tuple[int, int]:
        """
        The bytes of the disk that holds a folder: all, and the free ones.

        Bytes that the system reserves for itself are not counted, as in Java and C{df}.
        Otherwise a disk with a tenth in reserve would seem crowded when it is not.
        """
        usage = os.statvfs(path)
        used = usage.f_blocks - usage.f_bfree
        return (used + usage.f_bavail) * usage.f_frsize, usage.f_bavail * usage.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        """
        Hold a lock that keeps other processes out, Java's store among them:
        it locks the first byte of the same file.

        @return: a function that lets go of it.
        @raise Locked: if another process, or another store, holds it.
        """
        handle = self.open(path)
        try:
            if hasattr(fcntl, "F_OFD_SETLK"):
                # A lock of the handle: one of the process would let a second store
                # of this process in, and be lost as soon as that one is closed.
                fcntl.fcntl(handle, fcntl.F_OFD_SETLK, FIRST_BYTE)
            else:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            os.close(handle)
            raise Locked(path) from None
        try:
            os.pwrite(handle, b"lock", 0)
        except OSError:
            # A full disk: a start that is tried again must not find the folder in use.
            os.close(handle)
            raise
        return lambda: os.close(handle)

    def lockFolder(self, path: str) -> Callable[[], None] | None:
        """
        Hold a lock on a folder itself: Java refuses a folder of the log that has a lock
        file in it.  Another path to the same folder is locked as well.

        @return: a function that lets go of it; L{None} if the file system cannot lock
            folders.
        @raise Locked: if another store holds it.
        """
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise Locked(path) from None
        except OSError as error:
            os.close(handle)
            if error.errno in _NO_FOLDER_LOCKS:
                return None
            raise
        return lambda: os.close(handle)
