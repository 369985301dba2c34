# SPDX-License-Identifier: Apache-2.0
"""
What can be plugged into a broker.

A plugin is an object in a module of L{txrocket.plugins} that provides one of
these.  The operator chooses by installing it: no client can bring code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from zope.interface import Attribute, Interface

from txrocket.message import MessageExt
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.interfaces import Process

__all__ = ["IBrokerProcessor", "IMessageFilter", "ISendHook", "Sending"]


@attrs.define
class Sending:
    """
    A message, or a batch of them, on its way into the store.  A hook may change
    what it holds.

    @ivar properties: as in the request, C{name \\x01 value \\x02} again and again; the
        last C{\\x02} may be missing.
    @ivar body: the message's, or a whole batch in the client's form.
    @ivar address: who sends it.
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
        Give the message a property; one of that name that it has counts no more.

        @raise ValueError: if that would be taken for other properties.
        """
        if not name or any(mark in each for each in (name, value) for mark in "\x01\x02"):
            raise ValueError(f"no property can be called {name!r} and hold {value!r}")
        if self.properties and not self.properties.endswith("\x02"):
            self.properties += "\x02"
        self.properties += f"{name}\x01{value}\x02"


class ISendHook(Interface):
    """
    Looks at every message that is sent to the broker, and at every reply, whether it
    is stored or not.
    """

    def beforeSend(sending: Sending) -> None:
        """
        A message that has passed all checks is about to be stored.

        @raise ResponseError: to refuse it.
        """

    def afterSend(sending: Sending, response: RemotingCommand) -> None:
        """
        A message was put into the store, and this will be the answer.
        """


class IBrokerProcessor(Interface):
    """
    Serves requests that RocketMQ does not know.
    """

    blocking: bool = Attribute(
        "Whether its functions block, and so run in a thread: they then touch no"
        " state of the reactor's and return no Deferred."
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
        Make of an expression what tells whether a message is wanted.  It is given
        messages without their bodies.

        @raise ValueError: saying what is wrong with the expression, and where.
        """
