# SPDX-License-Identifier: Apache-2.0
"""
The files of a commit log, read without a broker.

A file is named after the offset of its first byte.  Records follow one another.  If the
next record does not fit, a blank fills the file; the last file ends in zeros::

    00000000000000000000    |record|record|record|blank    |
    00000000001073741824    |record|record|00000000000000000

A task reads a part of a file: the records that begin in it.  It finds the first one by the
magic code of records and by the log offset inside the record.  The offset must match the
position, so that bytes of a body do not pass for a record.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Final

import attrs

from pyspark_rocketmq.columns.positions import positionsIn
from txrocket.errors import ConfigError, MalformedRecord
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE,
    PHYSICAL_OFFSET_POSITION,
    decodeRecord,
    storeTimestampAt,
)

__all__ = ["DamagedLog", "LogFile", "Segment", "Split", "firstTime", "segmentsIn", "splits"]

_NAME: Final = re.compile(r"\d{20}")
_MAGIC: Final = struct.pack(">i", MESSAGE_MAGIC_CODE)
_BLANK: Final = struct.pack(">i", BLANK_MAGIC_CODE)
_SIZE_AND_MAGIC: Final = struct.Struct(">2i")
_LONG: Final = struct.Struct(">q")

# The bytes that are compared at a time; they fit the processor's caches.
_ZEROS: Final = bytes(1 << 18)


class DamagedLog(MalformedRecord):
    """
    A log has bytes that are not a record.
    """


@attrs.frozen
class Segment:
    """
    A file of a log.

    @ivar base: the log offset of its first byte.
    @ivar size: the bytes of the file.
    @ivar last: whether no later file has records, so that this one need not be full.
    @ivar written: where the zeros at its end begin, if that is known; else its size.
    """

    path: str
    base: int
    size: int
    last: bool
    written: int = attrs.field()

    @written.default
    def _whole(self) -> int:
        return self.size


@attrs.frozen
class Split:
    """
    A part of a file: the records that begin between two positions.
    """

    segment: Segment
    start: int
    stop: int


def segmentsIn(folder: str) -> list[Segment]:
    """
    The files of a log, sorted by offset.

    @param folder: the folder of a store, or of its log.
    @raise ConfigError: if it is neither.
    """
    inner = os.path.join(folder, "commitlog")
    where = inner if os.path.isdir(inner) else folder
    try:
        names = sorted(each for each in os.listdir(where) if _NAME.fullmatch(each))
    except OSError as error:
        raise ConfigError(f"option path: {folder} cannot be read: {error}") from None
    if not names and where == folder:
        raise ConfigError(f"option path: {folder} is neither a store nor the folder of a log")
    segments: list[Segment] = []
    last = True
    for name in reversed(names):
        path = os.path.join(where, name)
        segments.insert(0, Segment(path, int(name), os.path.getsize(path), last))
        # Brokers create the next one or two files in advance.
        last = last and not _isBegun(path)
    return segments


def _isBegun(path: str) -> bool:
    with open(path, "rb") as file:
        return any(file.read(_SIZE_AND_MAGIC.size))


def firstTime(segment: Segment) -> int | None:
    """
    The store time of the first record of a file; L{None} if the file has no record.
    """
    with open(segment.path, "rb") as file:
        head = file.read(96)
        if len(head) < _SIZE_AND_MAGIC.size:
            return None
        size, magic = _SIZE_AND_MAGIC.unpack_from(head)
        if magic != MESSAGE_MAGIC_CODE:
            return None
        try:
            return storeTimestampAt(head + file.read(max(0, size - len(head))))
        except MalformedRecord:
            return None


def splits(
    segments: Iterable[Segment], most: int, starting: int | None = None, ending: int | None = None
) -> list[Split]:
    """
    Divide a log among tasks.

    @param segments: sorted by offset.
    @param most: the most bytes of a task.
    @param starting: a time in milliseconds: a file with only older records is left out.
    @param ending: likewise, a file with only records of that time or newer ones.
    """
    listed = list(segments)
    times = [firstTime(each) if starting or ending else None for each in listed]
    found = []
    for index, each in enumerate(listed):
        nextTime = times[index + 1] if index + 1 < len(listed) else None
        # The last record of a file is not newer than the first of the next file.
        if starting is not None and nextTime is not None and nextTime < starting:
            continue
        begins = times[index]
        if ending is not None and begins is not None and begins >= ending:
            continue
        # All files but the last are full.
        written = _writtenEnd(each) if each.last else each.size
        count = -(-written // most)
        bounds = [written * part // count for part in range(count + 1)] if count else []
        ended = attrs.evolve(each, written=written)
        found += [Split(ended, low, high) for low, high in pairwise(bounds)]
    return found


def _written(handle: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """
    The parts of a file that are not holes.  A broker allocates a whole file of a gigabyte,
    so most of the last one may be a hole.
    """
    while start < stop:
        try:
            low = os.lseek(handle, start, os.SEEK_DATA)
            high = os.lseek(handle, low, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                # The file system does not report holes.
                yield start, stop
            return
        if low >= stop:
            return
        yield low, min(high, stop)
        start = high


def _writtenEnd(segment: Segment) -> int:
    """
    The end of the bytes that are not zero.  Some file systems report allocated space as
    written, so the zeros are searched here, once, and not in each task.
    """
    handle = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = list(_written(handle, 0, segment.size))
        while parts:
            low, high = parts.pop()
            while high > low:
                start = max(low, high - len(_ZEROS))
                read = os.pread(handle, high - start, start)
                if read != _ZEROS[: len(read)]:
                    return start + len(read.rstrip(b"\0"))
                high = start
        return 0
    finally:
        os.close(handle)


class LogFile:
    """
    An open file of a log, mapped into memory.

    @ivar data: its bytes.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._handle = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.data = mmap.mmap(self._handle, segment.size, prot=mmap.PROT_READ)
        except BaseException:
            os.close(self._handle)
            raise

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._handle)
        # Arrow arrays may still refer to the mapping; the last of them closes it.
        with suppress(BufferError):
            self.data.close()

    def records(self, start: int, stop: int, lost: Callable[[str], None]) -> Iterator[list[int]]:
        """
        The positions of records between two positions, one list for each sound run.

        @param lost: called with a text if there is no record where one should be.  If it
            returns, reading continues at the next record.
        """
        at = start if start == 0 else self.find(start, stop)
        while at is not None and at < stop:
            positions, at = positionsIn(self.data, at, stop)
            if self._segment.last and positions and not self.isRecord(positions[-1]):
                # The broker wrote the size of the record but not yet the rest.
                at = positions.pop()
            if positions:
                yield positions
            at = self._nextRecord(at, lost)

    def _nextRecord(self, at: int, lost: Callable[[str], None]) -> int | None:
        """
        The position of the next record; L{None} if there is none.  A part searches beyond
        its own end, because the next part cannot know that its first record is missing.
        """
        size = self._segment.size
        if at >= size or self.isRecord(at):
            return at
        if self.data[at + 4 : at + 8] == _BLANK:
            return None
        found = self.find(at + 1, self._segment.written)
        # The last file ends in zeros, or in a record that the broker did not finish.
        if found is None and self._segment.last:
            return None
        where = f"{self._segment.path} has no record at {at}"
        lost(f"{where}, which is {self._segment.base + at} in the log")
        return found

    def find(self, start: int, stop: int) -> int | None:
        """
        The position of the first record between two positions; L{None} if there is none.
        """
        for low, high in _written(self._handle, start, stop):
            at = low
            # The magic code is the fifth byte of a record.
            while (found := self.data.find(_MAGIC, at + 4, high + 8)) >= 0:
                at = found - 4
                if self.isRecord(at):
                    return at
                at += 1
        return None

    def isRecord(self, at: int) -> bool:
        """
        Whether a record begins at a position.
        """
        place = at + PHYSICAL_OFFSET_POSITION
        if (
            place + 8 > self._segment.size
            or _LONG.unpack_from(self.data, place)[0] != self._segment.base + at
        ):
            return False
        try:
            decodeRecord(self.data, at, readBody=False)
        except MalformedRecord:
            return False
        return True
