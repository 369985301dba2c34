# SPDX-License-Identifier: Apache-2.0
"""
Calling a listener, whatever kind it is: a plain function, one that returns a
Deferred, an C{async def}, or one that blocks and is called in a thread.

A listener that returns has dealt with its messages.  One that raises has not, and
neither has one that returns L{ConsumeLater}.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from txrocket.errors import ConfigError
from txrocket.message import MessageExt

__all__ = ["ConsumeLater", "Listener", "Listening"]

#: Given a message, or a list of them: see L{Listening}.
Listener: TypeAlias = Callable[[Any], Any]


@attrs.frozen
class ConsumeLater:
    """
    What a listener returns that did not deal with its messages.

    @ivar delayLevel: when they are tried again, as a level of the broker's; 0
        leaves it to the broker, -1 makes dead letters of them.  Not in order.
    @ivar done: how many of the first in the list it did deal with.  Not in order.
    @ivar seconds: after how long they are tried again.  In order only.
    """

    delayLevel: int = 0
    done: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    seconds: float | None = None


class Listening:
    """
    A listener.

    @ivar batch: how many messages it is given at most.
    @ivar plain: the listener itself if it is given one message at a time, here, and is no
        C{async def}: who calls it gets what L{call} returns or raises, but for a coroutine.
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
        waits = blocking or inspect.iscoroutinefunction(listener)
        self.plain = listener if self._single and not waits else None

    def call(self, messages: Sequence[MessageExt]) -> Any:
        """
        Give messages to the listener.

        @return: what it returned, or a Deferred of that.
        @raise Exception: what it raised.
        """
        given = messages[0] if self._single else messages
        if self._blocking:
            threads = self._reactor.getThreadPool()
            return deferToThreadPool(self._reactor, threads, self._listener, given)
        return self.outcome(self._listener(given))

    def outcome(self, result: Any) -> Any:
        """
        What a listener returned, or a Deferred of what its coroutine does.
        """
        if inspect.iscoroutine(result):
            return Deferred.fromCoroutine(result)
        return result
