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
from typing import Final

import msgspec

from txrocket.errors import MalformedBody
from txrocket.model import DataVersion, TopicConfig
from txrocket.protocol import javajson
from txrocket.protocol.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.bodycodec import (
    decodeBody,
    decodeGradually,
    encodeBody,
    encodeGradually,
)
from txrocket.protocol.javajson import Gradual, finish

__all__ = [
    *("TOPICS_LIMIT", "decodeRegisterBroker", "decodingRegisterBroker"),
    *("encodeRegisterBroker", "encodingRegisterBroker"),
]

#: How many topics a broker may tell of at a time.  The name server puts them into its
#: tables in one turn, which takes 30 ms.
TOPICS_LIMIT: Final = 100_000

# As inflated.  A topic takes some 50 bytes: room for all of them, and an end to a bomb.
_MAX_INFLATED: Final = 16 * 1024 * 1024
_LENGTH = struct.Struct(">i")

# What is inflated and deflated at once, and how many topics are read and written.
_PIECE: Final = 16 * 1024
_INFLATED: Final = 1024 * 1024
_STEP: Final = 64


def encodeRegisterBroker(body: RegisterBrokerBody, compressed: bool) -> bytes:
    """
    The body of REGISTER_BROKER.

    @param compressed: as the header says.  The header's C{bodyCrc32} is that of
        the bytes returned here.
    """
    return finish(encodingRegisterBroker(body, compressed))


def encodingRegisterBroker(body: RegisterBrokerBody, compressed: bool) -> Gradual[bytes]:
    """
    The same as L{encodeRegisterBroker}, bit by bit.
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
    pieces.append(stream.compress(_sized(javajson.write(body.filterServerList))))
    pieces.append(stream.flush())
    return b"".join(pieces)


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
    return finish(decodingRegisterBroker(data, compressed, wanted))


def decodingRegisterBroker(
    data: bytes, compressed: bool, wanted: Callable[[DataVersion], bool] | None = None
) -> Gradual[RegisterBrokerBody]:
    """
    The same as L{decodeRegisterBroker}, bit by bit.
    """
    if compressed:
        return (yield from _decodeCompressed(data, wanted))
    if wanted is not None:
        shell = yield from decodeGradually(_Shell, data)
        version = shell.topicConfigSerializeWrapper.dataVersion
        if not wanted(version):
            wrapper = TopicConfigSerializeWrapper({}, version)
            return RegisterBrokerBody(wrapper, shell.filterServerList)
    if len(data) > _PIECE and javajson.REFERENCE not in data:
        yield
        body = yield from _decodePlain(data)
        if body is not None:
            return body
    return (yield from decodeGradually(RegisterBrokerBody, data))


def _decodePlain(data: bytes) -> Gradual[RegisterBrokerBody | None]:
    """
    A large body: C finds its topics, and they are decoded some at a time.

    @return: L{None} if it is not plain JSON, or not such a body.
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
        raise MalformedBody(f"RegisterBrokerBody: {count} topics, and the limit is {TOPICS_LIMIT}")


class _UnreadWrapper(msgspec.Struct, frozen=True):
    """
    A L{TopicConfigSerializeWrapper} of which the topics are not read yet.
    """

    topicConfigTable: msgspec.Raw = msgspec.Raw(b"{}")
    dataVersion: DataVersion = DataVersion()


class _Unread(msgspec.Struct, frozen=True):
    """
    A L{RegisterBrokerBody} of which the topics are not read yet.
    """

    topicConfigSerializeWrapper: _UnreadWrapper = _UnreadWrapper()
    filterServerList: tuple[str, ...] = ()


_decodeUnread = msgspec.json.Decoder(_Unread, strict=False).decode
_decodeTable = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decodeTopic = msgspec.json.Decoder(TopicConfig, strict=False).decode


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
        raise MalformedBody(f"RegisterBrokerBody: no zlib stream: {error}") from None
    if not stream.eof:
        raise MalformedBody("RegisterBrokerBody: zlib stream: truncated")
    return b"".join(inflated)


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

    def take(self, most: int) -> bytes:
        """
        The next sized piece.

        @param most: how long it may be.
        """
        size = self.number()
        if not 0 <= size <= len(self.data) - self.at:
            raise MalformedBody(f"RegisterBrokerBody: a piece of {size} bytes is not there")
        if size > most:
            raise MalformedBody(f"RegisterBrokerBody: a piece of {size} bytes: {most} may be")
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
