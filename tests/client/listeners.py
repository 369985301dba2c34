# SPDX-License-Identifier: Apache-2.0
"""
Listeners for tests, and threads that work when they are told to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from txrocket.message import MessageExt


class Slow:
    """
    A listener that is done with a message when the test says so.

    @ivar calls: what it was given, and what is promised of it.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Deferred[Any]]] = []

    def __call__(self, given: Any) -> Deferred[Any]:
        promise: Deferred[Any] = Deferred()
        self.calls.append((given, promise))
        return promise

    @property
    def offsets(self) -> list[Any]:
        """
        The offsets of the messages of each call, in lists if it was given lists.
        """
        return [
            given.queueOffset
            if isinstance(given, MessageExt)
            else [each.queueOffset for each in given]
            for given, _ in self.calls
        ]

    def end(self, index: int, result: Any = None) -> None:
        """
        A call ends, with a result or an error.
        """
        promise = self.calls[index][1]
        if isinstance(result, Exception):
            promise.errback(result)
        else:
            promise.callback(result)


class Threads:
    """
    A reactor with threads, on a clock.

    @ivar jobs: what they are to do.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.jobs: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def getThreadPool(self) -> Threads:
        """
        The threads.
        """
        return self

    def callInThreadWithCallback(self, onResult: Any, function: Any, *args: Any) -> None:
        """
        A thread is to do something.
        """

        def work() -> None:
            try:
                result = function(*args)
            except Exception:
                onResult(False, Failure())
            else:
                onResult(True, result)

        self.jobs.append(work)

    def callFromThread(self, function: Any, *args: Any) -> None:
        """
        A thread has done something.
        """
        self._clock.callLater(0, function, *args)
