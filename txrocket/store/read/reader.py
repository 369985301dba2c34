# SPDX-License-Identifier: Apache-2.0
"""
The reading half of the store: messages by queue, offset, key and time::

    get          queue entries, whose hash may rule a message out --> the log
    messageAt    the log
    query        the index --> the log
    offsetByTime queue entries, by halves --> store times in the log

The answer to a pull has the bytes of the log unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from txrocket.errors import MalformedRecord, StoreError
from txrocket.message import MessageExt
from txrocket.protocol.record import decodeRecord
from txrocket.store.damage.damagelog import DamageLog
from txrocket.store.damage.entrysearch import FoundRecord
from txrocket.store.damage.recordcheck import (
    HEAD_SIZE,
    Origin,
    entryFault,
    headFault,
    storeTime,
)
from txrocket.store.dispatch import Dispatcher
from txrocket.store.flush.flusher import InThread
from txrocket.store.index import Queried
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.queue.consumequeue import ConsumeQueue
from txrocket.store.queue.entry import entries
from txrocket.store.read.entryreader import EntryReader
from txrocket.store.read.getmessage import MessageReader
from txrocket.store.read.getresult import GetMessageResult, GetMessageStatus
from txrocket.store.settings import StoreSettings

__all__ = ["GetMessageResult", "GetMessageStatus", "StoreReader"]

# How much a query gives at most: an answer has to fit a frame of 16 MiB.
_MOST_QUERIED = 8 * 1024 * 1024

# How many unreadable messages a search by time passes over.
_PASSED = 1024


class StoreReader:
    """
    Answers all questions to a store.

    @ivar messages: the messages of queues.
    @ivar damage: the damaged places that were met.
    """

    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog,
        dispatcher: Dispatcher,
        memory: int | None,
        inThread: InThread,
    ) -> None:
        """
        @param dispatcher: knows queues and index, and the hash that the entry of a record has.
        @param memory: the memory of the machine in bytes, which decides which messages are
            old.
        @param inThread: runs a search of the index.
        """
        self.settings = settings
        self.log = log
        self.queues = queues = dispatcher.queues
        self.index = dispatcher.index
        self._inThread = inThread
        total = memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        near = total * settings.accessMessageInMemoryMaxRatio // 100
        self.damage = DamageLog()
        self._entryReader = EntryReader(log, self.damage, dispatcher.hash)
        self.messages = MessageReader(settings, log, queues, self._entryReader, near)

    def apply(self, settings: StoreSettings) -> None:
        """
        Take new settings.
        """
        self.settings = self.messages.settings = settings

    def trustFrom(self, offset: int) -> None:
        """
        Take the bodies of records from an offset of the log on for sound: this process
        writes them.  Bodies before it are compared with their CRC whenever they are read.
        """
        self._entryReader.checkBelow = offset

    def forget(self) -> None:
        """
        The log was cut: forget what was found in it.
        """
        self._entryReader.forget()

    def entries(
        self, topic: str, queueId: int, offset: int, most: int
    ) -> list[tuple[int, int, int]]:
        """
        Entries of a queue from an offset on, as they are in the file: offset in the log,
        size, hash.  For a filler L{messagesAt} finds no message.

        @raise StoreError: if the disk does not give them.
        """
        queue = self.queues.get(topic, queueId)
        return [] if queue is None else list(entries(queue.read(offset, most)))

    def mended(self, topic: str, queueId: int, offset: int, most: int) -> Iterator[FoundRecord]:
        """
        Do as L{entries}, for a caller that must miss no message: each entry is compared with
        its record when the caller comes to it, and corrected if it is damaged.

        @raise StoreError: if the disk does not give them.
        """
        queue = self.queues.get(topic, queueId)
        if queue is None:
            return iter(())
        data = queue.read(offset, most)
        return self._entryReader.mended(queue, Origin(topic, queueId), offset, data)

    def messagesAt(self, places: Iterable[tuple[int, int]]) -> list[MessageExt | None]:
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
            queried = self.index.query(topic, key, begin, end, self.limit(most))
        except OSError as error:
            raise StoreError(f"reading the index failed: {error}") from error
        return self.records(queried)

    @inlineCallbacks
    def search(
        self, topic: str, key: str, begin: int, end: int, most: int
    ) -> Generator[Deferred[Any], None, tuple[list[bytes], int, int]]:
        """
        Do as L{query}, and search the index in a thread: a key of many messages may take
        long.

        @return: a Deferred that fails with L{StoreError} if the disk does not give
            them.
        """
        if self.index is None:
            return [], 0, 0
        try:
            search = self.index.search(topic, key, begin, end, self.limit(most))
            try:
                yield self._inThread(search.run)
            finally:
                queried = self.index.ended(search)
        except OSError as error:
            raise StoreError(f"reading the index failed: {error}") from error
        return self.records(queried)

    def limit(self, most: int) -> int:
        """
        How many records a query gives at most.
        """
        return min(most, self.settings.maxMsgsNumBatch)

    def records(self, queried: Queried) -> tuple[list[bytes], int, int]:
        """
        The records that the index has found: see L{query}.
        """
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
        or a later one; L{None} if the queue has no such message.
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
        return entry is not None and self.log.written - entry[0] > self.messages.near

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
        of the one stored nearest to it; 0 if the queue is empty.
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
