# SPDX-License-Identifier: Apache-2.0
"""
The body of REGISTER_BROKER, what a broker tells a name server every thirty
seconds; Java's C{RegisterBrokerBody}.

It is JSON, or where the request's header says C{compressed=true} the zlib stream
of::

    +----------+------------------------+
    | length 4 | DataVersion as JSON    |
    +----------+------------------------+
    | count 4  |
    +----------+------------------------+
    | length 4 | topic                  |   count times
    +----------+------------------------+
    | length 4 | filter servers as JSON |
    +----------+------------------------+

    topic:  name readQueueNums writeQueueNums perm topicFilterType

with one blank between a topic's words: its C{topicSysFlag} and C{order} are
lost, in Java too.  The header decides which of the two it is, and nothing in the
bytes does, so there are functions of their own for it.

A broker tells all of its topics each time, and a name server needs them only
where their version is new: a reader may look at the version first and leave the
topics unread, which for 90,000 of them takes 18 ms in place of 112 (plain), 39 in
place of 244 (compressed).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import msgspec

from txrocket.errors import MalformedBody
from txrocket.model import DataVersion, TopicConfig
from txrocket.protocol import javajson
from txrocket.protocol.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.bodycodec import decodeBody, encodeBody

__all__ = ["decodeRegisterBroker", "encodeRegisterBroker"]

# As inflated.  A topic takes some 50 bytes: room for more than a million of them,
# and an end to a bomb.
_MAX_INFLATED = 64 * 1024 * 1024
_LENGTH = struct.Struct(">i")


def encodeRegisterBroker(body: RegisterBrokerBody, compressed: bool) -> bytes:
    """
    The body of REGISTER_BROKER.

    @param compressed: as the header says.  The header's C{bodyCrc32} is that of
        the bytes returned here.
    """
    if not compressed:
        return encodeBody(body)
    wrapper = body.topicConfigSerializeWrapper
    parts = [_sized(encodeBody(wrapper.dataVersion))]
    parts.append(_LENGTH.pack(len(wrapper.topicConfigTable)))
    for topic in wrapper.topicConfigTable.values():
        text = (
            f"{topic.topicName} {topic.readQueueNums} {topic.writeQueueNums}"
            f" {topic.perm} {topic.topicFilterType.name}"
        )
        parts.append(_sized(text.encode("utf-8")))
    parts.append(_sized(javajson.write(body.filterServerList)))
    return zlib.compress(b"".join(parts), 9)


def decodeRegisterBroker(
    data: bytes, compressed: bool, wanted: Callable[[DataVersion], bool] | None = None
) -> RegisterBrokerBody:
    """
    The inverse of L{encodeRegisterBroker}.

    @param compressed: as the header says.
    @param wanted: asked with the version whether the topics are to be read; if
        not, there are none in what is returned.  L{None} reads them.
    @raise MalformedBody: the bytes are not such a body.
    """
    if compressed:
        return _decodeCompressed(data, wanted)
    if wanted is not None:
        shell = decodeBody(_Shell, data)
        version = shell.topicConfigSerializeWrapper.dataVersion
        if not wanted(version):
            wrapper = TopicConfigSerializeWrapper({}, version)
            return RegisterBrokerBody(wrapper, shell.filterServerList)
    return decodeBody(RegisterBrokerBody, data)


class _ShellWrapper(msgspec.Struct, frozen=True):
    """
    A L{TopicConfigSerializeWrapper} of which the topics are passed over.
    """

    dataVersion: DataVersion = DataVersion()


class _Shell(msgspec.Struct, frozen=True):
    """
    A L{RegisterBrokerBody} of which the topics are passed over.
    """

    topicConfigSerializeWrapper: _ShellWrapper = _ShellWrapper()
    filterServerList: tuple[str, ...] = ()


def _decodeCompressed(
    data: bytes, wanted: Callable[[DataVersion], bool] | None
) -> RegisterBrokerBody:
    inflated = _Inflated(_inflate(data))
    version = decodeBody(DataVersion, inflated.take())
    topics: dict[str, TopicConfig] = {}
    skip = wanted is not None and not wanted(version)
    for _ in range(inflated.number()):
        piece = inflated.take()
        if not skip:
            topic = _topic(piece)
            topics[topic.topicName] = topic
    servers = decodeBody(tuple[str, ...], inflated.take())
    return RegisterBrokerBody(TopicConfigSerializeWrapper(topics, version), servers)


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _inflate(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(data, _MAX_INFLATED)
    except zlib.error as error:
        raise MalformedBody(f"RegisterBrokerBody: no zlib stream: {error}") from None
    if not stream.eof:
        reason = f"more than {_MAX_INFLATED} bytes" if stream.unconsumed_tail else "truncated"
        raise MalformedBody(f"RegisterBrokerBody: zlib stream: {reason}")
    return inflated


class _Inflated:
    """
    Numbers and sized pieces, one after the other.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        """
        The next number.
        """
        if len(self.data) - self.at < _LENGTH.size:
            raise MalformedBody("RegisterBrokerBody: truncated")
        number: int = _LENGTH.unpack_from(self.data, self.at)[0]
        self.at += _LENGTH.size
        return number

    def take(self) -> bytes:
        """
        The next sized piece.
        """
        size = self.number()
        if not 0 <= size <= len(self.data) - self.at:
            raise MalformedBody(f"RegisterBrokerBody: a piece of {size} bytes is not there")
        self.at += size
        return self.data[self.at - size : self.at]


def _topic(data: bytes) -> TopicConfig:
    try:
        words = data.decode("utf-8").split(" ")
    except UnicodeDecodeError:
        raise MalformedBody(f"RegisterBrokerBody: topic {data[:80]!r} is not UTF-8") from None
    if len(words) != 5:
        raise MalformedBody(f"RegisterBrokerBody: topic {data[:80]!r} has not five words")
    names = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    try:
        return msgspec.convert(dict(zip(names, words, strict=True)), TopicConfig, strict=False)
    except msgspec.ValidationError as error:
        raise MalformedBody(f"RegisterBrokerBody: topic {data[:80]!r}: {error}") from None
