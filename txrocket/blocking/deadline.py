# SPDX-License-Identifier: Apache-2.0
"""
The one time limit of a call, which all that it does shares.
"""

from __future__ import annotations

import time

__all__ = ["Deadline"]


class Deadline:
    """
    A time by which something must be done.

    @ivar seconds: how long that was at the beginning.
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
        How many seconds it has been.
        """
        return time.monotonic() - self._began

    def left(self) -> float:
        """
        How many seconds are left.

        @raise TimeoutError: if none are.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def share(self, parts: int) -> Deadline:
        """
        The time limit of one of several things that are done one after the other:
        an equal part of what is left.

        @param parts: how many are still to be done.
        """
        return self if parts == 1 else Deadline((self._end - time.monotonic()) / parts)

    def atMost(self, seconds: float) -> Deadline:
        """
        This time limit, or one of so many seconds from now if that is sooner.
        """
        return self if self._end - time.monotonic() <= seconds else Deadline(seconds)

    def pause(self, attempts: int) -> bool:
        """
        Sleep before something is tried again, the longer the more often it has
        failed; unless there would be no time for it.

        @return: whether there is.
        """
        # As between two attempts to connect by a client with a reactor.
        seconds = 0.2 * 1.5 ** (attempts - 1)
        if time.monotonic() + seconds >= self._end:
            return False
        time.sleep(seconds)
        return True
