# SPDX-License-Identifier: Apache-2.0
"""
The sound records among bytes that are damaged.

A broker whose disk has lost a sector may answer a pull with bytes that are no record, and
would do so for ever: a consumer takes what it can read, and goes on::

    |record|record|rec 000000 |record|record|
                      ^       ^
                      |       '-- the next one: where the damaged one's size says, or where
                      |           a magic code is that a sound record follows
                      '---------- left out, and told
"""

from __future__ import annotations

import struct
from typing import Final

from txrocket.errors import MalformedRecord
from txrocket.protocol.record import MESSAGE_MAGIC_CODE, decodeRecord

__all__ = ["salvage"]

_MAGIC: Final = struct.pack(">i", MESSAGE_MAGIC_CODE)

# How many places are tried for one record.  A body may be full of magic codes.
_TRIED: Final = 10_000


def salvage(data: bytes) -> tuple[bytes, list[str]]:
    """
    Find the sound records.

    @return: the sound records one after the other, and what is wrong with each that was
        left out.
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
    How long the sound record at a position is.

    @raise MalformedRecord: if there is none.
    """
    # A record without a checksum has 0 there.
    checked = data[position + 8 : position + 12] != bytes(4)
    return decodeRecord(data, position, readBody=False, checkCrc=checked).storeSize


def _isSound(data: bytes, position: int) -> bool:
    try:
        return bool(_measure(data, position))
    except MalformedRecord:
        return False


def _next(data: bytes, position: int) -> int:
    """
    Where the record behind a damaged one begins; the end if there is none.
    """
    following = position + int.from_bytes(data[position : position + 4], "big")
    # A body may have records in it, so the record's own size comes first.
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
