# SPDX-License-Identifier: Apache-2.0
"""
The parts of a record that are encoded ahead of it, since many records share
them: topic, addresses, properties::

    topic       | length 1 | UTF-8 |
    address     | IP 4 or 16 | port 4 |
    properties  | name 01 value 02 name 01 value |     (their length comes with the record)

L{txrocket.protocol.record} has them all under its own name as well.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from typing import Final, NewType

from txrocket.errors import InvalidMessage

__all__ = [
    "PROPERTIES_LIMIT",
    "TOPIC_LIMIT",
    "TopicField",
    "encodeHost",
    "encodeProperties",
    "encodeTopic",
    "joinProperties",
    "tooManyProperties",
]

# Java keeps the lengths in a signed byte and a signed short.
TOPIC_LIMIT: Final = 127
PROPERTIES_LIMIT: Final = 32767

TopicField = NewType("TopicField", bytes)
"""
A topic with its length before it, as L{encodeTopic} gives it: checked once for
the many records that it goes into.
"""


def encodeTopic(topic: str) -> TopicField:
    """
    Encode a topic for L{encodeRecord}.

    @raise InvalidMessage: if it is longer than 127 bytes, or no Unicode text.
    """
    data = _utf8(topic, "topic")
    if len(data) > TOPIC_LIMIT:
        raise InvalidMessage(f"topic of {len(data)} bytes: at most {TOPIC_LIMIT} are allowed")
    return TopicField(bytes((len(data),)) + data)


def encodeHost(host: str, port: int) -> bytes:
    """
    Encode an address: 8 bytes for IPv4, 20 for IPv6.

    @param host: an IP address; no name is looked up.
    @raise InvalidMessage: if it is none, or the port is none.
    """
    try:
        address = ipaddress.ip_address(host)
        # As in Java, an IPv4 client of a socket for both kinds stays an IPv4 client.
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return (mapped or address).packed + struct.pack(">HH", 0, port)
    except (ValueError, struct.error):
        raise InvalidMessage(f"address {host!r}:{port} is no IP address and port") from None


def joinProperties(properties: Mapping[str, str]) -> str:
    """
    Write properties as headers and records have them, without a separator at
    the end; L{txrocket.message.splitProperties} reads them.

    An entry with an empty name or value is written, as by Java, and skipped by
    every reader.

    @raise InvalidMessage: if a name or value holds a separator.
    """
    text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
    # Counting what has been joined is cheaper than searching all names and values.
    if text.count("\x01") != len(properties) or text.count("\x02") + 1 != (len(properties) or 1):
        raise InvalidMessage("a property's name or value holds \\x01 or \\x02")
    return text


def encodeProperties(properties: Mapping[str, str]) -> bytes:
    """
    Encode properties for L{encodeRecord}.

    @raise InvalidMessage: if a name or value holds a separator or is no Unicode
        text, or if all of them take more than 32767 bytes.
    """
    data = _utf8(joinProperties(properties), "properties")
    if len(data) > PROPERTIES_LIMIT:
        raise tooManyProperties(len(data))
    return data


def tooManyProperties(size: int) -> InvalidMessage:
    """
    Make the error for properties over the limit.
    """
    return InvalidMessage(f"properties of {size} bytes: at most {PROPERTIES_LIMIT} are allowed")


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidMessage(f"{what}: half of a surrogate pair is no Unicode text") from None
