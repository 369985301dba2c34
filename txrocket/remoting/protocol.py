# SPDX-License-Identifier: Apache-2.0
"""
One connection, dialled or accepted, as a Twisted protocol.

Requests that come in are served through the C{processorTable} that all
connections share; L{RemotingProtocol.request} and L{RemotingProtocol.oneway}
send ours.  Both ends are the same but for one thing, how they treat a peer that
does not read:

  - The accepting end stops reading from it, so that it gets no more answers
    until it takes those that wait.
  - The dialling end goes on reading, because if both ends stopped, each waiting
    for the other, neither would ever go on.

Whatever waits at either end is bounded by L{Limits<txrocket.remoting.remoting.Limits>};
a connection that goes over is closed.  So is what all accepted connections hold together:
see L{txrocket.remoting.partialframes} and L{txrocket.remoting.unread}.

What comes in is served, and what goes out is written, when the reactor's turn ends: see
L{txrocket.remoting.turn}.  No Deferred is made unless something is awaited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocket.errors import (
    ConnectionLost,
    RequestCodeNotSupported,
    ResponseError,
    SystemBusy,
    TooManyRequests,
)
from txrocket.protocol.codes import requestName
from txrocket.protocol.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from txrocket.protocol.connection import RemotingConnection
from txrocket.protocol.frames import Run, frameEnd
from txrocket.remoting.addresses import NO_HOST, addressOf, hostOf
from txrocket.remoting.eagerwrite import eagerWriter, plainWriter
from txrocket.remoting.errorresponse import faultResponse
from txrocket.remoting.partialframes import SHORT
from txrocket.remoting.responsetable import Pending, ResponseTable

if TYPE_CHECKING:
    from txrocket.remoting.remoting import Remoting

__all__ = ["RemotingProtocol"]

# Answers are written once this many bytes of bodies wait, and a peer's further requests wait
# until they are: one read full of requests cannot pile up more.  Three full pulls are just
# below the 128 KiB that Twisted gives the system at a time.
_GATHER_LIMIT = 96 * 1024

# How many seconds a peer has to take what is left and agree to close.  Without a
# limit, one that does not read would keep a program from ever being stopped.
CLOSE_TIMEOUT = 5.0


@implementer(IPushProducer)
class RemotingProtocol(Protocol):
    """
    One connection.

    @ivar address: the peer, as C{host:port}; empty until connected.
    @ivar host: the same as records hold it, made once for all of its messages.
    @ivar accepted: whether the peer dialled us.
    @ivar active: set when anything is read or written; whoever closes idle
        connections clears it.
    @ivar responseTable: our requests that wait for their answers.
    """

    _log = Logger()
    # An ITCPTransport that is also an IConsumer and an IPushProducer.
    transport: Any

    def __init__(
        self,
        remoting: Remoting,
        *,
        accepted: bool,
        gone: Callable[[RemotingProtocol], object] | None = None,
    ) -> None:
        """
        @param gone: called once the connection is; for many connections it costs
            less than a Deferred of L{whenLost} for each.
        """
        self._gone = gone
        self._remoting = remoting
        self._turn = remoting.turn
        self.accepted = accepted
        self.address = ""
        self.host = NO_HOST
        self.active = True
        self._limits = limits = remoting.limits
        self._connection = RemotingConnection(limits.frame, limits.header, remoting.split)
        self.responseTable = ResponseTable(remoting.clock, "", limits.requests)
        self._promised: set[Deferred[Any]] = set()
        self._lost: list[Deferred[str]] = []
        # Runs of frames that wait until the peer has read the answers before them.
        self._backlog: list[Run] = []
        self._gathered: list[bytes] = []
        self._gatheredSize = 0
        self._unfinished = False  # whether a long frame has begun
        self._waits = False  # the peer is made to wait with the rest of a frame
        self._unread = False  # the peer does not read: the transport is full
        self._unsent = 0  # bytes given to the transport since it was full
        self._onewaysUnsent = 0
        self._strays = 0
        self._closing: IDelayedCall | None = None

    # --- the connection --------------------------------------------------

    def connectionMade(self) -> None:
        """
        The connection is up.
        """
        peer = self.transport.getPeer()
        self.address = addressOf(peer)
        self.host = hostOf(peer)
        self.responseTable = ResponseTable(
            self._remoting.clock, self.address, self._limits.requests
        )
        self._send = (eagerWriter if self._remoting.eager else plainWriter)(self.transport)
        if hasattr(self.transport, "setTcpNoDelay"):
            self.transport.setTcpNoDelay(True)
        self.transport.registerProducer(self, True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        The connection is gone: no answer will come, and none can be given.
        """
        self._turn.lost(self)
        said = reason.getErrorMessage()
        self.connected = 0
        if self._closing is not None and self._closing.active():
            self._closing.cancel()
        self._connection.partial.clear()
        if self.accepted:
            self._remoting.unfinished.lost(self)
            self._remoting.unread.forget(self)
        self._backlog.clear()
        self._gathered.clear()
        self.responseTable.failAll(said)
        for promise in list(self._promised):
            promise.cancel()
        if self._gone is not None:
            self._gone(self)
        while self._lost:
            self._lost.pop(0).callback(said)

    def whenLost(self) -> Deferred[str]:
        """
        A Deferred that fires with the reason once the connection is gone.
        """
        lost: Deferred[str] = Deferred(self._lost.remove)
        self._lost.append(lost)
        return lost

    def close(self) -> None:
        """
        Close the connection once what was written is sent, or cannot be.
        """
        if self.connected and self._closing is None:
            self._closing = self._remoting.clock.callLater(
                CLOSE_TIMEOUT, self.transport.abortConnection
            )
            self._turn.later(self._close)

    def _close(self) -> None:
        if self.connected:
            self.flush()
            # TLS waits for the producer to go before it says goodbye.
            self.transport.unregisterProducer()
            self.transport.loseConnection()

    # --- back-pressure ---------------------------------------------------

    @property
    def isFull(self) -> bool:
        """
        Whether the peer does not read as fast as we write.
        """
        return self._unread

    def pauseProducing(self) -> None:
        """
        The transport is full: the peer does not read as fast as we write.
        """
        self._unread = True
        if self.accepted:
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """
        The transport has room again.
        """
        self._unread = False
        self._unsent = self._onewaysUnsent = 0
        self.active = True
        if self.accepted:
            self._remoting.unread.forget(self)
        if self._backlog:
            self._turn.resume(self)
        if self.accepted and not (self._unread or self._waits):
            self.transport.resumeProducing()

    def stopReading(self) -> None:
        """
        Make the peer wait with the rest of what it sends.
        """
        self._waits = True
        self.transport.pauseProducing()

    def goOnReading(self) -> None:
        """
        Let the peer go on.
        """
        self._waits = False
        self.active = True
        if self.connected and not self._unread:
            self.transport.resumeProducing()

    def drop(self) -> None:
        """
        Close the connection at once, whatever waits to be read or written.
        """
        self.connected = 0
        self.transport.abortConnection()

    def stopProducing(self) -> None:
        """
        The transport is going away: C{connectionLost} does the rest.
        """

    # --- what comes in ---------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        """
        The peer has sent bytes: the turn splits them into frames and serves these.
        """
        self.active = True
        self._turn.received(self, data)

    def split(self, data: bytes) -> list[Run]:
        """
        The frames that are whole with these bytes.
        """
        connection = self._connection
        runs = connection.runs(data)
        if self._unfinished or len(connection.partial) > SHORT:
            self._noteUnfinished(len(data))
        if connection.fault is not None:
            self._turn.later(self._giveUp)
        return runs

    @property
    def isHeld(self) -> bool:
        """
        Whether the peer's requests wait until it has read the answers to those before.
        """
        return bool(self._backlog) or (self._unread and self.accepted)

    def hold(self, run: Run) -> None:
        """
        Have requests wait.
        """
        if self.connected:
            self._backlog.append(run)

    def takeBacklog(self) -> list[Run]:
        """
        The requests that waited.
        """
        backlog, self._backlog = self._backlog, []
        if self._connection.fault is not None:
            self._turn.later(self._giveUp)
        return backlog

    def _noteUnfinished(self, came: int) -> None:
        """
        Account for a frame that has begun.

        @param came: how many bytes have just come.
        """
        if not self.accepted or not self.connected:
            return
        size = self._connection.held
        self._unfinished = size > SHORT
        if self._unfinished:
            self._remoting.unfinished.note(self, size, self._connection.needed, came)
        else:
            self._remoting.unfinished.forget(self)

    def serve(self, code: int, data: bytes, start: int, end: int) -> None:
        """
        Serve the requests, and give out the responses, of the frames between two offsets.
        """
        while start < end:
            start = self.serveOne(code, data, start, end)

    def serveOne(self, code: int, data: bytes, start: int, end: int) -> int:
        """
        Serve the first of the frames between two offsets.

        @return: where the next one begins that is to be served now; C{end} if those that are
            left wait, or never will be served.
        """
        if not self.connected:
            return end
        stop = frameEnd(data, start)
        command = self._connection.decode(data, start, stop)
        if command is None:
            self._backlog.clear()
            self._turn.later(self._giveUp)
            return end
        if command.flag & RESPONSE_FLAG:
            if not self.responseTable.answer(command):
                self._stray(command)
        else:
            self._serve(command)
        if stop < end and (self._gatheredSize > _GATHER_LIMIT or (self._unread and self.accepted)):
            self._backlog.append((code, data, stop, end))
            self._turn.write(self)
            return end
        return stop

    def refuse(self, data: bytes, start: int, end: int, error: ResponseError) -> None:
        """
        Answer all requests between two offsets with an error, and serve none of them, now or
        later.
        """
        while start < end and self.connected:
            stop = frameEnd(data, start)
            command = self._connection.decode(data, start, stop)
            if command is None:
                self._backlog.clear()
                self._turn.later(self._giveUp)
                return
            if not command.flag & RESPONSE_FLAG:
                self._answer(command, faultResponse(Failure(error), command, self.address))
            elif not self.responseTable.answer(command):
                self._stray(command)
            start = stop

    def _giveUp(self) -> None:
        """
        Close a connection whose stream is broken, once all before the fault is served.
        """
        if self.connected and self._closing is None and not self._backlog:
            self._log.warn(
                "Closing the connection to {address}, which broke the protocol: {fault}",
                address=self.address,
                fault=self._connection.fault,
            )
            self.close()

    def _serve(self, request: RemotingCommand) -> None:
        remoting = self._remoting
        try:
            if remoting.hooks:
                for hook in remoting.hooks:
                    hook.beforeRequest(self.address, request)
            pair = remoting.processorTable.get(request.code) or remoting.defaultProcessor
            if pair is None:
                raise RequestCodeNotSupported(f"no processor for {requestName(request.code)}")
            if self._promised and len(self._promised) >= self._limits.unanswered:
                raise SystemBusy(
                    f"{len(self._promised)} requests of {self.address} wait for their answers"
                )
            answer = pair.serve(request, self)
        except Exception:
            answer = faultResponse(Failure(), request, self.address)
        if isinstance(answer, RemotingCommand):
            self._answer(request, answer)
        elif isinstance(answer, Deferred):
            promise: Deferred[Any] = answer
            self._promised.add(promise)
            promise.addBoth(self._kept, request, promise)
        elif answer is not None:
            self._answer(request, _noAnswer(answer, request, self.address))

    def _kept(self, result: Any, request: RemotingCommand, promise: Deferred[Any]) -> None:
        """
        A promised answer is there, or never will be.
        """
        self._promised.discard(promise)
        if isinstance(result, Failure):
            if not self.connected and result.check(CancelledError):
                return
            # What went wrong is logged even if nobody is there to be told.
            result = faultResponse(result, request, self.address)
        elif result is not None and not isinstance(result, RemotingCommand):
            result = _noAnswer(result, request, self.address)
        if result is not None and self.connected:
            self._answer(request, result)

    def _answer(self, request: RemotingCommand, response: RemotingCommand) -> None:
        if self._remoting.hooks:
            try:
                for hook in self._remoting.hooks:
                    hook.afterResponse(self.address, request, response)
            except Exception:
                response = faultResponse(Failure(), request, self.address)
        if request.flag & ONEWAY_FLAG:
            return
        if self._unread and self._unsent > self._limits.unsent:
            self._log.warn(
                "Dropping the connection to {address}, which leaves {size} bytes of answers unread",
                address=self.address,
                size=self._unsent,
            )
            self.drop()
            return
        response.opaque = request.opaque
        response.flag |= RESPONSE_FLAG
        response.serializeType = request.serializeType
        self._gatheredSize += len(response.body)
        self._turn.reply(self, request, response)

    def encode(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """
        Encode an answer, to be written with the others of this turn.
        """
        if not self.connected:
            return
        try:
            head = response.encodeHead(self._limits.frame)
        except Exception:
            response = faultResponse(Failure(), request, self.address)
            response.opaque = request.opaque
            response.serializeType = request.serializeType
            head = response.encodeHead()
        self._gathered.append(head)
        if response.body:
            self._gathered.append(response.body)
        self._turn.write(self)

    def answer(self, *frames: bytes) -> None:
        """
        Write encoded answers, behind those of this turn that are encoded already.
        """
        if self._gathered or self._unread or not self.connected:
            self._gathered += frames
            self.flush()
        else:
            self._send(frames)
            if self._unread and self.accepted:
                self._remoting.unread.add(self, sum(map(len, frames)))

    def _stray(self, response: RemotingCommand) -> None:
        """
        An answer that no one waits for: its request timed out or was cancelled,
        or the peer makes things up.  Told at the 1st, 10th, 100th ... time.
        """
        self._strays += 1
        if str(self._strays).strip("0") == "1":
            self._log.info(
                "{response} from {address} came too late or unasked and was dropped"
                " (no. {count} on this connection)",
                response=str(response),
                address=self.address,
                count=self._strays,
            )

    # --- what goes out ---------------------------------------------------

    def request(self, command: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        """
        Send a request.

        Cancelling the Deferred forgets the request: its answer is dropped.

        @param timeout: in seconds.
        @return: a Deferred of the response, whatever its code.  It fails with a
            L{RemotingError<txrocket.errors.RemotingError>} if there is none, or
            with what a hook or the encoder raised.
        """
        try:
            if self._unread or not self.connected:
                self._mayWrite(command)
            if self._remoting.hooks:
                for hook in self._remoting.hooks:
                    hook.beforeRequest(self.address, command)
            command.opaque = opaque = self._connection.nextOpaque()
            head = command.encodeHead(self._limits.frame)
            answer = self.responseTable.request(opaque, command.code, timeout)
        except Exception:
            return fail()
        self.post(answer, head, command.body)
        if self._remoting.hooks:
            answer.addCallback(self._finished, command)
        return answer

    def reserve(self) -> int:
        """
        A number for a request that L{post} is to send.

        @return: the number, or -1 if the request is to be made by L{request}: because
            hooks want to see it, or it must fail.
        """
        if (
            not self.connected
            or (self._unread and self._unsent > self._limits.unsent)
            or self._remoting.hooks
            or len(self.responseTable.pending) >= self._limits.requests
        ):
            return -1
        return self._connection.nextOpaque()

    def post(self, request: Pending[Any], head: bytes, body: bytes) -> None:
        """
        Send a request whose number was just reserved, and which is encoded already by
        who knows how to do it faster; that, and who waits for the answer being the
        Deferred that is given to the application, is two thirds of a request's price.

        @param request: is told of the answer.
        @param head: the frame up to its body.
        """
        table = self.responseTable
        table.add(request)
        if len(table.pending) > 1:
            # A caller that does not wait for one answer before the next request often makes
            # many requests in a turn.
            self._turn.gather()
        self._gathered.append(head)
        self._gathered.append(body)
        self._gatheredSize += len(body)
        if self._gatheredSize > _GATHER_LIMIT:
            self.flush()
        else:
            self._turn.write(self)

    def oneway(self, command: RemotingCommand) -> None:
        """
        Send a request that wants no answer.

        @raise RemotingError: if it cannot be sent.
        """
        self._mayWrite(command)
        if self._onewaysUnsent >= self._limits.oneways:
            raise TooManyRequests(
                self.address,
                f"{requestName(command.code)} was not sent to {self.address}: "
                f"{self._limits.oneways} oneway requests wait to be written already",
            )
        for hook in self._remoting.hooks:
            hook.beforeRequest(self.address, command)
        command.flag |= ONEWAY_FLAG
        command.opaque = self._connection.nextOpaque()
        head = command.encodeHead(self._limits.frame)
        if self._unread:
            self._onewaysUnsent += 1
        self._gathered.append(head)
        self._gathered.append(command.body)
        self._gatheredSize += len(command.body)
        if self._gatheredSize > _GATHER_LIMIT:
            self.flush()
        else:
            self._turn.write(self)
            if not self.accepted:
                # Those that follow it in this turn go together.  A server's notices go to
                # many, one to each.
                self._turn.gather()

    def _mayWrite(self, command: RemotingCommand) -> None:
        if not self.connected:
            raise ConnectionLost(
                self.address,
                f"{requestName(command.code)} was not sent: the connection to "
                f"{self.address or 'the peer'} is closed",
            )
        if self._unread and self._unsent > self._limits.unsent:
            raise TooManyRequests(
                self.address,
                f"{requestName(command.code)} was not sent to {self.address}: it does not read, "
                f"and {self._unsent} bytes wait for it already",
            )

    def _finished(self, response: RemotingCommand, request: RemotingCommand) -> RemotingCommand:
        for hook in self._remoting.hooks:
            hook.afterResponse(self.address, request, response)
        return response

    def flush(self) -> None:
        """
        Write what has gathered.
        """
        self._gatheredSize = 0
        if self._gathered:
            pieces, self._gathered = self._gathered, []
            if self.connected:
                if self._unread:
                    self._unsent += sum(map(len, pieces))
                self.active = True
                self._send(pieces)
                if self._unread and self.accepted:
                    self._remoting.unread.add(self, sum(map(len, pieces)))
        if self._backlog and not (self._unread and self.accepted):
            self._turn.resume(self)


def _noAnswer(answer: object, request: RemotingCommand, address: str) -> RemotingCommand:
    error = TypeError(f"a processor returned {answer!r}, which is no response")
    return faultResponse(Failure(error), request, address)
