# SPDX-License-Identifier: Apache-2.0
"""
Batches: many messages of one topic in the body of one request.  A client sends
them in a short form (RocketMQ's C{MessageDecoder.encodeMessages})::

    size  4    total size
          4    magic code: 0, nobody reads it
          4    CRC: 0, nobody reads it
          4    flag
        4+n    body length, body
        2+n    properties length, properties

and the broker makes a record of each (C{CommitLog.MessageExtEncoder}), with the
properties of the request itself added to the message's own.  At hundreds of
thousands of messages a second, that loop is the hottest of all: what the
batch's records share is packed once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from zlib import crc32

from txrocket.compiled import speed
from txrocket.errors import InvalidMessage, MalformedRecord, MessageTooLarge
from txrocket.message import PROPERTY_UNIQ_KEY, TIMER_PROPERTIES, Message, splitProperties
from txrocket.protocol.names import RETRY_PREFIX
from txrocket.protocol.parts import (
    PROPERTIES_LIMIT,
    TopicField,
    encodeProperties,
    tooManyProperties,
)
from txrocket.protocol.record import (
    BORNHOST_V6_FLAG,
    LAYOUTS,
    MESSAGE_MAGIC_CODE,
    STOREHOSTADDRESS_V6_FLAG,
    badHosts,
)

__all__ = [
    *("BATCH_LIMIT", "batchRecords", "decodeBatch", "encodeBatch", "encodeItem", "splitBatch"),
]

#: How many messages a batch may have.  A broker stores a batch in one turn, which takes
#: it 40 ms for so many.
BATCH_LIMIT: Final = 14000

_ITEM: Final = struct.Struct(">5i")
_SEPARATOR: Final = 0x02
_TIMERS: Final = frozenset(TIMER_PROPERTIES)

# A unique id as a property; one with an IPv6 address has 56 digits.
_UNIQUE_SIZE: Final = len(PROPERTY_UNIQ_KEY) + 1 + 56

# sysFlag to prepared transaction offset: the same in all records of a batch.
_SHARED: Final = {(born, store): struct.Struct(f">iq{born}sq{store}siq") for born, store in LAYOUTS}
# The records' heads, by the length of that part.
_HEADS: Final = {
    size: struct.Struct(f">5i2q{size}si") for size in {shared.size for shared in _SHARED.values()}
}


def encodeBatch(messages: Sequence[Message]) -> bytes:
    """
    Encode messages as the body of a batch request.

    @raise InvalidMessage: if they cannot be sent together (RocketMQ's
        C{MessageBatch}: one topic and none of a retry topic, no delay, all
        waiting for storage or none), or one of them breaks a limit, or there are
        more than L{BATCH_LIMIT}.
    """
    if not messages:
        raise InvalidMessage("a batch has at least one message")
    if len(messages) > BATCH_LIMIT:
        raise _tooMany()
    first = messages[0]
    if first.topic.startswith(RETRY_PREFIX):
        raise InvalidMessage("messages of a retry topic cannot be sent as a batch")
    parts: list[bytes] = []
    for message in messages:
        if message.delayTimeLevel > 0 or not _TIMERS.isdisjoint(message.properties):
            raise InvalidMessage("delayed messages cannot be sent as a batch")
        if message.topic != first.topic:
            raise InvalidMessage("the messages of a batch have one topic")
        if message.waitStoreMsgOK != first.waitStoreMsgOK:
            raise InvalidMessage("the messages of a batch all have one waitStoreMsgOK")
        parts.append(encodeItem(message.body, encodeProperties(message.properties), message.flag))
    return b"".join(parts)


def encodeItem(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    """
    Encode one message of a batch.

    @param properties: as L{encodeProperties
        <txrocket.protocol.parts.encodeProperties>} gives them.
    @raise InvalidMessage: if the properties are too long, or the flag does not fit.
    """
    length = len(properties)
    if length > PROPERTIES_LIMIT:
        raise tooManyProperties(length)
    try:
        head = _ITEM.pack(_ITEM.size + len(body) + 2 + length, 0, 0, flag, len(body))
    except struct.error as error:
        raise InvalidMessage(f"a number does not fit into its field: {error}") from None
    return b"".join((head, body, length.to_bytes(2, "big"), properties))


def splitBatch(messages: Iterable[Message], limit: int) -> Iterator[list[Message]]:
    """
    Divide messages, in their order, into batches whose bodies stay within a size.
    Room is left for the unique ids of those that have none yet.

    @param limit: in bytes; brokers take 4 MiB by default.
    @raise MessageTooLarge: if a message alone does not.
    @raise InvalidMessage: if a message cannot be encoded.
    """
    batch: list[Message] = []
    size = 0
    for message in messages:
        properties = message.properties
        own = _ITEM.size + len(message.body) + 2 + len(encodeProperties(properties))
        if PROPERTY_UNIQ_KEY not in properties:
            own += _UNIQUE_SIZE + bool(properties)
        if own > limit:
            raise MessageTooLarge(own, limit)
        if batch and (size + own > limit or len(batch) == BATCH_LIMIT):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += own
    if batch:
        yield batch


def decodeBatch(data: bytes, topic: str) -> list[Message]:
    """
    Read the body of a batch request.

    @param topic: the request's: the messages do not repeat it.
    @raise MalformedRecord: if a length does not fit, or if there is no message.
    """
    messages = []
    for flag, start, bodyEnd, end in _items(data):
        properties = splitProperties(str(data[bodyEnd + 2 : end], "utf-8", "replace"))
        messages.append(Message(topic, data[start:bodyEnd], flag=flag, properties=properties))
    return messages


def _items(data: bytes) -> list[tuple[int, int, int, int]]:
    """
    Find the messages of a batch and check all lengths.

    @return: for each, its flag, where its body starts, where the body ends and
        the properties' length starts, and where it ends.
    """
    items = []
    position = 0
    while position < len(data):
        try:
            size, _, _, flag, bodyLength = _ITEM.unpack_from(data, position)
            start = position + 20
            bodyEnd = start + bodyLength
            propertiesLength = data[bodyEnd] << 8 | data[bodyEnd + 1]
        except (struct.error, IndexError):
            raise MalformedRecord(f"batch message at {position}: torn") from None
        end = bodyEnd + 2 + propertiesLength
        if (
            end - position != size
            or end > len(data)
            or bodyLength < 0
            or propertiesLength > PROPERTIES_LIMIT
        ):
            reason = f"size {size} is not that of its body and properties"
            raise MalformedRecord(f"batch message at {position}: {reason}")
        items.append((flag, start, bodyEnd, end))
        if len(items) > BATCH_LIMIT:
            raise _tooMany()
        position = end
    if not items:
        raise MalformedRecord("batch without a message")
    return items


def _tooMany() -> InvalidMessage:
    return InvalidMessage(f"a batch of more than {BATCH_LIMIT} messages, which is the limit")


def batchRecords(
    data: bytes,
    topic: TopicField,
    properties: bytes,
    queueId: int,
    queueOffset: int,
    physicalOffset: int,
    sysFlag: int,
    bornTimestamp: int,
    bornHost: bytes,
    storeTimestamp: int,
    storeHost: bytes,
    reconsumeTimes: int = 0,
    told: bool = True,
) -> tuple[bytes, list[int], list[bytes]]:
    """
    Make log records of a batch request's body.

    @param properties: those of the request, added to every message's own.
    @param queueOffset: of the first record; the others follow.
    @param physicalOffset: likewise.
    @param told: whether the properties are asked for.
    @return: the records, one after the other, the size of each, and its properties.
    @raise MalformedRecord: if a length in C{data} does not fit.
    @raise InvalidMessage: as L{encodeRecord<txrocket.protocol.record.encodeRecord>}, and
        if there are more than L{BATCH_LIMIT} messages.
    """
    if speed is not None:
        made: tuple[bytes, list[int], list[bytes]] | None = speed.batchRecords(
            data,
            topic,
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
            told,
        )
        # What it leaves to us is mostly wrong, and told so below.
        if made is not None:
            if len(made[1]) > BATCH_LIMIT:
                raise _tooMany()
            return made
    try:
        flags, base, _ = LAYOUTS[len(bornHost), len(storeHost)]
        sysFlag = sysFlag & ~(BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG) | flags
        shared = _SHARED[len(bornHost), len(storeHost)].pack(
            sysFlag, bornTimestamp, bornHost, storeTimestamp, storeHost, reconsumeTimes, 0
        )
        pack = _HEADS[len(shared)].pack
        base += len(topic)
        parts: list[bytes] = []
        sizes = []
        said = []
        for flag, start, bodyEnd, end in _items(data):
            body = data[start:bodyEnd]
            own = data[bodyEnd + 2 : end]
            if own and properties and own[-1] != _SEPARATOR:
                own += b"\x02"
            own += properties
            length = len(own)
            if length > PROPERTIES_LIMIT:
                raise tooManyProperties(length)
            size = base + len(body) + length
            head = pack(
                size,
                MESSAGE_MAGIC_CODE,
                crc32(body) & 0x7FFFFFFF,
                queueId,
                flag,
                queueOffset,
                physicalOffset,
                shared,
                len(body),
            )
            parts += (head, body, topic, length.to_bytes(2, "big"), own)
            said.append(own)
            sizes.append(size)
            queueOffset += 1
            physicalOffset += size
    except KeyError:
        raise badHosts(bornHost, storeHost) from None
    except struct.error as error:
        raise InvalidMessage(f"a number does not fit into its field: {error}") from None
    return b"".join(parts), sizes, said
