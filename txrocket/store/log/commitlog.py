# SPDX-License-Identifier: Apache-2.0
"""
The commit log: all records of all topics, in order of arrival.

Records do not cross from one file into the next.  Where one does not fit, a
blank (L{encodeBlank}) fills the file; there is always room for its 8 bytes.

Records wait in memory for L{CommitLog.write}, so that all messages of one turn cost one
C{pwrite}.  No producer gets its answer before that.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from txrocket.bulk import checkRecords
from txrocket.errors import DiskFull, MalformedRecord, MessageTooLarge, StoreError, StoreFailed
from txrocket.message import MessageExt
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    MESSAGE_MAGIC_CODE,
    TRANSACTION_ROLLBACK_TYPE,
    decodeRecord,
    encodeBlank,
)
from txrocket.store.files import FULL, NO_HANDLES, SyncFailed
from txrocket.store.files.handles import Handles
from txrocket.store.files.segments import Segments

__all__ = ["HOLE_TOPIC", "LOST", "CommitLog", "Scanned", "torn"]

#: The topic of the records that fill holes (L{txrocket.store.damage.holes}): no messages.
HOLE_TOPIC = "rmq_sys_hole"

# A record is at most a body of the largest size with this much around it, as in Java.
_AROUND_BODY = 64 * 1024
# A client may ask for any offset, where no record begins and the size may be anything.  No
# frame could carry a larger record, also before the limit was lowered.
_FRAME = 16 * 1024 * 1024
_CHUNK = 1024 * 1024
_SIZE_AND_MAGIC = struct.Struct(">2i")

# A disk writes whole sectors, in any order, and may lose power in between.
_SECTOR = 512
LOST = bytes(16)


class Scanned(NamedTuple):
    """
    A record that was found in the log, without its body.
    """

    offset: int
    size: int
    record: MessageExt


class CommitLog:
    """
    The files of the log, and the records that are not written to them yet.

    @ivar segments: the files.
    @ivar end: where the next record goes.
    @ivar written: how far the log is in the files.
    @ivar direct: as L{Files<txrocket.store.files.Files>} have it.
    @ivar largest: how many bytes a record has at most, including records that were appended
        before the limit was lowered.
    @ivar fileEnd: the offset up to which records fit into the last file.
    """

    def __init__(
        self,
        handles: Handles,
        folder: str,
        segmentSize: int,
        maxMessageSize: int,
        wrote: Callable[[int, bytes], None],
    ) -> None:
        """
        @param wrote: gets the offset and the bytes of every write.
        """
        self._files = handles.files
        self.direct = handles.files.direct
        self.segments = Segments(handles, folder, segmentSize, handles.files.allocate)
        self._fits = segmentSize - BLANK_SIZE
        self._limit = min(maxMessageSize + _AROUND_BODY, self._fits)
        self.largest = max(self._limit, _FRAME)
        self.maxBody = maxMessageSize
        self.fileEnd = 0
        self._wrote = wrote
        self._unwritten: list[bytes] = []
        self._spoiled = 0  # up to where a write that failed may have come
        self.end = 0
        self.written = 0

    @property
    def first(self) -> int:
        """
        Where the oldest file begins.
        """
        return self.segments.bases[0] if self.segments.bases else self.end

    @property
    def limit(self) -> int:
        """
        How long a record is at most.
        """
        return self._limit

    def reserve(self, size: int, bodySize: int) -> int:
        """
        Where a record, or a batch of records, will go, in a new file if it must.

        @raise MessageTooLarge: if it never fits.
        @raise DiskFull: if there is no room for a new file.
        """
        if bodySize > self.maxBody:
            raise MessageTooLarge(bodySize, self.maxBody)
        # One record has no more around its body than its limit allows, since topic and
        # properties have limits.  The records of a batch may have more together, as in Java.
        if size > self._fits:
            raise MessageTooLarge(size, self._fits)
        bases = self.segments.bases
        room = bases[-1] + self.segments.size - self.end if bases else 0
        # Usually one pass.  A listener that _roll calls may append, and fill the new file.
        while size + BLANK_SIZE > room:
            self._roll(room)
            room = bases[-1] + self.segments.size - self.end
        self.fileEnd = bases[-1] + self.segments.size - BLANK_SIZE
        return self.end

    def add(self, data: bytes) -> None:
        """
        Append records where they were L{reserved<reserve>}.
        """
        self._unwritten.append(data)
        self.end += len(data)

    def write(self) -> None:
        """
        Write all records to the files.

        @raise DiskFull: if there is no room.  The records are then lost, and the log ends
            where it ended before.
        @raise StoreFailed: if the disk fails.
        """
        start, data = self.written, self._writeAll()
        if data:
            self._wrote(start, data)

    def _writeAll(self) -> bytes:
        """
        @return: the bytes that were written.
        """
        data = b"".join(self._unwritten)
        if not data:
            return data
        self._unwritten.clear()
        start = self.written
        end = start + len(data)
        try:
            # Records of a write that failed must not be found behind this one.
            room = self._spoiled - end
            self.segments.write(start, data + bytes(room) if room > 0 else data)
            self._spoiled = 0
        except OSError as error:
            self.end = start
            self._spoiled = max(self._spoiled, end)
            raise self._explain(error, len(data)) from error
        self.written = end
        return data

    def adopt(self, data: bytes) -> None:
        """
        Write bytes of another log behind the end of this one, as they are; they are within
        one file.  Nothing may wait to be written.

        @raise DiskFull: if there is no room, for them or for a new file.
        @raise StoreFailed: if the disk fails.
        """
        if self.segments.baseOf(self.written) is None:
            try:
                self.segments.create(self.written)
            except OSError as error:
                raise self._explain(error, self.segments.size) from error
        self.add(data)
        self._writeAll()

    def drop(self) -> None:
        """
        Forget the records that are not written.
        """
        self._unwritten.clear()
        self.end = self.written

    def read(self, offset: int, size: int) -> bytes:
        """
        Bytes of the log; short or empty where they are not there.
        """
        return self.segments.read(offset, min(size, self.written - offset))

    def recordAt(self, offset: int) -> tuple[bytes, MessageExt] | None:
        """
        The record at an offset, if there is one: its bytes, and its fields without the
        body.
        """
        head = self.segments.read(offset, BLANK_SIZE)
        if len(head) < BLANK_SIZE:
            return None
        size, magic = _SIZE_AND_MAGIC.unpack(head)
        if magic != MESSAGE_MAGIC_CODE or not 0 < size <= self.largest:
            return None
        data = self.segments.read(offset, size)
        try:
            record = decodeRecord(data, readBody=False)
        except MalformedRecord:
            return None
        return (data, record) if record.commitLogOffset == offset and not _fills(record) else None

    def scan(self, start: int, *, strict: bool) -> Iterator[tuple[int, bytes]]:
        """
        The records from an offset on, up to the first that is not sound: stretches of records
        that follow each other, and the offset of each stretch.

        @param strict: whether to doubt everything, as after a crash: bodies are
            checked against their CRC, and the other fields for signs of a write
            that was torn.
        """
        offset = held = start
        data = b""
        while True:
            if len(data) - (offset - held) < BLANK_SIZE:
                data, held = self.segments.read(offset, _CHUNK), offset
                if len(data) < BLANK_SIZE:
                    return
            position = offset - held
            end = checkRecords(data, position, offset, self._limit)
            if end == position:
                size, magic = _SIZE_AND_MAGIC.unpack_from(data, position)
                if magic == BLANK_MAGIC_CODE:
                    base = self.segments.baseOf(offset)
                    if base is None or self.segments.baseOf(base + self.segments.size) is None:
                        return
                    offset = held = base + self.segments.size
                    data = b""
                    continue
                if magic != MESSAGE_MAGIC_CODE or not 0 < size <= self._limit:
                    return
                if size > len(data) - position:
                    data, held = self.segments.read(offset, max(size, _CHUNK)), offset
                    if len(data) < size:
                        return
                    continue
                if not self._isSound(data, position, offset, strict):
                    return
                end = position + size
            yield offset, data[position:end]
            offset = held + end

    def _isSound(self, data: bytes, position: int, offset: int, strict: bool) -> bool:
        """
        Look closer at a record.
        """
        try:
            record = decodeRecord(data, position, readBody=False, checkCrc=strict)
        except MalformedRecord:
            return False
        return record.commitLogOffset == offset and not (strict and torn(record, offset))

    def records(self, start: int, *, strict: bool) -> Iterator[Scanned]:
        """
        Do as L{scan}, record by record.
        """
        for offset, data in self.scan(start, strict=strict):
            position = 0
            while position < len(data):
                record = decodeRecord(data, position, readBody=False)
                yield Scanned(offset + position, record.storeSize, record)
                position += record.storeSize

    def _roll(self, room: int) -> None:
        """
        Go on in a new file.  It is made before anything else is changed, so
        that a full disk changes nothing.
        """
        base = self.segments.end if self.segments.bases else self.end
        try:
            self.segments.create(base)
        except OSError as error:
            raise self._explain(error, self.segments.size) from error
        if room > 0:
            self._unwritten.append(encodeBlank(room))
            self.end += BLANK_SIZE
        start = self.written
        try:
            data = self._writeAll()
        except StoreError:
            with suppress(OSError):
                self.segments.removeLast()
            raise
        self.end = self.written = base
        # Last, because a listener may append other messages.
        if data:
            self._wrote(start, data)

    def _explain(self, error: OSError, size: int) -> Exception:
        if error.errno in NO_HANDLES and not isinstance(error, SyncFailed):
            return StoreError(
                f"writing to {self.segments.folder} failed: {error}; it is tried again for the "
                "next message.  Raise the limit of open files, or lower openFiles"
            )
        if isinstance(error, SyncFailed) or error.errno not in FULL:
            return StoreFailed(f"writing to {self.segments.folder} failed: {error}")
        # The folder of the log may not exist yet.
        free = self._files.space(os.path.dirname(self.segments.folder))[1]
        return DiskFull(f"{self.segments.folder}: no room for {size} bytes, {free} bytes are free")


def _fills(record: MessageExt) -> bool:
    """
    Whether a record fills a hole.  If that is short, so is the topic.
    """
    return (
        record.sysFlag == TRANSACTION_ROLLBACK_TYPE
        and record.preparedTransactionOffset == 0
        and HOLE_TOPIC.startswith(record.topic)
    )


def torn(record: MessageExt, offset: int) -> bool:
    """
    Whether a part of a record never reached the disk, though its body did.

    The CRC covers the body alone.  In the rest a lost sector shows as zeros,
    which no header has, and no text that the store takes; Java takes it, so
    in the middle of a text they count only where a sector begins.
    """
    if record.storeTimestamp <= 0 or record.queueOffset < 0 or record.queueId < 0:
        return True
    # A topic is the name of a folder, too.
    if not record.topic or "\0" in record.topic or "/" in record.topic:
        return True
    text = record.propertiesData
    if not any(record.storeHostData) or text.endswith(b"\0"):
        return True
    start = offset + record.storeSize - len(text)
    return any(
        text.startswith(LOST, max(0, sector - start))
        for sector in range(start // _SECTOR * _SECTOR, start + len(text), _SECTOR)
    )
