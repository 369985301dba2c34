# SPDX-License-Identifier: Apache-2.0
"""
The reading half of the store: messages by queue, offset, key and time::

    get          queue entries, whose hash may rule a message out --> the log
    messageAt    the log
    query        the index --> the log
    offsetByTime queue entries, by halves --> store times in the log

What a pull gives are the log's own bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from typing import Final

import msgspec

from txrocket.compiled import speed
from txrocket.errors import MalformedRecord, StoreError
from txrocket.message import MessageExt
from txrocket.protocol.record import decodeRecord, storeTimestampAt
from txrocket.store.commitlog import CommitLog
from txrocket.store.consumequeue import (
    ENTRY_SIZE,
    FILLER_SIZE,
    ConsumeQueue,
    ConsumeQueues,
    entries,
    offsetOf,
    sizesOf,
)
from txrocket.store.index import Index, Queried
from txrocket.store.settings import StoreSettings

__all__ = ["GetStatus", "Got", "StoreReader"]

# Entries that are looked at for one pull at most, as in Java (16,000 bytes).
_MOST_ENTRIES = 800

# How much a query gives at most: an answer has to fit a frame of 16 MiB.
_MOST_QUERIED = 8 * 1024 * 1024

# Where a read goes on over what is not wanted: about what a call of the system costs.
_GAP = 16 * 1024


class GetStatus(Enum):
    """
    What became of a pull; Java's C{GetMessageStatus}.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


# To look up a member of an enumeration takes 0.15 us.
_FOUND: Final = GetStatus.FOUND


class Got(msgspec.Struct, frozen=True, gc=False):
    """
    What a pull gives.

    @ivar data: the records as they are in the log, one after the other.
    @ivar fromDisk: whether they are so old that a slave had better serve them.
    """

    status: GetStatus
    nextOffset: int
    minOffset: int
    maxOffset: int
    data: bytes = b""
    count: int = 0
    fromDisk: bool = False


