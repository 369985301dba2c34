# SPDX-License-Identifier: Apache-2.0
"""
A store's folder, read without changing it.

The sizes come from the files themselves.  A file that does not fit is reported and left out.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable
from typing import TypeAlias

from txrocket.errors import MalformedRecord, StoreError
from txrocket.protocol.record import BLANK_MAGIC_CODE, BLANK_SIZE, decodeRecord
from txrocket.store.files import FIRST_BYTE, FLOCK, Files
from txrocket.store.files.handles import Handles
from txrocket.store.files.segments import Segments, basesIn
from txrocket.store.log.commitlog import CommitLog

__all__ = [
    "Note",
    "ReadOnlyFiles",
    "firstData",
    "inUse",
    "openLog",
    "openSegments",
    "sizeOfFirst",
    "whyNot",
]

# Takes the place of a fault, its kind, and the details.
Note: TypeAlias = Callable[[str, str, str], None]

_SIZE_AND_MAGIC = struct.Struct(">2i")
_CHUNK = 1024 * 1024


class ReadOnlyFiles(Files):
    """
    Files that are opened for reading only, so that the system refuses any write.
    """

    def open(self, path: str) -> int:
        """
        Open a file that is there.
        """
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def inUse(root: str) -> bool:
    """
    Whether another process has the store open.  Asks, and takes no lock: a store
    that starts at this moment is not disturbed.
    """
    try:
        handle = os.open(os.path.join(root, "lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        kind = FLOCK.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, FIRST_BYTE))[0]
        return bool(kind != fcntl.F_UNLCK)
    finally:
        os.close(handle)


def openSegments(segments: Segments, note: Note) -> None:
    """
    Find the pieces in a folder, as far as they fit together.
    """
    for base in basesIn(ReadOnlyFiles(), segments.folder):
        found = os.path.getsize(segments.pathOf(base))
        if base % segments.size or (segments.bases and base != segments.end):
            note(segments.folder, "a file does not follow the one before", segments.nameOf(base))
            return
        if found != segments.size:
            note(
                segments.folder,
                "a file has another size than the first",
                f"{segments.nameOf(base)} has {found} bytes, not {segments.size}",
            )
        segments.bases.append(base)


def firstData(segments: Segments, start: int, end: int) -> int | None:
    """
    The offset of the first byte that is not zero; L{None} if all are.
    """
    while start < end:
        data = segments.read(start, min(_CHUNK, end - start))
        if not data:
            return None
        rest = data.lstrip(b"\0")
        if rest:
            return start + len(data) - len(rest)
        start += len(data)
    return None


def sizeOfFirst(folder: str) -> int:
    """
    The size of the first piece in a folder; 0 if the folder has no piece.
    """
    for base in basesIn(ReadOnlyFiles(), folder):
        return os.path.getsize(os.path.join(folder, Segments.nameOf(base)))
    return 0


def openLog(handles: Handles, root: str, note: Note, folder: str | None = None) -> CommitLog:
    """
    The log of a folder.

    @param folder: where the log is, if not in C{commitlog}.
    @raise StoreError: if the folder has no log.
    """
    if folder is None:
        folder = os.path.join(root, "commitlog")
        if not os.path.isdir(folder):
            raise StoreError(f"{root} is no store: there is no commitlog in it")
    elif not os.path.isdir(folder):
        raise StoreError(f"there is no log in {folder}")
    # A record may be as long as a file, because the limit may have been lowered.
    size = max(sizeOfFirst(folder), BLANK_SIZE)
    log = CommitLog(handles, folder, size, size, lambda offset, data: None)
    openSegments(log.segments, note)
    log.end = log.written = log.segments.end
    return log


def whyNot(log: CommitLog, offset: int) -> str | None:
    """
    Why the log does not go on at an offset.

    @return: the fault of the record there; L{None} if no record was begun.
    """
    head = log.segments.read(offset, BLANK_SIZE)
    if len(head) < BLANK_SIZE or not any(head):
        return None
    size, magic = _SIZE_AND_MAGIC.unpack(head)
    if magic == BLANK_MAGIC_CODE:
        return None
    # As many bytes as the size says, and enough to find the fault if the size is wrong.
    data = log.segments.read(offset, min(max(size, BLANK_SIZE), log.segments.size))
    try:
        record = decodeRecord(data, checkCrc=True)
    except MalformedRecord as error:
        return str(error).partition(": ")[2]
    if record.commitLogOffset != offset:
        return f"it says that it is at {record.commitLogOffset}"
    return "a part of it was never written"
