# SPDX-License-Identifier: Apache-2.0
"""
Whether a record is the one that a queue's entry stands for::

    entry  n: | offset | size | hash |        record: size, magic, CRC, queue id, n,
                   |       |                          offset, ..., body, topic, properties
                   '-------'-------------------------> all of that must agree

One flipped bit in an entry, or in a record's head, gives a consumer bytes that are no
record, or a message of another queue, or a number that has it skip messages.  L{collectRecords
<txrocket.bulk.interface.Bulk.collectRecords>} checks the same.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final
from zlib import crc32

from txrocket.protocol.record import (
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE,
    PROPERTIES_LIMIT,
    STOREHOSTADDRESS_V6_FLAG,
    TOPIC_LIMIT,
)

__all__ = [
    "HEAD_SIZE",
    "SMALLEST",
    "Origin",
    "entryFault",
    "fits",
    "headFault",
    "recordFault",
    "storeTime",
]

#: How many bytes a record has at least: no body, topic and properties.
SMALLEST: Final = 91

# Size, magic code, CRC, queue id, queue offset, offset in the log, sysFlag.
_HEAD: Final = Struct(">4i4x2qi")
# The same and the length of the body, with two short addresses.
_WHOLE_HEAD: Final = Struct(">4i4x2qi44xi").unpack_from
_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")

#: Up to where a record's time is, with the longer address before it.
HEAD_SIZE: Final = 76


_V6: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG


class Origin:
    """
    The queue that entries are of, as records name it.
    """

    __slots__ = ("field", "name", "queueId", "topic")

    def __init__(self, topic: str, queueId: int) -> None:
        self.topic = topic
        self.queueId = queueId
        self.name = topic.encode("utf-8", "surrogateescape")
        self.field = bytes([len(self.name) & 255]) + self.name


def fits(
    data: bytes,
    position: int,
    size: int,
    offset: int,
    origin: Origin,
    queueOffset: int,
    checkBelow: int,
) -> bool:
    """
    Whether a record is sound, in most cases.  It costs a third of L{recordFault}, which
    decides the other cases.

    @param checkBelow: the body is compared with its CRC if the record is before this
        offset of the log.
    """
    end = position + size
    if size < SMALLEST or end > len(data):
        return False
    found, magic, crc, queueId, number, place, flags, bodySize = _WHOLE_HEAD(data, position)
    topicEnd = position + 88 + bodySize + len(origin.field)
    return (
        found == size
        and magic == MESSAGE_MAGIC_CODE
        and place == offset
        and number == queueOffset
        and queueId == origin.queueId
        and not flags & _V6
        and 0 <= bodySize < size
        and topicEnd + 2 <= end
        and data.startswith(origin.field, position + 88 + bodySize)
        and topicEnd + 2 + (data[topicEnd] << 8 | data[topicEnd + 1]) == end
        and data[topicEnd] < 128
        and (
            offset >= checkBelow
            or not bodySize
            or crc32(data[position + 88 : position + 88 + bodySize]) & 0x7FFFFFFF == crc
        )
    )


def entryFault(offset: int, size: int, first: int, end: int, largest: int) -> str | None:
    """
    Find the fault of an entry, before the log is read.

    @param first: where the log begins.
    @param end: where it ends.
    @param largest: how many bytes a record has at most.
    """
    if not SMALLEST <= size <= largest:
        return f"the queue's entry names a size of {size} bytes"
    if not first <= offset <= end - size:
        return f"the queue's entry names a place outside of the log, which has {first} to {end}"
    return None


def headFault(
    data: bytes, position: int, size: int, offset: int, origin: Origin, queueOffset: int
) -> str | None:
    """
    Find the fault in the head of a record.

    @param size: the entry's, as C{offset}.
    """
    try:
        found, magic, _, queueId, number, place, _ = _HEAD.unpack_from(data, position)
    except StructError:
        return "the file ends within it"
    if magic != MESSAGE_MAGIC_CODE:
        return f"its magic code is {magic & 0xFFFFFFFF:08X}"
    if found != size:
        return f"it has {found} bytes, and the queue's entry says {size}"
    if place != offset:
        return f"it names the place {place}"
    if queueId != origin.queueId:
        return f"it names queue {queueId}"
    if number != queueOffset:
        return f"it names the queue offset {number}"
    return None


def recordFault(
    data: bytes,
    position: int,
    size: int,
    offset: int,
    origin: Origin,
    queueOffset: int,
    *,
    checkBody: bool,
) -> str | None:
    """
    Find the fault of a record.

    @param data: bytes of the log.
    @param position: where in it the record begins.
    @param size: the entry's, as C{offset}.
    @param checkBody: whether to compare the body with its CRC.
    @return: L{None} if the record is the one that the entry stands for.
    """
    fault = headFault(data, position, size, offset, origin, queueOffset)
    if fault is not None:
        return fault
    if position + size > len(data):
        return "the file ends within it"
    _, _, crc, _, _, _, flags = _HEAD.unpack_from(data, position)
    start = position + 88
    if flags & _V6:
        start += 12 * bool(flags & BORNHOST_V6_FLAG) + 12 * bool(flags & STOREHOSTADDRESS_V6_FLAG)
    (bodySize,) = _INT.unpack_from(data, start - 4)
    topicAt = start + bodySize
    end = position + size
    if bodySize < 0 or topicAt + 3 > end:
        return f"its body has {bodySize} bytes, and all of it {size}"
    topicEnd = topicAt + 1 + data[topicAt]
    if data[topicAt] > TOPIC_LIMIT or topicEnd + 2 > end:
        return f"its topic has {data[topicAt]} bytes"
    properties = data[topicEnd] << 8 | data[topicEnd + 1]
    if properties > PROPERTIES_LIMIT or topicEnd + 2 + properties != end:
        return "its parts do not add up to its size"
    if data[topicAt + 1 : topicEnd] != origin.name:
        return f"it names the topic {data[topicAt + 1 : topicEnd]!r}"
    if checkBody and bodySize and crc32(data[start:topicAt]) & 0x7FFFFFFF != crc:
        return "its body does not match its CRC"
    return None


def storeTime(data: bytes, position: int = 0) -> int:
    """
    When a record was stored, by a head that L{headFault} has nothing against.
    """
    (flags,) = _INT.unpack_from(data, position + 36)
    timestamp: int = _LONG.unpack_from(data, position + (68 if flags & BORNHOST_V6_FLAG else 56))[0]
    return timestamp
