# SPDX-License-Identifier: Apache-2.0
"""
The files of a commit log, read without a broker.

A file is named after the offset of its first byte.  Records follow one another; where one
does not fit, a blank fills the rest, and the last file is zeros behind its last record::

    00000000000000000000    |record|record|record|blank    |
    00000000001073741824    |record|record|00000000000000000

A task reads a part of a file: the records that begin in it.  The first of them is looked
for, by the magic code that records have, and by the offset that is in each and says where
it must be, so that no body is taken for a record.
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

from pyspark_rocketmq.hopping import positionsIn
from txrocket.errors import ConfigError, MalformedRecord
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE,
    PHYSICAL_OFFSET_POSITION,
    decodeRecord,
    storeTimestampAt,
)

__all__ = ["Damaged", "LogFile", "Segment", "Split", "firstTime", "segmentsIn", "splits"]

_NAME: Final = re.compile(r"\d{20}")
_MAGIC: Final = struct.pack(">i", MESSAGE_MAGIC_CODE)
_BLANK: Final = struct.pack(">i", BLANK_MAGIC_CODE)
_SIZE_AND_MAGIC: Final = struct.Struct(">2i")
_LONG: Final = struct.Struct(">q")

# As much as is looked at at a time: it stays in the caches.
_ZEROS: Final = bytes(1 << 18)


class Damaged(MalformedRecord):
    """
    A log has something in it that is no record.
    """


@attrs.frozen
class Segment:
    """
    A file of a log.

    @ivar base: the offset of its first byte.
    @ivar size: of the file.
    @ivar last: whether nothing was written behind it, so that it need not be full.
    @ivar written: where it ends in zeros, if that is known; else its size.
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
    The files of a log, in their order.

    @param folder: a store's, or that of its log.
    @raise ConfigError: if it is neither.
    """
    inner = os.path.join(folder, "commitlog")
    where = inner if os.path.isdir(inner) else folder
    try:
        names = sorted(each for each in os.listdir(where) if _NAME.fullmatch(each))
    except OSError as error:
        raise ConfigError(f"option path: {folder} cannot be read: {error}") from None
    if not names and where == folder:
        raise ConfigError(f"option path: {folder} is no store, nor the folder of a log")
    segments: list[Segment] = []
    last = True
    for name in reversed(names):
        path = os.path.join(where, name)
        segments.insert(0, Segment(path, int(name), os.path.getsize(path), last))
        # Brokers make the next file, or two, before they need them.
        last = last and not _isBegun(path)
    return segments


def _isBegun(path: str) -> bool:
    with open(path, "rb") as file:
        return any(file.read(_SIZE_AND_MAGIC.size))


def firstTime(segment: Segment) -> int | None:
    """
    When the first record of a file was stored; L{None} if there is none.
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

    @param segments: in their order.
    @param most: how many bytes one reads.
    @param starting: a time in milliseconds: files that only have older records are left
        out.
    @param ending: likewise, records of that time and newer ones.
    """
    listed = list(segments)
    times = [firstTime(each) if starting or ending else None for each in listed]
    found = []
    for index, each in enumerate(listed):
        following = times[index + 1] if index + 1 < len(listed) else None
        # Those that follow begin with a time that is not earlier.
        if starting is not None and following is not None and following < starting:
            continue
        begins = times[index]
        if ending is not None and begins is not None and begins >= ending:
            continue
        # The others are full.
        written = _writtenEnd(each) if each.last else each.size
        count = -(-written // most)
        bounds = [written * part // count for part in range(count + 1)] if count else []
        ended = attrs.evolve(each, written=written)
        found += [Split(ended, low, high) for low, high in pairwise(bounds)]
    return found


def _written(handle: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """
    The parts of a file in which there is anything.  A file is allocated as a whole, a
    gigabyte, and most of the last one is yet to be written.
    """
    while start < stop:
        try:
            low = os.lseek(handle, start, os.SEEK_DATA)
            high = os.lseek(handle, low, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                # A file system that does not know of holes.
                yield start, stop
            return
        if low >= stop:
            return
        yield low, min(high, stop)
        start = high


def _writtenEnd(segment: Segment) -> int:
    """
    Behind what nothing was written.  File systems do not all know: some have what was
    allocated as written.  To look through a gigabyte of zeros takes a fifth of a second
    here, and each task would take longer.
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
    A file of a log, open.  It is mapped, and so read as it is needed.

    @ivar data: what is in it.
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
        # Arrow may still look at it, and will let it go.
        with suppress(BufferError):
            self.data.close()

    def records(self, start: int, stop: int, lost: Callable[[str], None]) -> Iterator[list[int]]:
        """
        Where records begin, between two positions, in runs.

        @param lost: called with what is wrong where a record should be and none is; if it
            returns, the next one is looked for.
        """
        at = start if start == 0 else self.find(start, stop)
        while at is not None and at < stop:
            positions, at = positionsIn(self.data, at, stop)
            if self._segment.last and positions and not self.isRecord(positions[-1]):
                # Its size was written, and the rest of it was not.
                at = positions.pop()
            if positions:
                yield positions
            at = self._following(at, lost)

    def _following(self, at: int, lost: Callable[[str], None]) -> int | None:
        """
        Where records go on; L{None} if they do not.  Each part looks behind its own end:
        the one behind it would not know that its first record is missing.
        """
        size = self._segment.size
        if at >= size or self.isRecord(at):
            return at
        if self.data[at + 4 : at + 8] == _BLANK:
            return None
        following = self.find(at + 1, self._segment.written)
        # In the last file these are zeros, or what was being written, perhaps when the
        # broker died.
        if following is None and self._segment.last:
            return None
        where = f"{self._segment.path} has no record at {at}"
        lost(f"{where}, which is {self._segment.base + at} in the log")
        return following

    def find(self, start: int, stop: int) -> int | None:
        """
        Where the first record begins, between two positions; L{None} if none does.
        """
        for low, high in _written(self._handle, start, stop):
            at = low
            # A magic code is at 4 in its record.
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
