# SPDX-License-Identifier: Apache-2.0
"""
Dispatch: each record of the log is read once, and queues, index and the consumers that wait
for messages learn of it::

    written log --> Dispatcher --> ConsumeQueues
                              \\--> Index
                               \\-> arrived(topic, queueId, queue offset, hash, message)

Records come straight from memory while the store runs, and out of the files after
a start, or after a full disk kept the queues from being written.

Ordinary messages are read many at a time (L{readRecords<txrocket.bulk.interface.Bulk
.readRecords>}); halves, delayed messages and messages out of order in their queue one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from typing import TypeAlias

from txrocket.bulk import QueueKey, readRecords
from txrocket.errors import InvalidMessage
from txrocket.message import (
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQ_KEY,
    MessageExt,
)
from txrocket.protocol.javahash import tagsCode
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    decodeRecord,
    measureRecord,
)
from txrocket.store.index import Index
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.queue.consumequeues import ConsumeQueues

__all__ = [
    "SCHEDULE_TOPIC",
    "TIMED_TOPICS",
    "TIMER_TOPIC",
    "Arrived",
    "Dispatcher",
    "Entered",
    "timeOf",
]

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

# Where messages wait that are to be delivered at a time of their own: txrocket's, and
# one that Java takes for a broker's own by its name, and leaves alone.
TIMER_TOPIC = "rmq_sys_timer"

# Whose entries have a time in the place of a hash.
TIMED_TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})

# A message has come to a queue: topic, queue, its queue offset, the hash of its
# tag, and the message without its body.
Arrived: TypeAlias = Callable[[str, int, int, int, MessageExt], None]

# A message that a consumer may wait for: its queue, queue offset and hash, and the message, or
# where it is in the stretch.
_Arrival: TypeAlias = tuple[QueueKey, int, int, MessageExt | int]

# Takes an entry: topic, queue, queue offset, offset in the log, size, hash.
Entered: TypeAlias = Callable[[str, int, int, int, int, int], None]

# A number of 18 digits has at most 63 bits.
_DIGITS = 18


def timeOf(text: str | None) -> int:
    """
    A text as a time in milliseconds; 0 if it is no number.
    """
    # As many digits as an entry has room for.
    if text is None or len(text) > _DIGITS or not (text.isascii() and text.isdecimal()):
        return 0
    return int(text)


class Dispatcher:
    """
    Where the queues and the index stand.

    @ivar queues: the consume queues.
    @ivar index: the index, or L{None} if the store has none.
    @ivar position: the offset in the log up to which they know of it.
    @ivar timestamp: the store time of the last record they know of.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        index: Index | None,
        delays: Sequence[int],
        arrived: Arrived,
        awaited: Container[tuple[str, int]] | None = None,
    ) -> None:
        """
        @param delays: the delay levels in milliseconds.
        @param awaited: the queues of which C{arrived} needs to hear; L{None} for all.
        """
        self.queues = queues
        self.index = index
        self._delays = delays
        self._arrived = arrived
        self._awaited = awaited
        self.position = 0
        self.timestamp = 0

    def forget(self) -> None:
        """
        Let go of queues and index, with all entries that are in no file.
        """
        self.queues.forget()
        if self.index is not None:
            self.index.forget()

    def dispatch(self, offset: int, data: bytes) -> None:
        """
        A stretch of the log was written.  It is passed over if a stretch before it is
        missing: L{catchUp} gets both.
        """
        if offset == self.position:
            self._dispatch(offset, data)

    def catchUp(self, log: CommitLog) -> None:
        """
        Dispatch the records of the files up to the end of the log.
        """
        # Files may have been deleted meanwhile.
        for offset, data in log.scan(max(self.position, log.first), strict=False):
            if offset >= log.written:
                break
            self._dispatch(offset, data)
        # A blank, or nothing, may lie between the last record and the log's end.
        self.position = max(self.position, log.written)

    def _dispatch(self, offset: int, data: bytes) -> None:
        """
        All or nothing: if the entries cannot be written to the queues, the stretch is
        dispatched again later.
        """
        arrivals: list[_Arrival] = []
        end = self.enter(offset, data, self.queues.put, arrivals)
        for key in dict.fromkeys(each[0] for each in arrivals if each[0][0] in TIMED_TOPICS):
            # If this process is killed and Java's broker takes the folder over, it
            # makes entries of its own, which have no time, and delivers at once.
            self.queues.writeOne(key)
        self.queues.write(room=0)
        self.position = end
        if arrivals:
            self._tell(arrivals, data)

    def enter(
        self, offset: int, data: bytes, put: Entered, arrivals: list[_Arrival] | None = None
    ) -> int:
        """
        Enter the records of a stretch in their queues and in the index.

        @param put: takes the entries of messages that are not ordinary.
        @param arrivals: gets the messages that a consumer may wait for.
        @return: the offset in the log at which the stretch ends.
        """
        queues = self.queues
        awaited = self._awaited if arrivals is not None else ()
        position = 0
        while position < len(data):
            found = readRecords(
                data, position, offset + position, queues.touched, queues.touch, awaited
            )
            position, count, pairs, timestamp, told = found
            if count:
                queues.took(count)
                if self.index is not None and pairs:
                    self.index.add(pairs, timestamp)
                self.timestamp = max(self.timestamp, timestamp)
                if told and arrivals is not None:
                    arrivals += [(key, at, tag, place - offset) for place, key, at, tag in told]
            elif (after := self._enterOne(data, position, put, arrivals)) is not None:
                position = after
            else:
                return offset + position + measureRecord(data, position)[0]
        return offset + position

    def _enterOne(
        self, data: bytes, position: int, put: Entered, arrivals: list[_Arrival] | None
    ) -> int | None:
        """
        Enter one record.

        @return: where it ends; L{None} if a blank is there.
        """
        size, magic = measureRecord(data, position)
        if magic == BLANK_MAGIC_CODE:
            return None
        record = decodeRecord(data, position, readBody=False)
        hashed = self.file(record, put)
        if hashed is not None and arrivals is not None:
            key = record.topic, record.queueId
            arrivals.append((key, record.queueOffset, hashed, record))
        return position + size

    def _tell(self, arrivals: list[_Arrival], data: bytes) -> None:
        """
        Tell the consumers that wait for the messages of a stretch.
        """
        awaited = self._awaited
        for key, queueOffset, hashed, record in arrivals:
            if isinstance(record, int):
                if awaited is not None and key not in awaited:
                    # A message before this one has woken all that waited.
                    continue
                record = decodeRecord(data, record, readBody=False)
            self._arrived(*key, queueOffset, hashed, record)

    def file(self, record: MessageExt, put: Entered | None = None) -> int | None:
        """
        Enter one record in its queue, and its keys in the index.

        @param put: takes the entry in place of L{ConsumeQueues.put}.
        @return: the hash in its queue's entry; L{None} if it has none, as the
            halves of transactions have not.
        """
        properties = record.properties
        hashed = self.hash(record)
        # Halves and rollbacks have this bit; ordinary and committed messages do not.
        inQueue = not record.sysFlag & TRANSACTION_PREPARED_TYPE
        if inQueue:
            (put or self.queues.put)(
                record.topic,
                record.queueId,
                record.queueOffset,
                record.commitLogOffset,
                record.storeSize,
                hashed,
            )
        rolledBack = record.sysFlag & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_ROLLBACK_TYPE
        if self.index is not None and not rolledBack:
            keys = properties.get(PROPERTY_KEYS, "").split(" ")
            keys.insert(0, properties.get(PROPERTY_UNIQ_KEY, ""))
            self.index.put(record.topic, keys, record.commitLogOffset, record.storeTimestamp)
        self.timestamp = max(self.timestamp, record.storeTimestamp)
        return hashed if inQueue else None

    def hash(self, record: MessageExt) -> int:
        """
        The hash, or the time, that the entry of a record holds beside its place.
        """
        properties = record.properties
        if record.topic == SCHEDULE_TOPIC and PROPERTY_DELAY in properties:
            # A client may have written any text there, and the record is in the log now.
            with suppress(InvalidMessage):
                level = min(record.delayTimeLevel, len(self._delays))
                if level > 0:
                    return record.storeTimestamp + self._delays[level - 1]
        if record.topic == TIMER_TOPIC:
            return timeOf(properties.get(PROPERTY_TIMER_OUT_MS))
        return tagsCode(properties.get(PROPERTY_TAGS))
