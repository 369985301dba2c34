# SPDX-License-Identifier: Apache-2.0
"""
The message record: what the commit log holds, and what a pull answers with,
byte for byte the same.  Matches RocketMQ's C{MessageDecoder} and C{CommitLog}::

     at  size
      0     4  total size
      4     4  magic code DA A3 20 A7
      8     4  CRC-32 of the body, its top bit cleared
     12     4  queue id
     16     4  flag, the application's
     20     8  queue offset: the message's number in its queue
     28     8  physical offset: the record's place in the log
     36     4  sysFlag
     40     8  born timestamp, ms
     48     8  born host: IPv4 and port of 4 bytes   (20 with an IPv6 address)
     56     8  store timestamp, ms
     64     8  store host                            (20 with an IPv6 address)
     72     4  reconsume times
     76     8  prepared transaction offset
     84   4+n  body length, body
          1+n  topic length, topic
          2+n  properties length, properties: name 01 value 02 name 01 value

Integers are big-endian and signed.  Where a record does not fit into the rest of
a log file, a blank fills it: total size, magic code CB D4 31 94, and whatever
else was there.

Appending and pulling run through here for every message, so a record is packed
by one C{struct} call and one join, and read by one C{struct} call and three
slices; properties are split only when somebody asks (L{MessageExt}).
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import Final
from zlib import crc32

from msgspec.structs import force_setattr

from txrocket.compiled import speed
from txrocket.errors import InvalidMessage, MalformedRecord
from txrocket.message import MessageExt
from txrocket.protocol.compression import COMPRESSED_FLAG, INFLATED_LIMIT, inflated
from txrocket.protocol.parts import (
    PROPERTIES_LIMIT,
    TOPIC_LIMIT,
    TopicField,
    encodeHost,
    encodeProperties,
    encodeTopic,
    joinProperties,
    tooManyProperties,
)

__all__ = [
    "BLANK_MAGIC_CODE",
    "BLANK_SIZE",
    "BORNHOST_V6_FLAG",
    "MESSAGE_MAGIC_CODE",
    "MULTI_TAGS_FLAG",
    "PHYSICAL_OFFSET_POSITION",
    "PROPERTIES_LIMIT",
    "QUEUE_ID_POSITION",
    "QUEUE_OFFSET_POSITION",
    "STOREHOSTADDRESS_V6_FLAG",
    "SYS_FLAG_POSITION",
    "TOPIC_LIMIT",
    "TRANSACTION_COMMIT_TYPE",
    "TRANSACTION_NOT_TYPE",
    "TRANSACTION_PREPARED_TYPE",
    "TRANSACTION_ROLLBACK_TYPE",
    "TopicField",
    "decodeRecord",
    "decodeRecords",
    "encodeBlank",
    "encodeHost",
    "encodeMessageExt",
    "encodeProperties",
    "encodeRecord",
    "encodeTopic",
    "joinProperties",
    "measureRecord",
    "storeTimestampAt",
]

MESSAGE_MAGIC_CODE: Final = -626843481  # DA A3 20 A7
BLANK_MAGIC_CODE: Final = -875286124  # CB D4 31 94
BLANK_SIZE: Final = 8  # what is written of a blank

QUEUE_ID_POSITION: Final = 12
QUEUE_OFFSET_POSITION: Final = 20
PHYSICAL_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36

# sysFlag; the bits of compression are in L{txrocket.protocol.compression}.
MULTI_TAGS_FLAG: Final = 0x2
TRANSACTION_NOT_TYPE: Final = 0x0
TRANSACTION_PREPARED_TYPE: Final = 0x4
TRANSACTION_COMMIT_TYPE: Final = 0x8
TRANSACTION_ROLLBACK_TYPE: Final = 0xC  # also the mask over the four
BORNHOST_V6_FLAG: Final = 0x10
STOREHOSTADDRESS_V6_FLAG: Final = 0x20
_V6_FLAGS: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG

# Everything up to and including the body's length, by the V6 bits of sysFlag.
_HEADS: Final = {
    0: struct.Struct(">5i2qiq8sq8siqi"),
    BORNHOST_V6_FLAG: struct.Struct(">5i2qiq20sq8siqi"),
    STOREHOSTADDRESS_V6_FLAG: struct.Struct(">5i2qiq8sq20siqi"),
    _V6_FLAGS: struct.Struct(">5i2qiq20sq20siqi"),
}
_unpackV4 = _HEADS[0].unpack_from
_HEAD_V4: Final = _HEADS[0].size

# By the lengths of the two hosts: V6 bits, the record's size without body, topic
# and properties (2: the length of the last; a TopicField brings its own), packer.
LAYOUTS: Final = {
    (born, store): (flags, _HEADS[flags].size + 2, _HEADS[flags].pack)
    for born, store, flags in (
        (8, 8, 0),
        (20, 8, BORNHOST_V6_FLAG),
        (8, 20, STOREHOSTADDRESS_V6_FLAG),
        (20, 20, _V6_FLAGS),
    )
}

_SIZE_AND_MAGIC: Final = struct.Struct(">2i")
_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")

# A record of no body, topic and properties, with IPv4 addresses.
_SMALLEST: Final = _HEAD_V4 + 1 + 2

_CRC_FAULT: Final = "the body does not match its CRC"

# --- writing -------------------------------------------------------------


def encodeRecord(
    topic: TopicField,
    body: bytes,
    properties: bytes,
    queueId: int,
    flag: int,
    queueOffset: int,
    physicalOffset: int,
    sysFlag: int,
    bornTimestamp: int,
    bornHost: bytes,
    storeTimestamp: int,
    storeHost: bytes,
    reconsumeTimes: int = 0,
    preparedTransactionOffset: int = 0,
) -> bytes:
    """
    Build a record.

    The addresses' lengths decide over the V6 bits of C{sysFlag}, whatever a
    client put there: a record whose flags lie about its layout cannot be read.

    @param body: the body; compressed already if C{sysFlag} says so.
    @param properties: as L{encodeProperties} gives them, or as they came.
    @param bornHost: as L{encodeHost} gives it; C{storeHost} likewise.
    @raise InvalidMessage: if the properties are too long, an address has a
        wrong length or a number does not fit into its field.
    """
    try:
        flags, size, pack = LAYOUTS[len(bornHost), len(storeHost)]
        head = pack(
            size + len(body) + len(topic) + len(properties),
            MESSAGE_MAGIC_CODE,
            crc32(body) & 0x7FFFFFFF,
            queueId,
            flag,
            queueOffset,
            physicalOffset,
            sysFlag & ~_V6_FLAGS | flags,
            bornTimestamp,
            bornHost,
            storeTimestamp,
            storeHost,
            reconsumeTimes,
            preparedTransactionOffset,
            len(body),
        )
    except KeyError:
        raise badHosts(bornHost, storeHost) from None
    except struct.error as error:
        raise InvalidMessage(f"a number does not fit into its field: {error}") from None
    if len(properties) > PROPERTIES_LIMIT:
        raise tooManyProperties(len(properties))
    return b"".join((head, body, topic, len(properties).to_bytes(2, "big"), properties))


def badHosts(bornHost: bytes, storeHost: bytes) -> InvalidMessage:
    """
    Make the error for addresses of wrong lengths.
    """
    return InvalidMessage(
        f"addresses of {len(bornHost)} and {len(storeHost)} bytes: 8 or 20 are allowed"
    )


def encodeMessageExt(message: MessageExt) -> bytes:
    """
    Build the record of a message, as a broker does that shows one to a client.
    Size and checksum are computed anew.

    @raise InvalidMessage: as L{encodeRecord}, L{encodeTopic}.
    """
    return encodeRecord(
        encodeTopic(message.topic),
        message.body,
        message.propertiesData,
        message.queueId,
        message.flag,
        message.queueOffset,
        message.commitLogOffset,
        message.sysFlag,
        message.bornTimestamp,
        message.bornHostData,
        message.storeTimestamp,
        message.storeHostData,
        message.reconsumeTimes,
        message.preparedTransactionOffset,
    )


def encodeBlank(size: int) -> bytes:
    """
    Build the blank that fills the last C{size} bytes of a log file; the 8 bytes
    that are written of it.
    """
    return _SIZE_AND_MAGIC.pack(size, BLANK_MAGIC_CODE)


# --- reading -------------------------------------------------------------


def measureRecord(data: bytes | mmap, position: int = 0) -> tuple[int, int]:
    """
    Read how long a record or blank is, to go from one to the next.

    @return: the size and the magic code.  A record lies within C{data}; of a
        blank, only its first 8 bytes have to.
    @raise MalformedRecord: if there is neither.
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
    Read when a record was stored, and nothing else: a search by time looks at
    many records that way.

    @raise MalformedRecord: if there is no record.
    """
    _, magic = measureRecord(data, position)
    if magic != MESSAGE_MAGIC_CODE:
        raise _fault(data, position)
    (sysFlag,) = _INT.unpack_from(data, position + SYS_FLAG_POSITION)
    # After sysFlag and the born timestamp and host; a record has 91 bytes at least.
    timestamp: int = _LONG.unpack_from(data, position + (68 if sysFlag & BORNHOST_V6_FLAG else 56))[
        0
    ]
    return timestamp


def decodeRecord(
    data: bytes | mmap,
    position: int = 0,
    *,
    readBody: bool = True,
    checkCrc: bool = False,
    brokerName: str = "",
) -> MessageExt:
    """
    Read a record.

    @param data: what holds it; all lengths are checked against it.
    @param readBody: whether to copy the body.  Without it the message has an
        empty one, which is enough to file it in queue and index.
    @param checkCrc: whether to check the body against its checksum.
    @param brokerName: whom the record comes from.
    @return: the message; its body is as stored, see L{inflated}.
    @raise MalformedRecord: if there is no sound record at C{position}; a blank
        is none.
    """
    try:
        head = _unpackV4(data, position)
        start = position + _HEAD_V4
        v6 = head[7] & _V6_FLAGS
        if v6:
            layout = _HEADS[v6]
            head = layout.unpack_from(data, position)
            start = position + layout.size
        (
            size,
            magic,
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
            bodyLength,
        ) = head
        bodyEnd = start + bodyLength
        topicLength = data[bodyEnd]
        topicEnd = bodyEnd + 1 + topicLength
        propertiesLength = data[topicEnd] << 8 | data[topicEnd + 1]
    except (struct.error, IndexError):
        raise _fault(data, position) from None
    end = topicEnd + 2 + propertiesLength
    if (
        magic != MESSAGE_MAGIC_CODE
        or end - position != size
        or end > len(data)
        or bodyLength < 0
        or topicLength > TOPIC_LIMIT
        or propertiesLength > PROPERTIES_LIMIT
        or position < 0
    ):
        raise _fault(data, position)
    body = data[start:bodyEnd] if readBody or checkCrc else b""
    # Java does not look at the checksum of an empty body either.
    if checkCrc and bodyLength and crc32(body) & 0x7FFFFFFF != crc:
        raise MalformedRecord(f"record at {position}: {_CRC_FAULT}")
    try:
        topic = str(data[bodyEnd + 1 : topicEnd], "utf-8")
    except UnicodeDecodeError:
        raise MalformedRecord(f"record at {position}: the topic is no UTF-8") from None
    return MessageExt(
        topic,
        body if readBody else b"",
        flag,
        data[topicEnd + 2 : end],
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
    Read the records of a pull: one after the other, and nothing besides.

    @param checkCrc: whether to check bodies against their checksums.
    @param inflate: whether to undo compression.  A consumer that wants to get
        past one bad message takes them as they are and calls L{inflated} on each.
    @param limit: how many bytes a compressed body may become.
    @param appended: what the properties of each get in addition, each with a separator
        before it.
    @raise MalformedRecord: if a record is torn or damaged.
    @raise UnsupportedCompression: if a body cannot be inflated here.
    """
    if checkCrc and speed is not None and speed.readableRecords(data) == len(data):
        checkCrc = False
    messages = []
    position = 0
    stop = len(data)
    topicData, topic = b"", ""
    while position < stop:
        # What decodeRecord does, for most records; a third less than calling it, since
        # the records of a pull have one topic.
        try:
            (
                size,
                magic,
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
                bodyLength,
            ) = _unpackV4(data, position)
            bodyEnd = position + _HEAD_V4 + bodyLength
            topicEnd = bodyEnd + 1 + data[bodyEnd]
            start = topicEnd + 2
            end = start + (data[topicEnd] << 8 | data[topicEnd + 1])
        except (struct.error, IndexError):
            # It may be sound all the same, with addresses of another length.
            magic = 0
        if (
            magic != MESSAGE_MAGIC_CODE
            or end - position != size
            or end > stop
            or bodyLength < 0
            or end - start > PROPERTIES_LIMIT
            or sysFlag & _V6_FLAGS
            or data[bodyEnd:topicEnd] != topicData
        ):
            # A record without a checksum has 0 there.
            checked = checkCrc and data[position + 8 : position + 12] != bytes(4)
            message = decodeRecord(data, position, checkCrc=checked, brokerName=brokerName)
            force_setattr(message, "propertiesData", message.propertiesData + appended)
            topicData, topic = encodeTopic(message.topic), message.topic
        else:
            body = data[position + _HEAD_V4 : bodyEnd]
            if checkCrc and body and crc and crc32(body) & 0x7FFFFFFF != crc:
                raise MalformedRecord(f"record at {position}: {_CRC_FAULT}")
            message = MessageExt(
                topic,
                body,
                flag,
                data[start:end] + appended,
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
        if inflate and sysFlag & COMPRESSED_FLAG:
            try:
                message = inflated(message, limit)
            except MalformedRecord as error:
                raise MalformedRecord(f"record at {position}: {error}") from None
        position += size
        messages.append(message)
    return messages


def _fault(data: bytes | mmap, position: int) -> MalformedRecord:
    """
    Find what is wrong with a record that has not passed the checks; they only
    see that something is.
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
