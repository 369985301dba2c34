# SPDX-License-Identifier: Apache-2.0
"""
Decode records; see L{txrocket.protocol.record} for the format.

A consumer decodes a record for every message, so a record is read by one C{struct} call
and three slices.  Properties are not split here but at their first access
(L{MessageExt}).
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import Any, Final
from zlib import crc32

from txrocket.errors import MalformedRecord
from txrocket.message import MessageExt
from txrocket.protocol.compression import COMPRESSED_FLAG, INFLATED_LIMIT, inflated
from txrocket.protocol.record.fields import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BORNHOST_V6_FLAG,
    HEADS,
    MESSAGE_MAGIC_CODE,
    PROPERTIES_LIMIT,
    SYS_FLAG_POSITION,
    TOPIC_LIMIT,
    V6_FLAGS,
)

__all__ = ["decodeRecord", "decodeRecords", "measureRecord", "storeTimestampAt"]

_unpackV4 = HEADS[0].unpack_from
_HEAD_V4: Final = HEADS[0].size

_SIZE_AND_MAGIC: Final = struct.Struct(">2i")
_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")

# The size of a record without body, topic and properties, with IPv4 addresses.
_SMALLEST: Final = _HEAD_V4 + 1 + 2

_CRC_FAULT: Final = "the body does not match its CRC"


def measureRecord(data: bytes | mmap, position: int = 0) -> tuple[int, int]:
    """
    Read the size of a record or blank, to find the next one.

    @return: the size and the magic code.  A whole record lies within C{data}; of a blank,
        only the first 8 bytes must.
    @raise MalformedRecord: if neither a record nor a blank begins there.
    """
    try:
        size, magic = _SIZE_AND_MAGIC.unpack_from(data, position)
    except struct.error:
        raise _fault(data, position) from None
    if magic == MESSAGE_MAGIC_CODE:
        sound = _SMALLEST <= size <= len(data) - position
    else:
        sound = magic == BLANK_MAGIC_CODE and size >= BLANK_SIZE
    if not sound or position < 0:
        raise _fault(data, position)
    return size, magic


def storeTimestampAt(data: bytes | mmap, position: int = 0) -> int:
    """
    Read only the store timestamp of a record, for a search by time, which looks at many
    records.

    @raise MalformedRecord: if no record begins there.
    """
    _, magic = measureRecord(data, position)
    if magic != MESSAGE_MAGIC_CODE:
        raise _fault(data, position)
    (sysFlag,) = _INT.unpack_from(data, position + SYS_FLAG_POSITION)
    # It follows the born host.  measureRecord has checked that the record is long enough.
    timestamp: int = _LONG.unpack_from(data, position + (68 if sysFlag & BORNHOST_V6_FLAG else 56))[
        0
    ]
    return timestamp


def _readHead(data: bytes | mmap, position: int) -> tuple[tuple[Any, ...], int, int, int, int]:
    """
    Read the head of a record and check all lengths.

    @return: the fields up to the body's length, where the body starts and ends, and where
        the topic and the record end.
    @raise MalformedRecord: if no valid record begins at C{position}.
    """
    try:
        head = _unpackV4(data, position)
        start = position + _HEAD_V4
        v6 = head[7] & V6_FLAGS
        if v6:
            layout = HEADS[v6]
            head = layout.unpack_from(data, position)
            start = position + layout.size
        bodyLength = head[14]
        bodyEnd = start + bodyLength
        topicLength = data[bodyEnd]
        topicEnd = bodyEnd + 1 + topicLength
        propertiesLength = data[topicEnd] << 8 | data[topicEnd + 1]
    except (struct.error, IndexError):
        raise _fault(data, position) from None
    end = topicEnd + 2 + propertiesLength
    if (
        head[1] != MESSAGE_MAGIC_CODE
        or end - position != head[0]
        or end > len(data)
        or bodyLength < 0
        or topicLength > TOPIC_LIMIT
        or propertiesLength > PROPERTIES_LIMIT
        or position < 0
    ):
        raise _fault(data, position)
    return head, start, bodyEnd, topicEnd, end


def _message(
    head: tuple[Any, ...], topic: str, body: bytes, properties: bytes, brokerName: str
) -> MessageExt:
    (
        size,
        _,
        crc,
        queueId,
        flag,
        queueOffset,
        physicalOffset,
        sysFlag,
        bornTimestamp,
        bornHost,
        storeTimestamp,
        storeHost,
        reconsumeTimes,
        preparedTransactionOffset,
        _,
    ) = head
    return MessageExt(
        topic,
        body,
        flag,
        properties,
        queueId,
        queueOffset,
        physicalOffset,
        sysFlag,
        bornTimestamp,
        bornHost,
        storeTimestamp,
        storeHost,
        reconsumeTimes,
        preparedTransactionOffset,
        crc,
        size,
        brokerName,
    )


def _topicText(data: bytes, position: int) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise MalformedRecord(f"record at {position}: the topic is not UTF-8") from None


def decodeRecord(
    data: bytes | mmap,
    position: int = 0,
    *,
    readBody: bool = True,
    checkCrc: bool = False,
    brokerName: str = "",
) -> MessageExt:
    """
    Decode a record.

    @param data: the bytes that contain it; all lengths are checked against them.
    @param readBody: whether to copy the body.  Without it the message has an empty body,
        which is enough to dispatch the message to queue and index.
    @param checkCrc: whether to check the body against its checksum.
    @param brokerName: the broker that sent the record.
    @return: the message.  Its body is as stored, see L{inflated}.
    @raise MalformedRecord: if no valid record begins at C{position}, for example a blank.
    """
    head, start, bodyEnd, topicEnd, end = _readHead(data, position)
    body = data[start:bodyEnd] if readBody or checkCrc else b""
    # As in Java, the checksum of an empty body is not checked.
    if checkCrc and body and crc32(body) & 0x7FFFFFFF != head[2]:
        raise MalformedRecord(f"record at {position}: {_CRC_FAULT}")
    topic = _topicText(data[bodyEnd + 1 : topicEnd], position)
    properties = data[topicEnd + 2 : end]
    return _message(head, topic, body if readBody else b"", properties, brokerName)


def decodeRecords(
    data: bytes,
    *,
    checkCrc: bool = False,
    inflate: bool = True,
    limit: int = INFLATED_LIMIT,
    brokerName: str = "",
    appended: bytes = b"",
) -> list[MessageExt]:
    """
    Decode the records of a pull, one after the other.

    @param checkCrc: whether to check bodies against their checksums.  A checksum of 0 is
        not checked.
    @param inflate: whether to decompress bodies.  A consumer that has to get past one bad
        message decodes without it and calls L{inflated} for each message.
    @param limit: the maximum size of a decompressed body.
    @param appended: properties to append to those of each message, each with a separator
        before it.
    @raise MalformedRecord: if a record is torn or damaged.
    @raise UnsupportedCompression: if a body cannot be decompressed here.
    """
    messages = []
    position = 0
    stop = len(data)
    topicData, topic = b"", ""
    while position < stop:
        head, start, bodyEnd, topicEnd, end = _readHead(data, position)
        body = data[start:bodyEnd]
        crc = head[2]
        if checkCrc and body and crc and crc32(body) & 0x7FFFFFFF != crc:
            raise MalformedRecord(f"record at {position}: {_CRC_FAULT}")
        # The records of a pull usually have one topic, so decode it once.
        if data[bodyEnd + 1 : topicEnd] != topicData:
            topicData = data[bodyEnd + 1 : topicEnd]
            topic = _topicText(topicData, position)
        properties = data[topicEnd + 2 : end] + appended
        message = _message(head, topic, body, properties, brokerName)
        if inflate and head[7] & COMPRESSED_FLAG:
            try:
                message = inflated(message, limit)
            except MalformedRecord as error:
                raise MalformedRecord(f"record at {position}: {error}") from None
        position = end
        messages.append(message)
    return messages


def _fault(data: bytes | mmap, position: int) -> MalformedRecord:
    """
    Create the error for a record that failed a check, with its reason.
    """
    room = len(data) - position
    if position < 0 or room < _SIZE_AND_MAGIC.size:
        return MalformedRecord(f"record at {position}: the data ends at {len(data)}")
    size, magic = _SIZE_AND_MAGIC.unpack_from(data, position)
    if magic not in (MESSAGE_MAGIC_CODE, BLANK_MAGIC_CODE):
        reason = f"magic code {magic & 0xFFFFFFFF:08X}"
    elif magic == BLANK_MAGIC_CODE:
        reason = f"a blank of {size} bytes"
    elif size < _SMALLEST:
        reason = f"size {size}, but the smallest record has {_SMALLEST} bytes"
    elif size > room:
        reason = f"size {size}, but there are only {room} bytes"
    else:
        reason = f"size {size} is not that of its body, topic and properties"
    return MalformedRecord(f"record at {position}: {reason}")
