# SPDX-License-Identifier: Apache-2.0
"""
The interfaces of a broker's plugins.

A plugin is an object in a module of L{txrocket.plugins} that provides one of these
interfaces.  An operator installs it; a client cannot send code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from zope.interface import Attribute, Interface

from txrocket.message import MessageExt
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.interfaces import Process

__all__ = ["IBrokerProcessor", "IMessageFilter", "ISendHook", "SendMessageContext"]


@attrs.define
class SendMessageContext:
    """
    A message, or a batch, before it is appended.  A hook may change its attributes.

    @ivar properties: as in the request, C{name \\x01 value \\x02} again and again; the
        last C{\\x02} may be missing.
    @ivar body: the message's, or a whole batch in the client's form.
    @ivar address: the producer's address.
    """

    topic: str
    queueId: int
    properties: str
    body: bytes
    flag: int
    producerGroup: str
    bornTimestamp: int
    batch: bool
    address: str

    def note(self, name: str, value: str) -> None:
        """
        Set a property of the message; it replaces one of the same name.

        @raise ValueError: if name or value contains a separator, or the name is empty.
        """
        if not name or any(mark in each for each in (name, value) for mark in "\x01\x02"):
            raise ValueError(f"no property can be called {name!r} and hold {value!r}")
        if self.properties and not self.properties.endswith("\x02"):
            self.properties += "\x02"
        self.properties += f"{name}\x01{value}\x02"


class ISendHook(Interface):
    """
    Sees every message that is sent to the broker, and every reply, whether it is stored or
    not.
    """

    def beforeSend(sending: SendMessageContext) -> None:
        """
        A message that has passed all checks is about to be stored.

        @raise ResponseError: to refuse it.
        """

    def afterSend(sending: SendMessageContext, response: RemotingCommand) -> None:
        """
        A message was appended, and this is the response.
        """


class IBrokerProcessor(Interface):
    """
    Serves request codes that RocketMQ does not have.
    """

    blocking: bool = Attribute(
        "Whether its functions block, and so run in a thread: then they touch no"
        " state of the reactor and return no Deferred."
    )

    def codes() -> Mapping[int, Process]:
        """
        The functions that serve each request code.
        """


class IMessageFilter(Interface):
    """
    A kind of expression that a subscription may use, beside C{TAG} and C{SQL92}.
    """

    expressionType: str = Attribute("The name by which a subscription asks for it.")

    def compile(expression: str) -> Callable[[MessageExt], bool]:
        """
        Compile an expression to a predicate of messages, which come without bodies.

        @raise ValueError: saying what is wrong with the expression, and where.
        """
