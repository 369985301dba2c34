# SPDX-License-Identifier: Apache-2.0
"""
The message of a damaged queue entry, looked for in the log.

A record names its queue and its queue offset, so a message is not lost with its entry.
It lies between the records of the entries before and behind it::

    queue   | 6: sound | 7: damaged | 8: sound |
                 |                       |
    log     ...[ 6 ]..[?]...[?]..[?]...[ 8 ]...
                    '-- searched -----'

Damage is rare, so the search is slow and bounded, and its result is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct, pack
from typing import Final, NamedTuple

from txrocket.errors import MalformedRecord
from txrocket.message import MessageExt
from txrocket.protocol.record import (
    MESSAGE_MAGIC_CODE,
    PHYSICAL_OFFSET_POSITION,
    TRANSACTION_PREPARED_TYPE,
    decodeRecord,
)
from txrocket.store.damage.recordcheck import HEAD_SIZE, Origin, entryFault, headFault
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.queue.consumequeue import ConsumeQueue
from txrocket.store.queue.entry import entries

__all__ = ["EntrySearch", "FoundRecord"]

_MAGIC: Final = pack(">i", MESSAGE_MAGIC_CODE)
_LONG: Final = Struct(">q")

# How many bytes of the log one search reads: some milliseconds.
_MOST_BYTES: Final = 4 * 1024 * 1024

# How many entries are looked at on either side for one that is sound; a sector has 25.
_AROUND: Final = 128

# How many messages are remembered.
_KNOWN: Final = 4096


class FoundRecord(NamedTuple):
    """
    Where a message is, as an entry says it.
    """

    offset: int
    size: int
    tagsCode: int


class EntrySearch:
    """
    Finds the messages of damaged entries.
    """

    def __init__(self, log: CommitLog, hashOf: Callable[[MessageExt], int]) -> None:
        """
        @param hashOf: tells the hash, or the time, that the entry of a record has.
        """
        self._log = log
        self._hashOf = hashOf
        self._known: dict[tuple[str, int, int], FoundRecord | None] = {}

    def forget(self) -> None:
        """
        Forget all answers.
        """
        self._known.clear()

    def isKnown(self, origin: Origin, queueOffset: int) -> bool:
        """
        Whether L{find} has been asked before, and so costs nothing.
        """
        return (origin.topic, origin.queueId, queueOffset) in self._known

    def find(self, origin: Origin, queue: ConsumeQueue, queueOffset: int) -> FoundRecord | None:
        """
        Find a message; L{None} if no sound record has its queue offset.

        @raise StoreError: if the disk does not give the log.
        """
        key = origin.topic, origin.queueId, queueOffset
        if key not in self._known:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._search(origin, queue, queueOffset)
        return self._known[key]

    def _search(self, origin: Origin, queue: ConsumeQueue, queueOffset: int) -> None:
        """
        Search between the nearest sound entries, for the messages of all entries there.
        """
        start = max(queueOffset - _AROUND, queue.minOffset)
        before = list(enumerate(entries(queue.read(start, queueOffset - start)), start))
        behind = enumerate(entries(queue.read(queueOffset + 1, _AROUND)), queueOffset + 1)
        last, low = self._firstSound(origin, reversed(before)) or (queueOffset - 1, None)
        following, high = self._firstSound(origin, behind) or (queueOffset + 1, None)
        end = self._log.written if high is None else high.offset
        begin = max(self._log.first, end - _MOST_BYTES) if low is None else low.offset + low.size
        for number in range(last + 1, following):
            self._known.setdefault((origin.topic, origin.queueId, number), None)
        self._scan(origin, queue, begin, min(end, begin + _MOST_BYTES))

    def _scan(self, origin: Origin, queue: ConsumeQueue, begin: int, end: int) -> None:
        while begin < end:
            data = self._log.read(begin, end - begin)
            if not data:
                return
            at = 4
            while (at := data.find(_MAGIC, at)) >= 0:
                self._remember(origin, queue, data, at - 4, begin)
                at += 4
            # Records do not cross from one file into the next.
            begin += len(data)

    def _firstSound(
        self, origin: Origin, found: Iterable[tuple[int, tuple[int, int, int]]]
    ) -> tuple[int, FoundRecord] | None:
        for number, (offset, size, hashed) in found:
            if self._isSound(origin, number, offset, size):
                return number, FoundRecord(offset, size, hashed)
        return None

    def _isSound(self, origin: Origin, number: int, offset: int, size: int) -> bool:
        log = self._log
        if entryFault(offset, size, log.first, log.written, log.largest) is not None:
            return False
        head = log.read(offset, HEAD_SIZE)
        return headFault(head, 0, size, offset, origin, number) is None

    def _remember(
        self, origin: Origin, queue: ConsumeQueue, data: bytes, position: int, start: int
    ) -> None:
        """
        Remember the record that may begin at a position, if it is one of the queue.
        """
        record = _recordAt(data, position, start + position)
        if (
            record is not None
            and record.topic == origin.topic
            and record.queueId == origin.queueId
            and queue.minOffset <= record.queueOffset < queue.maxOffset
        ):
            hashed = self._hashOf(record)
            key = origin.topic, origin.queueId, record.queueOffset
            self._known[key] = FoundRecord(start + position, record.storeSize, hashed)


def _recordAt(data: bytes, position: int, offset: int) -> MessageExt | None:
    """
    The sound record at a position, if it names its own offset and belongs into a queue.
    """
    place = position + PHYSICAL_OFFSET_POSITION
    if place + 8 > len(data) or _LONG.unpack_from(data, place)[0] != offset:
        return None
    try:
        record = decodeRecord(data, position, readBody=False, checkCrc=True)
    except MalformedRecord:
        return None
    return None if record.sysFlag & TRANSACTION_PREPARED_TYPE else record
