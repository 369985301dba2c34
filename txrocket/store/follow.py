# SPDX-License-Identifier: Apache-2.0
"""
Following the log: each record is read once, and queues, index and whoever waits
for messages learn of it.

    written log --> Follow --> ConsumeQueues.put
                          \\--> Index.put
                           \\-> arrived(topic, queueId, next offset, hash, ...)

Records come straight from memory while the store runs, and out of the files after
a start, or after a full disk kept the queues from being written.

Ordinary messages are read by the compiled helper.  Where there is none, what was put
message by message is not even read: what the queues and the index need of a record was
known when it was built (L{Follow.take}), but for what its properties say (L{filed}).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TypeAlias

from txrocket.compiled import speed
from txrocket.errors import InvalidMessage
from txrocket.message import (
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQ_KEY,
    MessageExt,
    splitProperties,
)
from txrocket.protocol.javahash import tagsCode
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    decodeRecord,
    measureRecord,
)
from txrocket.store.commitlog import CommitLog
from txrocket.store.consumequeue import ConsumeQueues, packEntry
from txrocket.store.index import PAIR, Index, idHash, keyHash

__all__ = [
    "SCHEDULE_TOPIC",
    "TIMED_TOPICS",
    "TIMER_TOPIC",
    "Arrived",
    "Entered",
    "Filing",
    "Follow",
    "Put",
    "filed",
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

# What a message is filed by: the hash of its tag, its unique id, its keys.
Filing: TypeAlias = tuple[int, bytes, str]

# A message that was put: topic and queue, queue offset, offset in the log, size of
# the record, properties, and what these say, if that is known.
Put: TypeAlias = tuple[tuple[str, int], int, int, int, bytes, Filing | None]

# A message that somebody waits for: its offset in the log, topic and queue, queue offset
# and hash.
_Told: TypeAlias = tuple[int, tuple[str, int], int, int]

# Takes an entry: topic, queue, queue offset, offset in the log, size, hash.
Entered: TypeAlias = Callable[[str, int, int, int, int, int], None]

# New entries by queue: the queue offset of the first, and all of them.
Runs: TypeAlias = dict[tuple[str, int], tuple[int, bytearray]]

_UNIQUE = PROPERTY_UNIQ_KEY.encode() + b"\x01"

# Properties that are kept for the next message that has them too, and how long.
_KEPT = 1024
_KEPT_SIZE = 256

# A number of so many digits has 63 bits at most.
_DIGITS = 18


def filed(properties: bytes) -> Filing:
    """
    What a message is filed by.

    What a producer's messages say beside the unique id is often the same for all of
    them.  So the id is cut out, and what the rest means is remembered: 0.3 us, where
    to split all costs 1.0.
    """
    head, found, tail = properties.partition(_UNIQUE)
    if found and head and head[-1] != 2:
        # Another name that ends like this one.
        head, tail = properties, b""
    unique, _, rest = tail.partition(b"\x02")
    rest = head + rest
    hashed, later, keys = _others(rest) if len(rest) <= _KEPT_SIZE else _read(rest)
    return hashed, later or unique, keys


def _read(properties: bytes) -> Filing:
    split = splitProperties(str(properties, "utf-8", "replace"))
    unique = split.get(PROPERTY_UNIQ_KEY, "").encode()
    return tagsCode(split.get(PROPERTY_TAGS)), unique, split.get(PROPERTY_KEYS, "")


_others = lru_cache(_KEPT)(_read)


def file(puts: list[Put]) -> tuple[list[int], bytes]:
    """
    What messages that were put are filed by: the hashes of their tags for the queues,
    and the L{pairs<PAIR>} for the index.
    """
    hashes: list[int] = []
    pairs: list[bytes] = []
    for key, _, offset, _, properties, filing in puts:
        hashed, unique, keys = filing or filed(properties)
        hashes.append(hashed)
        if unique:
            pairs.append(PAIR.pack(idHash(key[0], unique), offset))
        if keys:
            pairs += [PAIR.pack(keyHash(key[0], each), offset) for each in keys.split(" ") if each]
    return hashes, b"".join(pairs)


def queueEntries(puts: list[Put], hashes: list[int]) -> Runs:
    """
    The entries of messages that were put.
    """
    runs: Runs = {}
    for (key, queueOffset, offset, size, _, _), hashed in zip(puts, hashes, strict=True):
        run = runs.get(key)
        if run is None:
            run = runs[key] = queueOffset, bytearray()
        run[1].extend(packEntry(offset, size, hashed))
    return runs


def timeOf(text: str | None) -> int:
    """
    The time in milliseconds that a text is; 0 if it is none.
    """
    # As many digits as an entry has room for.
    if text is None or len(text) > _DIGITS or not (text.isascii() and text.isdecimal()):
        return 0
    return int(text)


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
        awaited: Container[tuple[str, int]] | None = None,
    ) -> None:
        """
        @param delays: the delay levels in milliseconds.
        @param awaited: the queues of which C{arrived} needs to hear; L{None} for all.
        """
        self._queues = queues
        self._index = index
        self._delays = delays
        self._arrived = arrived
        self._awaited = awaited
        self.position = 0
        self.timestamp = 0

    def feed(self, offset: int, data: bytes) -> None:
        """
        A stretch of the log was written.  It is passed over if one before it is
        missing: L{catchUp} gets both.
        """
        if offset != self.position:
            return
        position, told = self._fileQuickly(offset, data)
        end = offset + position
        records = []
        while position < len(data):
            size, magic = measureRecord(data, position)
            end += size
            if magic == BLANK_MAGIC_CODE:
                break
            records.append(decodeRecord(data, position, readBody=False))
            position += size
        self._take(records, end, lambda: self._tell(told, offset, data))

    def take(self, offset: int, data: bytes, puts: list[Put], timestamp: int) -> None:
        """
        What L{feed} does, for a stretch of ordinary messages that were put one by one
        at one time: a quarter of what it costs to read them.
        """
        if offset != self.position:
            return
        hashes, pairs = file(puts)
        for key, (first, run) in queueEntries(puts, hashes).items():
            self._queues.putAll(key, first, run)
        self._enter(pairs, timestamp)
        awaited = self._awaited
        told = [
            (put[2], put[0], put[1], hashed)
            for put, hashed in zip(puts, hashes, strict=True)
            if awaited is None or put[0] in awaited
        ]
        self._take([], offset + len(data), lambda: self._tell(told, offset, data))

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

    def _take(
        self, records: list[MessageExt], end: int, tell: Callable[[], None] = lambda: None
    ) -> None:
        """
        All or nothing: what cannot be written to the queues is taken again.

        @param tell: tells of what was taken already, and is before the records.
        """
        hashes = [self.file(record) for record in records]
        for record in records:
            if record.topic in TIMED_TOPICS:
                # If this process is killed and Java's broker takes the folder over, it
                # makes entries of its own, which have no time, and delivers at once.
                self._queues.writeOne((record.topic, record.queueId))
        self._queues.write(room=0)
        self.position = end
        tell()
        for record, hashed in zip(records, hashes, strict=True):
            if hashed is not None:
                self._arrived(record.topic, record.queueId, record.queueOffset, hashed, record)

    def fileAll(self, offset: int, data: bytes) -> int:
        """
        What L{file} does, for the ordinary messages of one time that a stretch of the log
        begins with, with the compiled helper.

        @return: how many bytes these are.
        """
        position, _ = self._fileQuickly(offset, data)
        self._queues.write(room=0)
        return position

    def _fileQuickly(self, offset: int, data: bytes) -> tuple[int, list[_Told]]:
        """
        File what the compiled helper can.

        @return: how many bytes that was, and who is to be told of what.
        """
        if speed is None:
            return 0, []
        queues = self._queues
        position, count, pairs, timestamp, told = speed.fileRecords(
            data, offset, queues.touched, queues.touch, self._awaited
        )
        if count:
            queues.took(count)
            self._enter(pairs, timestamp)
        return position, told

    def _enter(self, pairs: bytes, timestamp: int) -> None:
        """
        Enter records of one time in the index.
        """
        if self._index is not None and pairs:
            self._index.add(pairs, timestamp)
        self.timestamp = max(self.timestamp, timestamp)

    def _tell(self, told: list[_Told], offset: int, data: bytes) -> None:
        """
        Tell who waits for the messages of a stretch.
        """
        awaited = self._awaited
        for recordOffset, key, queueOffset, hashed in told:
            if awaited is not None and key not in awaited:
                # All that waited were woken by a message before this one.
                continue
            record = decodeRecord(data, recordOffset - offset, readBody=False)
            self._arrived(*key, queueOffset, hashed, record)

    def file(self, record: MessageExt, put: Entered | None = None) -> int | None:
        """
        Put one record into its queue and its keys into the index.

        @param put: takes the entry in place of L{ConsumeQueues.put}.
        @return: the hash in its queue's entry; L{None} if it has none, as the
            halves of transactions have not.
        """
        properties = record.properties
        hashed = self.hash(record)
        # Halves and rollbacks have this bit; ordinary and committed messages do not.
        inQueue = not record.sysFlag & TRANSACTION_PREPARED_TYPE
        if inQueue:
            (put or self._queues.put)(
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
        if record.topic == TIMER_TOPIC:
            return timeOf(properties.get(PROPERTY_TIMER_OUT_MS))
        return tagsCode(properties.get(PROPERTY_TAGS))
