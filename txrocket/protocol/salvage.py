# SPDX-License-Identifier: Apache-2.0
"""
Find the intact records among damaged bytes.

A broker whose disk has lost a sector answers each pull of the same offset with the same
damaged records.  Therefore a consumer skips the damaged records and continues::

    |record|record|rec 000000 |record|record|
                      ^       ^
                      |       '-- the next record: at the end of the damaged one by its
                      |           size, or at the next magic code of an intact record
                      '---------- skipped, and reported
"""

from __future__ import annotations

import struct
from typing import Final

from txrocket.errors import MalformedRecord
from txrocket.protocol.record import MESSAGE_MAGIC_CODE, decodeRecord

__all__ = ["salvage"]

_MAGIC: Final = struct.pack(">i", MESSAGE_MAGIC_CODE)

# The maximum number of positions to try for one record, because a body may be full of
# magic codes.
_TRIED: Final = 10_000


def salvage(data: bytes) -> tuple[bytes, list[str]]:
    """
    Find the intact records.

    @return: the intact records, joined, and the fault of each skipped record.
    """
    sound: list[bytes] = []
    faults: list[str] = []
    position = 0
    while position < len(data):
        try:
            size = _measure(data, position)
        except MalformedRecord as error:
            faults.append(str(error))
            position = _next(data, position)
        else:
            sound.append(data[position : position + size])
            position += size
    return b"".join(sound), faults


def _measure(data: bytes, position: int) -> int:
    """
    The size of the intact record at a position.

    @raise MalformedRecord: if no intact record begins there.
    """
    # A record without a checksum has 0 in this field.
    checked = data[position + 8 : position + 12] != bytes(4)
    return decodeRecord(data, position, readBody=False, checkCrc=checked).storeSize


def _isSound(data: bytes, position: int) -> bool:
    try:
        return bool(_measure(data, position))
    except MalformedRecord:
        return False


def _next(data: bytes, position: int) -> int:
    """
    The position of the record after a damaged one; the end if no record follows.
    """
    following = position + int.from_bytes(data[position : position + 4], "big")
    # Try the size of the damaged record first, because its body may contain records.
    if data[position + 4 : position + 8] == _MAGIC and (
        following == len(data)
        or (following > position and data[following + 4 : following + 8] == _MAGIC)
    ):
        return following
    at = position + 5
    for _ in range(_TRIED):
        at = data.find(_MAGIC, at)
        if at < 0:
            break
        if _isSound(data, at - 4):
            return at - 4
        at += 1
    return len(data)
