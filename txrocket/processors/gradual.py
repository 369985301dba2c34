# SPDX-License-Identifier: Apache-2.0
"""
Work that takes long, done in the reactor thread bit by bit, so that messages go on
between the bits.

A request about all queues of all groups may read thousands of places on the disk.
It cannot run in a thread, for it looks at what changes in the reactor's; so it is
a generator that yields often, and after ten milliseconds of it the reactor has its
turn.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator, TaskStopped
from twisted.python.failure import Failure

__all__ = ["cooperator", "gradually"]

_T = TypeVar("_T")


def cooperator(clock: IReactorTime) -> Cooperator:
    """
    What divides the time among all such work.
    """
    return Cooperator(scheduler=lambda function: clock.callLater(0, function))


def gradually(cooperator: Cooperator, work: Generator[None, None, _T]) -> Deferred[_T]:
    """
    Do some work bit by bit.

    @return: a Deferred of what the generator returns or raises.  Cancelling it ends
        the work.
    """

    def steps() -> Generator[None, None, None]:
        value = yield from work
        done.callback(value)

    def failed(failure: Failure) -> None:
        # Whoever cancelled it knows.
        if failure.check(TaskStopped) is None:
            done.errback(failure)

    done: Deferred[_T] = Deferred(lambda cancelled: task.stop())
    task = cooperator.cooperate(steps())
    task.whenDone().addErrback(failed)
    return done
