# SPDX-License-Identifier: Apache-2.0
"""
Reading the requests that carry the traffic, and encoding the answers to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from txrocket.bulk.interface import (
    AppendedRecord,
    DecodedPull,
    DecodedSends,
    Frames,
    QueueKey,
    SentMessage,
)
from txrocket.errors import ProtocolError
from txrocket.protocol.codes import RequestCode, SerializeType
from txrocket.protocol.command import ONEWAY_FLAG, decodeCommand
from txrocket.protocol.frames import frameEnd, splitFrames
from txrocket.protocol.headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from txrocket.protocol.record.fields import PROPERTIES_LIMIT

__all__ = ["decodePulls", "decodeSends", "encodeHeads", "encodeSendResponses", "splitFrames"]

# Bits of a send's sysFlag that tell of a transaction.
_TRANSACTION: Final = 0xC

# Properties that have a meaning for the broker.
_SPECIAL: Final = frozenset(
    {
        *("TRAN_MSG", "DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"),
        *("__STARTDELIVERTIME", "CLUSTER"),
    }
)

_PREFIX: Final = Struct(">iI")
# A header's size has 24 bits.
_HEADER_LIMIT: Final = 0xFFFFFF

_BINARY: Final = int(SerializeType.ROCKETMQ)
# In a response with a binary header: that it is one, and that it has no remark.
_FLAG_AND_REMARK: Final = (1).to_bytes(4) + (0).to_bytes(4)


def decodeSends(
    calls: Sequence[Frames],
    known: dict[bytes, tuple[QueueKey, ...]],
    cluster: bytes,
    batch: bool,
    /,
) -> tuple[DecodedSends, DecodedSends]:
    """
    See L{Bulk.decodeSends<txrocket.bulk.interface.Bulk.decodeSends>}.
    """
    forms = DecodedSends([], [], []), DecodedSends([], [], [])
    for index, (_, host, data, start, end) in enumerate(calls):
        form = forms[end - start >= 8 and data[start + 4] == _BINARY]
        count = 0
        while end - start >= 8 and forms[data[start + 4] == _BINARY] is form:
            stop = frameEnd(data, start)
            message = _ordinary(data, start, stop, known, cluster, batch)
            if message is None:
                break
            form.messages.append(message)
            form.hosts.append(host)
            count += 1
            start = stop
        if count:
            form.owners.append((index, count))
    return forms


def _ordinary(
    data: bytes,
    start: int,
    stop: int,
    known: dict[bytes, tuple[QueueKey, ...]],
    cluster: bytes,
    batch: bool,
) -> SentMessage | None:
    """
    The message of a frame; L{None} if a rule of the broker applies to it.
    """
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    try:
        command = decodeCommand(data, start + 4, stop)
        if command.code != code or command.flag not in (0, ONEWAY_FLAG):
            return None
        header = command.decodeHeader(SendMessageRequestHeaderV2)
        queues = known.get(header.topic.encode(), ())
        properties = _ordinaryProperties((header.properties or "").encode(), cluster)
    except (ProtocolError, UnicodeEncodeError):
        return None
    if (
        properties is None
        or header.sysFlag & _TRANSACTION
        or (header.batch and not batch)
        or not 0 <= header.queueId < len(queues)
    ):
        return None
    return SentMessage(
        None if command.flag else command.opaque,
        queues[header.queueId],
        command.body,
        properties,
        header.bornTimestamp,
        header.flag,
        header.sysFlag,
        header.reconsumeTimes or 0,
        stop,
    )


def _ordinaryProperties(properties: bytes, cluster: bytes) -> bytes | None:
    """
    Properties as the log gets them: without WAIT=true, with the cluster's name; L{None} if
    one of them has a meaning for the broker.
    """
    stored = []
    for each in properties.removesuffix(b"\x02").split(b"\x02") if properties else ():
        name, found, value = each.partition(b"\x01")
        if b"\0" in each or (found and name.decode(errors="replace") in _SPECIAL):
            return None
        if found and name == b"WAIT":
            if value != b"true":
                return None
        else:
            stored.append(each + b"\x02")
    text = b"".join(stored) + cluster
    return text if len(text) <= PROPERTIES_LIMIT else None


def decodePulls(data: bytes, start: int, end: int, /) -> list[DecodedPull]:
    """
    See L{Bulk.decodePulls<txrocket.bulk.interface.Bulk.decodePulls>}.
    """
    pulls: list[DecodedPull] = []
    while end - start >= 8 and data[start + 4] != _BINARY:
        stop = frameEnd(data, start)
        try:
            command = decodeCommand(data, start + 4, stop)
            if command.code != RequestCode.PULL_MESSAGE or command.flag:
                break
            header = command.decodeHeader(PullMessageRequestHeader)
            consumer = _consumer(header)
        except (ProtocolError, UnicodeEncodeError):
            break
        if consumer is None:
            break
        start = stop
        pulls.append(
            (
                command.opaque,
                consumer,
                header.queueId,
                header.queueOffset,
                header.maxMsgNums,
                header.commitOffset,
                stop,
            )
        )
    return pulls


def _consumer(header: PullMessageRequestHeader) -> bytes | None:
    """
    What all pulls of a consumer have in common; L{None} if a separator is in it.
    """
    parts = (
        header.consumerGroup,
        header.topic,
        str(header.sysFlag),
        str(header.subVersion),
        "\x02" if header.subscription is None else header.subscription,
        "\x02" if header.expressionType is None else header.expressionType,
    )
    return None if any("\x01" in each for each in parts) else "\x01".join(parts).encode()


def encodeHeads(pieces: tuple[bytes, ...], rows: Sequence[tuple[int | str, ...]], /) -> list[bytes]:
    """
    See L{Bulk.encodeHeads<txrocket.bulk.interface.Bulk.encodeHeads>}.
    """
    heads = []
    first, *others = pieces
    for *values, size in rows:
        parts = [first]
        for value, piece in zip(values, others, strict=True):
            parts += [str(value).encode(), piece]
        header = b"".join(parts)
        if len(header) > _HEADER_LIMIT:
            raise ValueError(f"a header of {len(header)} bytes")
        heads.append(_PREFIX.pack(4 + len(header) + int(size), len(header)) + header)
    return heads


def encodeSendResponses(
    messages: list[SentMessage],
    appended: list[AppendedRecord],
    owners: list[tuple[int, int]],
    head: bytes,
    tail: bytes,
    binary: bool,
    /,
) -> list[bytes]:
    """
    See L{Bulk.encodeSendResponses<txrocket.bulk.interface.Bulk.encodeSendResponses>}.
    """
    encode = _binaryResponse if binary else _jsonResponse
    pairs = iter(zip(messages, appended, strict=False))
    answers: list[bytes] = []
    left = len(appended)
    for _, count in owners:
        if not left:
            break
        frames = []
        for _ in range(min(count, left)):
            message, record = next(pairs)
            left -= 1
            if message.opaque is not None:
                header = encode(message.opaque, record, head, tail)
                size = len(header) | (_BINARY << 24 if binary else 0)
                frames += [(len(header) + 4).to_bytes(4), size.to_bytes(4), header]
        answers.append(b"".join(frames))
    return answers


def _jsonResponse(opaque: int, record: AppendedRecord, head: bytes, tail: bytes) -> bytes:
    (_, queueId), queueOffset, offset, *_ = record
    return (
        b'%b%016X","queueId":"%d","queueOffset":"%d"},"flag":1,"language":"PYTHON","opaque":%d%b'
        % (
            head,
            offset,
            queueId,
            queueOffset,
            opaque,
            tail,
        )
    )


def _binaryResponse(opaque: int, record: AppendedRecord, head: bytes, tail: bytes) -> bytes:
    (_, queueId), queueOffset, offset, *_ = record
    fields = b"".join(
        (head, b"%016X" % offset, _field(b"queueId", queueId), _field(b"queueOffset", queueOffset))
    )
    number = opaque.to_bytes(4, signed=True)
    return b"".join((tail, number, _FLAG_AND_REMARK, len(fields).to_bytes(4), fields))


def _field(name: bytes, value: int) -> bytes:
    text = b"%d" % value
    return b"".join((len(name).to_bytes(2), name, len(text).to_bytes(4), text))
