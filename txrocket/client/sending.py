# SPDX-License-Identifier: Apache-2.0
"""
Messages on their way: what is known of each, what may look at it, and how many
there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from zope.interface import Attribute, Interface

from txrocket.client.outgoing import Outgoing
from txrocket.client.queues import Selector
from txrocket.client.results import SendResult
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.names import checkSendTopic

__all__ = ["ISendMessageHook", "Sending", "UnderWay"]


class Sending(Outgoing):
    """
    A message on its way; what a hook sees.

    @ivar message: the message, or the messages of a batch.
    @ivar queue: where it is sent, as of the last attempt.
    @ivar attempts: how often it was tried.
    @ivar began: when the first attempt began, in seconds of the reactor's clock.
    @ivar born: the same as a time of day, in milliseconds.
    @ivar result: what became of it, once that is known.
    @ivar error: why it failed, once it has.
    @ivar oneway: whether nobody waits for the answer.
    """

    began = 0.0
    born = 0
    deadline = 0.0
    attempts = 0
    address = ""
    queue: MessageQueue | None = None
    fixed = False
    selector: Selector | None = None
    key: Any = None
    oneway = False
    result: SendResult | None = None
    error: BaseException | None = None

    def __init__(self, topic: str, message: Message | Sequence[Message], timeout: float) -> None:
        checkSendTopic(topic)
        self.topic = topic
        self.message = message
        self.timeout = timeout


class ISendMessageHook(Interface):
    """
    Looks at every message that a producer sends.
    """

    name: str = Attribute("For logs.")

    def beforeSend(sending: Sending) -> None:
        """
        A message is about to be sent, for the first time.

        What a hook raises is logged, and changes nothing.
        """

    def afterSend(sending: Sending) -> None:
        """
        A message was sent, or was not.
        """


class UnderWay:
    """
    How many messages are on their way.

    @ivar count: so many; one more for each that begins, and L{over} for each that ends.
    """

    def __init__(self) -> None:
        self.count = 0
        self._waiting: list[Deferred[None]] = []

    def over(self) -> None:
        """
        One is not on its way any more.
        """
        self.count -= 1
        while self._waiting and not self.count:
            self._waiting.pop().callback(None)

    def drained(self) -> Deferred[None]:
        """
        A Deferred that fires once there is none.
        """
        if not self.count:
            return succeed(None)
        drained: Deferred[None] = Deferred()
        self._waiting.append(drained)
        return drained
