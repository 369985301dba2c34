# SPDX-License-Identifier: Apache-2.0
"""
The requests of one connection that wait for their answers.

A timer for each request would cost more than the request's own bookkeeping
(some 2 us against 0.1).  So there is one timer per connection, set for the
request that is due first; when it fires, one sweep fails all that are late and
finds the next.
"""

from __future__ import annotations

from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from txrocket.errors import ConnectionLost, RemotingError, RequestTimedOut, TooManyRequests
from txrocket.protocol.codes import requestName
from txrocket.protocol.command import RemotingCommand

__all__ = ["Pending", "PendingRequest", "ResponseTable"]

_Result = TypeVar("_Result")

# Sweeps are at least this many seconds apart, so that a table in which a request
# falls due every millisecond is not searched a thousand times a second.
SWEEP_INTERVAL = 0.05


class Pending(Deferred[_Result]):
    """
    A request under way: the Deferred of what comes of it.

    @ivar timeout: in seconds.
    @ivar deadline: when the time is over, in seconds.
    """

    opaque: int
    code: int
    timeout: float
    deadline: float

    def answered(self, response: RemotingCommand, /) -> None:
        """
        The answer is there.
        """
        raise NotImplementedError

    def failed(self, error: RemotingError, /) -> None:
        """
        No answer will come.
        """
        raise NotImplementedError


class PendingRequest(Pending[RemotingCommand]):
    """
    One of which nothing comes but the answer.
    """

    answered = Deferred.callback
    failed = Deferred.errback


class ResponseTable:
    """
    C{responseTable}: opaque -> the Deferred that waits for the answer.

    @ivar pending: the table itself.
    """

    # There is one for each of ten thousand connections.
    __slots__ = ("_address", "_clock", "_due", "_limit", "_sweeper", "pending")

    def __init__(self, clock: IReactorTime, address: str, limit: int) -> None:
        """
        @param address: the peer, for the errors.
        @param limit: how many requests may be under way.
        """
        self._clock = clock
        self._address = address
        self._limit = limit
        self.pending: dict[int, Pending[Any]] = {}
        self._sweeper: IDelayedCall | None = None
        self._due = 0.0

    def __len__(self) -> int:
        return len(self.pending)

    def request(self, opaque: int, code: int, timeout: float) -> PendingRequest:
        """
        A request that is to be added.

        @raise TooManyRequests: if as many are waited for as may be.
        """
        if len(self.pending) >= self._limit:
            raise TooManyRequests(
                self._address,
                f"{requestName(code)} was not sent to {self._address}: "
                f"{self._limit} requests are under way already",
            )
        request = PendingRequest(self.forget)
        request.opaque = opaque
        request.code = code
        request.timeout = timeout
        request.deadline = self._clock.seconds() + timeout
        return request

    def add(self, request: Pending[Any]) -> None:
        """
        Wait for the answer to a request.  There must be room.
        """
        self.pending[request.opaque] = request
        if self._sweeper is None:
            self._schedule(request.deadline, request.timeout)
        elif request.deadline < self._due:
            self._due = request.deadline
            self._sweeper.reset(request.timeout)

    def answer(self, response: RemotingCommand) -> bool:
        """
        Give an answer to the request that waits for it.

        @return: whether there is one.
        """
        request = self.pending.pop(response.opaque, None)
        if request is None:
            return False
        request.answered(response)
        return True

    def forget(self, request: Deferred[Any]) -> None:
        """
        Do not wait for an answer any more: it is dropped.
        """
        assert isinstance(request, Pending)
        if self.pending.get(request.opaque) is request:
            del self.pending[request.opaque]

    def failAll(self, reason: str) -> None:
        """
        The connection is gone: nothing will be answered any more.
        """
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        pending, self.pending = self.pending, {}
        now = self._clock.seconds()
        for request in pending.values():
            spent = now - request.deadline + request.timeout
            _fail(
                request,
                ConnectionLost(
                    self._address,
                    f"waiting for the answer to {requestName(request.code)}: "
                    f"the connection to {self._address} was lost after {spent:.3f} s: {reason}",
                ),
            )

    def _schedule(self, due: float, delay: float) -> None:
        self._due = due
        self._sweeper = self._clock.callLater(delay, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = self._clock.seconds()
        late = [request for request in self.pending.values() if request.deadline <= now]
        for request in late:
            del self.pending[request.opaque]
        if self.pending:
            due = min(request.deadline for request in self.pending.values())
            self._schedule(due, max(SWEEP_INTERVAL, due - now))
        for request in late:
            _fail(
                request,
                RequestTimedOut(
                    self._address,
                    f"waiting for the answer to {requestName(request.code)}: "
                    f"{self._address} did not answer within {request.timeout:g} s",
                ),
            )


def _fail(request: Pending[Any], error: RemotingError) -> None:
    # A callback of another that failed with it may have cancelled this one.
    if not request.called:
        request.failed(error)
