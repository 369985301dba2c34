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

What comes in is served, and what goes out (L{txrocket.remoting.outbox}) is written, when the
reactor's turn ends: see L{txrocket.remoting.turn}.  No Deferred is made unless something is
awaited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.errors import RequestCodeNotSupported, ResponseError, SystemBusy
from txrocket.protocol.codes import requestName
from txrocket.protocol.command import RESPONSE_FLAG, RemotingCommand
from txrocket.protocol.connection import RemotingConnection
from txrocket.protocol.frames import Run, frameEnd
from txrocket.remoting.addresses import NO_HOST, addressOf, hostOf
from txrocket.remoting.eagerwrite import withoutDelay
from txrocket.remoting.errorresponse import faultResponse
from txrocket.remoting.outbox import GATHER_LIMIT, PeerOutbox
from txrocket.remoting.partialframes import SHORT
from txrocket.remoting.responsetable import ResponseTable

if TYPE_CHECKING:
    from txrocket.remoting.remoting import Remoting

__all__ = ["RemotingProtocol"]

# How many seconds a peer has to take what is left and agree to close.  Without a
# limit, one that does not read would keep a program from ever being stopped.
CLOSE_TIMEOUT = 5.0


class RemotingProtocol(Protocol):
    """
    One connection.

    @ivar address: the peer, as C{host:port}; empty until connected.
    @ivar host: the same as records hold it, made once for all of its messages.
    @ivar accepted: whether the peer dialled us.
    @ivar active: set when anything is read or written; whoever closes idle
        connections clears it.
    @ivar responseTable: our requests that wait for their answers.
    @ivar outbox: what waits to be written.
    @ivar waits: whether the peer is made to wait with the rest of a frame.
    @ivar backlog: runs of frames that wait until the peer has read the answers before them.
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
        self.outbox = PeerOutbox(self, remoting, self._connection)
        self._promised: set[Deferred[Any]] = set()
        self._lost: list[Deferred[str]] = []
        self.backlog: list[Run] = []
        self._unfinished = False  # whether a long frame has begun
        self.waits = False
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
        self.outbox.connect(self.transport)
        withoutDelay(self.transport)

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
        self.backlog.clear()
        self.outbox.clear()
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
            self.outbox.flush()
            # TLS waits for the producer to go before it says goodbye.
            self.transport.unregisterProducer()
            self.transport.loseConnection()

    # --- back-pressure ---------------------------------------------------

    def stopReading(self) -> None:
        """
        Make the peer wait with the rest of what it sends.
        """
        self.waits = True
        self.transport.pauseProducing()

    def goOnReading(self) -> None:
        """
        Let the peer go on.
        """
        self.waits = False
        self.active = True
        if self.connected and not self.outbox.isFull:
            self.transport.resumeProducing()

    def drop(self) -> None:
        """
        Close the connection at once, whatever waits to be read or written.
        """
        self.connected = 0
        self.transport.abortConnection()

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
        return bool(self.backlog) or (self.outbox.isFull and self.accepted)

    def hold(self, run: Run) -> None:
        """
        Have requests wait.
        """
        if self.connected:
            self.backlog.append(run)

    def takeBacklog(self) -> list[Run]:
        """
        The requests that waited.
        """
        backlog, self.backlog = self.backlog, []
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
            self.backlog.clear()
            self._turn.later(self._giveUp)
            return end
        if command.flag & RESPONSE_FLAG:
            if not self.responseTable.answer(command):
                self._stray(command)
        else:
            self._serve(command)
        outbox = self.outbox
        if stop < end and (outbox.bodySize > GATHER_LIMIT or (outbox.isFull and self.accepted)):
            self.backlog.append((code, data, stop, end))
            self._turn.write(outbox)
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
                self.backlog.clear()
                self._turn.later(self._giveUp)
                return
            if not command.flag & RESPONSE_FLAG:
                self.outbox.reply(command, faultResponse(Failure(error), command, self.address))
            elif not self.responseTable.answer(command):
                self._stray(command)
            start = stop

    def _giveUp(self) -> None:
        """
        Close a connection whose stream is broken, once all before the fault is served.
        """
        if self.connected and self._closing is None and not self.backlog:
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
            self.outbox.reply(request, answer)
        elif isinstance(answer, Deferred):
            promise: Deferred[Any] = answer
            self._promised.add(promise)
            promise.addBoth(self._kept, request, promise)
        elif answer is not None:
            self.outbox.reply(request, _noAnswer(answer, request, self.address))

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
            self.outbox.reply(request, result)

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
        return self.outbox.request(command, timeout)

    def oneway(self, command: RemotingCommand) -> None:
        """
        Send a request that wants no answer.

        @raise RemotingError: if it cannot be sent.
        """
        self.outbox.oneway(command)


def _noAnswer(answer: object, request: RemotingCommand, address: str) -> RemotingCommand:
    error = TypeError(f"a processor returned {answer!r}, which is no response")
    return faultResponse(Failure(error), request, address)
