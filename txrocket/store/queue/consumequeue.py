# SPDX-License-Identifier: Apache-2.0
"""
The consume queues: where in the log the messages of a topic's queue are::

    consumequeue/TOPIC/QUEUE/00000000000000000000, 300,000 entries of 20 bytes

      0                8      12               20
      +----------------+------+----------------+
      | offset in log  | size | hash of tag    |
      +----------------+------+----------------+

The entry of the message with queue offset n is at n * 20, so a queue that does
not begin at 0 has fillers in front of its first entry.  The hash lets the broker skip
messages that a consumer did not subscribe to, without reading the log.  A delayed message
has the time of delivery in its place.

Entries follow their records, and any of them can be made again from the log: they are
never synced for a sender's sake, and the newest are not even written at once::

    |---------- files ----------|------ tail, in memory ------|
    minOffset                   filed                         maxOffset

The tails of all queues are bounded together (L{txrocket.store.queue.consumequeues}), and are
written before a checkpoint says that they are.  So a message costs no call of the system
here, be there one queue or ten thousand.
"""

from __future__ import annotations

import os
from typing import TypeAlias

from txrocket.store.files.handles import Handles
from txrocket.store.files.segments import Segments
from txrocket.store.queue.entry import (
    ENTRY_SIZE,
    FILLER,
    FILLER_SIZE,
    FILLER_SIZES,
    entries,
    offsetOf,
    packEntry,
    sizesOf,
    unpackEntry,
)
from txrocket.store.queue.queueend import Confirm, countWhile, sureEnd

__all__ = ["Ahead", "ConsumeQueue"]

# A consumer that is behind pulls one stretch of entries after the other.  This many are read
# at a time, 5 KB, and kept for this many queues, so that one pull in eight asks the system.
_AHEAD = 256
_AHEAD_QUEUES = 256

# How many entries around one are looked at for others that contradict it; a sector has 25.
_AROUND = 128

# How many entries behind some tell where in the log these must be.
_BEHIND = 5

# Entries that were read ahead of a queue: the first queue offset, and the bytes.
Ahead: TypeAlias = "dict[ConsumeQueue, tuple[int, bytes]]"
_NOTHING = (0, b"")


