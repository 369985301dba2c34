# SPDX-License-Identifier: Apache-2.0
"""
A message that is being sent, and how many there are.

One object is all three: the request that brings the message to a broker, the entry in the
connection's response table, and the Deferred that the application waits for::

    Deferred <-- Pending (response table) --+
                                            +-- PendingSend
    SendRequest (checked, named, encoded) --+

A producer makes one for each message, and posts the same one again for each further
attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from txrocket.client.producer.sendcontext import Sending
from txrocket.client.sansio.queueselector import Selector
from txrocket.client.sansio.results import SendResult
from txrocket.client.sansio.sendrequest import SEND_CODE, SendRequest
from txrocket.errors import RemotingError
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.responsetable import Pending

if TYPE_CHECKING:
    from txrocket.client.producer.sender import MessageSender
    from txrocket.client.producer.sendtargets import SendTarget

__all__ = ["InFlight", "PendingSend"]


class PendingSend(Pending[Any], SendRequest):
    """
    A Deferred of the L{SendResult}, or of L{None} for a oneway send.

    @ivar message: the message, or the messages of a batch.
    @ivar chosen: whether the caller chooses the queue, by C{queue}, C{selector} or C{key}.
    @ivar attempts: how many attempts have begun.
    @ivar target: where the last attempt went.
    @ivar began: when the send began, in seconds of the reactor's clock.
    @ivar born: the time of day of C{began}, in milliseconds.
    @ivar timeout: in seconds: what is left of the send's time at each attempt.
    @ivar stored: the answer of a broker that has the message, while another broker is to
        have it, too.
    @ivar waiting: what the send waits for in place of an answer to a posted request: a
        route, or a connection.
    @ivar context: what hooks are shown, if there are any.
    """

    code = SEND_CODE
    sender: MessageSender
    message: Message | Sequence[Message]
    chosen = False
    queue: MessageQueue | None = None
    selector: Selector | None = None
    key: Any = None
    oneway = False
    attempts = 0
    target: SendTarget | None = None
    began = 0.0
    born = 0
    stored: SendResult | None = None
    waiting: Deferred[Any] | None = None
    context: Sending | None = None

    # Deferred's, and not SendRequest's: MessageSender fills in the rest.
    __init__ = Deferred.__init__

    def answered(self, response: RemotingCommand, /) -> None:
        """
        The broker has answered the posted request.
        """
        self.sender.answered(self, response)

    def failed(self, error: RemotingError, /) -> None:
        """
        No answer to the posted request will come.
        """
        self.sender.unanswered(self, Failure(error))


class InFlight:
    """
    How many messages are being sent.

    @ivar count: is raised by one for each send that begins; L{over} lowers it.
    """

    def __init__(self) -> None:
        self.count = 0
        self._waiting: list[Deferred[None]] = []

    def over(self) -> None:
        """
        One send has ended.
        """
        self.count -= 1
        while self._waiting and not self.count:
            self._waiting.pop().callback(None)

    def drained(self) -> Deferred[None]:
        """
        A Deferred that fires once no send is in flight.
        """
        if not self.count:
            return succeed(None)
        drained: Deferred[None] = Deferred()
        self._waiting.append(drained)
        return drained
