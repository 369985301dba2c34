# SPDX-License-Identifier: Apache-2.0
"""
The two clocks of a process, kept apart::

    reactor.seconds(), callLater, LoopingCall    monotonic: nobody can set it
    wall()                                       the time of day: anybody may set it

Twisted's reactor takes the time of day for both.  If somebody sets that back by an hour,
every timer of the process waits for the hour to pass again: no flush, no heartbeat, no
time-out.

L{steady} gives one reactor a clock that shows the time of day of that moment and from
then on counts with C{CLOCK_MONOTONIC}.  Calls that are scheduled already keep their
times, and programs that take C{reactor.seconds()} for the time of day stay nearly right.

This is Twisted's private affair: C{ReactorBase} reads its own attribute C{seconds} for
all that it schedules.  Only this module sets it, and it leaves a reactor alone whose
C{seconds} is another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from twisted.internet.base import ReactorBase
from twisted.python.runtime import seconds as _timeOfDay

__all__ = ["steady", "wallOf"]


def steady(
    reactor: Any,
    wall: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """
    Have the timers of a reactor follow a monotonic clock, for as long as it exists.

    There is no way back: timers that are set meanwhile would go off at a wrong time.
    A reactor that follows another clock than the time of day, as in a test, keeps it.
    """
    if isinstance(reactor, ReactorBase) and reactor.seconds is _timeOfDay:
        begun = wall() - monotonic()
        reactor.seconds = lambda: begun + monotonic()


def wallOf(reactor: Any) -> Callable[[], float]:
    """
    The time of day that goes with a reactor: the machine's, or that of a test's clock.
    """
    if isinstance(reactor, ReactorBase):
        return time.time
    seconds: Callable[[], float] = reactor.seconds
    return seconds
