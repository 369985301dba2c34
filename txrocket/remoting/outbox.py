# SPDX-License-Identifier: Apache-2.0
"""
What goes out on one connection: answers to the peer's requests, and requests of ours::

    answers of a turn ---+
                         +--> gathered --> one write --> transport --> the peer reads
    our requests --------+                    |
       |                                      +- full: counted, and refused above the limits
       +--> responseTable: wait for the peer's answers

Pieces are gathered until the turn ends (L{txrocket.remoting.turn}), or until there are enough
of them for a write.  While the transport is full, the peer does not read as fast as we write:
L{Limits<txrocket.remoting.remoting.Limits>} bound what it leaves unread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocket.errors import ConnectionLost, TooManyRequests
from txrocket.protocol.codes import requestName
from txrocket.protocol.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from txrocket.protocol.connection import RemotingConnection
from txrocket.remoting.eagerwrite import eagerWriter, plainWriter
from txrocket.remoting.errorresponse import faultResponse
from txrocket.remoting.responsetable import Pending

if TYPE_CHECKING:
    from txrocket.remoting.protocol import RemotingProtocol
    from txrocket.remoting.remoting import Remoting

__all__ = ["GATHER_LIMIT", "PeerOutbox"]

#: Answers are written once this many bytes of bodies wait, and a peer's further requests wait
#: until they are: one read full of requests cannot pile up more.  Three full pulls are just
#: below the 128 KiB that Twisted gives the system at a time.
GATHER_LIMIT = 96 * 1024


@implementer(IPushProducer)
class PeerOutbox:
    """
    What waits to be written to one peer.  It is the transport's producer.

    @ivar isFull: whether the peer does not read as fast as we write.
    @ivar bodySize: how many bytes of bodies are gathered.
    @ivar unsent: how many bytes the transport was given since it is full.
    """

    __slots__ = (
        "_connection",
        "_limits",
        "_oneways",
        "_peer",
        "_pieces",
        "_remoting",
        "_send",
        "_transport",
        "_turn",
        "bodySize",
        "isFull",
        "unsent",
    )

    _log = Logger()
    _send: Callable[[Sequence[bytes]], None]
    # An ITCPTransport that is also an IConsumer and an IPushProducer.
    _transport: Any

    def __init__(
        self, peer: RemotingProtocol, remoting: Remoting, connection: RemotingConnection
    ) -> None:
        """
        @param connection: numbers our requests.
        """
        self._peer = peer
        self._remoting = remoting
        self._connection = connection
        self._turn = remoting.turn
        self._limits = remoting.limits
        self._pieces: list[bytes] = []
        self._oneways = 0  # those that were sent since the transport is full
        self.bodySize = 0
        self.isFull = False
        self.unsent = 0

    # --- the transport ---------------------------------------------------

    def connect(self, transport: Any) -> None:
        """
        The connection is up.
        """
        self._transport = transport
        self._send = (eagerWriter if self._remoting.eager else plainWriter)(transport)
        transport.registerProducer(self, True)

    def pauseProducing(self) -> None:
        """
        The transport is full: the peer does not read as fast as we write.
        """
        self.isFull = True
        if self._peer.accepted:
            self._transport.pauseProducing()

    def resumeProducing(self) -> None:
        """
        The transport has room again.
        """
        peer = self._peer
        self.isFull = False
        self.unsent = self._oneways = 0
        peer.active = True
        if peer.accepted:
            self._remoting.unread.forget(peer)
        if peer.backlog:
            self._turn.resume(peer)
        if peer.accepted and not (self.isFull or peer.waits):
            self._transport.resumeProducing()

    def stopProducing(self) -> None:
        """
        The transport is going away: C{connectionLost} of the protocol does the rest.
        """

    def clear(self) -> None:
        """
        The connection is gone: nothing is written any more.
        """
        self._pieces.clear()

    @property
    def isOver(self) -> bool:
        """
        Whether the peer leaves more unread than it may.
        """
        return self.isFull and self.unsent > self._limits.unsent

    def flush(self) -> None:
        """
        Write what has gathered.
        """
        self.bodySize = 0
        peer = self._peer
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            if peer.connected:
                if self.isFull:
                    self.unsent += sum(map(len, pieces))
                peer.active = True
                self._send(pieces)
                if self.isFull and peer.accepted:
                    self._remoting.unread.add(peer, sum(map(len, pieces)))
        if peer.backlog and not (self.isFull and peer.accepted):
            self._turn.resume(peer)

    # --- answers ---------------------------------------------------------

    def reply(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """
        Have a request answered once this turn's messages are committed.
        """
        peer = self._peer
        if self._remoting.hooks:
            try:
                for hook in self._remoting.hooks:
                    hook.afterResponse(peer.address, request, response)
            except Exception:
                response = faultResponse(Failure(), request, peer.address)
        if request.flag & ONEWAY_FLAG:
            return
        if self.isFull and self.isOver:
            self._log.warn(
                "Dropping the connection to {address}, which leaves {size} bytes of answers unread",
                address=peer.address,
                size=self.unsent,
            )
            peer.drop()
            return
        response.opaque = request.opaque
        response.flag |= RESPONSE_FLAG
        response.serializeType = request.serializeType
        self.bodySize += len(response.body)
        self._turn.reply(peer, request, response)

    def encode(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """
        Encode an answer, to be written with the others of this turn.
        """
        peer = self._peer
        if not peer.connected:
            return
        try:
            head = response.encodeHead(self._limits.frame)
        except Exception:
            response = faultResponse(Failure(), request, peer.address)
            response.opaque = request.opaque
            response.serializeType = request.serializeType
            head = response.encodeHead()
        self._pieces.append(head)
        if response.body:
            self._pieces.append(response.body)
        self._turn.write(self)

    def answer(self, *frames: bytes) -> None:
        """
        Write encoded answers, behind those of this turn that are encoded already.
        """
        peer = self._peer
        if self._pieces or self.isFull or not peer.connected:
            self._pieces += frames
            self.flush()
        else:
            self._send(frames)
            if self.isFull and peer.accepted:
                self._remoting.unread.add(peer, sum(map(len, frames)))

    # --- requests --------------------------------------------------------

    def request(self, command: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        """
        See L{RemotingProtocol.request<txrocket.remoting.protocol.RemotingProtocol.request>}.
        """
        peer, hooks = self._peer, self._remoting.hooks
        try:
            if self.isFull or not peer.connected:
                self._mayWrite(command)
            if hooks:
                for hook in hooks:
                    hook.beforeRequest(peer.address, command)
            command.opaque = opaque = self._connection.nextOpaque()
            head = command.encodeHead(self._limits.frame)
            answer = peer.responseTable.request(opaque, command.code, timeout)
        except Exception:
            return fail()
        self.post(answer, head, command.body)
        if hooks:
            answer.addCallback(self._finished, command)
        return answer

    def reserve(self) -> int:
        """
        A number for a request that L{post} is to send.

        @return: the number, or -1 if the request is to be made by L{request}: because
            hooks want to see it, or it must fail.
        """
        peer = self._peer
        if (
            not peer.connected
            or (self.isFull and self.unsent > self._limits.unsent)
            or self._remoting.hooks
            or len(peer.responseTable.pending) >= self._limits.requests
        ):
            return -1
        return self._connection.nextOpaque()

    def post(self, request: Pending[Any], head: bytes, body: bytes) -> None:
        """
        Send a request whose number was just reserved, and which its caller has encoded by a
        template; that, and the application's Deferred being the one that waits for the
        answer, is two thirds of a request's price.

        @param request: is told of the answer.
        @param head: the frame up to its body.
        """
        table = self._peer.responseTable
        table.add(request)
        if len(table.pending) > 1:
            # A caller that does not wait for one answer before the next request often makes
            # many requests in a turn.
            self._turn.gather()
        self._pieces.append(head)
        self._pieces.append(body)
        self.bodySize += len(body)
        if self.bodySize > GATHER_LIMIT:
            self.flush()
        else:
            self._turn.write(self)

    def oneway(self, command: RemotingCommand) -> None:
        """
        See L{RemotingProtocol.oneway<txrocket.remoting.protocol.RemotingProtocol.oneway>}.
        """
        self._mayWrite(command)
        peer = self._peer
        if self._oneways >= self._limits.oneways:
            raise TooManyRequests(
                peer.address,
                f"{requestName(command.code)} was not sent to {peer.address}: "
                f"{self._limits.oneways} oneway requests wait to be written already",
            )
        for hook in self._remoting.hooks:
            hook.beforeRequest(peer.address, command)
        command.flag |= ONEWAY_FLAG
        command.opaque = self._connection.nextOpaque()
        head = command.encodeHead(self._limits.frame)
        if self.isFull:
            self._oneways += 1
        self._pieces.append(head)
        self._pieces.append(command.body)
        self.bodySize += len(command.body)
        if self.bodySize > GATHER_LIMIT:
            self.flush()
        else:
            self._turn.write(self)
        if not peer.accepted:
            # Those that follow it in this turn go together.  A server's notices go to
            # many, one to each.
            self._turn.gather()

    def _mayWrite(self, command: RemotingCommand) -> None:
        address = self._peer.address
        if not self._peer.connected:
            raise ConnectionLost(
                address,
                f"{requestName(command.code)} was not sent: the connection to "
                f"{address or 'the peer'} is closed",
            )
        if self.isOver:
            raise TooManyRequests(
                address,
                f"{requestName(command.code)} was not sent to {address}: it does not read, "
                f"and {self.unsent} bytes wait for it already",
            )

    def _finished(self, response: RemotingCommand, request: RemotingCommand) -> RemotingCommand:
        for hook in self._remoting.hooks:
            hook.afterResponse(self._peer.address, request, response)
        return response
