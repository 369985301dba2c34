# SPDX-License-Identifier: Apache-2.0
"""
Where processors run, and how many at a time: in the reactor, or, for what blocks,
in threads.

All that decides lives in the reactor thread; a thread only runs the processor::

    request --> fewer run than may? -> run it ------> answer, take the next
                else, room to wait? -> wait --------> waited too long? SystemBusy
                else SystemBusy at once

A broker under pressure must say no early: an answer that comes after its asker
has given up helps no one and costs as much as one that helps.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall
from zope.interface import implementer

from txrocket.errors import SystemBusy
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.interfaces import Answer, IExecutor, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.turn import ProcessAll

__all__ = ["InlineExecutor", "PoolExecutor", "TurnExecutor"]


@implementer(IExecutor)
class InlineExecutor:
    """
    Runs processors in the reactor thread, as they come.
    """

    def bind(self, process: Process) -> Process:
        """
        See L{IExecutor.bind}.
        """
        return process

    def bindAll(self, processAll: ProcessAll) -> ProcessAll | None:
        """
        See L{IExecutor.bindAll}.
        """
        return processAll


class _Threads(Protocol):
    """
    What is used of L{twisted.python.threadpool.ThreadPool}.
    """

    def callInThreadWithCallback(
        self, onResult: Callable[[bool, Any], None], func: Callable[..., Any], *args: Any
    ) -> None: ...


class _Clock(Protocol):
    """
    What is used of the reactor.
    """

    def seconds(self) -> float: ...

    def callLater(self, delay: float, callable: Callable[..., object]) -> IDelayedCall: ...


class _Reactor(_Clock, Protocol):
    """
    What is used of the reactor, where there are threads.
    """

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None: ...


def _cancelWork(task: Deferred[Any]) -> None:
    assert isinstance(task, _Task)
    if task.work is not None:
        task.work.cancel()


class _Task(Deferred["RemotingCommand | None"]):
    """
    A request that waits or runs, and the Deferred of its answer.

    @ivar work: what it waits for, if that can be given up.
    """

    def __init__(
        self, process: Process, request: RemotingCommand, peer: RemotingProtocol, arrived: float
    ) -> None:
        super().__init__(_cancelWork)
        self.work: Deferred[Any] | None = None
        self.process = process
        self.request = request
        self.peer = peer
        self.arrived = arrived


class _BoundedExecutor:
    """
    Runs a bounded number of requests at a time, with a bounded number waiting for
    a bounded time.

    @ivar name: names the executor in the response to a request that it refuses.
    @ivar running: how many requests run now.
    """

    def __init__(
        self, clock: _Clock, name: str, size: int, queueLimit: int, maxWait: float
    ) -> None:
        self._clock = clock
        self.name = name
        self._size = size
        self._queueLimit = queueLimit
        self._maxWait = maxWait
        self._waiting: deque[_Task] = deque()
        self._expiry: IDelayedCall | None = None
        self.running = 0

    @property
    def waiting(self) -> int:
        """
        How many requests wait for their turn.
        """
        return len(self._waiting)

    def bind(self, process: Process) -> Process:
        """
        See L{IExecutor.bind}.
        """
        return functools.partial(self._execute, process)

    def bindAll(self, processAll: ProcessAll) -> ProcessAll | None:
        """
        See L{IExecutor.bindAll}: each request waits for its turn.
        """
        return None

    def _begin(self, task: _Task) -> None:
        """
        Run a request, and call L{_finished} in the reactor thread afterwards.
        """
        raise NotImplementedError

    def _execute(
        self, process: Process, request: RemotingCommand, peer: RemotingProtocol
    ) -> Answer:
        if self.running >= self._size and len(self._waiting) >= self._queueLimit:
            raise SystemBusy(
                f"[OVERLOAD] {self.name}: {len(self._waiting)} requests wait already, "
                "try again in a while"
            )
        task = _Task(process, request, peer, self._clock.seconds())
        if self.running < self._size:
            self._run(task)
        else:
            self._waiting.append(task)
            self._watch()
        return task

    def _run(self, task: _Task) -> None:
        self.running += 1
        self._begin(task)

    def _finished(self, task: _Task, result: Any) -> None:
        self.running -= 1
        while self._waiting and self.running < self._size:
            following = self._waiting.popleft()
            # Cancelled: its connection went away.
            if not following.called:
                self._run(following)
        if not task.called:
            task.callback(result)

    def _watch(self) -> None:
        """
        See to it that the one that waits longest is answered in time, even if
        none that runs comes to an end.
        """
        if self._expiry is None and self._waiting:
            due = self._waiting[0].arrived + self._maxWait
            self._expiry = self._clock.callLater(
                max(0.0, due - self._clock.seconds()), self._expire
            )

    def _expire(self) -> None:
        self._expiry = None
        now = self._clock.seconds()
        # The same sum as in _watch: it must not round to a time before the timer's.
        while self._waiting and self._waiting[0].arrived + self._maxWait <= now:
            task = self._waiting.popleft()
            if not task.called:
                task.errback(
                    SystemBusy(
                        f"[TIMEOUT_CLEAN_QUEUE] {self.name}: waited {now - task.arrived:.3f} s "
                        f"for its turn, {len(self._waiting)} more wait, try again in a while"
                    )
                )
        self._watch()


@implementer(IExecutor)
class PoolExecutor(_BoundedExecutor):
    """
    Runs processors that block in threads.

    Such a processor returns its response and touches no state of the reactor's.
    """

    def __init__(
        self,
        reactor: _Reactor,
        threads: _Threads,
        *,
        name: str,
        size: int = 4,
        queueLimit: int = 10_000,
        maxWait: float = 0.2,
    ) -> None:
        """
        @param threads: a started thread pool with at least C{size} threads.
        @param queueLimit: how many requests may wait for a thread.
        @param maxWait: how many seconds each may wait.
        """
        super().__init__(reactor, name, size, queueLimit, maxWait)
        self._reactor = reactor
        self._threads = threads

    def _begin(self, task: _Task) -> None:
        def finished(success: bool, result: Any) -> None:
            self._reactor.callFromThread(self._finished, task, result)

        self._threads.callInThreadWithCallback(finished, self._checked, task)

    def _checked(self, task: _Task) -> RemotingCommand | None:
        answer = task.process(task.request, task.peer)
        if isinstance(answer, Deferred):
            raise TypeError(f"{self.name}: a processor in a thread returned a Deferred")
        return answer


@implementer(IExecutor)
class TurnExecutor(_BoundedExecutor):
    """
    Runs processors in the reactor thread, each in its turn: for those that leave
    what blocks to a thread, or that wait for the disk, and return a Deferred.  One
    that is done gives way to the next.
    """

    def __init__(
        self,
        clock: _Clock,
        *,
        name: str,
        size: int = 4,
        queueLimit: int = 10_000,
        maxWait: float = 5.0,
    ) -> None:
        """
        @param queueLimit: how many requests may wait for their turn.
        @param maxWait: how many seconds each may wait.
        """
        super().__init__(clock, name, size, queueLimit, maxWait)

    def _begin(self, task: _Task) -> None:
        task.work = maybeDeferred(task.process, task.request, task.peer)
        task.work.addBoth(lambda result: self._finished(task, result))
