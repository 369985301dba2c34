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
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from txrocket.compiled import speed
from txrocket.errors import MalformedRecord, StoreError
from txrocket.message import PROPERTY_TAGS, MessageExt
from txrocket.protocol.javahash import tagsCode
from txrocket.protocol.record import decodeRecord
from txrocket.store.commitlog import CommitLog
from txrocket.store.consumequeue import (
    ENTRY_SIZE,
    ConsumeQueue,
    ConsumeQueues,
    entries,
    offsetOf,
    sizesOf,
)
from txrocket.store.damage import DamageLog
from txrocket.store.entryreader import EntryReader, Wanted
from txrocket.store.entrysearch import Place
from txrocket.store.getresult import GetStatus, Got
from txrocket.store.index import Index, Queried
from txrocket.store.recordcheck import (
    HEAD_SIZE,
    SMALLEST,
    Origin,
    entryFault,
    fits,
    headFault,
    storeTime,
)
from txrocket.store.settings import StoreSettings

__all__ = ["GetStatus", "Got", "StoreReader"]

# Entries that are looked at for one pull at most, as in Java (16,000 bytes).
_MOST_ENTRIES = 800

# How much a query gives at most: an answer has to fit a frame of 16 MiB.
_MOST_QUERIED = 8 * 1024 * 1024

# How many unreadable messages a search by time passes over.
_PASSED = 1024

# To look up a member of an enumeration takes 0.15 us.
_FOUND: Final = GetStatus.FOUND


