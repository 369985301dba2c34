# SPDX-License-Identifier: Apache-2.0
"""
The clock of a cluster in memory.

A cluster has a hundred calls that are due at some time, and Twisted's L{Clock} sorts all of them
for each new one.  This clock puts a new one into its place::

    calls    | 1.0 | 1.5 | 1.5 | 7.0 | 30.0
                               ^ 1.5

A call that was delayed stays in its old place, and is moved when it would be due there.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from twisted.internet.base import DelayedCall
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock

__all__ = ["MemoryClock"]


class MemoryClock(Clock):
    """
    A L{Clock} for many calls.
    """

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> IDelayedCall:
        """
        See L{IReactorTime<twisted.internet.interfaces.IReactorTime>}.
        """
        call = DelayedCall(
            self.rightNow + delay, callable, args, kw, self.calls.remove, self._move, self.seconds
        )
        insort(self.calls, call)
        return call

    @property
    def due(self) -> float | None:
        """
        The time of the next call; L{None} if there is none.
        """
        calls = self.calls
        while calls and calls[0].delayed_time:
            delayed = calls.pop(0)
            delayed.activate_delay()
            insort(calls, delayed)
        return calls[0].time if calls else None

    def advance(self, amount: float) -> None:
        """
        See L{Clock}.
        """
        self.rightNow += amount
        while (due := self.due) is not None and due <= self.rightNow:
            call = self.calls.pop(0)
            call.called = 1
            call.func(*call.args, **call.kw)

    def _move(self, call: DelayedCall) -> None:
        """
        A call is due earlier than before.
        """
        self.calls.remove(call)
        insort(self.calls, call)
