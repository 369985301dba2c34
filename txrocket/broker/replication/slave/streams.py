# SPDX-License-Identifier: Apache-2.0
"""
What a slave takes from its master after the handshake: in the stream of RocketMQ 4.9.7
(L{PlainSink}) and in ours (L{FrameSink}).

A slave takes nothing that does not belong at the end of its log.  In our stream it takes
nothing from a master whose epoch is over, nothing that is damaged, and no frame twice.
"""

from __future__ import annotations

from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.broker.replication.interfaces import SlaveParts
from txrocket.broker.replication.slave.preparation import Preparation
from txrocket.errors import LogsDiverged, MalformedReplication, ReplicaRefused
from txrocket.protocol.ha.frames import (
    FrameReader,
    FrameType,
    Refusal,
    ReplicaFrame,
    ReplicaReport,
    decodeRefusal,
)
from txrocket.protocol.ha.hello import MAGIC, MasterHello
from txrocket.protocol.ha.plain import PieceReader, encodeOffset

__all__ = ["FrameSink", "LateHello", "PlainSink", "Taken"]


class LateHello(ReplicaRefused):
    """
    A master of ours was too slow with its hello: the slave has begun to speak the stream of
    RocketMQ 4.9.7.
    """


class Taken(NamedTuple):
    """
    What has come of some bytes.

    @ivar isAny: whether a frame or piece was whole.
    @ivar waiting: what has to happen before there can be more; L{None} if nothing has to.
    """

    isAny: bool
    waiting: Deferred[None] | None = None


class PlainSink:
    """
    The stream of RocketMQ 4.9.7.

    @ivar masterEnd: up to where the master's log goes, as far as the slave can know.
    @ivar confirmed: 0, because this stream does not say it.
    """

    isPlain = True
    countsFlushed = False
    confirmed = 0
    epoch = 0
    _logger = Logger()

    def __init__(self, preparation: Preparation) -> None:
        self._preparation = preparation
        self._parts = preparation.parts
        self._pieces = PieceReader()
        self._isFirst = True
        self.masterEnd = 0

    def request(self) -> bytes:
        """
        Ask for the log.  The master gives its last file to a slave that has no log.
        """
        log = self._parts.log
        log.dropHalf()
        return encodeOffset(0 if log.first == log.end else log.end)

    def feed(self, data: bytes) -> None:
        """
        Take bytes from the stream.

        @raise LateHello: if the master is one of ours.
        """
        if self._isFirst and data.startswith(MAGIC):
            raise LateHello("the master's hello came too late")
        self._isFirst = False
        self._pieces.feed(data)

    def take(self) -> Taken:
        """
        Append the pieces that are whole.

        @raise ProtocolError: if one breaks the format.
        @raise ReplicaRefused: if one does not belong at the end of the log.
        @raise StoreError: if one cannot be appended.
        """
        isAny = False
        while (piece := self._pieces.next()) is not None:
            isAny = True
            self._append(piece.offset, piece.data)
        return Taken(isAny)

    def report(self) -> bytes:
        """
        How far the slave has come.
        """
        return encodeOffset(self._parts.log.end)

    def _append(self, offset: int, data: bytes) -> None:
        log = self._parts.log
        isEmpty = log.first == log.end
        if isEmpty and data and offset != log.end:
            self._preparation.beginAnew(offset)
        elif offset != log.end and not isEmpty:
            raise ReplicaRefused(
                "the master goes on elsewhere", f"at {offset}, and this log ends at {log.end}"
            )
        if not data:
            return
        if self._parts.epochs.entries:
            self._logger.warn(
                "Following a master of RocketMQ 4.9.7, which has no epochs: if this broker"
                " follows one of ours again, it copies the whole log"
            )
            self._parts.epochs.cutAt(0)
        log.append(offset, data)
        self.masterEnd = log.end


