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
properties of the request itself added to the message's own:
L{batchRecords<txrocket.bulk.interface.Bulk.batchRecords>}.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from txrocket.errors import InvalidMessage, MalformedRecord, MessageTooLarge
from txrocket.message import PROPERTY_UNIQ_KEY, TIMER_PROPERTIES, Message, splitProperties
from txrocket.protocol.names import RETRY_PREFIX
from txrocket.protocol.record.fields import (
    PROPERTIES_LIMIT,
    encodeProperties,
    tooManyProperties,
)

__all__ = [
    *("BATCH_LIMIT", "batchItems", "decodeBatch", "encodeBatch", "encodeItem", "splitBatch"),
]

#: The maximum number of messages in a batch, because a broker appends a batch in one
#: turn.
BATCH_LIMIT: Final = 14000

_ITEM: Final = struct.Struct(">5i")
_TIMERS: Final = frozenset(TIMER_PROPERTIES)

# A unique id as a property; one with an IPv6 address has 56 digits.
_UNIQUE_SIZE: Final = len(PROPERTY_UNIQ_KEY) + 1 + 56


def encodeBatch(messages: Sequence[Message]) -> bytes:
    """
    Encode messages as the body of a batch request.

    @raise InvalidMessage: if the messages cannot be sent together, or one of them exceeds
        a limit, or there are more than L{BATCH_LIMIT}.  As in RocketMQ's C{MessageBatch},
        all must have one topic, which is not a retry topic, no delay, and the same
        C{waitStoreMsgOK}.
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

    @param properties: the result of L{encodeProperties
        <txrocket.protocol.record.fields.encodeProperties>}.
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
    Divide messages, in their order, into batches whose bodies stay within a size.  The
    size includes a unique id for each message that has none yet.

    @param limit: the maximum size in bytes; brokers accept 4 MiB by default.
    @raise MessageTooLarge: if one message alone exceeds the limit.
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
    Decode the body of a batch request.

    @param topic: the topic of the request, which the body does not contain.
    @raise MalformedRecord: if a length does not fit, or if the batch is empty.
    """
    messages = []
    for flag, start, bodyEnd, end in batchItems(data):
        properties = splitProperties(str(data[bodyEnd + 2 : end], "utf-8", "replace"))
        messages.append(Message(topic, data[start:bodyEnd], flag=flag, properties=properties))
    return messages


def batchItems(data: bytes) -> list[tuple[int, int, int, int]]:
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
