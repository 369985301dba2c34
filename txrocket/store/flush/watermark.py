# SPDX-License-Identifier: Apache-2.0
"""
How far a file is written or flushed, and the Deferreds that wait for more.

A send waits for C{flushed.reaches(offset)}: one C{fdatasync} moves the mark past
all that was written before it, and so serves all that wait.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import attrgetter

from twisted.internet.defer import Deferred, fail, succeed

__all__ = ["Watermark"]


class _Waiter(Deferred[None]):
    offset: int


class Watermark:
    """
    An offset that grows, until the file is cut.

    @ivar offset: how far it has come.
    @ivar failure: why it will never come further, or L{None}.
    """

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.failure: Exception | None = None
        # In growing order, which is the order of asking but for a few.
        self._waiting: deque[_Waiter] = deque()
        self._followers: list[_Waiter] = []

    @property
    def waiting(self) -> int:
        """
        How many wait.
        """
        return len(self._waiting)

    def awaitedBeyond(self, offset: int) -> bool:
        """
        Whether anybody waits for more than that.
        """
        return bool(self._waiting) and self._waiting[-1].offset > offset

    def reaches(self, offset: int) -> Deferred[None]:
        """
        A Deferred that fires once the mark is at C{offset} or past it, and
        fails with the reason if it will not come there.
        """
        if offset <= self.offset:
            return succeed(None)
        if self.failure is not None:
            return fail(self.failure)
        waiter = _Waiter(lambda waiter: None)
        waiter.offset = offset
        if self._waiting and offset < self._waiting[-1].offset:
            insort(self._waiting, waiter, key=attrgetter("offset"))
        else:
            self._waiting.append(waiter)
        return waiter

    def passes(self, offset: int) -> Deferred[None]:
        """
        A Deferred that fires once the mark is past C{offset}, for a follower of the file: no
        failure ends its wait.
        """
        if offset < self.offset:
            return succeed(None)
        follower = _Waiter(self._forget)
        follower.offset = offset
        self._followers.append(follower)
        return follower

    def advance(self, offset: int) -> None:
        """
        It has come so far.
        """
        if offset > self.offset:
            self.offset = offset
            if self._followers:
                self._tellFollowers()
        while self._waiting and self._waiting[0].offset <= self.offset:
            waiter = self._waiting.popleft()
            if not waiter.called:
                waiter.callback(None)

    def goBack(self, offset: int, reason: Exception) -> None:
        """
        The file was cut at an offset.  Those who wait for more than that do so in vain.
        """
        self.offset = min(self.offset, offset)
        self.disappoint(reason, offset)

    def fail(self, reason: Exception) -> None:
        """
        The watermark stays where it is for ever.
        """
        self.failure = reason
        self.disappoint(reason)

    def disappoint(self, reason: Exception, beyond: int = -1) -> None:
        """
        Fail the callers that wait for an offset beyond another.  They may wait again.
        """
        waiting = self._waiting
        self._waiting = deque([each for each in waiting if each.offset <= beyond])
        for waiter in waiting:
            if waiter.offset > beyond and not waiter.called:
                waiter.errback(reason)

    def _tellFollowers(self) -> None:
        passed = [each for each in self._followers if each.offset < self.offset]
        self._followers = [each for each in self._followers if each.offset >= self.offset]
        for each in passed:
            each.callback(None)

    def _forget(self, follower: Deferred[None]) -> None:
        self._followers = [each for each in self._followers if each is not follower]
