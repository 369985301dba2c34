# SPDX-License-Identifier: Apache-2.0
"""
Work that takes long, done in the reactor thread bit by bit, so that messages go on
between the bits.

A request about all queues of all groups may read thousands of places on the disk.
It cannot run in a thread, for it looks at what changes in the reactor's; so it is
a generator that yields often, and after ten milliseconds of it the reactor has its
turn.

Most requests are small.  L{promptly} does the first bit of one at once, and no Deferred
is made if there is no second.  The number of requests that go on after that is bounded,
because each of them holds its body and what was made of it so far.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator, TaskStopped
from twisted.python.failure import Failure

from txrocket.errors import SystemBusy
from txrocket.protocol.bodycodec import encodeGradually
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.remoting.interfaces import Answer
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["Slices", "Turns", "begun", "cooperator", "gradually", "promptly", "telling"]

_T = TypeVar("_T")

# Requests that L{promptly} has begun and not ended.
_STARTED: Final = 64

# Requests of one peer that may wait for the one before them.
_WAITING: Final = 16


class Slices(Cooperator):
    """
    Divides the time among all such work.

    @ivar started: how many requests L{promptly} has begun and not ended.
    """

    def __init__(self, clock: IReactorTime) -> None:
        super().__init__(scheduler=lambda function: clock.callLater(0, function))
        self.started = 0


def cooperator(clock: IReactorTime) -> Slices:
    """
    What divides the time among all such work.
    """
    return Slices(clock)


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


def promptly(slices: Slices, work: Generator[None, None, RemotingCommand]) -> Answer:
    """
    Begin some work, and do the rest of it bit by bit.

    @return: the answer that the generator returns, at once if it does not yield.
    @raise SystemBusy: if too many requests are being answered bit by bit already.
    """
    try:
        next(work)
    except StopIteration as stop:
        answer: RemotingCommand = stop.value
        return answer
    if slices.started >= _STARTED:
        work.close()
        raise SystemBusy(
            f"{slices.started} large requests are being dealt with already, try again in a while"
        )
    slices.started += 1

    def ended(result: Any) -> Any:
        slices.started -= 1
        return result

    return gradually(slices, work).addBoth(ended)


def telling(body: object, standard: bool = False) -> Generator[None, None, RemotingCommand]:
    """
    The answer that has some body, for L{promptly}.

    @param standard: as in L{encodeBody<txrocket.protocol.bodycodec.encodeBody>}.
    """
    data = yield from encodeGradually(body, standard)
    return responseCommand(body=data)


def begun(slices: Slices, work: Generator[None, None, _T]) -> Deferred[_T]:
    """
    Do the first bit of some work at once, and the rest of it bit by bit.

    @return: a Deferred of what the generator returns or raises.
    """
    try:
        next(work)
    except StopIteration as stop:
        return succeed(stop.value)
    except Exception:
        return fail()
    return gradually(slices, work)


class Turns:
    """
    Deals with the requests of a peer one after the other: a client that leaves a group
    must not be found in it because its long heartbeat was still being read.
    """

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._locks: dict[RemotingProtocol, DeferredLock] = {}

    def take(self, peer: RemotingProtocol, work: Generator[None, None, RemotingCommand]) -> Answer:
        """
        Begin some work, or have it wait for the work before it.

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
            lambda acquired: gradually(self._slices, work).addBoth(self._over, peer, held)
        )

    def _over(self, result: Any, peer: RemotingProtocol, lock: DeferredLock) -> Any:
        lock.release()
        if not lock.locked:
            del self._locks[peer]
        return result
