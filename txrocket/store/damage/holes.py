# SPDX-License-Identifier: Apache-2.0
"""
Unreadable stretches of the log, with sound records behind them.

One damaged bit must not cost the records behind it.  A sound record can be recognised
anywhere: it has the magic code, its own offset, and a body with the right CRC.
So a start looks for sound records behind bytes that it cannot read::

    |-- sound --|#### hole ####|-- sound --|      a bit or a sector was damaged
    |-- sound --|~~ torn ~~|0000000000000000      a write that was never finished

A hole keeps its place in the log and its numbers in the queues, so that no offset is
given twice.  Its bytes are saved to a file of the folder C{damaged}, and then a record
takes their place that belongs to no queue: everyone passes over it, Java too, whose
broker would cut the log where it cannot read on.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from txrocket.errors import MalformedRecord
from txrocket.message import MessageExt
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    MESSAGE_MAGIC_CODE,
    PHYSICAL_OFFSET_POSITION,
    TRANSACTION_ROLLBACK_TYPE,
    decodeRecord,
    encodeBlank,
    encodeHost,
    encodeRecord,
    encodeTopic,
)
from txrocket.store.files import Files
from txrocket.store.files.segments import Gap
from txrocket.store.log.commitlog import HOLE_TOPIC, CommitLog, torn

__all__ = ["DAMAGED", "SMALLEST", "Hole", "Holes"]

#: The folder for the bytes of holes.
DAMAGED = "damaged"

#: No record is shorter: a topic of one byte, no body and no properties.
SMALLEST = 92

_CHUNK = 1024 * 1024
# How far away the first place is that is looked at in a long stretch of zeros.
_STEP = 256 * 1024
_SECTOR = 512
_MAGIC = struct.pack(">i", MESSAGE_MAGIC_CODE)
_LONG = struct.Struct(">q")
_SIZE_AND_MAGIC = struct.Struct(">2i")
# Size, magic code and physical offset follow from the place of a record.
_PLACE_END = PHYSICAL_OFFSET_POSITION + _LONG.size
_HOST = encodeHost("127.0.0.1", 0)
# Of a filler, all but its body.
_AROUND = SMALLEST - 1 + len(HOLE_TOPIC)


class Hole(NamedTuple):
    """
    A stretch of the log that cannot be read.

    @ivar lost: the records in it whose headers can be read.
    @ivar unknown: how many bytes are behind these records.
    """

    start: int
    end: int
    lost: tuple[MessageExt, ...]
    unknown: int


class Holes:
    """
    Finds the holes of a log, and fills them.
    """

    def __init__(self, log: CommitLog, files: Files, root: str) -> None:
        self._commitLog = log
        self._files = files
        self._root = root

    def after(self, start: int, cut: Gap | None = None) -> Hole | None:
        """
        Find the hole that begins where sound records end.

        @param cut: the bytes that the last file has lost at its end.
        @return: the hole there; L{None} if the log ends, be it with a torn record.
        """
        found = self.nextSound(start)
        if found is not None:
            return self.between(start, found)
        # A start that is interrupted leaves a file that ends with the last sound record; and
        # where zeros are before the cut, the log had its end there.
        if cut is not None and any(self._commitLog.segments.read(start, BLANK_SIZE)):
            return Hole(start, cut.end, (), cut.end - start)
        return self._damagedTail(start)

    def between(self, start: int, end: int) -> Hole:
        """
        The hole of a stretch without a sound record, with the headers that can be read.
        """
        lost: list[MessageExt] = []
        at = start
        while at < end:
            record = self._legible(at) or self._restored(at, end)
            if record is None or at + record.storeSize > end:
                break
            lost.append(record)
            at += record.storeSize
        unknown = 0 if self._wasBlank(at, end) else end - at
        return Hole(start, end, tuple(lost), unknown)

    def nextSound(self, start: int, stop: int | None = None) -> int | None:
        """
        Where the first sound record is at an offset or behind it, and before another.
        """
        segments = self._commitLog.segments
        stop = segments.end if stop is None else stop
        record = self._legible(start)
        # A body may hold bytes that look like a record: follow the size, if it leads on.
        if record is not None:
            following = start + record.storeSize
            if self._isSound(following) or self.isBlank(following):
                start = following
        for offset in self._candidates(start, stop):
            if self._isSound(offset):
                return offset
        return None

    def soundEnd(self, start: int, stop: int) -> int:
        """
        Where the last sound record ends that lies between two places of one file.
        """
        log = self._commitLog
        end = start
        while True:
            for offset, data in log.scan(end, strict=True):
                if offset >= stop:
                    return end
                end = offset + len(data)
            found = self.nextSound(end, stop)
            if found is None:
                return end
            end = found

    def fill(self, hole: Hole, timestamp: int) -> str | None:
        """
        Save the bytes of a hole, and let everyone pass over it.  The caller syncs the log.

        @param timestamp: a store time for the records that fill it.
        @return: the file that has its bytes; L{None} if there are nothing but zeros.
        """
        path = self.save(hole)
        segments = self._commitLog.segments
        start = hole.start
        while start < hole.end:
            base = segments.baseOf(start)
            assert base is not None
            fileEnd = base + segments.size
            end = min(fileEnd, hole.end)
            if end == fileEnd:
                if end - start >= BLANK_SIZE:
                    segments.write(start, encodeBlank(end - start))
            else:
                for offset, data in self._fillers(start, end, timestamp):
                    segments.write(offset, data)
            start = end
        return path

    def pastBlank(self, offset: int) -> int:
        """
        Where the log goes on behind a blank; the same offset if no blank is there.
        """
        segments = self._commitLog.segments
        base = segments.baseOf(offset)
        if base is None or not self.isBlank(offset):
            return offset
        following = base + segments.size
        return offset if segments.baseOf(following) is None else following

    def isBlank(self, offset: int) -> bool:
        """
        Whether a blank fills a file from an offset on.
        """
        head = self._commitLog.segments.read(offset, BLANK_SIZE)
        return head[4:] == encodeBlank(0)[4:]

    def save(self, hole: Hole) -> str | None:
        """
        Copy the bytes of a hole to a file of their own, and wait until it is on the disk.
        """
        folder = os.path.join(self._root, DAMAGED)
        path = os.path.join(folder, f"{hole.start:020d}-{hole.end - hole.start}")
        segments = self._commitLog.segments
        handle = None
        offset = hole.start
        while offset < hole.end:
            found = segments.nextData(offset)
            base = segments.baseOf(offset)
            assert base is not None
            if found is None:
                offset = base + segments.size
                continue
            data = segments.read(found, min(_CHUNK, max(hole.end - found, 0)))
            if any(data):
                if handle is None:
                    self._files.makeFolder(folder)
                    handle = self._files.open(path)
                self._files.pwrite(handle, data, found - hole.start)
            offset = found + max(len(data), 1)
        if handle is None:
            return None
        self._files.sync(handle)
        self._files.close(handle)
        self._files.syncFolder(folder)
        return path

    # --- inside ----------------------------------------------------------

    def _wasBlank(self, offset: int, end: int) -> bool:
        """
        Whether a blank filled a file from an offset on, one of whose numbers is damaged.
        """
        segments = self._commitLog.segments
        base = segments.baseOf(offset)
        if base is None or base + segments.size != end or end - offset < BLANK_SIZE:
            return False
        size, magic = _SIZE_AND_MAGIC.unpack(segments.read(offset, BLANK_SIZE))
        return bool(magic == BLANK_MAGIC_CODE or size == end - offset)

    def _legible(self, offset: int) -> MessageExt | None:
        """
        The record that says to be at an offset, though its body may be damaged.
        """
        found = self._commitLog.recordAt(offset)
        if found is None or found[1].storeSize > self._commitLog.limit:
            return None
        return found[1]

    def _restored(self, start: int, end: int) -> MessageExt | None:
        """
        The record that fills a stretch, compared without the fields that follow from its place.
        """
        if not SMALLEST <= end - start <= self._commitLog.limit:
            return None
        data = bytearray(self._commitLog.segments.read(start, end - start))
        if len(data) < end - start:
            return None
        _SIZE_AND_MAGIC.pack_into(data, 0, end - start, MESSAGE_MAGIC_CODE)
        _LONG.pack_into(data, PHYSICAL_OFFSET_POSITION, start)
        try:
            return decodeRecord(bytes(data), readBody=False, checkCrc=True)
        except MalformedRecord:
            return None

    def _isSound(self, offset: int) -> bool:
        found = next(self._commitLog.scan(offset, strict=True), None)
        return found is not None and found[0] == offset

    def _candidates(self, start: int, stop: int) -> Iterator[int]:
        """
        Places with the magic code and the right physical offset.
        """
        segments = self._commitLog.segments
        offset = busy = start
        while offset < stop:
            base = segments.baseOf(offset)
            if base is None:
                return
            fileEnd = base + segments.size
            if offset == base:
                busy = base
            found = segments.nextData(offset)
            # No record hides in more zeros than it is long, but for more than one damage.
            if found is not None and found - busy > self._commitLog.limit:
                found = self._sampled(found, fileEnd)
                busy = fileEnd
            if found is None:
                offset = fileEnd
                continue
            offset = found
            data = segments.read(offset, _CHUNK)
            if data.count(0) < len(data):
                busy = offset + len(data)
            at = data.find(_MAGIC, 4)
            while at >= 0:
                place = offset + at - 4
                said = data[at - 4 + PHYSICAL_OFFSET_POSITION : at - 4 + _PLACE_END]
                if len(said) == _LONG.size and _LONG.unpack(said)[0] == place < stop:
                    yield place
                at = data.find(_MAGIC, at + 1)
            offset += len(data)
            if offset >= fileEnd or len(data) <= _PLACE_END:
                offset = fileEnd
            else:
                # A record may lie across the end of the bytes that were read.
                offset -= _PLACE_END

    def _sampled(self, start: int, end: int) -> int | None:
        """
        The first place of a long stretch that may hold other bytes than zeros.

        Most of a log's last file was never written to, and not every file system tells
        without reading all of it.  A few looks, each twice as far away as the one before,
        find data that is as long as the zeros before it.
        """
        segments = self._commitLog.segments
        if segments.baseOf(end) is not None:
            # A file that others follow was written to its end.
            return start
        step = _STEP
        while start + step < end:
            if any(segments.read(start + step, _SECTOR)):
                return start
            step *= 2
        return None

    def _damagedTail(self, start: int) -> Hole | None:
        """
        The log's last record, if it was whole once.

        Of a write that was never finished, sectors are missing, and read as zeros.
        """
        log = self._commitLog
        if not any(log.segments.read(start, BLANK_SIZE)[4:]):
            return None
        data = log.segments.read(start, log.limit).rstrip(b"\0")
        record = self._legible(start)
        size = len(data) if record is None else record.storeSize
        if size < SMALLEST:
            return None
        whole = data.ljust(size, b"\0")
        at = 0
        while at < size:
            following = at + _SECTOR - (start + at) % _SECTOR
            # Of a few bytes at the end all may be zeros by chance.
            if not any(whole[at:following]) and min(following, size) - at >= 16:
                return None
            at = following
        if record is not None and torn(record, start):
            return None
        return self.between(start, start + size)

    def _fillers(self, start: int, end: int, timestamp: int) -> Iterator[tuple[int, bytes]]:
        """
        Records that together are as long as a stretch; none if that is too short for one.
        """
        while end - start >= SMALLEST:
            size = end - start
            if size > self._commitLog.limit:
                # The rest must be long enough for another record.
                size = self._commitLog.limit - _AROUND
            topic = HOLE_TOPIC[: max(1, size - SMALLEST + 1)]
            body = bytes(size - (SMALLEST - 1) - len(topic))
            yield (
                start,
                encodeRecord(
                    encodeTopic(topic),
                    body,
                    b"",
                    0,
                    0,
                    0,
                    start,
                    # The log keeps rollbacks; queues and index do not.
                    TRANSACTION_ROLLBACK_TYPE,
                    timestamp,
                    _HOST,
                    timestamp,
                    _HOST,
                ),
            )
            start += size
