# SPDX-License-Identifier: Apache-2.0
"""
The time of day as far as it may be believed, for decisions that cannot be undone.

The age of a file is the time of day less the time of its last write.  A clock that is set
ahead by a year by mistake would make every file a year old, and all of them would be
deleted within seconds.  So a step ahead counts only after it has stood for a day::

    wall       ----+                +-- 1 year ahead, then set right again
                   |________________|
    confirmed  ------------------------ goes on as if nothing had happened

A step back counts at once: it makes files younger, and nothing is deleted too early.
Steps are found by comparing the time of day with a clock that cannot be set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.logger import Logger

__all__ = ["ConfirmedTime"]

# Seconds.  A machine that slept is set ahead as well: that is no reason for alarm, and
# counts like any other step.
_STANDS: Final = 86_400.0

# A difference of this many seconds is no step: clocks drift, and are corrected.
_DRIFT: Final = 60.0

# How many steps wait to be confirmed, each by itself.  Further ones wait with the last.
_MOST: Final = 100


class ConfirmedTime:
    """
    A time of day whose steps ahead count after a day.
    """

    _log = Logger()

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        """
        @param wall: the time of day, in seconds.
        @param monotonic: a clock that cannot be set, in seconds.
        """
        self._wall = wall
        self._monotonic = monotonic
        # The difference to the monotonic clock.
        self._begun = wall() - monotonic()
        # Steps ahead that are not confirmed: when each was seen, and how long it is.
        self._steps: list[tuple[float, float]] = []

    def now(self) -> int:
        """
        The time in milliseconds.  It has to be called every minute or so, for a step is
        dated by the call that finds it.
        """
        passed = self._monotonic()
        step = self._wall() - passed - self._begun - sum(size for _, size in self._steps)
        if step > _DRIFT:
            self._ahead(passed, step)
        elif step >= 0:
            self._begun += step
        else:
            self._back(-step)
        while self._steps and passed - self._steps[0][0] >= _STANDS:
            self._begun += self._steps.pop(0)[1]
        return int((passed + self._begun) * 1000)

    def _ahead(self, passed: float, size: float) -> None:
        if len(self._steps) == _MOST:
            size += self._steps.pop()[1]
        self._steps.append((passed, size))
        self._log.warn(
            "The clock of this machine was set ahead by {size:.0f} s. Files are judged by it only"
            " if it still says so in {hours:.0f} hours; if it is wrong, set it right before then",
            size=size,
            hours=_STANDS / 3600,
        )

    def _back(self, size: float) -> None:
        """
        Take back the last steps first: a wrong clock that is set right leaves no trace.
        """
        if size > _DRIFT:
            self._log.warn("The clock of this machine was set back by {size:.0f} s", size=size)
        while self._steps and size > 0:
            seen, last = self._steps.pop()
            if last > size:
                self._steps.append((seen, last - size))
            size -= last
        self._begun -= max(0.0, size)