class ConsumeQueue:
    """
    One queue of one topic.

    @ivar minOffset: the queue offset of the first message that is in the log.
    @ivar filed: one past that of the last whose entry is in a file.
    @ivar tail: the entries behind it, which are in no file yet.  L{readRecords
        <txrocket.bulk.interface.Bulk.readRecords>} adds to it.
    @ivar searched: the end that L{sureEnd} found before the log was asked to confirm it.
    """

    def __init__(
        self, handles: Handles, folder: str, segmentSize: int, ahead: Ahead | None = None
    ) -> None:
        """
        @param ahead: the entries that were read ahead; all queues share it.
        """
        self._ahead = {} if ahead is None else ahead
        topicFolder = os.path.dirname(folder)
        queuesFolder = os.path.dirname(topicFolder)
        self.segments = Segments(
            handles,
            folder,
            segmentSize,
            handles.files.truncate,
            above=(topicFolder, queuesFolder, os.path.dirname(queuesFolder)),
        )
        self.tail = bytearray()
        self.filed = 0
        self.minOffset = 0
        self.searched = 0

    @property
    def maxOffset(self) -> int:
        """
        One past the queue offset of the last message.
        """
        return self.filed + len(self.tail) // ENTRY_SIZE

    def load(self) -> None:
        """
        Find where the queue ends: entries have a size, and zeros follow them.

        Entries behind a damaged file are not kept: the log makes them anew.
        """
        gaps = self.segments.load()
        if not self.segments.bases:
            return
        if gaps and gaps[0].end < self.segments.end:
            self.segments.clearFrom(gaps[0].start - gaps[0].start % ENTRY_SIZE)
        # A last file may have been made and not written to yet.
        for base in reversed(self.segments.bases):
            count = countWhile(self.segments, base, lambda offset, size: size > 0)
            if count or base == self.segments.bases[0]:
                self._endAt(base // ENTRY_SIZE + count)
                break
        self.minOffset = self.segments.bases[0] // ENTRY_SIZE

    def put(self, queueOffset: int, offset: int, size: int, tagsCode: int) -> int:
        """
        Add an entry; one that is there already is left as it is.  One that is
        further away than any filler would reach comes from a damaged record.

        @return: how many bytes more are to be written.
        """
        before = len(self.tail)
        if queueOffset < self.maxOffset or (
            (self.maxOffset or self.segments.bases)
            and queueOffset - self.maxOffset > self.segments.size // ENTRY_SIZE
        ):
            return 0
        if queueOffset > self.maxOffset:
            self._fill(queueOffset, offset)
        self.tail += packEntry(offset, size, tagsCode)
        return len(self.tail) - before

    def write(self) -> None:
        """
        Write the tail to the files.
        """
        data = bytes(self.tail)
        start = self.filed * ENTRY_SIZE
        while data:
            base = self.segments.baseOf(start)
            if base is None:
                base = start - start % self.segments.size
                self.segments.create(base)
            piece = data[: base + self.segments.size - start]
            self.segments.write(start, piece)
            start += len(piece)
            data = data[len(piece) :]
        self.filed = self.maxOffset
        self.tail.clear()

    @property
    def unwritten(self) -> int:
        """
        How many bytes of entries are in memory only.
        """
        return len(self.tail)

    def read(self, queueOffset: int, count: int) -> bytes:
        """
        Entries from a queue offset on: the rest of one file at most, and the tail.

        @param count: how many at most.
        """
        # Written out: max and min cost too much for each pull.
        most = self.maxOffset - queueOffset
        if count > most:
            count = most
        if count <= 0:
            return b""
        inFile = self.filed - queueOffset
        if inFile <= 0:
            start = -inFile * ENTRY_SIZE
            return bytes(self.tail[start : start + count * ENTRY_SIZE])
        data = self._readAhead(queueOffset, count if count < inFile else inFile)
        if count > inFile and len(data) == inFile * ENTRY_SIZE:
            data += self.tail[: (count - inFile) * ENTRY_SIZE]
        return data

    def _readAhead(self, queueOffset: int, count: int) -> bytes:
        """
        Entries of one file.

        @param count: how many at most.
        """
        start, data = self._ahead.get(self, _NOTHING)
        position, size = (queueOffset - start) * ENTRY_SIZE, count * ENTRY_SIZE
        if position >= 0 and position + size <= len(data):
            # Entries in a file do not change.
            return data[position : position + size]
        most = min(max(count, _AHEAD), self.filed - queueOffset)
        data = self.segments.read(queueOffset * ENTRY_SIZE, most * ENTRY_SIZE)
        if len(self._ahead) >= _AHEAD_QUEUES:
            self._ahead.clear()
        self._ahead[self] = queueOffset, data
        return data[:size]

    def entry(self, queueOffset: int) -> tuple[int, int, int] | None:
        """
        One entry: offset in the log, size, hash; L{None} if it is missing or
        stands for nothing.
        """
        data = self.read(queueOffset, 1)
        if len(data) != ENTRY_SIZE:
            return None
        found: tuple[int, int, int] = unpackEntry(data)
        return found if found[1] < FILLER_SIZE else None

    def follow(self, first: int) -> None:
        """
        The log begins at C{first} now: forget the entries for records before it.
        """
        while len(self.segments.bases) > 1:
            if not self._isDeleted(first):
                break
            self.segments.removeFirst()
        base = self.segments.bases[0] if self.segments.bases else 0
        low = max(self.minOffset, base // ENTRY_SIZE)
        found: int | None = self.maxOffset
        while found is not None:
            self.minOffset = self._firstFrom(first, low, found)
            # A damaged entry may have led the search past sound ones, which then are near.
            near = max(low, self.minOffset - _AROUND)
            found = self._live(first, near, self.minOffset)
        # Records may have been deleted before their entries were safe in the queue.
        while self.minOffset < self.maxOffset and self._isFiller(self.minOffset):
            self.minOffset += 1

    def _firstFrom(self, first: int, low: int, high: int) -> int:
        """
        The queue offset of the first entry whose record is not before C{first}.
        """
        # Entries are in the log's order, so half of them can be ruled out at a time.
        while low < high:
            middle = (low + high) // 2
            if self._isFrom(first, middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _isFrom(self, first: int, queueOffset: int) -> bool:
        found = self.read(queueOffset, 1)
        return found != FILLER and int.from_bytes(found[:8], "big") >= first

    def _isDeleted(self, first: int) -> bool:
        """
        Whether the records of all entries in the first file were deleted: the last entries
        say so, and none of them says otherwise.  One alone may be damaged.
        """
        end = self.segments.bases[1] // ENTRY_SIZE
        start = max(self.segments.bases[0] // ENTRY_SIZE, end - _AROUND)
        agree = any(
            size > 0 and 0 <= offset < first
            for offset, size, _ in entries(self.read(start, end - start))
        )
        return agree and self._live(first, start, end) is None

    def _live(self, first: int, start: int, stop: int) -> int | None:
        """
        The first of some entries whose record the log still has, as far as the entries
        behind them do not contradict it.
        """
        behind = sorted(at for at, size, _ in entries(self.read(stop, _BEHIND)) if size > 0)
        # The one in the middle, for one alone may be damaged.
        bound = behind[len(behind) // 2] if behind else (1 << 63) - 1
        while start < stop:
            data = self.read(start, stop - start)
            for queueOffset, (offset, size, _) in enumerate(entries(data), start):
                if first <= offset <= bound and size != FILLER_SIZES[0]:
                    return queueOffset
            # Each read ends with its file.
            start += max(len(data) // ENTRY_SIZE, 1)
        return None

    def _isFiller(self, queueOffset: int) -> bool:
        data = self.read(queueOffset, 1)
        return len(data) != ENTRY_SIZE or sizesOf(data)[0] in FILLER_SIZES

    def sureEnd(self, bound: int, confirm: Confirm) -> int:
        """
        One past the queue offset of the last entry for a record before C{bound} in the log:
        see L{sureEnd}.
        """
        end, self.searched = sureEnd(self.segments, bound, confirm)
        return end

    def endAt(self, queueOffset: int, *, doubt: bool) -> None:
        """
        Forget the entries from a queue offset on.

        @param doubt: whether there may be anything after the last entry.
        """
        if doubt or queueOffset < self.filed:
            self.segments.clearFrom(queueOffset * ENTRY_SIZE)
        self._endAt(queueOffset)

    def dropFillers(self) -> bool:
        """
        Forget the fillers behind the last message.

        @return: whether there were any.
        """
        end = self.maxOffset
        first = self.segments.bases[0] // ENTRY_SIZE if self.segments.bases else self.filed
        while end > first and self._isFiller(end - 1):
            end -= 1
        if end == self.maxOffset:
            return False
        self.write()
        self.endAt(end, doubt=False)
        self.minOffset = min(self.minOffset, end)
        return True

    def reach(self, end: int) -> int:
        """
        Where in the log the record of the last entry before C{end} stops; for a filler, the
        offset that it holds.  0 if there is no entry.
        """
        data = self.segments.read((end - 1) * ENTRY_SIZE, ENTRY_SIZE) if end else b""
        if not data:
            return 0
        offset: int
        size: int
        offset, size, _ = unpackEntry(data)
        return offset + size if size < FILLER_SIZE else offset

    def lastOffset(self) -> int:
        """
        The offset in the log that the last entry has; -1 if there is no entry.
        """
        data = self.read(self.maxOffset - 1, 1) if self.maxOffset else b""
        return offsetOf(data, 0) if data else -1

    def skip(self, queueOffset: int, offset: int) -> int:
        """
        Let the queue go on at a later queue offset, though there is nothing before it.

        @param offset: where in the log something was lost.
        @return: how many bytes more are to be written.
        """
        before = len(self.tail)
        if queueOffset > self.maxOffset:
            self._fill(queueOffset, offset)
        return len(self.tail) - before

    def void(self, start: int, end: int) -> None:
        """
        Let the entries of records in a stretch of the log stand for nothing.
        """
        for base in self.segments.bases:
            first = countWhile(
                self.segments, base, lambda offset, size: size > 0 and offset < start
            )
            last = countWhile(self.segments, base, lambda offset, size: size > 0 and offset < end)
            at = base + first * ENTRY_SIZE
            data = self.segments.read(at, (last - first) * ENTRY_SIZE)
            if data:
                # They keep their offsets, and with them their order.
                voided = [packEntry(offset, FILLER_SIZE, 0) for offset, _, _ in entries(data)]
                self.segments.write(at, b"".join(voided))
                self._ahead.pop(self, None)

    def clear(self) -> None:
        """
        Forget everything.
        """
        self.segments.removeAll()
        self.minOffset = 0
        self._endAt(0)

    def _endAt(self, queueOffset: int) -> None:
        self._ahead.pop(self, None)
        self.tail.clear()
        self.filed = queueOffset

    def _fill(self, queueOffset: int, offset: int) -> None:
        """
        Let the queue begin, or go on, at a later queue offset.
        """
        filler = FILLER
        if not self.segments.bases and not self.tail:
            perFile = self.segments.size // ENTRY_SIZE
            self.filed = queueOffset - queueOffset % perFile
            self.minOffset = queueOffset
        elif self.maxOffset > self.minOffset:
            # Among entries, one that keeps to their order in the log.
            filler = packEntry(offset, FILLER_SIZE, 0)
        self.tail += filler * (queueOffset - self.maxOffset)
