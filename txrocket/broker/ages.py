# SPDX-License-Identifier: Apache-2.0
"""
How old the entries of a queue are, by a clock that nobody can set.

The time in a record is a time of day.  If somebody sets the clock ahead, a record of this
second seems an hour old; if somebody sets it back, it seems to come from the future for an
hour.  So the end of the queue is noted from time to time::

    noted      end 10 at 100 s      end 25 at 101 s      now 107 s
    entry 17   was not there        was there            6 to 7 s old

Of what came before the first note only a least age is known.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import Final

__all__ = ["QueueAges"]

# How many notes there are.  Of more, every second of the older half is dropped: what is
# long ago need not be known to the second.
_MOST: Final = 4096


class QueueAges:
    """
    The ages of the entries of one queue.
    """

    def __init__(self, most: int = _MOST) -> None:
        """
        @param most: how many notes are kept.
        """
        self._most = most
        self._ends: list[int] = []
        # When each of these was noted first, and last.
        self._firsts: list[float] = []
        self._lasts: list[float] = []

    def note(self, end: int, now: float) -> None:
        """
        Note where the queue ends.

        @param now: in seconds, of a clock that nobody can set.
        """
        if self._ends and end <= self._ends[-1]:
            self._lasts[-1] = now
            return
        if len(self._ends) >= self._most:
            half = self._most // 2
            del self._ends[1:half:2], self._firsts[1:half:2], self._lasts[1:half:2]
        self._ends.append(end)
        self._firsts.append(now)
        self._lasts.append(now)

    def between(self, offset: int, now: float) -> tuple[float, float]:
        """
        How old an entry is at least and at most, in seconds.
        """
        place = bisect_right(self._ends, offset)
        least = now - self._firsts[place] if place < len(self._firsts) else 0.0
        return least, now - self._lasts[place - 1] if place else inf
