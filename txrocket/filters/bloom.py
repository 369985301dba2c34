# SPDX-License-Identifier: Apache-2.0
"""
Where RocketMQ's bloom filter sets the bits of a group and topic; C{BloomFilter} of
its filter module.

With C{enableCalcFilterBitMap} Java's broker evaluates every expression when a message
comes, and keeps the answers as bits beside the consume queue.  We evaluate when a
message is pulled, and use no such bits; but Java's broker throws a
C{consumerFilter.json} away in which the positions are missing, or other than it
would have them.

The hash is MurmurHash3 for 128 bits with seed 0, of which Guava's C{asLong} is the
lower half::

    body   ... 16 bytes: k1 k2, mixed into h1 h2
    tail   up to 15 bytes more
    end    length, and both halves mixed through
"""

from __future__ import annotations

from math import ceil, e, log

__all__ = ["Bloom", "murmur"]

_MASK = 2**64 - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


class Bloom:
    """
    A filter's measures.

    @ivar bits: how many bits there are.
    @ivar hashes: how many of them each entry sets.
    """

    def __init__(self, errorRate: int, expected: int) -> None:
        """
        @param errorRate: how many of a hundred that are not in it it may take for
            being in it, 1 to 99.
        @param expected: how many it is to hold.
        """
        rate = errorRate / 100.0
        self.hashes = ceil(log(rate) / log(0.5))
        least = ceil(expected * (log(1 / rate) / log(2)) * (log(e) / log(2)))
        self.bits = 8 * ceil(least / 8)

    def positions(self, text: str) -> tuple[int, ...]:
        """
        The bits of an entry.
        """
        hashed = murmur(text.encode())
        low, high = hashed & 0xFFFFFFFF, hashed >> 32
        return tuple(self._position(low + each * high) for each in range(1, self.hashes + 1))

    def _position(self, combined: int) -> int:
        # Java adds and multiplies with 32 bits and a sign, and turns over what is
        # negative.
        combined &= 0xFFFFFFFF
        return (combined ^ 0xFFFFFFFF if combined >> 31 else combined) % self.bits


def murmur(data: bytes) -> int:
    """
    The lower 64 bits of MurmurHash3's 128.
    """
    h1 = h2 = 0
    size = len(data)
    whole = size - size % 16
    for start in range(0, whole, 16):
        h1 ^= _mix1(int.from_bytes(data[start : start + 8], "little"))
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix2(int.from_bytes(data[start + 8 : start + 16], "little"))
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    h1 ^= _mix1(int.from_bytes(data[whole : whole + 8], "little")) ^ size
    h2 ^= _mix2(int.from_bytes(data[whole + 8 :], "little")) ^ size
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_final(h1) + _final(h2)) & _MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _mix1(value: int) -> int:
    return _rotated(value * _C1 & _MASK, 31) * _C2 & _MASK


def _mix2(value: int) -> int:
    return _rotated(value * _C2 & _MASK, 33) * _C1 & _MASK


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
