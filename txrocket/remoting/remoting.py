# SPDX-License-Identifier: Apache-2.0
"""
What all connections of a program share: the processors of request codes, the hooks, the
limits, the turn, the clock::

    code --> processorTable --> (processor, executor)
                                      serve     one request
                                      serveAll  many of one code, if the processor can
"""

from __future__ import annotations

from typing import NamedTuple

import attrs
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer
from zope.interface.verify import verifyObject

from txrocket import bulk
from txrocket.protocol.frames import FRAME_LIMIT, HEADER_LIMIT, Split
from txrocket.remoting.interfaces import (
    IBulkProcessor,
    IExecutor,
    IHook,
    IRequestProcessor,
    Process,
)
from txrocket.remoting.partialframes import PartialFrames
from txrocket.remoting.turn import ProcessAll, Turn
from txrocket.remoting.unread import UnreadAnswers

__all__ = ["BulkFunctionProcessor", "FunctionProcessor", "Limits", "ProcessorPair", "Remoting"]


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
    The processor of a code, and the executor that runs it.

    @ivar serve: the processor's C{process}, as the executor runs it.
    @ivar serveAll: the processor's C{processAll}, if it has one and the executor runs it.
    """

    processor: IRequestProcessor
    executor: IExecutor
    serve: Process
    serveAll: ProcessAll | None


@implementer(IRequestProcessor)
class FunctionProcessor:
    """
    A plain function as a processor.
    """

    def __init__(self, function: Process) -> None:
        self.process = function


@implementer(IBulkProcessor)
class BulkFunctionProcessor(FunctionProcessor):
    """
    Two plain functions as a processor: one for a request, one for many.
    """

    def __init__(self, function: Process, processAll: ProcessAll) -> None:
        super().__init__(function)
        self.processAll = processAll


class Remoting:
    """
    One program's part in remoting.

    @ivar processorTable: request code -> L{ProcessorPair}.
    @ivar defaultProcessor: serves the codes that are not in the table; without
        it they are answered REQUEST_CODE_NOT_SUPPORTED.
    @ivar hooks: asked in this order before every request and after every answer.
    @ivar unfinished: the frames that accepted connections have begun.
    @ivar unread: the answers that their peers do not read.
    @ivar turn: what happens between two looks at the sockets.
    @ivar split: does what L{splitFrames<txrocket.protocol.frames.splitFrames>} does.
    """

    def __init__(
        self, clock: IReactorTime, limits: Limits | None = None, *, eager: bool = True
    ) -> None:
        """
        @param eager: whether to write to sockets at once; see
            L{txrocket.remoting.eagerwrite}.
        """
        self.clock = clock
        self.eager = eager
        self.limits = limits = limits or Limits()
        self.unfinished = PartialFrames(clock, limits.unfinished, limits.frameSeconds)
        self.unread = UnreadAnswers(limits.unread)
        self.processorTable: dict[int, ProcessorPair] = {}
        self.defaultProcessor: ProcessorPair | None = None
        self.hooks: list[IHook] = []
        self.turn = Turn(clock, self._processAll)
        self.split: Split = bulk.splitFrames

    def _processAll(self, code: int) -> ProcessAll | None:
        """
        The function that serves many frames of a code at a time.  Hooks want to see each.
        """
        pair = self.processorTable.get(code)
        return None if pair is None or self.hooks else pair.serveAll

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
        Have all codes served that have no processor of their own.
        """
        self.defaultProcessor = _pair(processor, executor)

    def registerHook(self, hook: IHook) -> None:
        """
        Have a hook asked after those that are there.
        """
        verifyObject(IHook, hook)
        self.hooks.append(hook)


def _pair(processor: IRequestProcessor, executor: IExecutor) -> ProcessorPair:
    verifyObject(IRequestProcessor, processor)
    verifyObject(IExecutor, executor)
    serveAll = None
    if IBulkProcessor.providedBy(processor):
        verifyObject(IBulkProcessor, processor)
        serveAll = executor.bindAll(processor.processAll)
    return ProcessorPair(processor, executor, executor.bind(processor.process), serveAll)
