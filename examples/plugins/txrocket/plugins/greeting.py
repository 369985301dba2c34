# SPDX-License-Identifier: Apache-2.0
"""
One plugin of each kind for a broker.  Its folder is on the path, so that the broker finds
it::

    PYTHONPATH=examples/plugins .venv/bin/twistd -n rocket --set enablePropertyFilter=true
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from zope.interface import implementer

from txrocket.broker.interfaces import (
    IBrokerProcessor,
    IMessageFilter,
    ISendHook,
    SendMessageContext,
)
from txrocket.errors import NoPermission
from txrocket.message import MessageExt
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers.fields import Header
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

# A request code that RocketMQ does not have.
GREET = 20_001


class GreetRequestHeader(Header):
    """
    GREET.
    """

    name: str


@implementer(IBrokerProcessor)
class Greeter:
    """
    Answers GREET.
    """

    blocking = False

    def codes(self) -> Mapping[int, Process]:
        """
        The request codes that it serves.
        """
        return {GREET: self.greet}

    def greet(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Greet the client.
        """
        header = request.decodeHeader(GreetRequestHeader)
        return responseCommand(body=f"hello {header.name} at {peer.address}".encode())


@implementer(IMessageFilter)
class Prefix:
    """
    Selects messages with a key that begins with the expression.
    """

    expressionType = "PREFIX"

    def compile(self, expression: str) -> Callable[[MessageExt], bool]:
        """
        Make a filter.
        """
        if " " in expression:
            raise ValueError(f"{expression!r}: a key has no blanks")
        return lambda message: any(each.startswith(expression) for each in message.keys)


@implementer(ISendHook)
class Doorkeeper:
    """
    Refuses strangers, adds the sender to each message, and counts messages.

    @ivar counts: the number of messages sent to each topic.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def beforeSend(self, sending: SendMessageContext) -> None:
        """
        Called before a message is stored.
        """
        if sending.producerGroup == "strangers":
            raise NoPermission("strangers may not send")
        sending.note("SENT_BY", sending.producerGroup)

    def afterSend(self, sending: SendMessageContext, response: RemotingCommand) -> None:
        """
        Called after a message is stored.
        """
        self.counts[sending.topic] += 1


# Plugins are objects; a class alone is not one.
greeter = Greeter()
prefix = Prefix()
doorkeeper = Doorkeeper()
