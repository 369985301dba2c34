# SPDX-License-Identifier: Apache-2.0
"""
What all connections of a program share: who serves which code, the hooks, the
limits, the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import attrs
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer
from zope.interface.verify import verifyObject

from txrocket.protocol.frames import FRAME_LIMIT, HEADER_LIMIT
from txrocket.remoting.interfaces import IExecutor, IHook, IRequestProcessor, Process
from txrocket.remoting.unfinished import UnfinishedFrames
from txrocket.remoting.unread import UnreadAnswers

if TYPE_CHECKING:
    from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["FunctionProcessor", "Limits", "ProcessorPair", "Remoting"]


@attrs.frozen
class Limits:
    """
    How much one connection may cost, and all accepted ones together.

    @ivar frame: the longest frame in bytes, in and out.
    @ivar header: the longest header in bytes of a frame that comes in.
    @ivar requests: how many of our requests may wait for their answers, as
        RocketMQ's C{clientAsyncSemaphoreValue}.
    @ivar oneways: how many oneway requests may wait to be written, as
        RocketMQ's C{clientOnewaySemaphoreValue}.
    @ivar unanswered: how many of the peer's requests may wait for our answers;
        more are answered SYSTEM_BUSY at once.
    @ivar unsent: how many bytes may wait for a peer that does not read.
    @ivar unfinished: how many bytes of unfinished frames all accepted connections may
        hold, C{serverMaxUnfinishedBytes}.
    @ivar frameSeconds: how long an accepted connection may take for one frame,
        C{serverFrameTimeoutSeconds}.
    @ivar unread: how many bytes may wait for the peers of all accepted connections that
        do not read, C{serverMaxUnreadBytes}.
    """

    frame: int = FRAME_LIMIT
    header: int = HEADER_LIMIT
    requests: int = 65535
    oneways: int = 65535
    unanswered: int = 65535
    unsent: int = 64 * 1024 * 1024
    unfinished: int = 256 * 1024 * 1024
    frameSeconds: float = 300
    unread: int = 1024 * 1024 * 1024


class ProcessorPair(NamedTuple):
    """
    Who serves a code, and where.

    @ivar serve: the processor's C{process}, as the executor runs it.
    """

    processor: IRequestProcessor
    executor: IExecutor
    serve: Process


@implementer(IRequestProcessor)
class FunctionProcessor:
    """
    A plain function as a processor.
    """

    def __init__(self, function: Process) -> None:
        self.process = function


class Remoting:
    """
    One program's part in remoting.

    @ivar processorTable: request code -> L{ProcessorPair}.
    @ivar defaultProcessor: serves the codes that are not in the table; without
        it they are answered REQUEST_CODE_NOT_SUPPORTED.
    @ivar hooks: asked in this order before every request and after every answer.
    @ivar settle: called before answers are written, or L{None}.  Who gave an answer
        on credit, before what it says was done, does it now for all of them at
        once, or changes the answers if that fails.  A send that need not wait for
        the disk is answered so: it saves a Deferred for each message.
    @ivar express: sees what a peer has sent, from an offset on, before it is decoded,
        or L{None}.  It deals with whole frames, as many as it likes, and tells where the
        first begins that it leaves.
    @ivar together: deals with what several peers have sent in one turn of the reactor,
        or L{None}.
    @ivar unfinished: the frames that accepted connections have begun.
    @ivar unread: the answers that their peers do not read.
    @ivar waiting: what peers have sent that is to be dealt with when the turn ends.
    """

    def __init__(
        self, clock: IReactorTime, limits: Limits | None = None, *, eager: bool = True
    ) -> None:
        """
        @param eager: whether to write to sockets at once; see
            L{txrocket.remoting.eager}.
        """
        self.clock = clock
        self.eager = eager
        self.limits = limits = limits or Limits()
        self.unfinished = UnfinishedFrames(clock, limits.unfinished, limits.frameSeconds)
        self.unread = UnreadAnswers(limits.unread)
        self.processorTable: dict[int, ProcessorPair] = {}
        self.defaultProcessor: ProcessorPair | None = None
        self.hooks: list[IHook] = []
        self.settle: Callable[[], None] | None = None
        self.express: Callable[[RemotingProtocol, bytes, int], int] | None = None
        self.together: Callable[[list[tuple[RemotingProtocol, bytes]]], None] | None = None
        self.waiting: dict[RemotingProtocol, bytes] = {}
        self.corked = False
        self._uncorked: dict[RemotingProtocol, None] = {}

    def registerProcessor(
        self, code: int, processor: IRequestProcessor, executor: IExecutor
    ) -> None:
        """
        Have a code served.  The interfaces are checked here, once, and not for
        each request.

        @raise zope.interface.exceptions.Invalid: if one is not what it should be.
        """
        self.processorTable[code] = _pair(processor, executor)

    def registerDefaultProcessor(self, processor: IRequestProcessor, executor: IExecutor) -> None:
        """
        Have all codes served that no one else serves.
        """
        self.defaultProcessor = _pair(processor, executor)

    def gatherTurn(self) -> None:
        """
        From now until the reactor turns, gather what is written to each
        connection and write it at once.  For whoever is about to keep many
        promises: a sync of the disk answers all that waited for it, and a call of
        the system for each would cost more than all else.
        """
        if not self.corked:
            self.corked = True
            self.clock.callLater(0, self._uncork)

    def readLater(self, connection: RemotingProtocol, data: bytes) -> None:
        """
        What a peer has sent is to be dealt with when the turn ends.
        """
        self.waiting[connection] = data
        self.gatherTurn()

    def readNow(self) -> None:
        """
        Deal with what waits for the end of the turn.
        """
        waiting, self.waiting = self.waiting, {}
        if len(waiting) > 1 and self.together is not None:
            self.together(list(waiting.items()))
        else:
            for connection, data in waiting.items():
                connection.read(data)

    def flushLater(self, connection: RemotingProtocol) -> None:
        """
        A connection has something to write when the turn ends.
        """
        self._uncorked[connection] = None

    def _uncork(self) -> None:
        try:
            self.readNow()
            # Once for all, and for those whose connections are gone; what is said on
            # the way goes out with the rest.
            if self.settle is not None:
                self.settle()
        finally:
            self.corked = False
            while self._uncorked:
                self._uncorked.popitem()[0].flush()

    def registerHook(self, hook: IHook) -> None:
        """
        Have a hook asked after those that are there.
        """
        verifyObject(IHook, hook)
        self.hooks.append(hook)


def _pair(processor: IRequestProcessor, executor: IExecutor) -> ProcessorPair:
    verifyObject(IRequestProcessor, processor)
    verifyObject(IExecutor, executor)
    return ProcessorPair(processor, executor, executor.bind(processor.process))
