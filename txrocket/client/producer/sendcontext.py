# SPDX-License-Identifier: Apache-2.0
"""
What a producer's hooks are shown of each message; Java's C{SendMessageContext} and
C{SendMessageHook}.  A producer without hooks makes none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface

from txrocket.client.sansio.results import SendResult
from txrocket.message import Message
from txrocket.model import MessageQueue

if TYPE_CHECKING:
    from txrocket.client.producer.pendingsend import PendingSend

__all__ = ["ISendMessageHook", "SendWatch", "Sending"]


class Sending:
    """
    A message that is being sent, as a hook sees it.

    @ivar message: the message, or the messages of a batch.
    @ivar body: the body of the request: the message's, perhaps compressed, or a batch.
    @ivar msgId: the id that this client gives the message; the ids of a batch are
        separated by commas.
    @ivar queue: the queue of the last attempt.
    @ivar address: the broker of the last attempt.
    @ivar attempts: how many attempts there were.
    @ivar began: when the first attempt began, in seconds of the reactor's clock.
    @ivar born: the same as a time of day, in milliseconds.
    @ivar timeout: in seconds, for all attempts.
    @ivar result: what the broker answered, once it has.
    @ivar error: why the send failed, once it has.
    @ivar oneway: whether no answer is awaited.
    """

    queue: MessageQueue | None = None
    address = ""
    attempts = 0
    result: SendResult | None = None
    error: BaseException | None = None

    def __init__(
        self,
        topic: str,
        message: Message | Sequence[Message],
        timeout: float,
        *,
        body: bytes = b"",
        msgId: str = "",
        began: float = 0.0,
        born: int = 0,
        oneway: bool = False,
    ) -> None:
        self.topic = topic
        self.message = message
        self.timeout = timeout
        self.body = body
        self.msgId = msgId
        self.began = began
        self.born = born
        self.oneway = oneway


class ISendMessageHook(Interface):
    """
    Looks at every message that a producer sends.
    """

    name: str = Attribute("For logs.")

    def beforeSend(sending: Sending) -> None:
        """
        A message is about to be sent, for the first time.

        An exception is logged, and changes nothing.
        """

    def afterSend(sending: Sending) -> None:
        """
        The send has ended: C{sending} has a result or an error.
        """


class SendWatch:
    """
    Shows each message to a producer's hooks.
    """

    _log = Logger()

    def __init__(self, hooks: Sequence[ISendMessageHook]) -> None:
        self._hooks = hooks

    def before(self, sending: PendingSend) -> None:
        """
        A send begins; it is given its context.
        """
        context = sending.context = Sending(
            sending.topic,
            sending.message,
            sending.timeout,
            body=sending.body,
            msgId=sending.msgId,
            began=sending.began,
            born=sending.born,
            oneway=sending.oneway,
        )
        context.queue = sending.queue
        for hook in self._hooks:
            self._show(hook, hook.beforeSend, context)

    def after(self, sending: PendingSend, context: Sending, result: Any) -> None:
        """
        A send has ended.

        @param result: a L{SendResult}, L{None} of a oneway send, or a L{Failure}.
        """
        if sending.target is not None:
            context.queue, context.address = sending.target.queue, sending.target.address
        context.attempts = sending.attempts
        if isinstance(result, Failure):
            context.error = result.value
        else:
            context.result = result
        for hook in self._hooks:
            self._show(hook, hook.afterSend, context)

    def _show(
        self, hook: ISendMessageHook, look: Callable[[Sending], None], context: Sending
    ) -> None:
        try:
            look(context)
        except Exception:
            self._log.failure(
                "Hook {name} failed with a message to {topic}", name=hook.name, topic=context.topic
            )
