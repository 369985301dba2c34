# SPDX-License-Identifier: Apache-2.0
"""
The positions of records that lie one behind the other.

A record begins with its size and a magic code (L{txrocket.protocol.record}), so the next
position follows from the one before::

    | size magic ...... | size magic .... | size magic .. | zeros
    0                   at + size ...                     stop

This is not in L{pyspark_rocketmq.columns.records}, because the files of a store are split
into tasks where neither numpy nor Arrow need be installed.
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import Final

from txrocket.protocol.record import MESSAGE_MAGIC_CODE

__all__ = ["SMALLEST", "positionsIn"]

#: The bytes of a record without body, topic and properties.
SMALLEST: Final = 91

_SIZE_AND_MAGIC: Final = struct.Struct(">2i").unpack_from


def positionsIn(
    data: bytes | mmap, start: int = 0, stop: int | None = None
) -> tuple[list[int], int]:
    """
    Find the positions of records by their sizes.

    @param start: the position of the first record.
    @param stop: records that begin there or later are left out.
    @return: where the records begin, and the first position without a whole record: the
        end of the data, or bytes that are not a record.
    """
    positions: list[int] = []
    last = min(len(data) - SMALLEST, len(data) if stop is None else stop - 1)
    end = len(data)
    at = start
    while at <= last:
        size, magic = _SIZE_AND_MAGIC(data, at)
        if magic != MESSAGE_MAGIC_CODE or size < SMALLEST or at + size > end:
            break
        positions.append(at)
        at += size
    return positions, at
