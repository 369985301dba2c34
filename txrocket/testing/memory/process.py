# SPDX-License-Identifier: Apache-2.0
"""
The process of a server in memory: its calls happen on the clock that all servers share, and
none happens after the process has crashed.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

__all__ = ["MemoryProcess"]


@implementer(IReactorTime)
class MemoryProcess:
    """
    The reactor and the threads of one server, which end with it.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def seconds(self) -> float:
        """
        See L{IReactorTime}.
        """
        seconds: float = self._clock.seconds()
        return seconds

    def callLater(self, delay: float, callable: Any, *args: Any, **kwargs: Any) -> IDelayedCall:
        """
        See L{IReactorTime}.  The call does not happen if the process ends before.
        """
        call: IDelayedCall = self._clock.callLater(
            delay, _ProcessCall(self, callable), *args, **kwargs
        )
        return call

    def getDelayedCalls(self) -> list[IDelayedCall]:
        """
        See L{IReactorTime}.  Only the calls of this process.
        """
        return [
            each
            for each in self._clock.getDelayedCalls()
            if isinstance(each.func, _ProcessCall) and each.func.process is self
        ]

    def callFromThread(self, callable: Any, *args: Any) -> None:
        """
        Call a function in the reactor's thread.
        """
        self.callLater(0, callable, *args)

    def callInThreadWithCallback(self, onResult: Any, func: Any, *args: Any) -> None:
        """
        Do a thread's work later in the same thread, since there are no others.
        """

        def work() -> None:
            try:
                result = func(*args)
            except Exception:
                onResult(False, Failure())
            else:
                onResult(True, result)

        self.callLater(0, work)

    def crash(self) -> None:
        """
        End the process: none of its calls happens any more.
        """
        for each in self.getDelayedCalls():
            each.cancel()


class _ProcessCall:
    """
    A delayed call, marked with its process.
    """

    __slots__ = ("_callable", "process")

    def __init__(self, process: MemoryProcess, callable: Any) -> None:
        self.process = process
        self._callable = callable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._callable(*args, **kwargs)
