# SPDX-License-Identifier: Apache-2.0
"""
Requests that take long, run in the reactor thread step by step, so that sends and pulls go on
between the steps.

A request about all queues of all groups may read the disk thousands of times.  It cannot
run in a thread, because it reads state of the reactor thread.  So it is a generator that
yields often, and the reactor has its turn after about ten milliseconds.

Most requests are small.  L{promptly} runs the first step at once, and makes no Deferred if
there is no second step.  The number of requests with more steps is bounded, because each
holds its body and its result so far.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator, TaskStopped
from twisted.python.failure import Failure

from txrocket.errors import SystemBusy
from txrocket.protocol.bodies.codec import encodeGradually
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.remoting.interfaces import Answer
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["Slices", "Turns", "begun", "cooperate", "cooperator", "promptly", "telling"]

_T = TypeVar("_T")

# How many requests may be in flight in L{promptly}.
_STARTED: Final = 64

# Requests of one peer that may wait for the one before them.
_WAITING: Final = 16


class Slices(Cooperator):
    """
    Divides the time of the reactor among requests that take long.

    @ivar started: how many requests are in flight in L{promptly}.
    """

    def __init__(self, clock: IReactorTime) -> None:
        super().__init__(scheduler=lambda function: clock.callLater(0, function))
        self.started = 0


def cooperator(clock: IReactorTime) -> Slices:
    """
    The slices of one server.
    """
    return Slices(clock)


def cooperate(cooperator: Cooperator, work: Generator[None, None, _T]) -> Deferred[_T]:
    """
    Run a generator step by step.

    @return: a Deferred of the value that the generator returns or raises.  Cancelling it
        ends the generator.
    """

    def steps() -> Generator[None, None, None]:
        value = yield from work
        done.callback(value)

    def failed(failure: Failure) -> None:
        # The canceller knows.
        if failure.check(TaskStopped) is None:
            done.errback(failure)

    done: Deferred[_T] = Deferred(lambda cancelled: task.stop())
    task = cooperator.cooperate(steps())
    task.whenDone().addErrback(failed)
    return done


def promptly(slices: Slices, work: Generator[None, None, RemotingCommand]) -> Answer:
    """
    Run the first step of a request now, and the rest step by step.

    @return: the response that the generator returns, at once if it does not yield.
    @raise SystemBusy: if too many requests are in flight already.
    """
    try:
        next(work)
    except StopIteration as stop:
        answer: RemotingCommand = stop.value
        return answer
    if slices.started >= _STARTED:
        work.close()
        raise SystemBusy(
            f"{slices.started} large requests are being served already, try again in a while"
        )
    slices.started += 1

    def ended(result: Any) -> Any:
        slices.started -= 1
        return result

    return cooperate(slices, work).addBoth(ended)


def telling(body: object, standard: bool = False) -> Generator[None, None, RemotingCommand]:
    """
    The response with a body, which is encoded step by step.

    @param standard: as in L{encodeBody<txrocket.protocol.bodies.codec.encodeBody>}.
    """
    data = yield from encodeGradually(body, standard)
    return responseCommand(body=data)


def begun(slices: Slices, work: Generator[None, None, _T]) -> Deferred[_T]:
    """
    Run the first step of a generator now, and the rest step by step.

    @return: a Deferred of the value that the generator returns or raises.
    """
    try:
        next(work)
    except StopIteration as stop:
        return succeed(stop.value)
    except Exception:
        return fail()
    return cooperate(slices, work)


class Turns:
    """
    Serves the requests of a peer one after the other: a client that leaves a group must not
    join it again through a long heartbeat from before.
    """

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._locks: dict[RemotingProtocol, DeferredLock] = {}

    def take(self, peer: RemotingProtocol, work: Generator[None, None, RemotingCommand]) -> Answer:
        """
        Run a request, after the requests of the same peer before it.

        @raise SystemBusy: if too many requests of the peer wait already.
        """
        lock = self._locks.get(peer)
        if lock is None:
            answer = promptly(self._slices, work)
            if not isinstance(answer, Deferred):
                return answer
            lock = self._locks[peer] = DeferredLock()
            lock.acquire()
            return answer.addBoth(self._over, peer, lock)
        if len(lock.waiting) >= _WAITING:
            raise SystemBusy(f"{_WAITING} requests of {peer.address} wait for the one before them")
        held = lock
        return lock.acquire().addCallback(
            lambda acquired: cooperate(self._slices, work).addBoth(self._over, peer, held)
        )

    def _over(self, result: Any, peer: RemotingProtocol, lock: DeferredLock) -> Any:
        lock.release()
        if not lock.locked:
            del self._locks[peer]
        return result
