# SPDX-License-Identifier: Apache-2.0
"""
The bit positions of a group and topic in RocketMQ's bloom filter; C{BloomFilter} of
its filter module.

With C{enableCalcFilterBitMap} Java's broker evaluates every expression when a message
is stored, and stores the results as bits beside the consume queue.  Our broker
evaluates expressions when messages are pulled, and does not use such bits.  But Java's
broker discards a C{consumerFilter.json} with missing or different positions, so we
write them.

The hash is the lower half of MurmurHash3 for 128 bits with seed 0, Guava's C{asLong}::

    body   blocks of 16 bytes: k1 k2, mixed into h1 h2
    tail   the last 0 to 15 bytes
    end    the length, and a final mix of both halves
"""

from __future__ import annotations

from math import ceil, e, log

__all__ = ["Bloom", "murmur"]

_MASK = 2**64 - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


class Bloom:
    """
    The parameters of a bloom filter.

    @ivar bits: the number of bits.
    @ivar hashes: the number of bits that each entry sets.
    """

    def __init__(self, errorRate: int, expected: int) -> None:
        """
        @param errorRate: the rate of false positives, in percent, 1 to 99.
        @param expected: the expected number of entries.
        """
        rate = errorRate / 100.0
        self.hashes = ceil(log(rate) / log(0.5))
        least = ceil(expected * (log(1 / rate) / log(2)) * (log(e) / log(2)))
        self.bits = 8 * ceil(least / 8)

    def positions(self, text: str) -> tuple[int, ...]:
        """
        The bit positions of an entry.
        """
        hashed = murmur(text.encode())
        low, high = hashed & 0xFFFFFFFF, hashed >> 32
        return tuple(self._position(low + each * high) for each in range(1, self.hashes + 1))

    def _position(self, combined: int) -> int:
        # Java computes with signed 32-bit integers, and inverts negative ones.
        combined &= 0xFFFFFFFF
        return (combined ^ 0xFFFFFFFF if combined >> 31 else combined) % self.bits


def murmur(data: bytes) -> int:
    """
    The lower 64 bits of MurmurHash3 for 128 bits.
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