class FrameSink:
    """
    The stream between brokers of ours.

    @ivar masterEnd: where the master's log ends.
    @ivar confirmed: how much of it a slave has.
    @ivar epoch: the master's newest epoch.
    """

    isPlain = False

    def __init__(self, preparation: Preparation, hello: MasterHello) -> None:
        self._preparation = preparation
        self._parts: SlaveParts = preparation.parts
        self._frames = FrameReader()
        self._hello = hello
        # The epochs that start behind the end of this log.
        self._coming = [each for each in hello.epochs if each[1] > self._parts.log.end]
        self._seq = 0
        self._table = 0
        self.countsFlushed = hello.countsFlushed
        self.epoch = max((each[0] for each in hello.epochs), default=0)
        self.masterEnd = hello.end
        self.confirmed = 0

    def feed(self, data: bytes) -> None:
        """
        Take bytes from the stream.
        """
        self._frames.feed(data)

    def take(self) -> Taken:
        """
        Take the frames that are whole, up to one for which the disk is waited for.

        @raise ProtocolError: if one is damaged.
        @raise ReplicaRefused: if one is not to be taken.
        @raise StoreError: if one cannot be written.
        """
        isAny = False
        while (frame := self._frames.next()) is not None:
            isAny = True
            waiting = self._one(frame)
            if waiting is not None:
                return Taken(True, waiting)
        return Taken(isAny)

    def report(self) -> bytes:
        """
        How far the slave has come.
        """
        log = self._parts.log
        flushed = min(log.flushed, log.end)
        return ReplicaReport(self.epoch, self._seq, log.end, flushed, self._table).encode()

    def _one(self, frame: ReplicaFrame) -> Deferred[None] | None:
        if frame.type is FrameType.REFUSAL:
            self._refused(frame.data)
        if frame.seq != self._seq + 1:
            raise MalformedReplication(f"frame {frame.seq} comes after frame {self._seq}")
        if frame.type is FrameType.EPOCH:
            self._begins(frame.epoch, frame.offset)
        if frame.epoch != self.epoch:
            raise ReplicaRefused(
                "the master's epoch is over", f"{frame.epoch}, and {self.epoch} has begun"
            )
        waiting: Deferred[None] | None = None
        if frame.type is FrameType.DATA:
            self._append(frame.offset, frame.data)
        elif frame.type is FrameType.TABLE:
            waiting = self._apply(frame)
        elif frame.type is FrameType.BEAT:
            self._checkOffset(frame.offset)
        self._seq = frame.seq
        self.masterEnd, self.confirmed = frame.end, frame.confirm
        return waiting

    def _refused(self, data: bytes) -> None:
        code, reason = decodeRefusal(data)
        if code is Refusal.CUT_EPOCH:
            self._preparation.cutEpoch(self._hello.first)
            raise LogsDiverged("the master refuses this broker", reason)
        raise ReplicaRefused("the master refuses this broker", reason)

    def _begins(self, epoch: int, start: int) -> None:
        if epoch <= self.epoch or start < self._parts.log.end:
            raise MalformedReplication(
                f"epoch {epoch} at {start} cannot follow epoch {self.epoch}, with a log up to"
                f" {self._parts.log.end}"
            )
        self.epoch = epoch
        self._coming.append((epoch, start))

    def _apply(self, frame: ReplicaFrame) -> Deferred[None] | None:
        waiting = self._parts.tables.apply(frame.data)
        if waiting is None:
            self._table = frame.seq
            return None

        def taken(result: None) -> None:
            self._table = frame.seq

        return waiting.addCallback(taken)

    def _append(self, offset: int, data: bytes) -> None:
        """
        Append a piece.  An epoch is in its file before the first of its bytes is in the log.
        """
        self._checkOffset(offset)
        while data:
            size = len(data)
            while self._coming and self._coming[0][1] <= offset:
                self._preparation.takeEpochs([self._coming.pop(0)], offset)
            if self._coming:
                size = min(size, self._coming[0][1] - offset)
            self._parts.log.append(offset, data[:size])
            offset, data = offset + size, data[size:]

    def _checkOffset(self, offset: int) -> None:
        end = self._parts.log.end
        if offset != end:
            raise ReplicaRefused(
                "the master goes on elsewhere", f"at {offset}, and this log ends at {end}"
            )
