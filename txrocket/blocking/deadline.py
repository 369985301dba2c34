# SPDX-License-Identifier: Apache-2.0
"""
The time limit of a call, shared by all steps of the call: lookup, connecting and attempts.
"""

from __future__ import annotations

import time

__all__ = ["Deadline"]


class Deadline:
    """
    The time at which a call must end.

    @ivar seconds: the length of the time limit.
    """

    __slots__ = ("_began", "_end", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.monotonic()
        self._end = self._began + seconds

    @property
    def over(self) -> bool:
        """
        Whether no time is left.
        """
        return time.monotonic() >= self._end

    @property
    def elapsed(self) -> float:
        """
        The seconds since the beginning.
        """
        return time.monotonic() - self._began

    def left(self) -> float:
        """
        The seconds that are left.

        @raise TimeoutError: if the time is over.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def share(self, parts: int) -> Deadline:
        """
        A time limit for the next of several steps: an equal part of the time that is left.

        @param parts: the number of steps that remain.
        """
        return self if parts == 1 else Deadline((self._end - time.monotonic()) / parts)

    def atMost(self, seconds: float) -> Deadline:
        """
        This time limit, or one of C{seconds} from now if that is sooner.
        """
        return self if self._end - time.monotonic() <= seconds else Deadline(seconds)

    def pause(self, attempts: int) -> bool:
        """
        Sleep before the next attempt, longer after each failure.  If the time would be over
        by then, do not sleep.

        @return: whether there is time for the attempt.
        """
        # The pauses are those of a client with a reactor between attempts to connect.
        seconds = 0.2 * 1.5 ** (attempts - 1)
        if time.monotonic() + seconds >= self._end:
            return False
        time.sleep(seconds)
        return True
