# SPDX-License-Identifier: Apache-2.0
"""
Looking at every call of a listener, before and after; Java's C{ConsumeMessageHook}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface

from txrocket.client.consumer.push.listener import ConsumeLater, Listener, ListenerCaller
from txrocket.message import MessageExt
from txrocket.protocol.tracebodies import ConsumeReturnType

__all__ = ["Consuming", "IConsumeMessageHook", "Watch", "Watched"]


class Consuming:
    """
    A call of a listener; what a hook sees.

    @ivar group: the consumer's group.
    @ivar messages: what the listener is given.
    @ivar began: when it is called, in seconds of the reactor's clock.
    @ivar ended: when it was done.
    @ivar status: what came of it, once that is known.
    @ivar done: how many messages at the head of the list are consumed.
    @ivar error: what it raised.
    """

    ended: float | None = None
    status: ConsumeReturnType | None = None
    done = 0
    error: BaseException | None = None

    def __init__(self, group: str, messages: Sequence[MessageExt], began: float) -> None:
        self.group = group
        self.messages = messages
        self.began = began


class IConsumeMessageHook(Interface):
    """
    Looks at every call of a consumer's listener.
    """

    name: str = Attribute("For logs.")

    def beforeConsume(consuming: Consuming) -> None:
        """
        The listener is about to be called.  An error of a hook is logged, and changes
        nothing.
        """

    def afterConsume(consuming: Consuming) -> None:
        """
        The listener is done.
        """


class Watch:
    """
    The hooks of a consumer.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        group: str,
        hooks: Sequence[IConsumeMessageHook],
        limit: float,
        *,
        orderly: bool,
    ) -> None:
        """
        @param limit: after how many seconds a call has taken too long.
        @param orderly: whether messages are consumed in order, when all of a call are
            consumed, or none.
        """
        self._clock = clock
        self._group = group
        self._hooks = hooks
        self._limit = limit
        self._orderly = orderly

    def before(self, messages: Sequence[MessageExt]) -> Consuming:
        """
        A call begins.
        """
        consuming = Consuming(self._group, messages, self._clock.seconds())
        for hook in self._hooks:
            self._show(hook, hook.beforeConsume, consuming)
        return consuming

    def after(self, result: Any, consuming: Consuming) -> None:
        """
        A call is over.

        @param result: what the listener returned, or a L{Failure}.
        """
        consuming.ended = self._clock.seconds()
        if isinstance(result, Failure):
            consuming.error = result.value
            consuming.status = ConsumeReturnType.EXCEPTION
        else:
            self._returned(result, consuming)
        for hook in self._hooks:
            self._show(hook, hook.afterConsume, consuming)

    def _returned(self, result: Any, consuming: Consuming) -> None:
        count = len(consuming.messages)
        if isinstance(result, ConsumeLater):
            consuming.status = ConsumeReturnType.FAILED
            consuming.done = 0 if self._orderly else min(result.done, count)
        else:
            consuming.status = ConsumeReturnType.SUCCESS
            consuming.done = count
        assert consuming.ended is not None
        if consuming.ended - consuming.began >= self._limit:
            consuming.status = ConsumeReturnType.TIME_OUT

    def _show(
        self,
        hook: IConsumeMessageHook,
        look: Callable[[Consuming], None],
        consuming: Consuming,
    ) -> None:
        try:
            look(consuming)
        except Exception:
            self._log.failure(
                "Hook {name} failed of a call of {group}'s listener",
                name=hook.name,
                group=consuming.group,
            )


class Watched(ListenerCaller):
    """
    A listener that hooks look at.
    """

    def __init__(
        self, watch: Watch, listener: Listener, batch: int, reactor: Any, *, blocking: bool
    ) -> None:
        """
        The same as L{ListenerCaller}'s.
        """
        super().__init__(listener, batch, reactor, blocking=blocking)
        self._watch = watch

    def call(self, messages: Sequence[MessageExt]) -> Any:
        """
        Give messages to the listener.
        """

        def over(result: Any) -> Any:
            self._watch.after(result, consuming)
            return result

        consuming = self._watch.before(messages)
        try:
            result = super().call(messages)
        except Exception:
            self._watch.after(Failure(), consuming)
            raise
        return result.addBoth(over) if isinstance(result, Deferred) else over(result)
