# SPDX-License-Identifier: Apache-2.0
"""
A time limit for many callers that wait.

All callers have the same time, so the first to wait is the first to be late: one timer and
a queue serve all of them.  A timer for each would cost a sender that waits for the disk a
third of its time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["Deadlines"]


class Deadlines:
    """
    Fails the Deferreds of callers that wait too long.
    """

    def __init__(
        self, clock: IReactorTime, seconds: float, late: Callable[[float], Exception]
    ) -> None:
        """
        @param late: makes the error, of the seconds that have passed.
        """
        self._clock = clock
        self._seconds = seconds
        self._late = late
        self._watched: deque[tuple[float, Deferred[None]]] = deque()
        self._timer: IDelayedCall | None = None

    def watch(self, waiting: Deferred[None]) -> None:
        """
        Let a Deferred fail unless it fires in time.
        """
        watched = self._watched
        while watched and watched[0][1].called:
            watched.popleft()
        watched.append((self._clock.seconds() + self._seconds, waiting))
        if self._timer is None:
            self._timer = self._clock.callLater(self._seconds, self._sweep)

    def waited(self) -> float:
        """
        How many seconds the one that waits longest has waited.
        """
        watched = self._watched
        while watched and watched[0][1].called:
            watched.popleft()
        if not watched:
            return 0.0
        return self._clock.seconds() - (watched[0][0] - self._seconds)

    def stop(self) -> None:
        """
        Watch no more.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watched.clear()

    def _sweep(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        watched = self._watched
        while watched and (watched[0][1].called or watched[0][0] <= now):
            waiting = watched.popleft()[1]
            if not waiting.called:
                waiting.errback(self._late(self._seconds))
        # A caller that got the error may wait again.
        if watched and self._timer is None:
            self._timer = self._clock.callLater(watched[0][0] - now, self._sweep)
