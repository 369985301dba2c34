# SPDX-License-Identifier: Apache-2.0
"""
The ages of the entries of a queue, by a monotonic clock.

The time in a record is a time of day.  If the clock is set ahead by an hour, a new record
seems an hour old; if it is set back, the record seems to come from the future.  So the end of
the queue is recorded from time to time::

    recorded   end 10 at 100 s      end 25 at 101 s      now 107 s
    entry 17   was not there        was there            6 to 7 s old

Of an entry from before the first record only the least age is known.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import Final

__all__ = ["QueueAges"]

# How many ends are recorded.  Beyond that, every second one of the older half is dropped:
# an old age need not be known to the second.
_MOST: Final = 4096


class QueueAges:
    """
    The ages of the entries of one queue.
    """

    def __init__(self, most: int = _MOST) -> None:
        """
        @param most: how many ends are recorded.
        """
        self._most = most
        self._ends: list[int] = []
        # The times at which each of these was recorded first, and last.
        self._firsts: list[float] = []
        self._lasts: list[float] = []

    def record(self, end: int, now: float) -> None:
        """
        Record where the queue ends.

        @param now: in seconds, of a monotonic clock.
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
