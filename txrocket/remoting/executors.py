# SPDX-License-Identifier: Apache-2.0
"""
Where processors run: in the reactor, or, for what blocks, in threads.

All that decides lives in the reactor thread; a thread only runs the processor::

    request --> a thread is free? --> run it there --> answer, take the next
                else, room to wait? -> wait ---------> waited too long? SystemBusy
                else SystemBusy at once

A broker under pressure must say no early: an answer that comes after its asker
has given up helps no one and costs as much as one that helps.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocket.errors import SystemBusy
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.interfaces import Answer, IExecutor, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["InlineExecutor", "PoolExecutor"]


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


class _Threads(Protocol):
    """
    What is used of L{twisted.python.threadpool.ThreadPool}.
    """

    def callInThreadWithCallback(
        self, onResult: Callable[[bool, Any], None], func: Callable[..., Any], *args: Any
    ) -> None: ...


class _Reactor(Protocol):
    """
    What is used of the reactor.
    """

    def seconds(self) -> float: ...

    def callLater(self, delay: float, callable: Callable[..., object]) -> IDelayedCall: ...

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None: ...


class _Task(Deferred["RemotingCommand | None"]):
    """
    A request that waits or runs, and the Deferred of its answer.
    """

    def __init__(
        self, process: Process, request: RemotingCommand, peer: RemotingProtocol, arrived: float
    ) -> None:
        super().__init__(lambda task: None)
        self.process = process
        self.request = request
        self.peer = peer
        self.arrived = arrived


@implementer(IExecutor)
class PoolExecutor:
    """
    Runs processors that block in threads, a bounded number at a time, with a
    bounded number waiting for a bounded time.

    Such a processor returns its response and touches no state of the reactor's.

    @ivar name: for the one who reads the answer that it is busy.
    @ivar running: how many requests are in threads now.
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
        self._reactor = reactor
        self._threads = threads
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
        How many requests wait for a thread.
        """
        return len(self._waiting)

    def bind(self, process: Process) -> Process:
        """
        See L{IExecutor.bind}.
        """
        return functools.partial(self._execute, process)

    def _execute(
        self, process: Process, request: RemotingCommand, peer: RemotingProtocol
    ) -> Answer:
        if self.running >= self._size and len(self._waiting) >= self._queueLimit:
            raise SystemBusy(
                f"[OVERLOAD] {self.name}: {len(self._waiting)} requests wait already, "
                "try again in a while"
            )
        task = _Task(process, request, peer, self._reactor.seconds())
        if self.running < self._size:
            self._run(task)
        else:
            self._waiting.append(task)
            self._watch()
        return task

    def _run(self, task: _Task) -> None:
        self.running += 1

        def finished(success: bool, result: Any) -> None:
            self._reactor.callFromThread(self._finished, task, result)

        self._threads.callInThreadWithCallback(finished, task.process, task.request, task.peer)

    def _finished(self, task: _Task, result: Any) -> None:
        self.running -= 1
        while self._waiting and self.running < self._size:
            following = self._waiting.popleft()
            # Cancelled: its connection went away.
            if not following.called:
                self._run(following)
        if task.called:
            return
        if isinstance(result, Failure):
            task.errback(result)
        elif isinstance(result, Deferred):
            task.errback(TypeError(f"{self.name}: a processor in a thread returned a Deferred"))
        else:
            task.callback(result)

    def _watch(self) -> None:
        """
        See to it that the one that waits longest is answered in time, even if
        no thread comes free.
        """
        if self._expiry is None and self._waiting:
            due = self._waiting[0].arrived + self._maxWait
            self._expiry = self._reactor.callLater(
                max(0.0, due - self._reactor.seconds()), self._expire
            )

    def _expire(self) -> None:
        self._expiry = None
        now = self._reactor.seconds()
        # The same sum as in _watch: it must not round to a time before the timer's.
        while self._waiting and self._waiting[0].arrived + self._maxWait <= now:
            task = self._waiting.popleft()
            if not task.called:
                task.errback(
                    SystemBusy(
                        f"[TIMEOUT_CLEAN_QUEUE] {self.name}: waited {now - task.arrived:.3f} s "
                        f"for a thread, {len(self._waiting)} more wait, try again in a while"
                    )
                )
        self._watch()
