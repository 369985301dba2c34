# SPDX-License-Identifier: Apache-2.0
"""
Errors of the wire and file formats: bytes that break a format, and messages that
exceed a limit of it.

A decoder raises a L{ProtocolError}; an encoder raises an L{InvalidMessage}.
"""

from __future__ import annotations

from txrocket.errors.base import RocketError

__all__ = [
    "FrameTooLarge",
    "HeaderOverLimit",
    "HeaderTooLong",
    "InvalidFrameLength",
    "InvalidMessage",
    "MalformedBody",
    "MalformedField",
    "MalformedHeader",
    "MalformedRecord",
    "MalformedReplication",
    "MalformedTrace",
    "MessageTooLarge",
    "MissingField",
    "ProtocolError",
    "UnknownSerializeType",
    "UnsupportedCompression",
]


class ProtocolError(RocketError):
    """
    Bytes from a peer or a file break the format.
    """


class FrameTooLarge(ProtocolError):
    """
    A frame announces more bytes than this end accepts.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"frame of {size} bytes is larger than the limit of {limit}")
        self.size = size
        self.limit = limit


class HeaderOverLimit(ProtocolError):
    """
    A frame announces a longer header than this end accepts.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"header of {size} bytes is larger than the limit of {limit},"
            " com.rocketmq.remoting.headerMaxLength"
        )
        self.size = size
        self.limit = limit


class InvalidFrameLength(ProtocolError):
    """
    A frame's length is negative, or too small to hold a header length.
    """

    def __init__(self, size: int) -> None:
        super().__init__(f"frame length {size}: a frame has at least 4 bytes")
        self.size = size


class HeaderTooLong(ProtocolError):
    """
    A header announces more bytes than its frame holds.
    """

    def __init__(self, size: int, room: int) -> None:
        super().__init__(f"header of {size} bytes in a frame with room for {room}")
        self.size = size
        self.room = room


class UnknownSerializeType(ProtocolError):
    """
    A header is neither JSON (0) nor RocketMQ's binary form (1).
    """

    def __init__(self, serializeType: int) -> None:
        super().__init__(f"unknown header serialize type {serializeType}")
        self.serializeType = serializeType


class MalformedHeader(ProtocolError):
    """
    A frame's header is truncated, is not valid JSON, or has members of wrong types.
    """


class MissingField(ProtocolError):
    """
    A header lacks a required field.
    """

    def __init__(self, header: str, field: str) -> None:
        super().__init__(f"{header}: field {field} is missing")
        self.header = header
        self.field = field


class MalformedField(ProtocolError):
    """
    A field of a header has a value that its type does not allow.
    """

    def __init__(self, header: str, field: str, reason: str) -> None:
        super().__init__(f"{header}: field {field}: {reason}")
        self.header = header
        self.field = field
        self.reason = reason


class MalformedBody(ProtocolError):
    """
    A body is not the JSON value that its request code requires.
    """


class MalformedRecord(ProtocolError):
    """
    A message record breaks the format, or its body does not match its CRC.
    """


class MalformedReplication(ProtocolError):
    """
    Bytes of the replication stream break the format, or do not match their CRC.
    """


class MalformedTrace(ProtocolError):
    """
    The body of a message trace, as a client wrote it, breaks the format.
    """


class UnsupportedCompression(ProtocolError):
    """
    A body is compressed with a method that no installed library can decompress.
    """


class InvalidMessage(RocketError):
    """
    A message exceeds a limit of the format.  It was neither sent nor stored.
    """


class MessageTooLarge(InvalidMessage):
    """
    A message is larger than the store accepts.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"message of {size} bytes is larger than the limit of {limit}")
        self.size = size
        self.limit = limit
