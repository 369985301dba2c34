# SPDX-License-Identifier: Apache-2.0
"""
Reading records: which of them are sound, and those that a pull gets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from mmap import mmap
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from txrocket.bulk.interface import CollectedRecords
from txrocket.protocol.record import (
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE,
    PROPERTIES_LIMIT,
    STOREHOSTADDRESS_V6_FLAG,
    TOPIC_LIMIT,
    TRANSACTION_PREPARED_TYPE,
)

__all__ = ["OrdinaryRecord", "checkRecords", "collectRecords", "readOrdinary", "readableRecords"]

# How many bytes a record has at least: no body, topic and properties.
_SMALLEST: Final = 91
_INT64_MAX: Final = 2**63 - 1

# Size, magic code, CRC, queue id, queue offset, offset in the log, sysFlag.
_HEAD: Final = Struct(">4i4x2qi").unpack_from
_INT: Final = Struct(">i").unpack_from
_LONG: Final = Struct(">q").unpack_from
_ENTRY: Final = Struct(">qiq")

# How many parts of a file are read for one pull; a pull that needs more is left to others.
_PIECES: Final = 256


class OrdinaryRecord(NamedTuple):
    """
    A record of a message that is in its queue: where its parts are.
    """

    size: int
    crc: int
    queueId: int
    queueOffset: int
    timestamp: int
    bodyStart: int
    bodyEnd: int
    topicEnd: int
    storeHostAt: int
    storeHostSize: int


def readOrdinary(data: bytes, position: int, offset: int) -> OrdinaryRecord | None:
    """
    Read a record of an ordinary message.

    @param offset: the offset in the log of that position.
    @return: L{None} if there is no record, and for the halves of transactions and
        rollbacks, which are in no queue.
    """
    left = len(data) - position
    if left < 88:
        return None
    size, magic, crc, queueId, queueOffset, place, sysFlag = _HEAD(data, position)
    if (
        magic != MESSAGE_MAGIC_CODE
        or not _SMALLEST <= size <= left
        or sysFlag & TRANSACTION_PREPARED_TYPE
        or place != offset
        or not 0 <= offset <= _INT64_MAX - size
    ):
        return None
    born = 20 if sysFlag & BORNHOST_V6_FLAG else 8
    store = 20 if sysFlag & STOREHOSTADDRESS_V6_FLAG else 8
    start, end = position + 72 + born + store, position + size
    if start >= end:
        return None
    bodySize = _INT(data, start - 4)[0]
    bodyEnd = start + bodySize
    if bodySize < 0 or bodyEnd >= end:
        return None
    topicEnd = bodyEnd + 1 + data[bodyEnd]
    if topicEnd + 2 > end or topicEnd + 2 + (data[topicEnd] << 8 | data[topicEnd + 1]) != end:
        return None
    time = _LONG(data, position + 48 + born)[0]
    storeHostAt = start - 16 - store
    return OrdinaryRecord(
        size, crc, queueId, queueOffset, time, start, bodyEnd, topicEnd, storeHostAt, store
    )


def _isSound(data: bytes, record: OrdinaryRecord, end: int) -> bool:
    """
    Whether no part of a record can have been lost.  Recovery looks closer at the rest.
    """
    host = data[record.storeHostAt : record.storeHostAt + record.storeHostSize]
    topic = data[record.bodyEnd + 1 : record.topicEnd]
    properties = data[record.topicEnd + 2 : end]
    body = data[record.bodyStart : record.bodyEnd]
    return (
        any(host)
        and record.timestamp > 0
        and record.queueOffset >= 0
        and record.queueId >= 0
        and 0 < len(topic) <= TOPIC_LIMIT
        and topic.isascii()
        and 0 not in topic
        and b"/" not in topic
        and len(properties) <= PROPERTIES_LIMIT
        and 0 not in properties
        and (not body or crc32(body) & 0x7FFFFFFF == record.crc)
    )


def checkRecords(data: bytes, position: int, offset: int, limit: int) -> int:
    """
    See L{Bulk.checkRecords<txrocket.bulk.interface.Bulk.checkRecords>}.
    """
    if not 0 <= position <= len(data):
        raise ValueError(f"{position} is not in {len(data)} bytes")
    timestamp = None
    while (record := readOrdinary(data, position, offset)) is not None:
        if (
            record.size > limit
            or (timestamp is not None and record.timestamp != timestamp)
            or not _isSound(data, record, position + record.size)
        ):
            break
        timestamp = record.timestamp
        position += record.size
        offset += record.size
    return position


def _partsFit(
    data: bytes, position: int, size: int, topic: bytes | None, *, checkBody: bool
) -> bool:
    """
    Whether the parts of a record add up to its size.
    """
    (flags,) = _INT(data, position + 36)
    start = position + 88
    start += 12 * bool(flags & BORNHOST_V6_FLAG) + 12 * bool(flags & STOREHOSTADDRESS_V6_FLAG)
    end = position + size
    if start + 3 > end:
        return False
    bodySize = _INT(data, start - 4)[0]
    topicAt = start + bodySize
    if bodySize < 0 or topicAt + 3 > end:
        return False
    topicEnd = topicAt + 1 + data[topicAt]
    if data[topicAt] > TOPIC_LIMIT or topicEnd + 2 > end:
        return False
    properties = data[topicEnd] << 8 | data[topicEnd + 1]
    if properties > PROPERTIES_LIMIT or topicEnd + 2 + properties != end:
        return False
    if topic is not None and data[topicAt + 1 : topicEnd] != topic:
        return False
    (crc,) = _INT(data, position + 8)
    return not (checkBody and bodySize) or crc32(data[start:topicAt]) & 0x7FFFFFFF == crc


def readableRecords(data: bytes) -> int:
    """
    See L{Bulk.readableRecords<txrocket.bulk.interface.Bulk.readableRecords>}.
    """
    position = 0
    while len(data) - position >= _SMALLEST:
        size, magic, crc, *_ = _HEAD(data, position)
        if (
            magic != MESSAGE_MAGIC_CODE
            or not _SMALLEST <= size <= len(data) - position
            or not _partsFit(data, position, size, None, checkBody=crc != 0)
        ):
            break
        position += size
    return position


class _Choice(NamedTuple):
    """
    The records of a pull before they are read.

    @ivar chosen: for each its place among the entries, its offset in the log and its size.
    @ivar pieces: the parts of the file that they are in: position and size.
    @ivar looked: how many entries were looked at.
    """

    chosen: list[tuple[int, int, int]]
    pieces: list[tuple[int, int]]
    looked: int


def _choose(
    entries: bytes,
    base: int,
    bounds: tuple[int, int],
    most: int,
    mostBytes: int,
    matches: Callable[[int], bool] | None,
    largest: int,
) -> _Choice | None:
    """
    Go through entries until there is enough.

    @param bounds: the offsets in the log between which all records must be.
    """
    first, end = bounds
    chosen: list[tuple[int, int, int]] = []
    pieces: list[tuple[int, int]] = []
    total = looked = 0
    whole = len(entries) // _ENTRY.size
    for offset, size, tagsCode in _ENTRY.iter_unpack(entries[: whole * _ENTRY.size]):
        if not (first <= offset <= end and _SMALLEST <= size <= min(end - offset, largest)):
            return None
        if chosen and (len(chosen) >= most or total + size > mostBytes):
            break
        looked += 1
        if matches is not None and not matches(tagsCode):
            continue
        position = offset - base
        if pieces and sum(pieces[-1]) == position:
            pieces[-1] = pieces[-1][0], pieces[-1][1] + size
        elif len(pieces) == _PIECES:
            return None
        else:
            pieces.append((position, size))
        if not most:
            return None
        chosen.append((looked - 1, offset, size))
        total += size
    return _Choice(chosen, pieces, looked) if chosen else None


def _readPieces(source: mmap | bytes | int, pieces: list[tuple[int, int]]) -> bytes | None:
    """
    Read parts of a file; L{None} if one of them is not there.
    """
    found = []
    for position, size in pieces:
        if isinstance(source, int):
            try:
                piece = os.pread(source, size, position)
            except OSError:
                return None
        else:
            piece = source[position : position + size]
        if len(piece) != size:
            return None
        found.append(piece)
    return b"".join(found)


def collectRecords(
    entries: bytes,
    source: mmap | bytes | int,
    base: int,
    written: int,
    near: int,
    most: int,
    mostBytes: int,
    matches: Callable[[int], bool] | None,
    topic: bytes,
    queueId: int,
    queueOffset: int,
    largest: int,
    checkBelow: int,
) -> CollectedRecords | None:
    """
    See L{Bulk.collectRecords<txrocket.bulk.interface.Bulk.collectRecords>}.
    """
    if base < 0 or near < 0 or written < 0:
        return None
    end = written if isinstance(source, int) else min(base + len(source), written)
    bounds = max(written - near, base), end
    choice = _choose(entries, base, bounds, most, mostBytes, matches, largest)
    records = None if choice is None else _readPieces(source, choice.pieces)
    if choice is None or records is None:
        return None
    position = 0
    for place, offset, size in choice.chosen:
        found, magic, _, ownQueue, number, ownOffset, _ = _HEAD(records, position)
        if (
            found != size
            or magic != MESSAGE_MAGIC_CODE
            or ownQueue != queueId
            or number != queueOffset + place
            or ownOffset != offset
            or not _partsFit(records, position, size, topic, checkBody=offset < checkBelow)
        ):
            return None
        position += size
    return CollectedRecords(records, len(choice.chosen), choice.looked)