class StoreReader:
    """
    What can be asked of a store.
    """

    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
        memory: int | None,
    ) -> None:
        """
        @param memory: the machine's, in bytes: it decides what counts as old.
        """
        self.settings = settings
        self.log = log
        self.queues = queues
        self.index = index
        total = memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._direct = speed is not None and log.direct
        self._near = total * settings.accessMessageInMemoryMaxRatio // 100

    def get(
        self,
        topic: str,
        queueId: int,
        offset: int,
        most: int,
        matches: Callable[[int], bool] | None = None,
        accepts: Callable[[MessageExt], bool] | None = None,
    ) -> Got:
        """
        Messages of a queue from an offset on.

        @param matches: whether a message is wanted, by the hash of its tag.
        @param accepts: whether it is, by all of it but its body.
        @raise StoreError: if the disk does not give them.
        """
        queue = self.queues.get(topic, queueId)
        if queue is None:
            return Got(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.minOffset, queue.maxOffset
        if high == 0:
            return Got(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return Got(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return Got(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return Got(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        got = None
        if accepts is None and self._direct:
            got = self._collectQuickly(queue, offset, most, matches, low, high)
        elif accepts is None and matches is None:
            got = self._stretch(queue, offset, most, low, high)
        if got is not None:
            return got
        data = queue.read(offset, max(_MOST_ENTRIES, most))
        if not data:
            perFile = self.settings.mappedFileSizeConsumeQueue // ENTRY_SIZE
            nextFile = offset + perFile - offset % perFile
            return Got(GetStatus.OFFSET_FOUND_NULL, nextFile, low, high)
        return self._collect(data, offset, most, matches, accepts, low, high)

    def near(
        self,
        topic: str,
        queueId: int,
        offset: int,
        most: int,
        matches: Callable[[int], bool] | None = None,
    ) -> Got | None:
        """
        What L{get} gives, for messages that are all in one file of the log, none of them
        old: for who has many to ask for.

        @return: L{None} if L{get} must do it.
        @raise StoreError: if the disk does not give them.
        """
        queue = self.queues.get(topic, queueId)
        if queue is None or not self._direct:
            return None
        low, high = queue.minOffset, queue.maxOffset
        if not low <= offset < high:
            return None
        return self._collectQuickly(queue, offset, most, matches, low, high)

    def _stretch(
        self, queue: ConsumeQueue, offset: int, most: int, low: int, high: int
    ) -> Got | None:
        """
        What L{_collect} does, for messages that lie one behind the other in the log,
        when all are wanted, and none is old: no look at each of them, and so half of
        the price for 32.

        @return: L{None} if they do not.
        """
        settings, log = self.settings, self.log
        data = queue.read(offset, min(most, settings.maxTransferCountOnMessageInMemory))
        if not data:
            return None
        start, end = offsetOf(data, 0), log.written
        last = offsetOf(data, len(data) - ENTRY_SIZE)
        *_, lastSize = sizes = sizesOf(data)
        size = sum(sizes)
        if (
            # Fillers are longer than any record.
            size != last + lastSize - start
            or size > settings.maxTransferBytesOnMessageInMemory
            or not log.first <= start < end
            or start + size > end
            or end - start > self._near
        ):
            return None
        found = log.read(start, size)
        return Got(_FOUND, offset + len(sizes), low, high, found, len(sizes))

    def _collectQuickly(
        self,
        queue: ConsumeQueue,
        offset: int,
        most: int,
        matches: Callable[[int], bool] | None,
        low: int,
        high: int,
    ) -> Got | None:
        """
        What L{_collect} does, with the compiled helper, for messages that are in one
        file of the log, and none of them old: a third of the price.

        @return: L{None} if they are not.
        """
        assert speed is not None
        settings, log = self.settings, self.log
        # Written out, for each call of max and min takes 0.1 us.
        if most > settings.maxTransferCountOnMessageInMemory:
            most = settings.maxTransferCountOnMessageInMemory
        if most < 1:
            most = 1
        data = queue.read(offset, most if matches is None else max(_MOST_ENTRIES, most))
        try:
            place = log.segments.place(offsetOf(data, 0)) if data else None
        except (OSError, ValueError):
            # Too many are mapped, perhaps by others; or somebody has made the file shorter.
            return None
        if place is None:
            return None
        mapped, base = place
        found = speed.collect(
            data,
            mapped,
            base,
            log.written,
            self._near,
            most,
            settings.maxTransferBytesOnMessageInMemory,
            matches,
        )
        if found is None:
            return None
        records, count, looked = found
        return Got(_FOUND, offset + looked, low, high, records, count)

    def _collect(
        self,
        data: bytes,
        offset: int,
        most: int,
        matches: Callable[[int], bool] | None,
        accepts: Callable[[MessageExt], bool] | None,
        low: int,
        high: int,
    ) -> Got:
        settings = self.settings
        first, end = self.log.first, self.log.written
        # Stretches of the log; records that lie one behind the other are one.
        wanted: list[tuple[int, int]] = []
        start = stop = size = count = looked = 0
        removed = fromDisk = False
        for recordOffset, recordSize, hashed in entries(data):
            fromDisk = end - recordOffset > self._near
            if count:
                if fromDisk:
                    mostBytes = settings.maxTransferBytesOnMessageInDisk
                    mostCount = settings.maxTransferCountOnMessageInDisk
                else:
                    mostBytes = settings.maxTransferBytesOnMessageInMemory
                    mostCount = settings.maxTransferCountOnMessageInMemory
                if count >= most or size + recordSize > mostBytes or count >= mostCount:
                    break
            looked += 1
            if matches is not None and not matches(hashed):
                continue
            # A filler is as long as no record is, and in a long log there is room for it.
            if not first <= recordOffset <= end - recordSize or recordSize >= FILLER_SIZE:
                removed = True
                continue
            if accepts is not None and not self._accepted(accepts, recordOffset, recordSize):
                continue
            if recordOffset != stop:
                if stop > start:
                    wanted.append((start, stop))
                start = recordOffset
            stop = recordOffset + recordSize
            size += recordSize
            count += 1
        if stop > start:
            wanted.append((start, stop))
        if count:
            status = GetStatus.FOUND
        else:
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
        return Got(status, offset + looked, low, high, self._read(wanted), count, fromDisk)

    def _read(self, wanted: list[tuple[int, int]]) -> bytes:
        """
        Stretches of the log, one after the other.  Those that are near each other
        are read at once, with what lies between: to copy a few kilobytes more costs
        less than another call of the system.
        """
        fileSize = self.log.segments.size
        pieces: list[bytes] = []
        at = 0
        while at < len(wanted):
            start, stop = wanted[at]
            following = at + 1
            while (
                following < len(wanted)
                and 0 <= wanted[following][0] - stop <= _GAP
                and wanted[following][0] // fileSize == start // fileSize
            ):
                stop = wanted[following][1]
                following += 1
            data = self.log.read(start, stop - start)
            if following == at + 1:
                pieces.append(data)
            else:
                pieces += [
                    data[first - start : last - start] for first, last in wanted[at:following]
                ]
            at = following
        return b"".join(pieces)

    def _accepted(self, accepts: Callable[[MessageExt], bool], offset: int, size: int) -> bool:
        return accepts(decodeRecord(self.log.read(offset, size), readBody=False))

    def entries(
        self, topic: str, queueId: int, offset: int, most: int
    ) -> list[tuple[int, int, int]]:
        """
        Entries of a queue from an offset on: offset in the log, size, hash.  For those
        that stand for nothing L{messages} finds none.

        @raise StoreError: if the disk does not give them.
        """
        queue = self.queues.get(topic, queueId)
        return [] if queue is None else list(entries(queue.read(offset, most)))

    def messages(self, places: Iterable[tuple[int, int]]) -> list[MessageExt | None]:
        """
        The messages at offsets of the log that have these sizes; L{None} for each that
        is not there any more, or no message.

        @raise StoreError: if the disk does not give them.
        """
        first, end = self.log.first, self.log.written
        stretches = [
            # Fillers have the offset of a record that is not theirs.
            (at, at + size) if first <= at < at + size <= end and size < FILLER_SIZE else None
            for at, size in places
        ]
        data = self._read([each for each in stretches if each])
        found: list[MessageExt | None] = []
        position = 0
        for each in stretches:
            message = None
            if each is not None:
                with suppress(MalformedRecord):
                    message = decodeRecord(data, position)
                position += each[1] - each[0]
                if message is not None and message.commitLogOffset != each[0]:
                    message = None
            found.append(message)
        return found

    def messageAt(self, offset: int) -> bytes | None:
        """
        The record at an offset of the log, if there is one.
        """
        if not self.log.first <= offset < self.log.written:
            return None
        found = self.log.recordAt(offset)
        return None if found is None else found[0]

    def query(
        self, topic: str, key: str, begin: int, end: int, most: int
    ) -> tuple[list[bytes], int, int]:
        """
        Records that may have a key or unique id, stored between two times, the
        newest first; and the time and offset up to which the index reaches.

        The index knows hashes only: the caller looks at the keys.

        @raise StoreError: if the disk does not give them.
        """
        if self.index is None:
            return [], 0, 0
        try:
            queried = self.index.query(topic, key, begin, end, self._most(most))
        except OSError as error:
            raise StoreError(f"reading the index failed: {error}") from error
        return self._queried(queried)

    def _most(self, most: int) -> int:
        return min(most, self.settings.maxMsgsNumBatch)

    def _queried(self, queried: Queried) -> tuple[list[bytes], int, int]:
        found: list[bytes] = []
        room = _MOST_QUERIED
        for offset in dict.fromkeys(queried.offsets):
            record = self.messageAt(offset)
            if record is not None:
                room -= len(record)
                if found and room < 0:
                    break
                found.append(record)
        return found, queried.lastTimestamp, queried.lastOffset

    # --- offsets and times -----------------------------------------------

    def minOffset(self, topic: str, queueId: int) -> int:
        """
        The queue offset of the first message in a queue.
        """
        queue = self.queues.get(topic, queueId)
        return queue.minOffset if queue else 0

    def maxOffset(self, topic: str, queueId: int) -> int:
        """
        One past the queue offset of the last message in a queue.
        """
        queue = self.queues.get(topic, queueId)
        return queue.maxOffset if queue else 0

    def placeOf(self, topic: str, queueId: int, queueOffset: int) -> int | None:
        """
        Where in the log the first message of a queue lies that has this queue offset,
        or a later one; L{None} if there is none.
        """
        queue = self.queues.get(topic, queueId)
        if queue is None:
            return None
        found = queue.read(max(queueOffset, queue.minOffset), 1)
        return offsetOf(found, 0) if found else None

    def isOld(self, topic: str, queueId: int, queueOffset: int) -> bool:
        """
        Whether a message is there and so old that a slave had better serve it.
        """
        queue = self.queues.get(topic, queueId)
        entry = queue.entry(queueOffset) if queue else None
        return entry is not None and self.log.written - entry[0] > self._near

    def storeTimestamp(self, topic: str, queueId: int, queueOffset: int) -> int | None:
        """
        When a message was stored, if it is there.
        """
        queue = self.queues.get(topic, queueId)
        return self._timestampOf(queue, queueOffset) if queue else None

    def earliestTimestamp(self, topic: str, queueId: int) -> int | None:
        """
        When the first message of a queue was stored.
        """
        return self.storeTimestamp(topic, queueId, self.minOffset(topic, queueId))

    def firstTimestamp(self) -> int | None:
        """
        When the first message of the log was stored.
        """
        found = self.log.recordAt(self.log.first)
        return None if found is None else found[1].storeTimestamp

    def offsetByTime(self, topic: str, queueId: int, timestamp: int) -> int:
        """
        The queue offset of the first message that was stored at a time, or else
        of the one stored nearest to it; 0 if there is none.
        """
        queue = self.queues.get(topic, queueId)
        if queue is None or queue.minOffset == queue.maxOffset:
            return 0
        low, high = queue.minOffset, queue.maxOffset
        while low < high:
            middle = (low + high) // 2
            found = self._timestampOf(queue, middle)
            if found is None or found < timestamp:
                low = middle + 1
            else:
                high = middle
        after = self._timestampOf(queue, low) if low < queue.maxOffset else None
        before = self._timestampOf(queue, low - 1) if low > queue.minOffset else None
        if after is None:
            return max(low - 1, queue.minOffset)
        if before is None or after == timestamp:
            return low
        return low - 1 if timestamp - before <= after - timestamp else low

    def _timestampOf(self, queue: ConsumeQueue, queueOffset: int) -> int | None:
        entry = queue.entry(queueOffset)
        if entry is None or entry[0] < self.log.first:
            return None
        try:
            return storeTimestampAt(self.log.read(entry[0], entry[1]))
        except MalformedRecord:
            return None
