# SPDX-License-Identifier: Apache-2.0
"""
Reading what queues and index need of the records of a stretch of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias

from txrocket.bulk.interface import (
    PAIR,
    AwaitedMessage,
    IndexEntries,
    QueueKey,
    QueueTail,
    ReadRecords,
    keyHash,
)
from txrocket.bulk.python.read import readOrdinary
from txrocket.message import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY, splitProperties
from txrocket.protocol.javahash import javaHash, tagsCode

__all__ = ["indexEntries", "readProperties", "readRecords", "uniqueKeyHash"]

#: What the properties of a message say to queue and index: the hash of its tag, its unique
#: id, its keys.
IndexedProperties: TypeAlias = tuple[int, bytes, str]

# Topics whose entries have a time in the place of a hash.
_TIMED: Final = frozenset({b"SCHEDULE_TOPIC_XXXX", b"rmq_sys_timer"})

_UNIQUE: Final = PROPERTY_UNIQ_KEY.encode() + b"\x01"

# Properties that are remembered for the next message that has them too, and how long.
_REMEMBERED: Final = 1024
_REMEMBERED_SIZE: Final = 256

_INT_MAX: Final = 0x7FFFFFFF
_INT64_MAX: Final = 2**63 - 1
_ENTRY: Final = Struct(">qiq")
_SLOT: Final = Struct(">i")
_INDEX_ENTRY: Final = Struct(">iqii")

# A client's ids begin alike for 65 seconds: address, process, and half of the time.
_begun = lru_cache(1024)(lambda topic, start: javaHash(f"{topic}#{start}") * 31**8)


def uniqueKeyHash(topic: str, key: bytes) -> int:
    """
    L{keyHash} of a key in UTF-8, made for unique ids: the hash of how an id begins is
    remembered, and only its last 8 characters are hashed.
    """
    if not 8 < len(key) <= 64 or not key.isascii():
        return keyHash(topic, str(key, "utf-8", "replace"))
    a, b, c, d, e, f, g, h = key[-8:]
    end = ((((((a * 31 + b) * 31 + c) * 31 + d) * 31 + e) * 31 + f) * 31 + g) * 31 + h
    found: int = _begun(topic, key[:-8].decode()) + end & 0xFFFFFFFF
    # As abs of an int in Java, and -2^31, which has none, is 0.
    return found if found <= _INT_MAX else -found & _INT_MAX


def readProperties(properties: bytes) -> IndexedProperties:
    """
    What properties say to queue and index.

    The messages of a producer often differ in their unique id only.  So the id is cut
    out, and the meaning of the rest is remembered.
    """
    head, found, tail = properties.partition(_UNIQUE)
    if found and head and head[-1] != 2:
        # Another name that ends like this one.
        head, tail = properties, b""
    unique, _, rest = tail.partition(b"\x02")
    rest = head + rest
    hashed, later, keys = _others(rest) if len(rest) <= _REMEMBERED_SIZE else _split(rest)
    return hashed, later or unique, keys


def _split(properties: bytes) -> IndexedProperties:
    split = splitProperties(str(properties, "utf-8", "replace"))
    unique = split.get(PROPERTY_UNIQ_KEY, "").encode()
    return tagsCode(split.get(PROPERTY_TAGS)), unique, split.get(PROPERTY_KEYS, "")


_others = lru_cache(_REMEMBERED)(_split)


def readRecords(
    data: bytes,
    position: int,
    offset: int,
    known: Mapping[QueueKey, QueueTail],
    find: Callable[[QueueKey], QueueTail],
    awaited: Container[QueueKey] | None,
) -> ReadRecords:
    """
    See L{Bulk.readRecords<txrocket.bulk.interface.Bulk.readRecords>}.
    """
    if not 0 <= position <= len(data):
        raise ValueError(f"{position} is not in {len(data)} bytes")
    count = timestamp = 0
    pairs: list[bytes] = []
    told: list[AwaitedMessage] = []
    while (record := readOrdinary(data, position, offset)) is not None:
        name = data[record.bodyEnd + 1 : record.topicEnd]
        if name in _TIMED or (count and record.timestamp != timestamp):
            break
        try:
            topic = str(name, "utf-8")
        except UnicodeDecodeError:
            break
        key = topic, record.queueId
        queue = known.get(key)
        if queue is None:
            queue = find(key)
        number = record.queueOffset
        if number != queue.filed + len(queue.tail) // _ENTRY.size or number == _INT64_MAX:
            break
        properties = data[record.topicEnd + 2 : position + record.size]
        hashed, unique, keys = readProperties(properties)
        if unique:
            pairs.append(PAIR.pack(uniqueKeyHash(topic, unique), offset))
        if keys:
            pairs += [PAIR.pack(keyHash(topic, each), offset) for each in keys.split(" ") if each]
        queue.tail += _ENTRY.pack(offset, record.size, hashed)
        if awaited is None or key in awaited:
            told.append((offset, key, number, hashed))
        timestamp = record.timestamp
        count += 1
        position += record.size
        offset += record.size
    return ReadRecords(position, count, b"".join(pairs), timestamp, told)


def indexEntries(
    pairs: bytes, count: int, slots: int, seconds: int, table: bytearray, dirty: bytearray, run: int
) -> IndexEntries:
    """
    See L{Bulk.indexEntries<txrocket.bulk.interface.Bulk.indexEntries>}.
    """
    data, first = bytearray(), 0
    for hashed, offset in PAIR.iter_unpack(pairs):
        slot = hashed % slots
        before = _SLOT.unpack_from(table, slot * _SLOT.size)[0]
        if not 0 < before < count:
            before = 0
            first += 1
        data += _INDEX_ENTRY.pack(hashed, offset, seconds, before)
        _SLOT.pack_into(table, slot * _SLOT.size, count)
        dirty[slot // run] = 1
        count += 1
    return IndexEntries(bytes(data), first)
