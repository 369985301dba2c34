# SPDX-License-Identifier: Apache-2.0
"""
An entry of a consume queue::

    0                8      12               20
    +----------------+------+----------------+
    | offset in log  | size | hash of tag    |
    +----------------+------+----------------+

An entry without a message, a filler, has a size that no record has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from struct import Struct

__all__ = [
    "ENTRY_SIZE",
    "FILLER",
    "FILLER_SIZE",
    "FILLER_SIZES",
    "entries",
    "offsetOf",
    "packEntry",
    "sizesOf",
    "unpackEntry",
]

_ENTRY = Struct(">qiq")
ENTRY_SIZE = _ENTRY.size

packEntry: Callable[[int, int, int], bytes] = _ENTRY.pack
unpackEntry: Callable[[bytes], tuple[int, int, int]] = _ENTRY.unpack
entries: Callable[[bytes], Iterator[tuple[int, int, int]]] = _ENTRY.iter_unpack

_OFFSET = Struct(">q")

# Unpacks the sizes of a number of entries.
_sizes = lru_cache(64)(lambda count: Struct(">" + "8xi8x" * count).unpack)


def offsetOf(data: bytes, position: int) -> int:
    """
    The offset in the log that an entry has.
    """
    offset: int = _OFFSET.unpack_from(data, position)[0]
    return offset


def sizesOf(data: bytes) -> tuple[int, ...]:
    """
    The sizes of the records that entries stand for.
    """
    sizes: tuple[int, ...] = _sizes(len(data) // ENTRY_SIZE)(data)
    return sizes


# Java's filler in front of a queue's first entry.
FILLER = packEntry(0, 0x7FFFFFFF, 0)

# No record is that long: an entry with such a size stands for nothing.  Java adds a
# position in a file of 1 GiB to it, which just does not overflow.
FILLER_SIZE = 0x3FFFFFFF

# The sizes that fillers have, Java's and ours; a damaged entry may have any other.
FILLER_SIZES = (0x7FFFFFFF, FILLER_SIZE)
