# SPDX-License-Identifier: Apache-2.0
"""
Appending: messages become records at the end of the log::

    messages --> encodeRecords ---\
                                   }--> CommitLog.add ... CommitLog.write
    a batch  --> batchRecords  ---/

A lone message is a batch of one.  Records of one append are in one file of the log: if the
first message does not fit into the last file, a new one is begun before it, and the append
ends before the first message that needs another file.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from txrocket.bulk import (
    BatchRecords,
    EncodedRecords,
    QueueKey,
    SentMessage,
    batchRecords,
    encodeRecords,
    suspect,
)
from txrocket.errors import InvalidMessage, StoreError
from txrocket.protocol.record import (
    TRANSACTION_PREPARED_TYPE,
    TopicField,
    decodeRecord,
    encodeTopic,
)
from txrocket.store.dispatch import Dispatcher
from txrocket.store.health import StoreHealth
from txrocket.store.log.commitlog import LOST, CommitLog
from txrocket.store.log.write import Write, WriteSchedule
from txrocket.store.retention import Retention

__all__ = ["Appended", "Appender"]

# The bytes of a record beside addresses, body, topic and properties.
_AROUND = 74

# How many topics are remembered as records have them.
_TOPICS = 4096


class Appended(NamedTuple):
    """
    Where a message, or the messages of a batch, went.

    @ivar end: where the last record ends, for L{MessageStore.stored
        <txrocket.store.messagestore.MessageStore.stored>}.
    @ivar write: the write that they share, which tells whether they are in the files.
    """

    offset: int
    sizes: tuple[int, ...]
    queueOffset: int
    storeTimestamp: int
    end: int
    write: Write


def _topicField(topic: str) -> TopicField:
    # A topic names a folder of its queues, and must not lead out of it.
    if not topic or topic in (".", "..") or "/" in topic or "\0" in topic:
        raise InvalidMessage(f"topic {topic!r} cannot be the name of a folder")
    return encodeTopic(topic)


def _checkTorn(queueId: int, properties: bytes) -> None:
    """
    Refuse a message that a start after a crash would take for a torn record.
    """
    if queueId < 0:
        raise InvalidMessage(f"queue {queueId}: there is none below 0")
    if properties.endswith(b"\0") or LOST in properties:
        raise InvalidMessage("properties that end in NUL, or have 16 of them, cannot be stored")


def _checkBatch(records: bytes, sizes: list[int]) -> None:
    if suspect(records, sizes):
        for end, size in zip(accumulate(sizes), sizes, strict=True):
            record = decodeRecord(records, end - size, readBody=False)
            _checkTorn(record.queueId, record.propertiesData)


class Appender:
    """
    Appends messages to the log.

    @ivar nexts: the next queue offset of each queue.
    @ivar storeHost: the address of the broker, as records hold it.
    @ivar schedule: the write that the messages wait for.
    """

    def __init__(
        self,
        log: CommitLog,
        storeHost: bytes,
        schedule: WriteSchedule,
        retention: Retention,
        health: StoreHealth,
        notBegun: Callable[[StoreError], None],
    ) -> None:
        """
        @param retention: knows when the disk is full.
        @param notBegun: gets the error if no new file could be begun.
        """
        self._log = log
        self.storeHost = storeHost
        self._retention = retention
        self._health = health
        self._notBegun = notBegun
        self.schedule = schedule
        self.nexts: dict[QueueKey, int] = {}
        self._fields: dict[str, TopicField] = {}
        # The queue offset of the first message of each queue that is not written.
        self._unwritten: dict[QueueKey, int] = {}

    def append(
        self,
        messages: list[SentMessage],
        bornHosts: list[bytes],
        fields: dict[str, TopicField] | None = None,
    ) -> EncodedRecords:
        """
        Append messages, as many as one file of the log takes.

        @param bornHosts: the address of the producer of each.
        @param fields: the topics of the messages, as records have them, from a caller that
            has checked topics, queues and properties; without it, they are checked here.
        @return: fewer messages than were given if the next one needs another file.
        @raise InvalidMessage: if a message cannot be stored; then none is appended.
        @raise StoreError: if the store takes no messages now, or not the first one.
        """
        self._admit()
        schedule, log = self.schedule, self._log
        if not schedule.isPending:
            schedule.begin()
        if fields is None:
            fields = self._check(messages)
        while True:
            made = encodeRecords(
                messages,
                fields,
                self.nexts,
                log.end,
                log.fileEnd,
                log.maxBody,
                schedule.timestamp,
                bornHosts,
                self.storeHost,
            )
            records, appended, _ = made
            if appended or not messages:
                break
            _, key, body, properties, *_ = messages[0]
            size = _AROUND + len(bornHosts[0]) + len(self.storeHost)
            self._reserve(size + len(body) + len(fields[key[0]]) + len(properties), len(body))
        log.add(records)
        unwritten = self._unwritten
        for (key, queueOffset, _, _), message in zip(appended, messages, strict=False):
            if key not in unwritten and not message[6] & TRANSACTION_PREPARED_TYPE:
                unwritten[key] = queueOffset
        return made

    def appendBatch(self, message: SentMessage, bornHost: bytes) -> Appended:
        """
        Append the messages of a producer's batch, which is the body, one after the other.

        @raise InvalidMessage: if one cannot be stored; then none is.
        @raise MalformedRecord: if the body is not a batch.
        @raise StoreError: if the store takes no messages now.
        """
        self._admit()
        self.schedule.begin()
        _, key, body, properties, *_ = message
        topic, queueId = key
        if queueId < 0:
            _checkTorn(queueId, properties)
        field = _topicField(topic)
        start = self._log.end
        records, sizes = self._expand(message, bornHost, field)
        _checkBatch(records, sizes)
        offset = self._reserve(len(records), len(body))
        if offset != start:
            # A new file was begun.  Records hold their own offset, and consumers that the
            # messages before have woken may have appended others.
            records, sizes = self._expand(message, bornHost, field)
        queueOffset = self.nexts.get(key, 0)
        self._log.add(records)
        self._unwritten.setdefault(key, queueOffset)
        self.nexts[key] = queueOffset + len(sizes)
        schedule, end = self.schedule, offset + len(records)
        return Appended(
            offset, tuple(sizes), queueOffset, schedule.timestamp, end, schedule.pending
        )

    def wrote(self) -> None:
        """
        All messages that were appended are in the files.
        """
        self._unwritten.clear()
        self.schedule.settle()

    def dropped(self, error: StoreError) -> None:
        """
        All messages that are not written are lost: their queue offsets are given again.
        """
        self.nexts |= self._unwritten
        self._unwritten.clear()
        self.schedule.settle(error)

    def resume(self, dispatcher: Dispatcher) -> None:
        """
        Go on behind the last messages of the queues, and behind their time.
        """
        self.nexts.clear()
        for topic, queueId, queue in dispatcher.queues:
            self.nexts[topic, queueId] = queue.maxOffset
        self.schedule.resume(dispatcher.timestamp)
        # The last file may be another one: have room reserved for the first message.
        self._log.fileEnd = 0

    def _admit(self) -> None:
        refusal = self._health.refusal or self._retention.full
        if refusal is not None:
            raise refusal

    def _check(self, messages: list[SentMessage]) -> dict[str, TopicField]:
        """
        Check topics, queues and properties.

        @return: the topics, as records have them.
        """
        fields = self._fields
        if len(fields) > _TOPICS:
            fields.clear()
        for message in messages:
            topic, queueId = message[1]
            properties = message[3]
            # A number is found faster than a string of one byte.
            if queueId < 0 or 0 in properties:
                _checkTorn(queueId, properties)
            if topic not in fields:
                fields[topic] = _topicField(topic)
        return fields

    def _expand(self, message: SentMessage, bornHost: bytes, field: TopicField) -> BatchRecords:
        _, key, body, properties, born, _, sysFlag, reconsumeTimes, *_ = message
        return batchRecords(
            body,
            field,
            properties,
            key[1],
            self.nexts.get(key, 0),
            self._log.end,
            sysFlag,
            born,
            bornHost,
            self.schedule.timestamp,
            self.storeHost,
            reconsumeTimes,
        )

    def _reserve(self, size: int, bodySize: int) -> int:
        """
        Have room for records, in a new file if it must be.

        @return: where they go.
        """
        try:
            offset = self._log.reserve(size, bodySize)
        except StoreError as error:
            self._notBegun(error)
            raise
        # If a new file was begun, consumers that the messages before it have woken may have
        # called write: this message needs a write of its own.
        self.schedule.begin()
        return offset
