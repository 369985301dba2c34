# SPDX-License-Identifier: Apache-2.0
"""
One turn of the reactor, for all connections of a program together::

    epoll: n connections are readable
      1 read and split    bytes of each peer --> runs of frames of one code
      2 serve             processorTable[code], neighbours of one code at a time
      3 commit            store.write(), once; a failure is known before an answer exists
      4 answer            encode, one write for each peer

A lone request is a batch of one.  Nothing is encoded before what it states has happened, so
an answer never has to be taken back.

L{txrocket.remoting.epoll} knows when the events of a round are handled, and ends the turn
there.  On any other reactor each read is a turn of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.frames import Run
from txrocket.remoting.errorresponse import internalError

if TYPE_CHECKING:
    from txrocket.remoting.outbox import PeerOutbox
    from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["Call", "ProcessAll", "Turn"]


class Call(NamedTuple):
    """
    Frames of one code that one peer has sent, one behind the other and not decoded.

    @ivar host: the peer's address, as records hold it.
    @ivar start: where in C{data} the first one begins.
    @ivar end: where the last one ends.
    """

    peer: RemotingProtocol
    host: bytes
    data: bytes
    start: int
    end: int


#: See L{IBulkProcessor.processAll<txrocket.remoting.interfaces.IBulkProcessor>}.
ProcessAll: TypeAlias = Callable[[list[Call], list[int]], None]

# A L{Call} of its fields, for a third of what calling the class costs.
_call = partial(tuple.__new__, Call)

_Reply: TypeAlias = "tuple[RemotingProtocol, RemotingCommand, RemotingCommand]"


class Turn:
    """
    What happens between two looks at the sockets.

    @ivar driven: whether an event loop calls L{end} when the events of a round are handled.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, processAll: Callable[[int], ProcessAll | None]) -> None:
        """
        @param processAll: finds the function that serves many frames of a code at a time.
        """
        self._clock = clock
        self._processAll = processAll
        self._commits: list[Callable[[], None]] = []
        self._reads: dict[RemotingProtocol, bytes] = {}
        self._resumed: dict[RemotingProtocol, None] = {}
        self._replies: list[_Reply | Callable[[], None]] = []
        self._unwritten: dict[PeerOutbox, None] = {}
        self._finally: list[Callable[[], None]] = []
        self._woken = False
        self._running = False
        self._gathering: IDelayedCall | None = None
        self.driven = False

    # --- what comes in ---------------------------------------------------

    def onCommit(self, commit: Callable[[], None]) -> None:
        """
        Have a function called in each turn after the last request is served and before the
        first answer is encoded.
        """
        self._commits.append(commit)

    def received(self, peer: RemotingProtocol, data: bytes) -> None:
        """
        A peer has sent bytes.
        """
        if peer in self._reads:
            self._reads[peer] += data
        else:
            self._reads[peer] = data
        if not self.driven:
            self.end()

    def resume(self, peer: RemotingProtocol) -> None:
        """
        A peer reads again: serve the requests that waited for that.
        """
        self._resumed[peer] = None
        if not self.driven:
            self.end()

    def lost(self, peer: RemotingProtocol) -> None:
        """
        A connection is gone: serve what came before that.
        """
        if peer in self._reads:
            self.end()

    # --- what goes out ---------------------------------------------------

    def reply(
        self, peer: RemotingProtocol, request: RemotingCommand, response: RemotingCommand
    ) -> None:
        """
        Answer a request once this turn's messages are committed.
        """
        self._replies.append((peer, request, response))
        self._soon()

    def replyAll(self, reply: Callable[[], None]) -> None:
        """
        Have a function write answers once this turn's messages are committed.
        """
        self._replies.append(reply)
        self._soon()

    def write(self, outbox: PeerOutbox) -> None:
        """
        A connection has something to write: at the end of the turn, or now between turns.
        """
        if self._running or self.driven or self._gathering is not None:
            self._unwritten[outbox] = None
        else:
            outbox.flush()

    def later(self, function: Callable[[], None]) -> None:
        """
        Call a function after the answers of this turn are written.
        """
        self._finally.append(function)
        self._soon()

    def wake(self) -> None:
        """
        End the turn, and so commit, before the reactor waits for events.
        """
        self._woken = True
        self.gather()

    def gather(self) -> None:
        """
        Keep the turn open until the reactor's next round, for a caller that is about to
        write many times.
        """
        if not self._running and not self.driven and self._gathering is None:
            self._gathering = self._clock.callLater(0, self._gathered)

    def _gathered(self) -> None:
        self._gathering = None
        self.end()

    def _soon(self) -> None:
        if not self.driven and self._gathering is None:
            self.end()

    # --- the turn --------------------------------------------------------

    @property
    def isOpen(self) -> bool:
        """
        Whether there is something to serve, to answer or to write.
        """
        return bool(
            self._reads
            or self._woken
            or self._replies
            or self._unwritten
            or self._resumed
            or self._finally
        )

    @property
    def hasReplies(self) -> bool:
        """
        Whether answers wait for the commit.
        """
        return bool(self._replies)

    def end(self) -> None:
        """
        Serve all that was received, commit, answer.
        """
        if self._running:
            return
        self._running = True
        try:
            while self.isOpen:
                self._serve()
                self._commit()
                self._answer()
        finally:
            self._running = False

    def _serve(self) -> None:
        """
        Serve one run of each peer after the other, and the runs of one code of all peers
        together.
        """
        resumed, self._resumed = self._resumed, {}
        reads, self._reads = self._reads, {}
        backlogs = {peer: peer.takeBacklog() for peer in resumed}
        pending: list[tuple[RemotingProtocol, list[Run]]] = []
        for peer, data in reads.items():
            runs = peer.split(data)
            if peer in backlogs:
                # Behind the requests that waited, because a peer is served in order.
                runs = backlogs.pop(peer) + runs
            pending.append((peer, runs))
        pending += backlogs.items()
        position = 0
        while pending:
            codes: dict[int, list[Call]] = {}
            following = []
            for each in pending:
                peer, runs = each
                left = len(runs) - position
                if left < 1:
                    continue
                if left > 1:
                    following.append(each)
                run = runs[position]
                if peer.isHeld:
                    peer.hold(run)
                    continue
                code, data, start, end = run
                call = _call((peer, peer.host, data, start, end))
                if code in codes:
                    codes[code].append(call)
                else:
                    codes[code] = [call]
            for code, calls in codes.items():
                self._serveCode(code, calls)
            pending = following
            position += 1

    def _serveCode(self, code: int, calls: list[Call]) -> None:
        processAll = self._processAll(code)
        if processAll is None:
            for peer, _, data, start, end in calls:
                peer.serve(code, data, start, end)
            return
        while calls:
            left = []
            starts = [call.start for call in calls]
            try:
                processAll(calls, starts)
            except Exception:
                self._fail(code, calls, starts)
                return
            for call, start in zip(calls, starts, strict=True):
                peer, host, data, _, end = call
                if start == end:
                    continue
                if peer.isHeld:
                    peer.hold((code, data, start, end))
                else:
                    # A request that needs a rule; those behind it are offered again.
                    start = peer.serveOne(code, data, start, end)
                    if start < end:
                        left.append(_call((peer, host, data, start, end)))
            calls = left

    def _fail(self, code: int, calls: list[Call], starts: list[int]) -> None:
        """
        Answer requests whose C{processAll} has raised.  They are not served again, because
        their messages may be in the store already.
        """
        failure = Failure()
        self._log.failure("Serving requests of code {code} together failed", failure, code=code)
        error = internalError(failure, code)
        for (peer, _, data, _, end), start in zip(calls, starts, strict=True):
            peer.refuse(data, start, end, error)

    def _commit(self) -> None:
        self._woken = False
        try:
            for commit in self._commits:
                commit()
        except Exception:
            # No answer may state what has not happened: the peers' requests time out.
            self._replies.clear()
            self._log.failure("Committing failed")

    def _answer(self) -> None:
        """
        Encode and write the answers whose messages are committed.  An answer that comes while
        this goes on may tell of a message that is not: it waits for the next commit.
        """
        replies, self._replies = self._replies, []
        for reply in replies:
            if isinstance(reply, tuple):
                peer, request, response = reply
                peer.outbox.encode(request, response)
            else:
                self._guarded(reply)
        while self._unwritten:
            unwritten, self._unwritten = self._unwritten, {}
            for outbox in unwritten:
                outbox.flush()
        if self._finally and not self._replies:
            functions, self._finally = self._finally, []
            for function in functions:
                self._guarded(function)

    def _guarded(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:
            self._log.failure("Answering failed")
