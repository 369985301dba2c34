# SPDX-License-Identifier: Apache-2.0
"""
Following the log: each record is read once, and queues, index and whoever waits
for messages learn of it.

    written log --> Follow --> ConsumeQueues.put
                          \\--> Index.put
                           \\-> arrived(topic, queueId, next offset, hash, ...)

Records come straight from memory while the store runs, and out of the files after
a start, or after a full disk kept the queues from being written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from txrocket.errors import InvalidMessage
from txrocket.message import PROPERTY_DELAY, PROPERTY_KEYS, PROPERTY_UNIQ_KEY, MessageExt
from txrocket.protocol.javahash import tagsCode
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    decodeRecord,
    measureRecord,
)
from txrocket.store.commitlog import CommitLog
from txrocket.store.consumequeue import ConsumeQueues
from txrocket.store.index import Index

__all__ = ["SCHEDULE_TOPIC", "Arrived", "Follow"]

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

# A message has come to a queue: topic, queue, its queue offset, the hash of its
# tag, and the message without its body.
Arrived: TypeAlias = Callable[[str, int, int, int, MessageExt], None]


class Follow:
    """
    Where the queues and the index stand.

    @ivar position: the offset in the log up to which they know of it.
    @ivar timestamp: the store time of the last record they know of.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        index: Index | None,
        delays: Sequence[int],
        arrived: Arrived,
    ) -> None:
        """
        @param delays: the delay levels in milliseconds.
        """
        self._queues = queues
        self._index = index
        self._delays = delays
        self._arrived = arrived
        self.position = 0
        self.timestamp = 0

    def feed(self, offset: int, data: bytes) -> None:
        """
        A stretch of the log was written.  It is passed over if one before it is
        missing: L{catchUp} gets both.
        """
        if offset != self.position:
            return
        records = []
        position = 0
        while position < len(data):
            size, magic = measureRecord(data, position)
            if magic == BLANK_MAGIC_CODE:
                offset += size
                break
            records.append(decodeRecord(data, position, readBody=False))
            position += size
            offset += size
        self._take(records, offset)

    def catchUp(self, log: CommitLog) -> None:
        """
        Read on in the files up to where the log is written.
        """
        batch: list[MessageExt] = []
        end = self.position
        # Files may have been deleted meanwhile.
        for scanned in log.scan(max(self.position, log.first), strict=False):
            if scanned.offset >= log.written:
                break
            batch.append(scanned.record)
            end = scanned.offset + scanned.size
            if len(batch) == 1024:
                self._take(batch, end)
                batch = []
        self._take(batch, end)
        # A blank, or nothing, may lie between the last record and the log's end.
        self.position = max(self.position, log.written)

    def _take(self, records: list[MessageExt], end: int) -> None:
        """
        All or nothing: what cannot be written to the queues is taken again.
        """
        hashes = [self.file(record) for record in records]
        self._queues.write()
        self.position = end
        for record, hashed in zip(records, hashes, strict=True):
            if hashed is not None:
                self._arrived(record.topic, record.queueId, record.queueOffset, hashed, record)

    def file(self, record: MessageExt) -> int | None:
        """
        Put one record into its queue and its keys into the index.

        @return: the hash in its queue's entry; L{None} if it has none, as the
            halves of transactions have not.
        """
        properties = record.properties
        hashed = self.hash(record)
        # Halves and rollbacks have this bit; ordinary and committed messages do not.
        inQueue = not record.sysFlag & TRANSACTION_PREPARED_TYPE
        if inQueue:
            self._queues.put(
                record.topic,
                record.queueId,
                record.queueOffset,
                record.commitLogOffset,
                record.storeSize,
                hashed,
            )
        rolledBack = record.sysFlag & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_ROLLBACK_TYPE
        if self._index is not None and not rolledBack:
            keys = properties.get(PROPERTY_KEYS, "").split(" ")
            keys.insert(0, properties.get(PROPERTY_UNIQ_KEY, ""))
            self._index.put(record.topic, keys, record.commitLogOffset, record.storeTimestamp)
        self.timestamp = max(self.timestamp, record.storeTimestamp)
        return hashed if inQueue else None

    def hash(self, record: MessageExt) -> int:
        """
        What the entry of a record holds beside its place.
        """
        properties = record.properties
        if record.topic == SCHEDULE_TOPIC and PROPERTY_DELAY in properties:
            # Whatever a client wrote there, the record is in the log now.
            with suppress(InvalidMessage):
                level = min(record.delayTimeLevel, len(self._delays))
                if level > 0:
                    return record.storeTimestamp + self._delays[level - 1]
        return tagsCode(properties.get("TAGS"))
