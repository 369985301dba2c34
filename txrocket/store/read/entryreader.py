# SPDX-License-Identifier: Apache-2.0
"""
The records that queue entries stand for, looked at one by one::

    entries --> wanted? --> stretches of the log --> each record checked --> Got
                                                        |
                                          not sound: its entry is damaged, or the record
                                          itself: L{EntrySearch} looks for the message,
                                          else it is left out, counted and logged

L{MessageReader<txrocket.store.read.getmessage.MessageReader>} reads many records at a time.
It leaves the other cases to this module: old messages, several files, SQL92, and damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from txrocket.errors import MalformedRecord
from txrocket.message import MessageExt
from txrocket.protocol.record import decodeRecord
from txrocket.store.damage.damagelog import DamageLog
from txrocket.store.damage.entrysearch import EntrySearch, FoundRecord
from txrocket.store.damage.recordcheck import (
    HEAD_SIZE,
    SMALLEST,
    Origin,
    entryFault,
    fits,
    headFault,
    recordFault,
    storeTime,
)
from txrocket.store.dispatch import SCHEDULE_TOPIC
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.queue.consumequeue import ConsumeQueue
from txrocket.store.queue.entry import FILLER_SIZE, entries
from txrocket.store.read.getrequest import GetRequest, isFull
from txrocket.store.read.getresult import GetMessageResult, GetMessageStatus
from txrocket.store.settings import StoreSettings

__all__ = ["EntryReader"]

# A read goes on over this many unwanted bytes: they cost as much as a call of the system.
_GAP: Final = 16 * 1024

# The sizes of entries that stand for nothing: ours, and Java's.
_FILLERS: Final = (FILLER_SIZE, 0x7FFFFFFF)

_SECOND: Final = 1000


class _Chosen(NamedTuple):
    """
    A message that is wanted, as far as its entry tells.
    """

    queueOffset: int
    place: FoundRecord


class _Choice(NamedTuple):
    """
    The messages that a pull gives, if they are sound.

    @ivar looked: how many entries were looked at.
    @ivar removed: whether the message of one is not there any more, or damaged.
    @ivar fromDisk: whether the last that was looked at is old.
    @ivar searched: whether the log was searched for a message.
    """

    chosen: list[_Chosen]
    looked: int
    removed: bool
    fromDisk: bool
    searched: bool


class EntryReader:
    """
    Reads the records of entries.

    @ivar checkBelow: bodies of records before this offset of the log are compared with
        their CRC: this process did not write them.
    """

    def __init__(
        self, log: CommitLog, damage: DamageLog, hashOf: Callable[[MessageExt], int]
    ) -> None:
        """
        @param hashOf: tells the hash, or the time, that the entry of a record has.
        """
        self._log = log
        self._damage = damage
        self._hashOf = hashOf
        self._search = EntrySearch(log, hashOf)
        self.checkBelow = 2**63 - 1

    def forget(self) -> None:
        """
        The log was cut: messages that were searched for may be others now.
        """
        self._search.forget()

    def collect(
        self,
        wanted: GetRequest,
        data: bytes,
        settings: StoreSettings,
        near: int,
        low: int,
        high: int,
    ) -> GetMessageResult:
        """
        The records of entries.

        @param data: the entries.
        @param near: how many bytes before the log's end are not old.
        @param low: the queue's first offset, which the result tells.
        @param high: the offset of its next message, likewise.
        @raise StoreError: if the disk does not give them.
        """
        choice = self._choose(wanted, data, settings, near)
        found, stopped = self._records(wanted, choice.chosen, not choice.searched)
        if found:
            status = GetMessageStatus.FOUND
        elif choice.removed or choice.chosen:
            status = GetMessageStatus.MESSAGE_WAS_REMOVING
        else:
            status = GetMessageStatus.NO_MATCHED_MESSAGE
        nextOffset = wanted.offset + choice.looked if stopped is None else stopped
        return GetMessageResult(
            status, nextOffset, low, high, b"".join(found), len(found), choice.fromDisk
        )

    def _choose(
        self, wanted: GetRequest, data: bytes, settings: StoreSettings, near: int
    ) -> _Choice:
        """
        Go through entries until there is enough.
        """
        first, end, largest = self._log.first, self._log.written, self._log.largest
        chosen: list[_Chosen] = []
        size = looked = 0
        removed = fromDisk = searched = False
        for queueOffset, entry in enumerate(entries(data), wanted.offset):
            offset, length, _ = entry
            fromDisk = end - offset > near
            if chosen and (len(chosen) >= wanted.most or length in _FILLERS):
                break
            place: FoundRecord | None = FoundRecord(*entry)
            if not (first <= offset <= end - length and SMALLEST <= length <= largest):
                searches = self._mustSearch(wanted, queueOffset, offset, length)
                if searched and searches:
                    # One search in each pull: others wait meanwhile.
                    break
                searched = searched or searches
                place = self._found(wanted, queueOffset, offset, length)
            if (
                place is not None
                and chosen
                and isFull(settings, len(chosen), size + place.size, fromDisk)
            ):
                break
            looked += 1
            if place is None:
                removed = True
            elif self._isWanted(wanted, place):
                chosen.append(_Chosen(queueOffset, place))
                size += place.size
        return _Choice(chosen, looked, removed, fromDisk, searched)

    def _isWanted(self, wanted: GetRequest, place: FoundRecord) -> bool:
        if wanted.matches is not None and not wanted.matches(place.tagsCode):
            return False
        return wanted.accepts is None or self._accepted(wanted.accepts, place)

    def _fault(self, offset: int, size: int) -> str | None:
        return entryFault(offset, size, self._log.first, self._log.written, self._log.largest)

    def _isDeleted(self, queue: ConsumeQueue, offset: int) -> bool:
        """
        Whether a record was deleted as old, and its queue does not know yet.
        """
        first = self._log.first
        if not 0 <= offset < first:
            return False
        oldest = queue.entry(queue.minOffset)
        return oldest is not None and oldest[0] < first

    def _mustSearch(self, wanted: GetRequest, queueOffset: int, offset: int, size: int) -> bool:
        """
        Whether L{_found} has to read the log.
        """
        return not (
            size in _FILLERS
            or self._isDeleted(wanted.queue, offset)
            or self._search.isKnown(wanted.origin, queueOffset)
        )

    def _found(
        self, wanted: GetRequest, queueOffset: int, offset: int, size: int
    ) -> FoundRecord | None:
        """
        Where the message is whose entry names no place in the log; L{None} if the entry
        stands for nothing, or the message was deleted or is not to be found.
        """
        if size in _FILLERS or self._isDeleted(wanted.queue, offset):
            return None
        origin = wanted.origin
        place = self._search.find(origin, wanted.queue, queueOffset)
        if place is not None:
            self._damage.entry(origin.topic, origin.queueId, queueOffset, place.offset)
        else:
            fault = self._fault(offset, size) or "it is not the record of the queue's entry"
            self._damage.message(origin.topic, origin.queueId, queueOffset, offset, fault)
        return place

    def _accepted(self, accepts: Callable[[MessageExt], bool], place: FoundRecord) -> bool:
        try:
            record = decodeRecord(self._log.read(place.offset, place.size), readBody=False)
        except MalformedRecord:
            # It is checked again, and logged, with all records that are read.
            return True
        return accepts(record)

    def _records(
        self, wanted: GetRequest, chosen: list[_Chosen], maySearch: bool
    ) -> tuple[list[bytes], int | None]:
        """
        The sound ones of the chosen records.

        @param maySearch: whether the message of a damaged entry may be searched for.
        @return: the records, and the queue offset that the pull ends before because it
            has had its search, or L{None}.
        """
        origin = wanted.origin
        data = self._read([(each.place.offset, each.place.size) for each in chosen])
        found = []
        checkBelow = self.checkBelow
        for record, (queueOffset, place) in zip(data, chosen, strict=True):
            if fits(record, 0, place.size, place.offset, origin, queueOffset, checkBelow):
                found.append(record)
                continue
            fault = self._recordFault(wanted, queueOffset, place, record)
            if fault is None:
                found.append(record)
                continue
            other = None
            # A record that names its entry's queue, offset and size is damaged itself.
            if headFault(record, 0, place.size, place.offset, origin, queueOffset) is not None:
                if not self._search.isKnown(origin, queueOffset):
                    if not maySearch:
                        return found, queueOffset
                    maySearch = False
                other = self._elsewhere(wanted, queueOffset, place)
            if other is not None:
                found.append(other)
            else:
                self._damage.message(origin.topic, origin.queueId, queueOffset, place.offset, fault)
        return found, None

    def _elsewhere(self, wanted: GetRequest, queueOffset: int, place: FoundRecord) -> bytes | None:
        """
        The record of a message that is not where its entry says.
        """
        origin = wanted.origin
        other = self._search.find(origin, wanted.queue, queueOffset)
        if other is None or other[:2] == place[:2]:
            return None
        record = self._log.read(other.offset, other.size)
        if self._recordFault(wanted, queueOffset, other, record) is not None:
            return None
        self._damage.entry(origin.topic, origin.queueId, queueOffset, other.offset)
        return record

    def _recordFault(
        self, wanted: GetRequest, queueOffset: int, place: FoundRecord, record: bytes
    ) -> str | None:
        return recordFault(
            record,
            0,
            place.size,
            place.offset,
            wanted.origin,
            queueOffset,
            checkBody=place.offset < self.checkBelow,
        )

    def mended(
        self, queue: ConsumeQueue, origin: Origin, start: int, data: bytes
    ) -> Iterator[FoundRecord]:
        """
        Compare entries with the heads of their records, one at a time, and correct the
        damaged ones.

        @param start: the queue offset of the first.
        @param data: the entries.
        @raise StoreError: if the disk does not give the log.
        """
        for queueOffset, entry in enumerate(entries(data), start):
            place = FoundRecord(*entry)
            if place.size not in _FILLERS and not self._isDeleted(queue, place.offset):
                place = self._mended(queue, origin, queueOffset, place)
            yield place

    def _mended(
        self, queue: ConsumeQueue, origin: Origin, queueOffset: int, place: FoundRecord
    ) -> FoundRecord:
        head = b""
        if self._fault(place.offset, place.size) is None:
            head = self._log.read(place.offset, HEAD_SIZE)
        if headFault(head, 0, place.size, place.offset, origin, queueOffset) is None:
            other = self._timed(origin, place, storeTime(head))
        else:
            # An entry whose record is not found stays as it is: L{messages} logs it.
            other = self._search.find(origin, queue, queueOffset) or place
        if other != place:
            self._damage.entry(origin.topic, origin.queueId, queueOffset, other.offset)
        return other

    def _timed(self, origin: Origin, place: FoundRecord, stored: int) -> FoundRecord:
        """
        The entry of a sound record, with the right time if it has one that cannot be.
        """
        delay = place.tagsCode - stored
        # A delay is full seconds; one that is not configured now may have been once.
        if origin.topic != SCHEDULE_TOPIC or (delay >= 0 and delay % _SECOND == 0):
            return place
        try:
            record = decodeRecord(self._log.read(place.offset, place.size), readBody=False)
        except MalformedRecord:
            return place
        return place._replace(tagsCode=self._hashOf(record))

    def messages(self, places: Iterable[tuple[int, int]]) -> list[MessageExt | None]:
        """
        The messages at offsets of the log that have these sizes; L{None} for each that
        is not there any more, or not sound.

        @raise StoreError: if the disk does not give them.
        """
        listed = list(places)
        sound = [each for each in listed if self._fault(*each) is None]
        data = iter(self._read(sound))
        found: list[MessageExt | None] = []
        for offset, size in listed:
            message = None
            if self._fault(offset, size) is None:
                message = self._message(offset, size, next(data))
            elif size not in _FILLERS and not 0 <= offset < self._log.first:
                self._damage.record(offset, self._fault(offset, size) or "")
            found.append(message)
        return found

    def _message(self, offset: int, size: int, data: bytes) -> MessageExt | None:
        try:
            message = decodeRecord(data, checkCrc=offset < self.checkBelow)
        except MalformedRecord as error:
            self._damage.record(offset, str(error))
            return None
        if message.commitLogOffset != offset or message.storeSize != size:
            self._damage.record(offset, "the entry of a queue names another place or size")
            return None
        return message

    def _read(self, places: list[tuple[int, int]]) -> list[bytes]:
        """
        Parts of the log, each with its size.  Near parts are read at once, with the bytes
        between them: to copy a few kilobytes more costs less than another call of the
        system.
        """
        fileSize = self._log.segments.size
        pieces: list[bytes] = []
        at = 0
        while at < len(places):
            start = places[at][0]
            stop = start + places[at][1]
            following = at + 1
            while (
                following < len(places)
                and 0 <= places[following][0] - stop <= _GAP
                and places[following][0] // fileSize == start // fileSize
            ):
                stop = sum(places[following])
                following += 1
            data = self._log.read(start, stop - start)
            pieces += [
                data[offset - start : offset - start + size]
                for offset, size in places[at:following]
            ]
            at = following
        return pieces
