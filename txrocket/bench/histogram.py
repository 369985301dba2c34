# SPDX-License-Identifier: Apache-2.0
"""
A histogram of times in constant memory, from which percentiles are read.  As in
HdrHistogram, the width of a bucket grows with its numbers.

A number below 256 has a bucket of its own.  Of a larger one the first eight bits count::

    value      1 0 1 1 0 1 1 0 1 1 0 1        2925
               '------.------' '--.--'
               182: which     4: dropped      so 2912 to 2927 are one bucket

The numbers of a bucket lie between its first one and 129/128 of that.  The middle stands for
all of them, so a percentile is at most 1/256 off.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LARGEST", "Histogram"]

_BITS: Final = 8
_EXACT: Final = 1 << _BITS
_HALF: Final = _EXACT >> 1

#: Larger numbers count as this one, which is 19 hours in microseconds.
LARGEST: Final = (1 << 36) - 1


class Histogram:
    """
    Counts numbers by bucket.

    @ivar count: how many numbers were recorded.
    @ivar total: their sum.
    @ivar least: the smallest; 0 if the histogram is empty.
    @ivar most: the largest.
    """

    __slots__ = ("_counts", "count", "least", "most", "total")

    def __init__(self) -> None:
        self._counts = [0] * (_bucket(LARGEST) + 1)
        self.count = self.total = self.least = self.most = 0

    def record(self, value: int) -> None:
        """
        Count a number.  A negative one, from clocks that differ, counts as 0.
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
        The mean; 0 if the histogram is empty.
        """
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """
        The number that C{percent} of all numbers do not exceed, at most 1/256 off; 0 if
        the histogram is empty.
        """
        # Rounded first, because 99.9 % of 1,000 is a little more than 999 as a float.
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
