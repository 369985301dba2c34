# SPDX-License-Identifier: Apache-2.0
"""
Encode records; see L{txrocket.protocol.record} for the format.

A broker encodes a record for every message, so a record is packed by one C{struct} call
and one join.
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from txrocket.errors import InvalidMessage
from txrocket.message import MessageExt
from txrocket.protocol.record.fields import (
    BLANK_MAGIC_CODE,
    LAYOUTS,
    MESSAGE_MAGIC_CODE,
    PROPERTIES_LIMIT,
    V6_FLAGS,
    TopicField,
    encodeTopic,
    tooManyProperties,
)

__all__ = ["badHosts", "encodeBlank", "encodeMessageExt", "encodeRecord"]

_SIZE_AND_MAGIC: Final = struct.Struct(">2i")


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
    Encode a record.

    The lengths of the addresses set the V6 bits of C{sysFlag}, regardless of the
    client's bits, because a record with wrong bits cannot be decoded.

    @param body: the body, already compressed if C{sysFlag} says so.
    @param properties: the result of L{encodeProperties}, or the properties of a request.
    @param bornHost: the result of L{encodeHost}, as is C{storeHost}.
    @raise InvalidMessage: if the properties are too long, an address has a wrong length,
        or a number does not fit into its field.
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
            sysFlag & ~V6_FLAGS | flags,
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
    Create the error for addresses of wrong lengths.
    """
    return InvalidMessage(
        f"addresses of {len(bornHost)} and {len(storeHost)} bytes: 8 or 20 are allowed"
    )


def encodeMessageExt(message: MessageExt) -> bytes:
    """
    Encode the record of a message that a broker sends to a client.  Size and checksum are
    computed again.

    @raise InvalidMessage: see L{encodeRecord} and L{encodeTopic}.
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
    Encode the 8 bytes that are written of a blank, which fills the last C{size} bytes of a
    log file.
    """
    return _SIZE_AND_MAGIC.pack(size, BLANK_MAGIC_CODE)
