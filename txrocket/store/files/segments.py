# SPDX-License-Identifier: Apache-2.0
"""
One long file in pieces of a fixed size, Java's C{MappedFileQueue}::

    FOLDER/00000000000000000000   bytes 0 ... size-1
    FOLDER/00000000001073741824   bytes size ... 2*size-1
           ^ the offset of the first byte, 20 digits

Each piece has its full size from the start, because Java refuses any other.  Bytes that
were not written read as zeros.  The first pieces may be gone, deleted as old.

A disk brings names and sizes to safety in any order.  So that a power loss leaves
no gap and no short piece before the last, they are synced one after the other: a
piece before the next one is made, a removal before the next one.  Where a piece is
missing or too short all the same, the folder was damaged: L{Segments.load} gives the
piece its size back, and tells which bytes were not there.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import NamedTuple

from txrocket.errors import StoreCorrupt, StoreError
from txrocket.store.files import Files
from txrocket.store.files.handles import Handles

__all__ = ["Gap", "Segments", "basesIn"]


# How many pieces are mapped at a time.  It costs nothing but addresses.
_MAPPED = 16

# How many more pieces may be missing than there are.
_MISSING = 16

# How much is written again at a time.
_CHUNK = 1024 * 1024


class Gap(NamedTuple):
    """
    Bytes of a piece that its file did not have: from where to where.
    """

    start: int
    end: int


def basesIn(files: Files, folder: str) -> list[int]:
    """
    Where the pieces in a folder begin, in order.
    """
    return [
        int(name)
        for name in files.names(folder)
        if len(name) == 20 and name.isascii() and name.isdigit()
    ]


class Segments:
    """
    The pieces in one folder.

    @ivar bases: the offsets at which they begin, in order.
    @ivar dirtyPaths: the files that were written to since they were last synced.
    @ivar dirtyFolders: the folder, if names in it changed since then.
    """

    def __init__(
        self,
        handles: Handles,
        folder: str,
        size: int,
        allocate: Callable[[int, int], None],
        above: Sequence[str] = (),
    ) -> None:
        """
        @param allocate: gives a new file its size: L{Files.allocate} with the
            room for it, or L{Files.truncate} without.
        @param above: folders above whose names are synced with the pieces, and not
            when they are made: of thousands of queues each would be waited for.
        """
        self._handles = handles
        self._files = handles.files
        self.folder = folder
        self._prefix = os.path.join(folder, "")
        self._paths: dict[int, str] = {}
        self._mapped: dict[int, mmap] = {}
        self.size = size
        self._allocate = allocate
        self._above = above
        self.bases: list[int] = []
        self.dirtyPaths: set[str] = set()
        self.dirtyFolders: set[str] = set()
        # Whether the last piece's name or size may not be on the disk.
        self._loose = False

    def load(self) -> list[Gap]:
        """
        Find the pieces.  A piece that is missing or too short gets its size, and zeros for
        its missing bytes.

        @return: the missing bytes, in order.
        @raise StoreCorrupt: if the pieces have another size than the configured one.
        """
        found = basesIn(self._files, self.folder)
        gaps: list[Gap] = []
        self.bases = []
        for base in found:
            size = self._files.size(self.pathOf(base)) or 0
            missing = (base - self.end) // self.size if self.bases else 0
            if base % self.size or size > self.size or missing > len(found) + _MISSING:
                raise StoreCorrupt(
                    f"{self.folder}: files of {self.size} bytes were expected one after the "
                    f"other, but {self.nameOf(base)} of {size} bytes does not fit; is the "
                    "configured size right?  If so, move that file away"
                )
            while self.bases and self.end < base:
                gaps.append(self.restore())
            self.bases.append(base)
            if size < self.size:
                # The power went while the file was being made, or a person cut it.
                self._allocate(self._handles.get(self.pathOf(base)), self.size)
                self.dirtyPaths.add(self.pathOf(base))
                gaps.append(Gap(base + size, base + self.size))
        # Names and sizes may be in the system's memory only.
        self._loose = True
        return gaps

    def restore(self) -> Gap:
        """
        Put an empty piece, without room on the disk, in the place of one that is missing
        behind the last.
        """
        base = self.end
        path = self.pathOf(base)
        self._files.truncate(self._handles.get(path), self.size)
        self.bases.append(base)
        self.dirtyPaths.add(path)
        self.dirtyFolders.update((self.folder, *self._above))
        return Gap(base, base + self.size)

    @property
    def end(self) -> int:
        """
        One past the last byte of the last piece.
        """
        return self.bases[-1] + self.size if self.bases else 0

    @staticmethod
    def nameOf(base: int) -> str:
        """
        A piece's file name.
        """
        return f"{base:020d}"

    def pathOf(self, base: int) -> str:
        """
        A piece's path.
        """
        # Made once: it takes a microsecond, which a pull would pay twice.
        path = self._paths.get(base)
        if path is None:
            path = self._paths[base] = self._prefix + self.nameOf(base)
        return path

    def baseOf(self, offset: int) -> int | None:
        """
        Where the piece begins that holds an offset, if there is one.
        """
        index = bisect_right(self.bases, offset) - 1
        if index < 0 or offset >= self.bases[index] + self.size:
            return None
        return self.bases[index]

    def create(self, base: int) -> None:
        """
        Make a piece.
        """
        path = self.pathOf(base)
        self._files.makeFolder(self.folder, synced=not self._above)
        if self.bases and self._loose:
            self._files.sync(self._handles.get(self.pathOf(self.bases[-1])))
            self._files.syncFolder(self.folder)
        try:
            handle = self._handles.get(path)
            self._allocate(handle, self.size)
            if self.bases:
                self._files.sync(handle)
                self._files.syncFolder(self.folder)
        except OSError:
            self._handles.forget(path)
            self._files.remove(path)
            raise
        # The first one of thousands of queues is not waited for.
        self._loose = not self.bases
        self.bases.append(base)
        self.dirtyPaths.add(path)
        self.dirtyFolders.update((self.folder, *self._above))

    def write(self, offset: int, data: bytes) -> None:
        """
        Write within one piece.
        """
        base = self.baseOf(offset)
        assert base is not None and offset + len(data) <= base + self.size
        path = self.pathOf(base)
        self._files.pwrite(self._handles.get(path), data, offset - base)
        self.dirtyPaths.add(path)

    def read(self, offset: int, size: int) -> bytes:
        """
        Read within one piece; short at its end, empty where no piece is.

        @raise StoreError: if the disk does not give it.
        """
        base = self.baseOf(offset)
        if base is None:
            return b""
        size = min(size, base + self.size - offset)
        path = self.pathOf(base)
        try:
            return self._files.pread(self._handles.get(path), size, offset - base)
        except OSError as error:
            raise StoreError(f"reading {path} failed: {error}") from error

    def nextData(self, offset: int) -> int | None:
        """
        The first place at an offset or behind it, in the same piece, that may hold other
        bytes than zeros; L{None} if there is no such place.
        """
        base = self.baseOf(offset)
        if base is None:
            return None
        found = self._files.nextData(self._handles.get(self.pathOf(base)), offset - base)
        return None if found is None or found >= self.size else base + found

    def place(self, offset: int) -> tuple[mmap, int] | None:
        """
        The piece that holds an offset: its bytes, good until the next call, and where it
        begins.

        @raise OSError: if it cannot be had.
        """
        base = self.baseOf(offset)
        if base is None:
            return None
        found = self._mapped.get(base)
        if found is None:
            if len(self._mapped) >= _MAPPED:
                self._unmap(next(iter(self._mapped)))
            found = self._files.map(self._handles.get(self.pathOf(base)), self.size)
            self._mapped[base] = found
        return found, base

    def opened(self, offset: int) -> tuple[int, int] | None:
        """
        The piece that holds an offset: its handle, good until the next call, and where it
        begins.

        @raise OSError: if it cannot be opened.
        """
        base = self.baseOf(offset)
        return None if base is None else (self._handles.get(self.pathOf(base)), base)

    def _unmap(self, base: int) -> None:
        mapped = self._mapped.pop(base, None)
        if mapped is not None:
            mapped.close()

    def close(self) -> None:
        """
        Close the mappings that L{place} gave.
        """
        for base in list(self._mapped):
            self._unmap(base)

    def clearFrom(self, offset: int) -> None:
        """
        Forget everything from an offset on.

        The bytes that are cut must read as zeros.  A record that is cut but still there
        would come back once a new record of the same size stands before it.
        """
        while self.bases and self.bases[-1] >= offset and len(self.bases) > 1:
            self.removeLast()
        # After a crash not even the names are sure.
        self.dirtyFolders.update((self.folder, *self._above))
        base = self.baseOf(offset)
        if base is None:
            return
        path = self.pathOf(base)
        handle = self._handles.get(path)
        self._unmap(base)
        self._files.truncate(handle, offset - base)
        self._allocate(handle, self.size)
        self.dirtyPaths.add(path)
        self._loose = True

    def rewrite(self, start: int, end: int) -> None:
        """
        Write a stretch again as it reads now.

        After a sync that failed the system takes pages for written that are not: reads
        show them, and no later sync writes them, unless they are written again.
        """
        while start < end and (data := self.read(start, min(_CHUNK, end - start))):
            self.write(start, data)
            start += len(data)

    def syncFrom(self, offset: int) -> None:
        """
        Sync everything from an offset on, whichever process wrote it.  Blocks.
        """
        for base in self.bases:
            if base + self.size > offset:
                self._files.sync(self._handles.get(self.pathOf(base)))
        self._files.syncFolder(self.folder)
        self.dirtyPaths.clear()
        self.dirtyFolders.clear()
        self._loose = False

    def removeFirst(self) -> None:
        """
        Delete the oldest piece.  A read that has begun goes on undisturbed.
        """
        self._remove(self.bases.pop(0))

    def removeLast(self) -> None:
        """
        Delete the newest piece.
        """
        self._remove(self.bases.pop())

    def removeAll(self) -> None:
        """
        Delete all pieces and their folder.
        """
        while self.bases:
            self.removeLast()
        self.abandon()
        self._files.removeFolder(self.folder)

    def abandon(self) -> None:
        """
        Let go of all pieces: the caller deletes them.
        """
        self.close()
        for base in self.bases:
            self._handles.forget(self.pathOf(base))
        self.bases.clear()
        self._paths.clear()
        self.dirtyPaths.clear()
        self.dirtyFolders.clear()

    def modified(self, base: int) -> float:
        """
        When a piece was last written to.
        """
        return self._files.modified(self.pathOf(base))

    def _remove(self, base: int) -> None:
        path = self.pathOf(base)
        del self._paths[base]
        self._unmap(base)
        self._handles.forget(path)
        self.dirtyPaths.discard(path)
        self._files.remove(path)
        self._files.syncFolder(self.folder)
