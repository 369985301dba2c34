# SPDX-License-Identifier: Apache-2.0
"""
A disk in memory, in place of L{Files<txrocket.store.files.Files>}.

A file is a table of its written pages, so a log file of a gibibyte takes only the memory
of the bytes written to it::

    size 1073741824
    pages {0: 4096 bytes, 1: 4096 bytes}     all others read as zeros
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeAlias

from txrocket.store.files import Files, Locked

__all__ = ["MemoryFiles"]

_PAGE = 4096

# A tebibyte, more than any test needs.
_TOTAL = 1 << 40


class _File:
    """
    The size and the written pages of one file.
    """

    __slots__ = ("modified", "pages", "size")

    def __init__(self, modified: float) -> None:
        self.modified = modified
        self.pages: dict[int, bytearray] = {}
        self.size = 0

    def read(self, size: int, offset: int) -> bytes:
        """
        Read bytes; fewer at the file's end.
        """
        end = min(offset + size, self.size)
        pieces = []
        while offset < end:
            page, start = divmod(offset, _PAGE)
            stop = min(_PAGE, start + end - offset)
            found = self.pages.get(page)
            pieces.append(bytes(stop - start) if found is None else found[start:stop])
            offset += stop - start
        return b"".join(pieces)

    def write(self, data: bytes, offset: int) -> None:
        """
        Write bytes.  The file grows if they reach beyond its end.
        """
        written = 0
        while written < len(data):
            page, start = divmod(offset + written, _PAGE)
            piece = data[written : written + _PAGE - start]
            held = self.pages.get(page)
            if held is None:
                held = self.pages[page] = bytearray(_PAGE)
            held[start : start + len(piece)] = piece
            written += len(piece)
        if data:
            self.size = max(self.size, offset + len(data))

    def resize(self, size: int) -> None:
        """
        Cut the file, or extend it with zeros.
        """
        if size < self.size:
            last, start = divmod(size, _PAGE)
            self.pages = {page: held for page, held in self.pages.items() if page <= last}
            if last in self.pages:
                self.pages[last][start:] = bytes(_PAGE - start)
        self.size = size


_Folder: TypeAlias = "dict[str, _Folder | _File]"


class MemoryFiles(Files):
    """
    The disk of one machine.
    """

    direct = False

    def __init__(self, now: Callable[[], float]) -> None:
        """
        @param now: the time of day in seconds, for modification times.
        """
        self._now = now
        self._root: _Folder = {}
        self._open: dict[int, _File] = {}
        self._lastHandle = 2
        self._locks: dict[str, object] = {}

    def crash(self) -> None:
        """
        Close all files and locks, because their process has crashed.  Written bytes stay.
        """
        self._open.clear()
        self._locks.clear()

    def open(self, path: str) -> int:
        """
        See L{Files.open}.
        """
        folder, name = self._parent(path)
        found = folder.get(name)
        if isinstance(found, dict) or not name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if found is None:
            found = folder[name] = _File(self._now())
        # Handles are never reused, because a crashed server may still close its own.
        self._lastHandle += 1
        self._open[self._lastHandle] = found
        return self._lastHandle

    def close(self, handle: int) -> None:
        """
        See L{Files.close}.
        """
        self._open.pop(handle, None)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """
        See L{Files.pread}.
        """
        return self._file(handle).read(size, offset)

    def nextData(self, handle: int, offset: int) -> int | None:
        """
        See L{Files.nextData}.
        """
        pages = self._file(handle).pages
        found = min((page for page in pages if (page + 1) * _PAGE > offset), default=None)
        return None if found is None else max(found * _PAGE, offset)

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        """
        See L{Files.pwrite}.
        """
        file = self._file(handle)
        file.write(data, offset)
        file.modified = self._now()

    def allocate(self, handle: int, size: int) -> None:
        """
        See L{Files.allocate}.
        """
        file = self._file(handle)
        if size > file.size:
            self.truncate(handle, size)

    def truncate(self, handle: int, size: int) -> None:
        """
        See L{Files.truncate}.
        """
        file = self._file(handle)
        file.resize(size)
        file.modified = self._now()

    def sync(self, handle: int) -> None:
        """
        See L{Files.sync}.  Written bytes survive a crash without it.
        """
        self._file(handle)

    def syncPath(self, path: str) -> None:
        """
        See L{Files.syncPath}.
        """

    def syncFolder(self, path: str) -> None:
        """
        See L{Files.syncFolder}.
        """

    def size(self, path: str) -> int | None:
        """
        See L{Files.size}.
        """
        found = self._find(path)
        return found.size if isinstance(found, _File) else None

    def modified(self, path: str) -> float:
        """
        See L{Files.modified}.
        """
        found = self._find(path)
        if not isinstance(found, _File):
            raise _missing(path)
        return found.modified

    def rename(self, old: str, new: str) -> None:
        """
        See L{Files.rename}.
        """
        source, oldName = self._parent(old)
        target, newName = self._parent(new)
        if oldName not in source:
            raise _missing(old)
        target[newName] = source.pop(oldName)

    def remove(self, path: str) -> None:
        """
        See L{Files.remove}.
        """
        if isinstance(self._find(path), _File):
            folder, name = self._parent(path)
            del folder[name]

    def removeFolder(self, path: str) -> None:
        """
        See L{Files.removeFolder}.
        """
        if isinstance(self._find(path), dict):
            folder, name = self._parent(path)
            del folder[name]

    def names(self, path: str) -> list[str]:
        """
        See L{Files.names}.
        """
        found = self._find(path)
        return sorted(found) if isinstance(found, dict) else []

    def makeFolder(self, path: str, *, synced: bool = True) -> None:
        """
        See L{Files.makeFolder}.
        """
        folder = self._root
        for name in _parts(path):
            inner = folder.setdefault(name, {})
            if isinstance(inner, _File):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = inner

    def space(self, path: str) -> tuple[int, int]:
        """
        See L{Files.space}.
        """
        if self._find(path) is None:
            raise _missing(path)
        return _TOTAL, _TOTAL - _held(self._root)

    def lock(self, path: str) -> Callable[[], None]:
        """
        See L{Files.lock}.
        """
        unlock = self.lockFolder(path)
        self.close(self.open(path))
        return unlock

    def lockFolder(self, path: str) -> Callable[[], None]:
        """
        See L{Files.lockFolder}.
        """
        name = "/".join(_parts(path))
        if name in self._locks:
            raise Locked(path)
        holder = self._locks[name] = object()

        def unlock() -> None:
            # After a crash, the lock may belong to another server.
            if self._locks.get(name) is holder:
                del self._locks[name]

        return unlock

    def _file(self, handle: int) -> _File:
        try:
            return self._open[handle]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _find(self, path: str) -> _Folder | _File | None:
        node: _Folder | _File | None = self._root
        for name in _parts(path):
            if not isinstance(node, dict):
                return None
            node = node.get(name)
        return node

    def _parent(self, path: str) -> tuple[_Folder, str]:
        above, name = os.path.split(path)
        node = self._find(above)
        if not isinstance(node, dict):
            raise _missing(path)
        return node, name


def _parts(path: str) -> list[str]:
    return [each for each in path.split("/") if each not in ("", ".")]


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _held(folder: _Folder) -> int:
    """
    The bytes of all files in a folder.
    """
    return sum(
        _held(each) if isinstance(each, dict) else len(each.pages) * _PAGE
        for each in folder.values()
    )
