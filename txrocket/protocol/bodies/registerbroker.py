# SPDX-License-Identifier: Apache-2.0
"""
The body of REGISTER_BROKER, which a broker sends to each name server every thirty
seconds; Java's C{RegisterBrokerBody}.

It is JSON, unless the request's header says C{compressed=true}.  Then it is a zlib
stream of::

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

with one blank between a topic's words.  C{topicSysFlag} and C{order} of a topic are
lost, in Java too.  Only the header says which format the bytes have, so this body has
its own functions.

A broker sends all of its topics each time, but a name server needs them only if their
version is new.  Therefore a caller may look at the version first and skip the topics.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

import msgspec

from txrocket.errors import MalformedBody
from txrocket.model import DataVersion, TopicConfig
from txrocket.protocol import fastjson
from txrocket.protocol.bodies.codec import (
    decodeBody,
    decodeGradually,
    encodeBody,
    encodeGradually,
)
from txrocket.protocol.bodies.nameserver import RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.fastjson import Gradual, finish

__all__ = [
    *("TOPICS_LIMIT", "decodeRegisterBroker", "decodingRegisterBroker"),
    *("encodeRegisterBroker", "encodingRegisterBroker"),
]

#: The maximum number of topics in one registration.  The name server adds all of them to
#: its route table in one turn of the reactor.
TOPICS_LIMIT: Final = 100_000

# The limit of the decompressed size.  A topic takes about 50 bytes, so this is enough for
# TOPICS_LIMIT, and it stops a decompression bomb.
_MAX_INFLATED: Final = 16 * 1024 * 1024
_LENGTH = struct.Struct(">i")

# Per step: bytes of input to decompress, bytes of output, topics to read or write.
_PIECE: Final = 16 * 1024
_INFLATED: Final = 1024 * 1024
_STEP: Final = 64


def encodeRegisterBroker(body: RegisterBrokerBody, compressed: bool) -> bytes:
    """
    Encode the body of REGISTER_BROKER.

    @param compressed: the C{compressed} of the header.  The header's C{bodyCrc32} is the
        CRC of the returned bytes.
    """
    return finish(encodingRegisterBroker(body, compressed))


def encodingRegisterBroker(body: RegisterBrokerBody, compressed: bool) -> Gradual[bytes]:
    """
    Do the same as L{encodeRegisterBroker} in steps.
    """
    if not compressed:
        return (yield from encodeGradually(body))
    wrapper = body.topicConfigSerializeWrapper
    topics = list(wrapper.topicConfigTable.values())
    stream = zlib.compressobj(9)
    pieces = [stream.compress(_sized(encodeBody(wrapper.dataVersion)) + _LENGTH.pack(len(topics)))]
    for start in range(0, len(topics), _STEP):
        texts = (
            f"{topic.topicName} {topic.readQueueNums} {topic.writeQueueNums}"
            f" {topic.perm} {topic.topicFilterType.name}"
            for topic in topics[start : start + _STEP]
        )
        pieces.append(stream.compress(b"".join(_sized(each.encode("utf-8")) for each in texts)))
        yield
    pieces.append(stream.compress(_sized(fastjson.write(body.filterServerList))))
    pieces.append(stream.flush())
    return b"".join(pieces)


def decodeRegisterBroker(
    data: bytes, compressed: bool, wanted: Callable[[DataVersion], bool] | None = None
) -> RegisterBrokerBody:
    """
    Decode the body of REGISTER_BROKER.

    @param compressed: the C{compressed} of the header.
    @param wanted: called with the version of the topics.  If it returns C{False}, the
        topics are skipped and the result has none.  With L{None} the topics are read.
    @raise MalformedBody: if the bytes cannot be decoded as such a body.
    """
    return finish(decodingRegisterBroker(data, compressed, wanted))


def decodingRegisterBroker(
    data: bytes, compressed: bool, wanted: Callable[[DataVersion], bool] | None = None
) -> Gradual[RegisterBrokerBody]:
    """
    Do the same as L{decodeRegisterBroker} in steps.
    """
    if compressed:
        return (yield from _decodeCompressed(data, wanted))
    if wanted is not None:
        shell = yield from decodeGradually(_Shell, data)
        version = shell.topicConfigSerializeWrapper.dataVersion
        if not wanted(version):
            wrapper = TopicConfigSerializeWrapper({}, version)
            return RegisterBrokerBody(wrapper, shell.filterServerList)
    if len(data) > _PIECE and fastjson.REFERENCE not in data:
        yield
        body = yield from _decodePlain(data)
        if body is not None:
            return body
    return (yield from decodeGradually(RegisterBrokerBody, data))


def _decodePlain(data: bytes) -> Gradual[RegisterBrokerBody | None]:
    """
    Decode a large body of standard JSON: msgspec finds the topics without decoding
    them, then a few are decoded per step.

    @return: L{None} if the bytes are not standard JSON or not such a body.
    """
    try:
        body = _decodeUnread(data)
        wrapper = body.topicConfigSerializeWrapper
        yield
        unread = _decodeTable(wrapper.topicConfigTable)
        _checkCount(len(unread))
        topics: dict[str, TopicConfig] = {}
        for count, (name, topic) in enumerate(unread.items(), 1):
            topics[name] = _decodeTopic(topic)
            if count % _STEP == 0:
                yield
    except (msgspec.MsgspecError, ValueError):
        return None
    return RegisterBrokerBody(
        TopicConfigSerializeWrapper(topics, wrapper.dataVersion), body.filterServerList
    )


def _checkCount(count: int) -> None:
    if count > TOPICS_LIMIT:
        raise MalformedBody(f"RegisterBrokerBody: {count} topics: the limit is {TOPICS_LIMIT}")


class _UnreadWrapper(msgspec.Struct, frozen=True):
    """
    A L{TopicConfigSerializeWrapper} whose topics are not decoded yet.
    """

    topicConfigTable: msgspec.Raw = msgspec.Raw(b"{}")
    dataVersion: DataVersion = DataVersion()


class _Unread(msgspec.Struct, frozen=True):
    """
    A L{RegisterBrokerBody} whose topics are not decoded yet.
    """

    topicConfigSerializeWrapper: _UnreadWrapper = _UnreadWrapper()
    filterServerList: tuple[str, ...] = ()


_decodeUnread = msgspec.json.Decoder(_Unread, strict=False).decode
_decodeTable = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decodeTopic = msgspec.json.Decoder(TopicConfig, strict=False).decode


class _ShellWrapper(msgspec.Struct, frozen=True):
    """
    A L{TopicConfigSerializeWrapper} without its topics.
    """

    dataVersion: DataVersion = DataVersion()


class _Shell(msgspec.Struct, frozen=True):
    """
    A L{RegisterBrokerBody} without its topics.
    """

    topicConfigSerializeWrapper: _ShellWrapper = _ShellWrapper()
    filterServerList: tuple[str, ...] = ()


def _decodeCompressed(
    data: bytes, wanted: Callable[[DataVersion], bool] | None
) -> Gradual[RegisterBrokerBody]:
    inflated = _Inflated((yield from _inflate(data)))
    version = decodeBody(DataVersion, inflated.take(_PIECE))
    topics: dict[str, TopicConfig] = {}
    skip = wanted is not None and not wanted(version)
    number = inflated.number()
    _checkCount(number)
    for count in range(1, number + 1):
        piece = inflated.take(_PIECE)
        if not skip:
            topic = _topic(piece)
            topics[topic.topicName] = topic
        if count % _STEP == 0:
            yield
    servers = decodeBody(tuple[str, ...], inflated.take(_PIECE))
    return RegisterBrokerBody(TopicConfigSerializeWrapper(topics, version), servers)


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _inflate(data: bytes) -> Gradual[bytes]:
    stream = zlib.decompressobj()
    inflated: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            while piece and not stream.eof:
                inflated.append(stream.decompress(piece, _INFLATED))
                size += len(inflated[-1])
                if size > _MAX_INFLATED:
                    raise MalformedBody(
                        f"RegisterBrokerBody: zlib stream: more than {_MAX_INFLATED} bytes"
                    )
                piece = stream.unconsumed_tail
                if piece or start + _PIECE < len(data):
                    yield
    except zlib.error as error:
        raise MalformedBody(f"RegisterBrokerBody: not a zlib stream: {error}") from None
    if not stream.eof:
        raise MalformedBody("RegisterBrokerBody: zlib stream: truncated")
    return b"".join(inflated)


class _Inflated:
    """
    A cursor over the decompressed bytes, which hold numbers and byte strings with their
    lengths.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        """
        Read the next number.
        """
        if len(self.data) - self.at < _LENGTH.size:
            raise MalformedBody("RegisterBrokerBody: truncated")
        number: int = _LENGTH.unpack_from(self.data, self.at)[0]
        self.at += _LENGTH.size
        return number

    def take(self, most: int) -> bytes:
        """
        Read the next byte string.

        @param most: its maximum length.
        """
        size = self.number()
        if not 0 <= size <= len(self.data) - self.at:
            raise MalformedBody(f"RegisterBrokerBody: length {size} exceeds the remaining bytes")
        if size > most:
            raise MalformedBody(f"RegisterBrokerBody: length {size}: the limit is {most}")
        self.at += size
        return self.data[self.at - size : self.at]


def _topic(data: bytes) -> TopicConfig:
    try:
        words = data.decode("utf-8").split(" ")
    except UnicodeDecodeError:
        raise MalformedBody(f"RegisterBrokerBody: topic {data[:80]!r} is not UTF-8") from None
    if len(words) != 5:
        raise MalformedBody(f"RegisterBrokerBody: topic {data[:80]!r} does not have five words")
    names = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    try:
        return msgspec.convert(dict(zip(names, words, strict=True)), TopicConfig, strict=False)
    except msgspec.ValidationError as error:
        raise MalformedBody(f"RegisterBrokerBody: topic {data[:80]!r}: {error}") from None
