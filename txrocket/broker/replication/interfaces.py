# SPDX-License-Identifier: Apache-2.0
"""
What the links between a master and its slaves need from the rest of a broker::

    master                                              slave
    MasterParts                                         SlaveParts
      log       ILogSource    --- bytes of the log --->   log       ILogSink
      epochs    IEpochs       --- epochs ------------->   epochs    IEpochs
      tables    ITableSource  --- TABLE payloads ----->   tables    ITableSink
      identity  IIdentity     <-- hello, both ways --->   identity  IIdentity

The store provides the logs and the epochs, the broker's tables the rest.  A test gives lists
in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
from twisted.internet.defer import Deferred

from txrocket.store.replica.cut import Cut

__all__ = [
    "IEpochs",
    "IIdentity",
    "ILogSink",
    "ILogSource",
    "ITableCursor",
    "ITableSink",
    "ITableSource",
    "MasterParts",
    "SlaveParts",
]


class ILogSource(Protocol):
    """
    The log of a master.
    """

    @property
    def first(self) -> int:
        """
        Where the oldest file begins.
        """

    @property
    def end(self) -> int:
        """
        Up to where the log is in the files.
        """

    def read(self, offset: int, most: int) -> bytes:
        """
        Bytes as they lie in the file: never across two files, none at the end of the log.

        @raise StoreError: if the offset is not in the files.
        """

    def whenGrown(self, offset: int) -> Deferred[None]:
        """
        A Deferred that fires once the log ends behind an offset.  The caller may cancel it.
        """


class ILogSink(Protocol):
    """
    The log of a slave.
    """

    @property
    def first(self) -> int:
        """
        Where the oldest file begins.
        """

    @property
    def end(self) -> int:
        """
        Where the log ends.  Of a record whose end has not come yet, the begin counts.
        """

    @property
    def flushed(self) -> int:
        """
        Up to where the log is on the disk.
        """

    def read(self, offset: int, most: int) -> bytes:
        """
        Bytes as they lie in the file: never across two files, none at the end of the log.

        @raise StoreError: if the offset is not in the files.
        """

    def append(self, offset: int, data: bytes) -> None:
        """
        Take the next bytes of the master's log.

        @raise StoreError: if they do not belong at the end, are damaged, or cannot be written.
        """

    def dropHalf(self) -> None:
        """
        Let the log end with its last whole record: the master sends the rest anew.
        """

    def cut(self, offset: int, epoch: int) -> Cut:
        """
        End the log at an offset, or before it if no record ends there.  What is cut is kept.

        @param epoch: the epoch of what is cut, for the name of the file.
        """

    def beginAt(self, offset: int) -> str:
        """
        Set the whole content aside, and begin with an empty log at an offset.

        @return: the folder that keeps the content.
        """


class IEpochs(Protocol):
    """
    Which epoch begins where in the log.  A master has at least one; it begins where the log
    does, or before.
    """

    @property
    def entries(self) -> Sequence[tuple[int, int]]:
        """
        Each epoch and its start, the oldest first.
        """

    def append(self, epoch: int, start: int) -> None:
        """
        A new epoch begins.  It is on the disk when this returns.
        """

    def cutAt(self, offset: int) -> None:
        """
        Forget the epochs that begin at an offset or behind it.
        """


class IIdentity(Protocol):
    """
    A broker as a member of its group.
    """

    @property
    def groupId(self) -> str:
        """
        The id of the group; empty if the broker has not joined one.
        """

    @property
    def replicaId(self) -> int:
        """
        The number of this broker while it is a slave.
        """

    @property
    def address(self) -> str:
        """
        Where clients reach this broker, as C{host:port}.
        """

    @property
    def incarnation(self) -> str:
        """
        A random text of this start of the process.
        """

    def join(self, groupId: str) -> None:
        """
        Become a member of a group.  It is on the disk when this returns.

        @raise StoreError: if it cannot be written.
        """

    def met(self, replicaId: int) -> None:
        """
        A slave with this number follows.  It is on the disk when this returns.

        @raise StoreError: if it cannot be written.
        """


class ITableCursor(Protocol):
    """
    What one slave still needs to know of the tables; everything at first.

    @ivar onDirty: called when there is something to send.  The link sets it.
    """

    onDirty: Callable[[], None]

    def next(self, most: int) -> bytes | None:
        """
        The next payload of a TABLE frame, or L{None} if there is nothing to send now.

        @param most: about how many bytes it may have; more, if one entry is longer.
        """

    def close(self) -> None:
        """
        The slave is gone.
        """


class ITableSource(Protocol):
    """
    The tables of a master.
    """

    @property
    def changes(self) -> int:
        """
        How often a topic or group has changed, for
        L{Replicas.tablesStored<txrocket.broker.replication.replicas.Replicas.tablesStored>}.
        C{ITableCursor.next} is L{None} only if it has given all of them.
        """

    def cursor(self) -> ITableCursor:
        """
        A cursor for a slave.
        """


class ITableSink(Protocol):
    """
    The tables of a slave.
    """

    def apply(self, payload: bytes) -> Deferred[None] | None:
        """
        Take a payload.  They come in the order of the master's changes.

        @return: a Deferred that fires once topics and groups are on the disk; L{None} if
            there is nothing to wait for.
        @raise ProtocolError: if the payload breaks the format.
        """


@attrs.frozen
class MasterParts:
    """
    What a master sends.

    @ivar fileSize: the size of a file of the log, C{mappedFileSizeCommitLog}.
    """

    log: ILogSource
    epochs: IEpochs
    tables: ITableSource
    identity: IIdentity
    fileSize: int


@attrs.frozen
class SlaveParts:
    """
    What a slave takes.

    @ivar fileSize: the size of a file of the log, C{mappedFileSizeCommitLog}.
    @ivar flush: has the log synced; the Deferred fires once all that was appended is on the
        disk (C{MessageStore.flusher.flush}).
    @ivar cutBack: told after each cut, so that consumer offsets behind the ends of their
        queues come back.
    @ivar startedAnew: told after the log began anew at an offset, with the folder that keeps
        the old content.
    """

    log: ILogSink
    epochs: IEpochs
    tables: ITableSink
    identity: IIdentity
    fileSize: int
    flush: Callable[[], Deferred[None]]
    cutBack: Callable[[Cut], None]
    startedAnew: Callable[[int, str], None]
