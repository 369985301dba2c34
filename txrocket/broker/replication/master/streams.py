# SPDX-License-Identifier: Apache-2.0
"""
What a master sends to a slave after the handshake, and what the slave says to it: in the stream
of RocketMQ 4.9.7 (L{PlainSource}) and in ours (L{FrameSource}).

Before each piece of the log go the epochs and the changes of tables that a slave of ours does
not have, so that a topic is on a slave before a message in it is.  A slave has at most what its
connection has sent, and what it asked to go on from: a report of more is forged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from txrocket.broker.replication.interfaces import MasterParts
from txrocket.broker.replication.replicas import Replica, Replicas
from txrocket.errors import LogsDiverged, ReplicaRefused
from txrocket.protocol.ha.frames import (
    FrameType,
    Refusal,
    ReplicaFrame,
    ReplicaReport,
    ReportReader,
    encodeRefusal,
)
from txrocket.protocol.ha.hello import SlaveHello
from txrocket.protocol.ha.plain import OffsetReader, encodePiece

__all__ = ["FrameSource", "PlainSource", "Write", "refusalFrame"]

# About how many bytes a TABLE frame has.
_TABLE: Final = 128 * 1024

Write = Callable[[Iterable[bytes]], None]


def refusalFrame(error: Exception) -> bytes:
    """
    A frame that tells a slave of ours why its connection is closed.
    """
    code = Refusal.CUT_EPOCH if isinstance(error, LogsDiverged) else Refusal.RETRY
    data = encodeRefusal(code, str(error))
    return ReplicaFrame(FrameType.REFUSAL, 0, 0, 0, 0, 0, data).encode()


class _Source:
    """
    What both streams share.

    @ivar replica: the slave.
    @ivar position: where the log goes on.
    """

    def __init__(
        self, parts: MasterParts, replicas: Replicas, write: Write, replica: Replica
    ) -> None:
        """
        @param write: writes to the connection.
        """
        self._parts = parts
        self._replicas = replicas
        self._write = write
        self.replica = replica
        self.position = replica.written

    def close(self) -> None:
        """
        The connection is lost.
        """
        self._replicas.remove(self.replica)

    def _reported(self, written: int, flushed: int) -> None:
        """
        @raise ReplicaRefused: if that cannot be.
        """
        if written > self.position:
            raise ReplicaRefused(
                "the slave reports what was not sent",
                f"offset {written}, and {self.position} was sent",
            )
        if written < self.replica.written:
            raise ReplicaRefused(
                "the slave's log became shorter", f"{written}, and it was {self.replica.written}"
            )
        self._replicas.reported(self.replica, written, flushed)


class PlainSource(_Source):
    """
    The stream of RocketMQ 4.9.7.
    """

    def __init__(
        self, parts: MasterParts, replicas: Replicas, write: Write, address: str, position: int
    ) -> None:
        """
        @param position: where the slave's log ends, or where it begins if it has none.
        """
        # What a slave asks for is what it has, but it does not count yet.
        super().__init__(parts, replicas, write, Replica(address, position, position))
        self._offsets = OffsetReader()
        # A slave that has no log reports 0 until it has the first piece.
        self._isEmpty = True

    def take(self, data: bytes) -> None:
        """
        The slave says something.

        @raise ProtocolError: if it breaks the format.
        @raise ReplicaRefused: if it cannot be.
        """
        for offset in self._offsets.feed(data):
            if offset == 0 and self._isEmpty:
                continue
            self._isEmpty = False
            self._reported(offset, offset)

    def send(self, most: int) -> bool:
        """
        Send what comes next.

        @param most: the most bytes of the log.
        @return: whether there was something.
        @raise StoreError: if the log does not have it any more.
        """
        data = self._parts.log.read(self.position, most)
        if data:
            self._write((encodePiece(self.position, data),))
            self.position += len(data)
        return bool(data)

    def beat(self) -> None:
        """
        Send a heartbeat.
        """
        self._write((encodePiece(self.position),))


class FrameSource(_Source):
    """
    The stream between brokers of ours.
    """

    def __init__(
        self,
        parts: MasterParts,
        replicas: Replicas,
        write: Write,
        address: str,
        hello: SlaveHello,
        onDirty: Callable[[], None],
    ) -> None:
        """
        @param onDirty: called when a table has changed.
        """
        replica = Replica(
            address,
            hello.end,
            hello.flushed,
            isPlain=False,
            replicaId=hello.replicaId,
            clientAddress=hello.address,
            counts=True,
        )
        super().__init__(parts, replicas, write, replica)
        self._reports = ReportReader()
        self._seq = 0
        # The newest epoch that the slave was told of.
        self._epoch = max((each[0] for each in parts.epochs.entries), default=0)
        self._cursor = parts.tables.cursor()
        self._cursor.onDirty = onDirty
        # The last TABLE that was sent and that was taken; and with which TABLE the slave has
        # how many changes.
        self._tableSent = self._tableTaken = 0
        self._tableMarks: deque[tuple[int, int]] = deque()

    def close(self) -> None:
        """
        The connection is lost.
        """
        super().close()
        self._cursor.close()

    def take(self, data: bytes) -> None:
        """
        The slave says something.

        @raise ProtocolError: if it breaks the format.
        @raise ReplicaRefused: if it cannot be.
        """
        for report in self._reports.feed(data):
            self._check(report)
            self._reported(report.written, report.flushed)
            self._takeTables(report.table)

    def _check(self, report: ReplicaReport) -> None:
        if report.epoch > self._epoch:
            raise ReplicaRefused(
                "the slave has followed a newer master", f"it is in epoch {report.epoch}"
            )
        if report.seq > self._seq:
            raise ReplicaRefused("the slave reports a frame that was not sent")

    def _takeTables(self, seq: int) -> None:
        self._tableTaken = max(self._tableTaken, seq)
        while self._tableMarks and self._tableMarks[0][0] <= self._tableTaken:
            self._replicas.hasTables(self.replica, self._tableMarks.popleft()[1])

    def send(self, most: int) -> bool:
        """
        Send what comes next: an epoch, a change of a table, or a piece of the log.

        @param most: the most bytes of the log.
        @return: whether there was something.
        @raise StoreError: if the log does not have it any more.
        """
        return self._sendEpoch() or self._sendTable() or self._sendLog(most)

    def beat(self) -> None:
        """
        Send a heartbeat.
        """
        self._send(FrameType.BEAT, self.position)

    def _sendEpoch(self) -> bool:
        entries = self._parts.epochs.entries
        if not entries or entries[-1][0] <= self._epoch:
            return False
        epoch, start = next(each for each in entries if each[0] > self._epoch)
        self._epoch = epoch
        self._send(FrameType.EPOCH, start)
        return True

    def _sendTable(self) -> bool:
        changes = self._parts.tables.changes
        payload = self._cursor.next(_TABLE)
        if payload is None:
            self._markTables(changes)
            return False
        self._send(FrameType.TABLE, self.position, payload)
        self._tableSent = self._seq
        return True

    def _markTables(self, changes: int) -> None:
        """
        With the last TABLE the slave has all changes.
        """
        if self._tableTaken >= self._tableSent:
            if self.replica.changes != changes:
                self._replicas.hasTables(self.replica, changes)
        elif not self._tableMarks or self._tableMarks[-1] != (self._tableSent, changes):
            self._tableMarks.append((self._tableSent, changes))

    def _sendLog(self, most: int) -> bool:
        data = self._parts.log.read(self.position, most)
        if data:
            self._send(FrameType.DATA, self.position, data)
            self.position += len(data)
        return bool(data)

    def _send(self, kind: FrameType, offset: int, data: bytes = b"") -> None:
        self._seq += 1
        frame = ReplicaFrame(
            kind,
            self._epoch,
            self._seq,
            offset,
            self._parts.log.end,
            self._replicas.replicated,
            data,
        )
        self._write((frame.head(), data))
