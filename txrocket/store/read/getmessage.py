# SPDX-License-Identifier: Apache-2.0
"""
Messages of a queue from an offset on: RocketMQ's C{DefaultMessageStore.getMessage}::

    queue --> entries --> collectRecords --> records, as they are in the log
                               |
                               \\--> EntryReader   old messages, messages in several files,
                                                  SQL92, damage

Most pulls ask for messages of one file that were stored a moment ago.
L{collectRecords<txrocket.bulk.interface.Bulk.collectRecords>} copies all of these at once,
and declines everything else, which L{EntryReader} reads with care.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap
from typing import Final

from txrocket.bulk import collectRecords, isGuarded
from txrocket.message import MessageExt
from txrocket.store.damage.recordcheck import Origin
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.queue.consumequeue import ConsumeQueue
from txrocket.store.queue.consumequeues import ConsumeQueues
from txrocket.store.queue.entry import ENTRY_SIZE, offsetOf, sizesOf
from txrocket.store.read.entryreader import EntryReader
from txrocket.store.read.getrequest import GetRequest
from txrocket.store.read.getresult import GetMessageResult, GetMessageStatus
from txrocket.store.settings import StoreSettings

__all__ = ["MessageReader"]

# Entries that are looked at for one pull at most, as in Java (16,000 bytes).
_MOST_ENTRIES: Final = 800

# A member of an enumeration costs a look-up of its own.
_FOUND: Final = GetMessageStatus.FOUND


class MessageReader:
    """
    Reads the messages of queues.

    @ivar settings: how much one pull gets.
    @ivar near: how many bytes before the log's end are not old.
    """

    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog,
        queues: ConsumeQueues,
        entryReader: EntryReader,
        near: int,
    ) -> None:
        self.settings = settings
        self._log = log
        self._queues = queues
        self._entryReader = entryReader
        self.near = near

    def get(
        self,
        topic: str,
        queueId: int,
        offset: int,
        most: int,
        matches: Callable[[int], bool] | None = None,
        accepts: Callable[[MessageExt], bool] | None = None,
    ) -> GetMessageResult:
        """
        Messages of a queue from an offset on.

        @param matches: whether a message is wanted, by the hash of its tag.
        @param accepts: whether it is, by all of it but its body.
        @raise StoreError: if the disk does not give them.
        """
        queue = self._queues.get(topic, queueId)
        if queue is None:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.minOffset, queue.maxOffset
        if not low <= offset < high:
            return _outside(offset, low, high)
        if accepts is None:
            got = self._collect(queue, low, high, topic, queueId, offset, most, matches)
            if got is not None:
                return got
        data = queue.read(offset, max(_MOST_ENTRIES, most))
        if not data:
            perFile = self.settings.mappedFileSizeConsumeQueue // ENTRY_SIZE
            nextFile = offset + perFile - offset % perFile
            return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, nextFile, low, high)
        wanted = GetRequest(queue, Origin(topic, queueId), offset, most, matches, accepts)
        return self._entryReader.collect(wanted, data, self.settings, self.near, low, high)

    def getRecent(
        self,
        topic: str,
        queueId: int,
        offset: int,
        most: int,
        matches: Callable[[int], bool] | None = None,
    ) -> GetMessageResult | None:
        """
        Do as L{get}, if all messages are in one file of the log, and none of them is old or
        damaged.

        @return: L{None} if only L{get} can tell.
        @raise StoreError: if the disk does not give them.
        """
        queue = self._queues.get(topic, queueId)
        if queue is None:
            return None
        low, high = queue.minOffset, queue.maxOffset
        if not low <= offset < high:
            return None
        return self._collect(queue, low, high, topic, queueId, offset, most, matches)

    def _collect(
        self,
        queue: ConsumeQueue,
        low: int,
        high: int,
        topic: str,
        queueId: int,
        offset: int,
        most: int,
        matches: Callable[[int], bool] | None,
    ) -> GetMessageResult | None:
        settings, log = self.settings, self._log
        # Written out: min and max cost as much as the rest.
        if most > settings.maxTransferCountOnMessageInMemory:
            most = settings.maxTransferCountOnMessageInMemory
        if most < 1:
            most = 1
        data = queue.read(offset, most if matches is None else max(_MOST_ENTRIES, most))
        place = self._source(data) if data else None
        if place is None:
            return None
        source, base = place
        found = collectRecords(
            data,
            source,
            base,
            log.written,
            self.near,
            most,
            settings.maxTransferBytesOnMessageInMemory,
            matches,
            topic.encode("utf-8", "surrogateescape"),
            queueId,
            offset,
            log.largest,
            self._entryReader.checkBelow,
        )
        if found is None:
            return None
        records, count, looked = found
        return GetMessageResult(_FOUND, offset + looked, low, high, records, count)

    def _source(self, entries: bytes) -> tuple[mmap | int | bytes, int] | None:
        """
        Where the records of entries are: bytes of the log, or the handle of a file, and
        the offset at which it begins.
        """
        log = self._log
        start = offsetOf(entries, 0)
        if not log.direct:
            # Handles of a test: read records that lie one behind the other.
            *_, lastSize = sizes = sizesOf(entries)
            size = sum(sizes)
            end = offsetOf(entries, len(entries) - ENTRY_SIZE) + lastSize
            most = self.settings.maxTransferBytesOnMessageInMemory
            if size != end - start or not 0 < size <= most or not log.first <= start < log.written:
                return None
            return log.read(start, size), start
        segments = log.segments
        try:
            # Without the guard a mapped file that has become shorter would end the process.
            return (segments.place if isGuarded() else segments.opened)(start)
        except (OSError, ValueError):
            # Too many files are mapped, or another process has made the file shorter.
            return None


def _outside(offset: int, low: int, high: int) -> GetMessageResult:
    """
    The answer for an offset that a queue does not have.
    """
    if high == 0:
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
