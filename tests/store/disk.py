# SPDX-License-Identifier: Apache-2.0
"""
A disk in memory that can lose power, fill up and fail.

It takes the place of L{Files}.  Each file has the bytes that a program sees and
the bytes that are sure to be on the disk, and between the two a list of changes
that no sync has covered yet; each folder has the same for its names::

    pwrite, truncate --> data      pending: (offset, bytes), (size) ...
    sync             --> safe      pending: none
    sync that fails  --> data and safe stay, pending: none

After a sync that failed, the system takes what it could not write for written: reads
show it, no later sync writes it, and a power loss shows that it is not there.

L{Disk.crash} makes a disk as a power loss may leave it: of what is pending, any
part, in any order, a write torn at sectors, a rename whole or not at all.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import TypeAlias

from txrocket.store.files import Files, Locked, SyncFailed

__all__ = ["SECTOR", "Disk", "full", "ioError"]

SECTOR = 512

# A write (offset, bytes), or a new size (size, None).
_Change: TypeAlias = tuple[int, bytes | None]


def ioError() -> OSError:
    """
    The error of a broken disk.
    """
    return OSError(errno.EIO, os.strerror(errno.EIO))


def full() -> OSError:
    """
    The error of a full disk.
    """
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class File:
    """
    A file's bytes, as seen and as sure.
    """

    __slots__ = ("data", "modified", "pending", "safe")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.safe = data
        self.pending: list[_Change] = []
        self.modified = 0.0

    def change(self, at: int, data: bytes | None) -> None:
        self.pending.append((at, data))
        _apply(self.data, at, data)

    def sync(self) -> None:
        if self.pending:
            safe = bytearray(self.safe)
            for at, data in self.pending:
                _apply(safe, at, data)
            self.safe = bytes(safe)
            self.pending = []

    def failedSync(self) -> None:
        # A file system keeps sizes elsewhere than data.
        self.pending = [(at, data) for at, data in self.pending if data is None]

    def afterCrash(self, random: Random, fates: _Fates) -> File:
        result = File(self.safe)
        fate = random.random()
        if self.pending and fate < 0.85:
            share = 1.0 if fate < 0.15 else random.choice((0.1, 0.5, 0.9))
            pieces = [piece for each in self.pending for piece in _sectors(*each)]
            kept = [each for each in pieces if random.random() < share]
            if random.random() < 0.5:
                random.shuffle(kept)
            for at, data in kept:
                _apply(result.data, at, data)
            result.safe = bytes(result.data)
        result.modified = self.modified
        return result

    def copy(self) -> File:
        result = File(bytes(self.data))
        result.modified = self.modified
        return result


class Move:
    """
    A rename from one folder to another, which a file system does whole or not at all.

    @ivar isSure: whether one of the folders was synced since.
    """

    __slots__ = ("isSure",)

    def __init__(self) -> None:
        self.isSure = False


# Which renames between folders a power loss has left.
_Fates: TypeAlias = dict[Move, bool]


class Folder:
    """
    A folder's names, as seen and as sure.
    """

    __slots__ = ("names", "pending", "safe")

    def __init__(self) -> None:
        self.names: dict[str, File | Folder] = {}
        self.safe: dict[str, File | Folder] = {}
        # Names that went and names that came, at once.
        self.pending: list[tuple[str | None, str | None, File | Folder | None, Move | None]] = []

    def change(
        self,
        gone: str | None,
        new: str | None,
        node: File | Folder | None,
        move: Move | None = None,
    ) -> None:
        self.pending.append((gone, new, node, move))
        _rename(self.names, gone, new, node)

    def sync(self) -> None:
        for *_, move in self.pending:
            if move is not None:
                move.isSure = True
        self.safe = dict(self.names)
        self.pending = []

    def afterCrash(self, random: Random, fates: _Fates) -> Folder:
        names = dict(self.safe)
        share = random.choice((0.0, 0.5, 0.5, 1.0))
        for gone, new, node, move in self.pending:
            happened = random.random() < share
            if move is not None:
                happened = move.isSure or fates.setdefault(move, happened)
            if happened:
                _rename(names, gone, new, node)
        result = Folder()
        result.names = {name: node.afterCrash(random, fates) for name, node in names.items()}
        result.sync()
        return result

    def copy(self) -> Folder:
        result = Folder()
        result.names = {name: node.copy() for name, node in self.names.items()}
        result.sync()
        return result


def _apply(data: bytearray, at: int, change: bytes | None) -> None:
    if change is None:
        del data[at:]
        data.extend(bytes(at - len(data)))
    else:
        if len(data) < at:
            data.extend(bytes(at - len(data)))
        data[at : at + len(change)] = change


def _sectors(at: int, data: bytes | None) -> list[_Change]:
    if data is None:
        return [(at, None)]
    pieces: list[_Change] = []
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR - (at + start) % SECTOR)
        pieces.append((at + start, data[start:end]))
        start = end
    return pieces


def _rename(
    names: dict[str, File | Folder],
    gone: str | None,
    new: str | None,
    node: File | Folder | None,
) -> None:
    if gone is not None:
        names.pop(gone, None)
    if new is not None:
        assert node is not None
        names[new] = node


class Disk(Files):
    """
    The disk.

    @ivar before: gets every operation before it is done, as a word and a
        path; it may raise an error in its place, or look at the disk as it is
        at that moment.
    @ivar now: the time, for what is written.
    @ivar total: the bytes of the disk.
    @ivar free: those that are not in use.
    """

    direct = False

    def __init__(self, root: Folder | None = None) -> None:
        self.root = root or Folder()
        self.before: Callable[[str, str], None] = lambda operation, path: None
        self.now = 0.0
        self.total = 1 << 30
        self.free = 1 << 29
        self._handles: dict[int, tuple[str, File]] = {}
        self._lastHandle = 2
        self._locks: set[str] = set()

    def crash(self, random: Random) -> Disk:
        """
        A disk as it may be after the power goes now.
        """
        return self._like(self.root.afterCrash(random, {}))

    def copy(self) -> Disk:
        """
        The same once more, everything on it being sure.
        """
        return self._like(self.root.copy())

    def fork(self) -> Disk:
        """
        The same once more, as it is between two operations of a program that
        ends there: nothing is lost, and nothing more is sure.
        """
        return self._like(deepcopy(self.root))

    def kill(self) -> None:
        """
        The program ends without a word; the system goes on.
        """
        self._handles.clear()
        self._locks.clear()

    def file(self, path: str) -> File:
        """
        A file, for a test to look at or to damage.
        """
        found = self._find(path)
        assert isinstance(found, File), path
        return found

    def paths(self, path: str) -> list[str]:
        """
        The files in a folder and in those below it.
        """
        found = self._find(path)
        if isinstance(found, Folder):
            return [p for name in sorted(found.names) for p in self.paths(f"{path}/{name}")]
        return [path] if found is not None else []

    # --- what L{Files} has -----------------------------------------------

    def open(self, path: str) -> int:
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if node is None:
            self.before("create", path)
            node = File()
            node.modified = self.now
            folder.change(None, name, node)
        if isinstance(node, Folder):
            raise IsADirectoryError(path)
        self._lastHandle += 1
        self._handles[self._lastHandle] = path, node
        return self._lastHandle

    def close(self, handle: int) -> None:
        # A program that was killed may still let go of what it had.
        self._handles.pop(handle, None)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        path, node = self._handles[handle]
        if size < 0 or offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.before("pread", path)
        return bytes(node.data[offset : offset + size])

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        path, node = self._handles[handle]
        self.before("pwrite", path)
        node.change(offset, bytes(data))
        node.modified = self.now

    def allocate(self, handle: int, size: int) -> None:
        path, node = self._handles[handle]
        self.before("allocate", path)
        # As posix_fallocate: a file never gets shorter.
        if size > len(node.data):
            node.change(size, None)

    def truncate(self, handle: int, size: int) -> None:
        path, node = self._handles[handle]
        self.before("truncate", path)
        node.change(size, None)

    def sync(self, handle: int) -> None:
        path, node = self._handles[handle]
        self._sync("sync", path, node)

    def syncPath(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, File):
            self._sync("sync", path, node)

    def syncFolder(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, Folder):
            raise FileNotFoundError(path)
        self._sync("syncFolder", path, node)

    def size(self, path: str) -> int | None:
        node = self._find(path)
        return len(node.data) if isinstance(node, File) else None

    def modified(self, path: str) -> float:
        return self.file(path).modified

    def rename(self, old: str, new: str) -> None:
        self.before("rename", new)
        folder, name = self._parent(old)
        target, newName = self._parent(new)
        if folder is target:
            folder.change(name, newName, folder.names[name])
            return
        move, node = Move(), folder.names[name]
        target.change(None, newName, node, move)
        folder.change(name, None, None, move)

    def remove(self, path: str) -> None:
        folder, name = self._parent(path)
        if name in folder.names:
            self.before("remove", path)
            folder.change(name, None, None)

    def removeFolder(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, Folder):
            return
        for name, each in list(node.names.items()):
            if isinstance(each, Folder):
                self.removeFolder(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        folder, name = self._parent(path)
        self.before("removeFolder", path)
        folder.change(name, None, None)

    def names(self, path: str) -> list[str]:
        node = self._find(path)
        return sorted(node.names) if isinstance(node, Folder) else []

    def makeFolder(self, path: str, *, synced: bool = True) -> None:
        if not path or isinstance(self._find(path), Folder):
            return
        parent = os.path.dirname(path)
        self.makeFolder(parent, synced=synced)
        self.before("makeFolder", path)
        folder, name = self._parent(path)
        folder.change(None, name, Folder())
        if synced:
            self.syncFolder(parent)

    def space(self, path: str) -> tuple[int, int]:
        if not isinstance(self._find(path), Folder):
            raise FileNotFoundError(path)
        return self.total, self.free

    def nextData(self, handle: int, offset: int) -> int | None:
        data = self._handles[handle][1].data
        return offset if any(data[offset:]) else None

    def lock(self, path: str) -> Callable[[], None]:
        unlock = self.lockFolder(path)
        self.close(self.open(path))
        return unlock

    def lockFolder(self, path: str) -> Callable[[], None]:
        if path in self._locks:
            raise Locked(path)
        self._locks.add(path)
        return lambda: self._locks.discard(path)

    # --- inside ----------------------------------------------------------

    def _sync(self, operation: str, path: str, node: File | Folder) -> None:
        try:
            self.before(operation, path)
        except OSError as error:
            if isinstance(node, File):
                node.failedSync()
            raise SyncFailed(*error.args) from error
        node.sync()

    def _like(self, root: Folder) -> Disk:
        result = type(self)(root)
        result.now, result.total, result.free = self.now, self.total, self.free
        return result

    def _find(self, path: str) -> File | Folder | None:
        node: File | Folder | None = self.root
        for name in path.split("/"):
            if not isinstance(node, Folder):
                return None
            if name:
                node = node.names.get(name)
        return node

    def _parent(self, path: str) -> tuple[Folder, str]:
        folder, _, name = path.rpartition("/")
        node = self._find(folder)
        if not isinstance(node, Folder):
            raise FileNotFoundError(path)
        return node, name
