# SPDX-License-Identifier: Apache-2.0
"""
Making records of messages, and what is done with new records before they are written.
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Final
from zlib import crc32

from txrocket.bulk.interface import (
    AppendedRecord,
    BatchRecords,
    EncodedRecords,
    QueueKey,
    SentMessage,
)
from txrocket.errors import InvalidMessage
from txrocket.protocol.record import (
    BORNHOST_V6_FLAG,
    LAYOUTS,
    MESSAGE_MAGIC_CODE,
    STOREHOSTADDRESS_V6_FLAG,
    TRANSACTION_PREPARED_TYPE,
    TopicField,
    badHosts,
    encodeRecord,
)
from txrocket.protocol.record.batch import batchItems
from txrocket.protocol.record.fields import PROPERTIES_LIMIT, tooManyProperties

__all__ = ["batchRecords", "encodeRecords", "messageIds", "suspect"]

_SEPARATOR: Final = 0x02
_INT_MAX: Final = 0x7FFFFFFF

# What a record has beside addresses, body, topic and properties.
_AROUND: Final = 74

# A stretch of zeros that a lost sector leaves; no text that the store takes has one.
_LOST: Final = bytes(16)

# sysFlag to prepared transaction offset: the same in all records of a batch.
_SHARED: Final = {(born, store): struct.Struct(f">iq{born}sq{store}siq") for born, store in LAYOUTS}
# The heads of records, by the length of that part.
_HEADS: Final = {
    size: struct.Struct(f">5i2q{size}si") for size in {shared.size for shared in _SHARED.values()}
}


def encodeRecords(
    messages: list[SentMessage],
    fields: dict[str, TopicField],
    nexts: dict[QueueKey, int],
    offset: int,
    end: int,
    maxBody: int,
    timestamp: int,
    bornHosts: list[bytes],
    storeHost: bytes,
) -> EncodedRecords:
    """
    See L{Bulk.encodeRecords<txrocket.bulk.interface.Bulk.encodeRecords>}.
    """
    records: list[bytes] = []
    appended: list[AppendedRecord] = []
    totals: dict[str, tuple[int, int]] = {}
    # Kept apart until all records are made: a queue offset that no message has is a gap.
    advanced: dict[QueueKey, int] = {}
    for message, bornHost in zip(messages, bornHosts, strict=True):
        _, key, body, properties, bornTimestamp, flag, sysFlag, times, _, *prepared = message
        field = fields[key[0]]
        size = _AROUND + len(bornHost) + len(storeHost)
        size += len(body) + len(field) + len(properties)
        if len(body) > maxBody or size > _INT_MAX or offset + size > end:
            break
        queueOffset = 0
        # The halves of transactions are in the log, but not in a queue.
        if not sysFlag & TRANSACTION_PREPARED_TYPE:
            queueOffset = advanced[key] if key in advanced else nexts.get(key, 0)
            advanced[key] = queueOffset + 1
        records.append(
            encodeRecord(
                field,
                body,
                properties,
                key[1],
                flag,
                queueOffset,
                offset,
                sysFlag,
                bornTimestamp,
                bornHost,
                timestamp,
                storeHost,
                times,
                prepared[0] if prepared else 0,
            )
        )
        appended.append((key, queueOffset, offset, size))
        count, sum_ = totals.get(key[0], (0, 0))
        totals[key[0]] = count + 1, sum_ + size
        offset += size
    nexts |= advanced
    return EncodedRecords(b"".join(records), appended, totals)


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
) -> BatchRecords:
    """
    See L{Bulk.batchRecords<txrocket.bulk.interface.Bulk.batchRecords>}.
    """
    try:
        flags, base, _ = LAYOUTS[len(bornHost), len(storeHost)]
        sysFlag = sysFlag & ~(BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG) | flags
        shared = _SHARED[len(bornHost), len(storeHost)].pack(
            sysFlag, bornTimestamp, bornHost, storeTimestamp, storeHost, reconsumeTimes, 0
        )
        pack = _HEADS[len(shared)].pack
        base += len(topic)
        parts: list[bytes] = []
        sizes: list[int] = []
        for flag, start, bodyEnd, end in batchItems(data):
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
            sizes.append(size)
            queueOffset += 1
            physicalOffset += size
    except KeyError:
        raise badHosts(bornHost, storeHost) from None
    except struct.error as error:
        raise InvalidMessage(f"a number does not fit into its field: {error}") from None
    return BatchRecords(b"".join(parts), sizes)


def suspect(records: bytes, sizes: list[int]) -> bool:
    """
    See L{Bulk.suspect<txrocket.bulk.interface.Bulk.suspect>}.
    """
    return _LOST in records or not all(records[end - 1] for end in accumulate(sizes))


def messageIds(prefix: str, offset: int, sizes: tuple[int, ...]) -> str:
    """
    See L{Bulk.messageIds<txrocket.bulk.interface.Bulk.messageIds>}.
    """
    offsets = accumulate(sizes, initial=offset)
    return ",".join([f"{prefix}{each:016X}" for each, _ in zip(offsets, sizes, strict=False)])
