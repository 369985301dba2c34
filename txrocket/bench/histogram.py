# SPDX-License-Identifier: Apache-2.0
"""
Percentiles of any number of times, in memory that does not grow: buckets that are as wide
as their numbers are large, as HdrHistogram has them.

A number below 256 has a bucket of its own.  Of a larger one the first eight bits count::

    value      1 0 1 1 0 1 1 0 1 1 0 1        2925
               '------.------' '--.--'
               182: which     4: dropped      so 2912 to 2927 are one bucket

A bucket's numbers lie between the first and 129/128 of it; the middle stands for them, so
what is told is at most 1/256 off.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LARGEST", "Histogram"]

_BITS: Final = 8
_EXACT: Final = 1 << _BITS
_HALF: Final = _EXACT >> 1

#: Larger numbers count as this one: as microseconds 19 hours.
LARGEST: Final = (1 << 36) - 1


class Histogram:
    """
    Numbers, counted.

    @ivar count: how many there are.
    @ivar total: their sum.
    @ivar least: the smallest, 0 if there is none.
    @ivar most: the largest.
    """

    __slots__ = ("_counts", "count", "least", "most", "total")

    def __init__(self) -> None:
        self._counts = [0] * (_bucket(LARGEST) + 1)
        self.count = self.total = self.least = self.most = 0

    def record(self, value: int) -> None:
        """
        Count a number.  A negative one, of clocks that differ, counts as 0.
        """
        value = min(max(value, 0), LARGEST)
        self._counts[_bucket(value)] += 1
        if not self.count or value < self.least:
            self.least = value
        if value > self.most:
            self.most = value
        self.count += 1
        self.total += value

    @property
    def mean(self) -> float:
        """
        Their mean, 0 if there is none.
        """
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """
        The number that so many percent of all do not exceed, at most 1/256 off; 0 if
        there is none.
        """
        # Rounded first: 99.9 % of 1,000 are 999, and a little more as a float.
        rank = max(1, -int(-round(percent * self.count / 100, 6) // 1))
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                return min(max(_middle(bucket), self.least), self.most)
        return self.most


def _bucket(value: int) -> int:
    if value < _EXACT:
        return value
    dropped = value.bit_length() - _BITS
    return dropped * _HALF + (value >> dropped)


def _middle(bucket: int) -> int:
    if bucket < _EXACT:
        return bucket
    dropped = bucket // _HALF - 1
    first = bucket - dropped * _HALF << dropped
    return first + (1 << dropped - 1)
