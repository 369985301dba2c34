# SPDX-License-Identifier: Apache-2.0
"""
Calling a listener, whatever kind it is: a plain function, one that returns a
Deferred, an C{async def}, or one that blocks and is called in a thread.

A listener that returns has consumed its messages.  One that raises has not, nor has one
that returns L{ConsumeLater}.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import CoroutineType
from typing import Any, TypeAlias

import attrs
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from txrocket.errors import ConfigError
from txrocket.message import MessageExt
from txrocket.protocol.bodies import CMResult, ConsumeMessageDirectlyResult

__all__ = ["ConsumeLater", "Listener", "ListenerCaller", "consumeDirectly"]

#: Given a message, or a list of them: see L{ListenerCaller}.
Listener: TypeAlias = Callable[[Any], Any]


@attrs.frozen
class ConsumeLater:
    """
    The result of a listener that did not consume its messages.

    @ivar delayLevel: when they are delivered again, as a level of the broker's; 0 leaves
        it to the broker, -1 makes dead letters of them.  Not in order.
    @ivar done: how many at the head of the list are consumed.  Not in order.
    @ivar seconds: after how many seconds they are tried again.  In order only.
    """

    delayLevel: int = 0
    done: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    seconds: float | None = None


class ListenerCaller:
    """
    A listener, and how it is called.

    @ivar batch: how many messages it is given at most.
    """

    def __init__(self, listener: Listener, batch: int, reactor: Any, *, blocking: bool) -> None:
        """
        @param batch: how many messages it is given at most, as a list; 0 gives it
            one, by itself.
        @param blocking: whether to call it in a thread of the reactor's pool.
        @raise ConfigError: if it is to block, and is an C{async def}.
        """
        if blocking and inspect.iscoroutinefunction(listener):
            raise ConfigError("an async listener does not block, and is not called in a thread")
        self._listener = listener
        self._single = batch == 0
        self.batch = batch or 1
        self._reactor = reactor
        self._blocking = blocking

    def call(self, messages: Sequence[MessageExt]) -> Any:
        """
        Give messages to the listener.

        @return: its result, or a Deferred of that.
        @raise Exception: as the listener does.
        """
        given = messages[0] if self._single else messages
        if self._blocking:
            threads = self._reactor.getThreadPool()
            return deferToThreadPool(self._reactor, threads, self._listener, given)
        result = self._listener(given)
        return Deferred.fromCoroutine(result) if isinstance(result, CoroutineType) else result


def consumeDirectly(
    caller: ListenerCaller, message: MessageExt, clock: IReactorTime, *, orderly: bool
) -> Deferred[ConsumeMessageDirectlyResult]:
    """
    Give a listener one message that an administrator has chosen.

    @return: a Deferred of the outcome, which never fails.
    """
    began = clock.seconds()

    def result(returned: Any) -> ConsumeMessageDirectlyResult:
        outcome, remark = CMResult.CR_SUCCESS, None
        if isinstance(returned, Failure):
            outcome, remark = CMResult.CR_THROW_EXCEPTION, returned.getErrorMessage()
        elif isinstance(returned, ConsumeLater):
            outcome = CMResult.CR_LATER
        spent = int((clock.seconds() - began) * 1000)
        return ConsumeMessageDirectlyResult(orderly, True, outcome, remark, spent)

    return maybeDeferred(caller.call, [message]).addBoth(result)
