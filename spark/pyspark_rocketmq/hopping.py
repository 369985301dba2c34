# SPDX-License-Identifier: Apache-2.0
"""
From record to record.
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import Final

from txrocket.protocol.record import MESSAGE_MAGIC_CODE

__all__ = ["SMALLEST", "positionsIn"]

#: How many bytes a record has at least: no body, topic and properties.
SMALLEST: Final = 91

_SIZE_AND_MAGIC: Final = struct.Struct(">2i").unpack_from


def positionsIn(
    data: bytes | mmap, start: int = 0, stop: int | None = None
) -> tuple[list[int], int]:
    """
    Go from record to record.

    @param stop: records that begin there or later are left out.
    @return: where records begin, and where there is none any more: the end, or
        something that is no record, or not all of one.
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
