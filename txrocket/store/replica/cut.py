# SPDX-License-Identifier: Apache-2.0
"""
What is cut off a log, because its master has other bytes there::

    log     |-------- common --------|---- cut off ----|
                                     |  whole records
                                     v
    ROOT/cut/EPOCH-OFFSET.log        a record behind the other, without blanks

Nothing is cut before its records are in that file, on the disk.  The records are as they were,
so C{python -m txrocket.store dump} shows them, and C{txrocket resend} sends them again.

The checkpoint goes back before the log does: a start must find no more in it than in the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from txrocket.protocol.record import BLANK_MAGIC_CODE, BLANK_SIZE, measureRecord
from txrocket.store.dispatch import Dispatcher
from txrocket.store.files import Files
from txrocket.store.flush.checkpoint import Checkpoint, CheckpointFile
from txrocket.store.log.commitlog import CommitLog

__all__ = ["CUT_FOLDER", "Cut", "boundaryAt", "keepRecords", "lowerCheckpoint"]

#: The folder for the records that were cut off.
CUT_FOLDER: Final = "cut"

_MAGIC = BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)


class Cut(NamedTuple):
    """
    What was cut off a log.

    @ivar offset: where the log ends now.
    @ivar size: how many bytes were cut off.
    @ivar records: how many whole records these had.
    @ivar path: the file that has the records; empty if there are none.
    """

    offset: int
    size: int
    records: int
    path: str


def boundaryAt(log: CommitLog, offset: int) -> int:
    """
    Where the record begins that an offset lies in; the offset itself if a record, or nothing,
    begins there.
    """
    base = log.segments.baseOf(offset)
    if base is None or offset in (base, log.written):
        return offset
    if log.read(offset, BLANK_SIZE)[4:] == _MAGIC or next(log.scan(offset, strict=False), None):
        return offset
    end = base
    for start, data in log.scan(base, strict=False):
        if start >= offset:
            break
        for size in _sizes(data[: offset - start]):
            end = start = start + size
    return end


def keepRecords(files: Files, folder: str, epoch: int, log: CommitLog, start: int) -> Cut:
    """
    Copy the whole records from an offset of the log on to a file, and wait until it is on the
    disk.

    @param epoch: the epoch of the records, for the name of the file.
    @return: the file, and what it has.
    @raise OSError: if the disk fails, or has no room; then there is no new file.
    """
    size, records = log.written - start, 0
    path = _freePath(files, folder, f"{epoch}-{start}", log, start)
    place = 0
    handle = None
    try:
        for data in _stretches(log, start):
            if handle is None:
                files.makeFolder(folder)
                handle = files.open(f"{path}.tmp")
                files.truncate(handle, 0)
            files.pwrite(handle, data, place)
            place += len(data)
            records += sum(1 for _ in _sizes(data))
        if handle is None:
            return Cut(start, size, 0, "")
        files.sync(handle)
    except OSError:
        if handle is not None:
            with suppress(OSError):
                files.remove(f"{path}.tmp")
        raise
    finally:
        if handle is not None:
            files.close(handle)
    files.rename(f"{path}.tmp", path)
    files.syncFolder(folder)
    return Cut(start, size, records, path)


def lowerCheckpoint(
    checkpointFile: CheckpointFile, dispatcher: Dispatcher, log: CommitLog, offset: int
) -> None:
    """
    Let the checkpoint speak of nothing behind an offset, at which the log is going to be cut.
    Blocks.

    @raise OSError: if the disk fails.
    """
    checkpoint = checkpointFile.read()
    if not checkpoint.ours:
        times = checkpoint.logTimestamp, checkpoint.queueTimestamp, checkpoint.indexTimestamp
        found = log.recordAt(offset)
        if found is None or max(times) > found[1].storeTimestamp:
            checkpoint = Checkpoint()
    elif (checkpoint.offset or 0) > offset:
        checkpoint = _checkpointAt(dispatcher, log, offset)
    # In any case: a process that was killed may have written it, and not synced.
    checkpointFile.write(checkpoint)
    checkpointFile.sync()


def _checkpointAt(dispatcher: Dispatcher, log: CommitLog, offset: int) -> Checkpoint:
    """
    The checkpoint that was true when the log ended at an offset.  A later one was written, so
    all entries of records before the offset are on the disk.
    """
    entries, last = 0, -1
    for _, _, queue in dispatcher.queues:
        end = queue.sureEnd(offset, lambda *entry: True)
        entries += queue.searched
        found = queue.entry(end - 1) if end else None
        last = last if found is None else max(last, found[0])
    record = log.recordAt(last)
    time = 0 if record is None else record[1].storeTimestamp
    mark = None if dispatcher.index is None else dispatcher.index.markAt(offset)
    return Checkpoint(time, time, time, offset, mark, time, entries)


def _stretches(log: CommitLog, start: int) -> Iterator[bytes]:
    """
    The whole records from an offset on, many at a time.
    """
    for offset, data in log.scan(start, strict=False):
        if offset >= log.written:
            return
        yield data[: log.written - offset]


def _sizes(data: bytes) -> Iterator[int]:
    """
    The sizes of the records that bytes begin with, up to one that is not whole.
    """
    position = 0
    while len(data) - position >= BLANK_SIZE:
        size = int.from_bytes(data[position : position + 4], "big")
        if position + size > len(data):
            return
        yield measureRecord(data, position)[0]
        position += size


def _freePath(files: Files, folder: str, name: str, log: CommitLog, start: int) -> str:
    """
    A path that no file has, but for one with the same records: a process that died before it
    cut the log has left that.
    """
    number = 1
    path = os.path.join(folder, f"{name}.log")
    while files.size(path) is not None and not _isCopy(files, path, log, start):
        number += 1
        path = os.path.join(folder, f"{name}-{number}.log")
    return path


def _isCopy(files: Files, path: str, log: CommitLog, start: int) -> bool:
    """
    Whether a file has the first records from an offset on, or all of them.
    """
    handle = files.open(path)
    try:
        rest, place = files.size(path) or 0, 0
        for data in _stretches(log, start):
            piece = files.pread(handle, min(len(data), rest), place)
            if not data.startswith(piece):
                return False
            place += len(piece)
            rest -= len(piece)
            if not rest:
                return True
        return not rest
    finally:
        files.close(handle)