class StoreReader:
    """
    What can be asked of a store.

    @ivar damage: the damaged places that were met.
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
        self.damage = DamageLog()
        self._entryReader = EntryReader(log, self.damage, self._hashOf)
        self._checkBelow = self._entryReader.checkBelow

    def _hashOf(self, record: MessageExt) -> int:
        """
        What the entry of a record holds beside its place.
        """
        return tagsCode(record.properties.get(PROPERTY_TAGS))

    def trustFrom(self, offset: int) -> None:
        """
        Take the bodies of records from an offset of the log on for sound: this process
        writes them.  Those before it are compared with their CRC whenever they are read.
        """
        self._checkBelow = self._entryReader.checkBelow = offset

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
            got = self._collectQuickly(queue, topic, queueId, offset, most, matches, low, high)
        elif accepts is None and matches is None:
            got = self._stretch(queue, topic, queueId, offset, most, low, high)
        if got is not None:
            return got
        data = queue.read(offset, max(_MOST_ENTRIES, most))
        if not data:
            perFile = self.settings.mappedFileSizeConsumeQueue // ENTRY_SIZE
            nextFile = offset + perFile - offset % perFile
            return Got(GetStatus.OFFSET_FOUND_NULL, nextFile, low, high)
        wanted = Wanted(queue, Origin(topic, queueId), offset, most, matches, accepts)
        return self._entryReader.collect(wanted, data, self.settings, self._near, low, high)

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
        return self._collectQuickly(queue, topic, queueId, offset, most, matches, low, high)

    def _stretch(
        self,
        queue: ConsumeQueue,
        topic: str,
        queueId: int,
        offset: int,
        most: int,
        low: int,
        high: int,
    ) -> Got | None:
        """
        What L{EntryReader.collect} does, for messages that lie one behind the other in
        the log, when all are wanted, and none is old.

        @return: L{None} if they do not, or one of them is damaged.
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
            or size < SMALLEST
            or size > settings.maxTransferBytesOnMessageInMemory
            or not log.first <= start < end
            or start + size > end
            or end - start > self._near
        ):
            return None
        found = log.read(start, size)
        origin, position = Origin(topic, queueId), 0
        below = self._checkBelow
        for queueOffset, each in enumerate(sizes, offset):
            if not fits(found, position, each, start + position, origin, queueOffset, below):
                return None
            position += each
        return Got(_FOUND, offset + len(sizes), low, high, found, len(sizes))

    def _collectQuickly(
        self,
        queue: ConsumeQueue,
        topic: str,
        queueId: int,
        offset: int,
        most: int,
        matches: Callable[[int], bool] | None,
        low: int,
        high: int,
    ) -> Got | None:
        """
        What L{EntryReader.collect} does, with the compiled helper, for messages that are
        in one file of the log, and none of them old.

        @return: L{None} if they are not, or one of them is damaged.
        """
        assert speed is not None
        settings, log = self.settings, self.log
        # Written out, for each call of max and min takes 0.1 us.
        if most > settings.maxTransferCountOnMessageInMemory:
            most = settings.maxTransferCountOnMessageInMemory
        if most < 1:
            most = 1
        data = queue.read(offset, most if matches is None else max(_MOST_ENTRIES, most))
        if not data:
            return None
        segments = log.segments
        try:
            # Without the guard a mapped file that has become shorter would end the process.
            place = (segments.place if speed.isGuarded() else segments.opened)(offsetOf(data, 0))
        except (OSError, ValueError):
            # Too many are mapped, perhaps by others; or somebody has made the file shorter.
            return None
        if place is None:
            return None
        source, base = place
        found = speed.collect(
            data,
            source,
            base,
            log.written,
            self._near,
            most,
            settings.maxTransferBytesOnMessageInMemory,
            matches,
            topic.encode("utf-8", "surrogateescape"),
            queueId,
            offset,
            log.largest,
            self._checkBelow,
        )
        if found is None:
            return None
        records, count, looked = found
        return Got(_FOUND, offset + looked, low, high, records, count)

    def entries(
        self, topic: str, queueId: int, offset: int, most: int
    ) -> list[tuple[int, int, int]]:
        """
        Entries of a queue from an offset on, as they are in the file: offset in the log,
        size, hash.  For those that stand for nothing L{messages} finds none.

        @raise StoreError: if the disk does not give them.
        """
        queue = self.queues.get(topic, queueId)
        return [] if queue is None else list(entries(queue.read(offset, most)))

    def mended(self, topic: str, queueId: int, offset: int, most: int) -> Iterator[Place]:
        """
        What L{entries} gives, for a reader that must miss no message: each entry is
        compared with its record when the caller comes to it, and corrected if it is
        damaged.

        @raise StoreError: if the disk does not give them.
        """
        queue = self.queues.get(topic, queueId)
        if queue is None:
            return iter(())
        data = queue.read(offset, most)
        return self._entryReader.mended(queue, Origin(topic, queueId), offset, data)

    def messages(self, places: Iterable[tuple[int, int]]) -> list[MessageExt | None]:
        """
        The messages at offsets of the log that have these sizes; L{None} for each that
        is not there any more, or no message.

        @raise StoreError: if the disk does not give them.
        """
        return self._entryReader.messages(places)

    def messageAt(self, offset: int) -> bytes | None:
        """
        The record at an offset of the log, if there is one, and it is sound.
        """
        if not self.log.first <= offset < self.log.written:
            return None
        found = self.log.recordAt(offset)
        if found is None:
            return None
        try:
            decodeRecord(found[0], checkCrc=True)
        except MalformedRecord as error:
            self.damage.record(offset, str(error))
            return None
        return found[0]

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
        found = next(self.mended(topic, queueId, max(queueOffset, queue.minOffset), 1), None)
        return None if found is None else found.offset

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
        found = self._timestampOf(queue, Origin(topic, queueId), queueOffset) if queue else None
        return found or None

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
        origin, passed = Origin(topic, queueId), _PASSED
        low, high = queue.minOffset, queue.maxOffset
        while low < high:
            at = middle = (low + high) // 2
            found = self._timestampOf(queue, origin, at)
            # A damaged message has no time: the next one has, and its is hardly later.
            while found is None and at + 1 < high and passed:
                at, passed = at + 1, passed - 1
                found = self._timestampOf(queue, origin, at)
            if found == 0 or (found is not None and found < timestamp):
                low = at + 1
            elif found is None and middle + 1 < high and not passed:
                low = middle + 1
            else:
                high = middle
        after = self._timed(queue, origin, range(low, queue.maxOffset))
        before = self._timed(queue, origin, range(low - 1, queue.minOffset - 1, -1))
        if after is None:
            return low if before is None else before[0]
        if before is None or not before[1] or after[1] == timestamp:
            return after[0]
        return before[0] if timestamp - before[1] <= after[1] - timestamp else after[0]

    def _timed(self, queue: ConsumeQueue, origin: Origin, offsets: range) -> tuple[int, int] | None:
        """
        The first of some messages that is not damaged, and its time.
        """
        for each in offsets[:_PASSED]:
            found = self._timestampOf(queue, origin, each)
            if found is not None:
                return each, found
        return None

    def _timestampOf(self, queue: ConsumeQueue, origin: Origin, queueOffset: int) -> int | None:
        """
        When a message was stored; 0 if it was deleted as old, L{None} if it is damaged.
        """
        entry, log = queue.entry(queueOffset), self.log
        if entry is None:
            return None
        offset, size, _ = entry
        if 0 <= offset < log.first:
            return 0
        if entryFault(offset, size, log.first, log.written, log.largest) is not None:
            return None
        head = log.read(offset, HEAD_SIZE)
        if headFault(head, 0, size, offset, origin, queueOffset) is not None:
            return None
        timestamp = storeTime(head)
        return timestamp if timestamp > 0 else None
