# SPDX-License-Identifier: Apache-2.0
"""
Java's C{String.hashCode}, which RocketMQ writes into its files: a consume queue holds
the hash of each message's tag, and the index holds the hash of C{topic#key}::

    hash = c[0] * 31^(n-1) + c[1] * 31^(n-2) + ... + c[n-1]     (mod 2^32, signed)

over UTF-16 units, so that a character outside the BMP counts as its two surrogates.

A loop over characters is slow in Python.  Therefore the text is converted to one large
integer whose digits ("lanes") are the units, and neighbours are merged pairwise in all
lanes at once::

    | a | b | c | d |   ->   |  31a + b  |  31c + d  |   ->   | 31^2 (31a + b) + 31c + d |

A lane doubles in width with each step and its value grows by less, so nothing
overflows.  42 characters take 6 steps.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

__all__ = ["javaHash", "tagsCode"]

# Bytes per chunk, which is also the length of the masks.
_CHUNK: Final = 64


def _steps(width: int) -> list[tuple[int, int, int]]:
    """
    List the merging steps for lanes of C{width} bits.

    @return: for each step the width, a mask over every second lane, and the factor to
        subtract: with C{x = a * 2^width + b}, C{31^k * a + b} is
        C{x - a * (2^width - 31^k)}.
    """
    steps = []
    units = 1
    while width < _CHUNK * 8:
        lane = (1 << width) - 1
        mask = sum(lane << place for place in range(0, _CHUNK * 8, 2 * width))
        steps.append((width, mask, (1 << width) - 31**units))
        width, units = 2 * width, 2 * units
    return steps


_POWERS: Final = [31**count & 0xFFFFFFFF for count in range(_CHUNK + 1)]
_NARROW: Final = _steps(8)
_WIDE: Final = _steps(16)


def javaHash(text: str, seed: int = 0) -> int:
    """
    Compute C{text.hashCode()} as Java does.

    @param seed: the hash of a prefix: the hash of C{a + b} is
        C{javaHash(b, javaHash(a))}, so a caller can hash a common prefix once.
    @return: a signed 32-bit integer.
    """
    try:
        data, steps, unit = text.encode("latin-1"), _NARROW, 1
    except UnicodeEncodeError:
        # surrogatepass, because Java hashes a lone surrogate like any other unit.
        data, steps, unit = text.encode("utf-16-be", "surrogatepass"), _WIDE, 2
    total = seed
    for start in range(0, len(data), _CHUNK):
        chunk = data[start : start + _CHUNK]
        bits = len(chunk) * 8
        merged = int.from_bytes(chunk, "big")
        for width, mask, excess in steps:
            if width >= bits:
                break
            merged -= (merged >> width & mask) * excess
        total = total * _POWERS[len(chunk) // unit] + merged & 0xFFFFFFFF
    return (total + 0x80000000 & 0xFFFFFFFF) - 0x80000000


# Cached, because a topic has few tags, and each message has one.  Long tags are not
# cached, because a subscription may have a tag of several megabytes.
_tagHash = lru_cache(maxsize=1024)(javaHash)
_LONGEST = 1024


def tagsCode(tags: str | None) -> int:
    """
    Compute the code of a message's tag in the consume queue, by which subscriptions are
    matched.  The queues of delayed messages hold a delivery time instead.

    @return: the hash of the tag; 0 without a tag.
    """
    if not tags:
        return 0
    return _tagHash(tags) if len(tags) <= _LONGEST else javaHash(tags)
