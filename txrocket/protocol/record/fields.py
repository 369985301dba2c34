# SPDX-License-Identifier: Apache-2.0
"""
The layout of a record's head, and the fields that are encoded before the record,
because many records share them: topic, addresses and properties::

    topic       | length 1 | UTF-8 |
    address     | IP 4 or 16 | port 4 |
    properties  | name 01 value 02 name 01 value |     (their length comes with the record)

L{txrocket.protocol.record} exports all of them, too.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from typing import Final, NewType

from txrocket.errors import InvalidMessage

__all__ = [
    "BLANK_MAGIC_CODE",
    "BLANK_SIZE",
    "BORNHOST_V6_FLAG",
    "HEADS",
    "LAYOUTS",
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
    "V6_FLAGS",
    "TopicField",
    "encodeHost",
    "encodeProperties",
    "encodeTopic",
    "joinProperties",
    "tooManyProperties",
]

MESSAGE_MAGIC_CODE: Final = -626843481  # DA A3 20 A7
BLANK_MAGIC_CODE: Final = -875286124  # CB D4 31 94
BLANK_SIZE: Final = 8  # the bytes of a blank that are written

QUEUE_ID_POSITION: Final = 12
QUEUE_OFFSET_POSITION: Final = 20
PHYSICAL_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36

# Bits of sysFlag; those of compression are in txrocket.protocol.compression.
MULTI_TAGS_FLAG: Final = 0x2
TRANSACTION_NOT_TYPE: Final = 0x0
TRANSACTION_PREPARED_TYPE: Final = 0x4
TRANSACTION_COMMIT_TYPE: Final = 0x8
TRANSACTION_ROLLBACK_TYPE: Final = 0xC  # also the mask over the four
BORNHOST_V6_FLAG: Final = 0x10
STOREHOSTADDRESS_V6_FLAG: Final = 0x20
V6_FLAGS: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG

# Everything up to and including the body's length, by the V6 bits of sysFlag.
HEADS: Final = {
    0: struct.Struct(">5i2qiq8sq8siqi"),
    BORNHOST_V6_FLAG: struct.Struct(">5i2qiq20sq8siqi"),
    STOREHOSTADDRESS_V6_FLAG: struct.Struct(">5i2qiq8sq20siqi"),
    V6_FLAGS: struct.Struct(">5i2qiq20sq20siqi"),
}

# By the lengths of the two hosts: the V6 bits of sysFlag, the record's size without body,
# topic and properties, and the function that packs the head.  The size includes the 2
# bytes of the properties' length, but not the topic's length, which is in a TopicField.
LAYOUTS: Final = {
    (born, store): (flags, HEADS[flags].size + 2, HEADS[flags].pack)
    for born, store, flags in (
        (8, 8, 0),
        (20, 8, BORNHOST_V6_FLAG),
        (8, 20, STOREHOSTADDRESS_V6_FLAG),
        (20, 20, V6_FLAGS),
    )
}

# Java stores the lengths in a signed byte and a signed short.
TOPIC_LIMIT: Final = 127
PROPERTIES_LIMIT: Final = 32767

TopicField = NewType("TopicField", bytes)
"""
A topic with its length, as L{encodeTopic} returns it: encoded and checked once for many
records.
"""


def encodeTopic(topic: str) -> TopicField:
    """
    Encode a topic for L{encodeRecord}.

    @raise InvalidMessage: if it is longer than 127 bytes, or has a lone surrogate.
    """
    data = _utf8(topic, "topic")
    if len(data) > TOPIC_LIMIT:
        raise InvalidMessage(f"topic of {len(data)} bytes: at most {TOPIC_LIMIT} are allowed")
    return TopicField(bytes((len(data),)) + data)


def encodeHost(host: str, port: int) -> bytes:
    """
    Encode an address: 8 bytes for IPv4, 20 for IPv6.

    @param host: an IP address, not a host name.
    @raise InvalidMessage: if the address or the port is not valid.
    """
    try:
        address = ipaddress.ip_address(host)
        # As in Java, an IPv4 address that an IPv6 socket reports stays an IPv4 address.
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return (mapped or address).packed + struct.pack(">HH", 0, port)
    except (ValueError, struct.error):
        raise InvalidMessage(f"{host!r}:{port} is not an IP address and port") from None


def joinProperties(properties: Mapping[str, str]) -> str:
    """
    Join properties to the text of headers and records, without a separator at the end;
    L{txrocket.message.splitProperties} is the inverse.

    As in Java, an entry with an empty name or value is written, although every reader
    skips it.

    @raise InvalidMessage: if a name or value contains a separator.
    """
    text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
    # Counting the separators of the result is cheaper than searching all names and values.
    if text.count("\x01") != len(properties) or text.count("\x02") + 1 != (len(properties) or 1):
        raise InvalidMessage("a property's name or value contains \\x01 or \\x02")
    return text


def encodeProperties(properties: Mapping[str, str]) -> bytes:
    """
    Encode properties for L{encodeRecord}.

    @raise InvalidMessage: if a name or value contains a separator or a lone surrogate, or
        if the result is longer than 32767 bytes.
    """
    data = _utf8(joinProperties(properties), "properties")
    if len(data) > PROPERTIES_LIMIT:
        raise tooManyProperties(len(data))
    return data


def tooManyProperties(size: int) -> InvalidMessage:
    """
    Create the error for properties over the limit.
    """
    return InvalidMessage(f"properties of {size} bytes: at most {PROPERTIES_LIMIT} are allowed")


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidMessage(f"{what}: a lone surrogate is not valid Unicode") from None
