# SPDX-License-Identifier: Apache-2.0
"""
The slaves of a master, and the messages that wait for one of them.  Java's
C{GroupTransferService}.

A connection becomes a replica once its handshake is done; a connection that says nothing, or
that lies, never does.  Messages of a SYNC_MASTER wait until one replica has them::

    log        |=========================================|  end
    slave 1    |====================================|          written
    slave 2    |===========|
                                                    ^ replicated: the furthest that is there

What a slave has said counts while it is connected.  Java counts the highest offset that any
connection has ever claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime

from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.errors import FlushSlaveTimeout, SlaveNotAvailable
from txrocket.store.flush.deadlines import Deadlines
from txrocket.store.flush.watermark import Watermark

__all__ = ["Replica", "Replicas"]


class _Log(Protocol):
    """
    How far the master's log has come.
    """

    @property
    def end(self) -> int: ...


@attrs.define(eq=False)
class Replica:
    """
    A slave whose handshake is done.

    @ivar address: the address of its connection.
    @ivar written: where its log ends.
    @ivar flushed: up to where its log is on its disk; as C{written} for a plain one.
    @ivar isPlain: whether it speaks the stream of RocketMQ 4.9.7.
    @ivar replicaId: its number; 0 if it is plain, because that stream does not say it.
    @ivar clientAddress: where clients reach it; empty if it is plain.
    @ivar counts: whether messages may rely on it.  A plain one counts from its second offset
        on: the first is a request, and anyone can send it.
    @ivar changes: how many changes of topics and groups it has.
    """

    address: str
    written: int
    flushed: int
    isPlain: bool = True
    replicaId: int = 0
    clientAddress: str = ""
    counts: bool = False
    changes: int = -1
    # When the log ended at an offset that it had to reach, and the newest such time that it
    # has reached.
    _goal: tuple[int, float] = (0, 0.0)
    _caughtUp: float = 0.0

    @property
    def name(self) -> str:
        """
        The slave as a line of the log begins with it.
        """
        if self.isPlain:
            return f"Slave at {self.address} (RocketMQ 4.9.7's stream)"
        return f"Slave {self.replicaId} at {self.clientAddress or self.address}"

    def begin(self, end: int, now: float) -> None:
        """
        It is connected.
        """
        self._goal = end, now
        self._caughtUp = now

    def reported(self, written: int, flushed: int, end: int, now: float) -> None:
        """
        It has come so far.
        """
        self.written, self.flushed, self.counts = written, flushed, True
        if written >= self._goal[0]:
            self._caughtUp = self._goal[1]
            self._goal = end, now

    def lag(self, end: int, now: float) -> tuple[int, float]:
        """
        How many bytes it is behind, and for how many seconds it has not had all.
        """
        behind = max(0, end - self.written)
        return behind, now - self._caughtUp if behind else 0.0


class Replicas:
    """
    The slaves of a master.
    """

    def __init__(
        self,
        clock: IReactorTime,
        log: _Log,
        settings: ReplicationSettings,
        countsFlushed: bool,
    ) -> None:
        """
        @param countsFlushed: whether messages wait until they are on a slave's disk, because
            the master's C{flushDiskType} is SYNC_FLUSH.
        """
        self._clock = clock
        self._log = log
        self._settings = settings
        self.countsFlushed = countsFlushed
        self._all: dict[Replica, None] = {}
        self._replicated = Watermark()
        self._changes = Watermark(-1)
        self._deadlines = Deadlines(
            clock,
            settings.slaveTimeout / 1000,
            lambda seconds: FlushSlaveTimeout(f"no slave has it after {seconds:g} s"),
        )

    # --- what is there ---------------------------------------------------

    @property
    def all(self) -> Sequence[Replica]:
        """
        The slaves that are connected.
        """
        return tuple(self._all)

    @property
    def replicated(self) -> int:
        """
        The furthest that one of them has come; 0 if there is none.
        """
        return self._replicated.offset

    @property
    def waiting(self) -> int:
        """
        How many wait for a slave to have the log up to some offset.
        """
        return self._replicated.waiting

    def isInSync(self, replica: Replica, end: int | None = None) -> bool:
        """
        Whether messages may wait for a slave: it is not further behind than
        C{haSlaveFallbehindMax}.

        @param end: where the message ends; the end of the log if L{None}.
        """
        behind = (self._log.end if end is None else end) - replica.written
        return behind < self._settings.haSlaveFallbehindMax

    # --- the links -------------------------------------------------------

    def add(self, replica: Replica) -> None:
        """
        A handshake is done.
        """
        self._all[replica] = None
        replica.begin(self._log.end, self._clock.seconds())
        self._count()

    def remove(self, replica: Replica) -> None:
        """
        A connection is lost.  Messages that wait go on waiting, because it may come back.
        """
        if self._all.pop(replica, self) is None:
            self._replicated.offset = max(map(self._counted, self._all), default=0)
            self._changes.offset = max((each.changes for each in self._all), default=-1)

    def reported(self, replica: Replica, written: int, flushed: int) -> None:
        """
        A slave has come so far.
        """
        if replica in self._all:
            replica.reported(written, flushed, self._log.end, self._clock.seconds())
            self._count()

    def hasTables(self, replica: Replica, changes: int) -> None:
        """
        A slave has so many changes of topics and groups.
        """
        if replica in self._all:
            replica.changes = changes
            self._changes.advance(changes)

    def stop(self) -> None:
        """
        The broker is no master any more: the messages that wait may not be on a slave.
        """
        self._deadlines.stop()
        for mark in (self._replicated, self._changes):
            mark.disappoint(SlaveNotAvailable("this broker is not the master any more"))

    def _counted(self, replica: Replica) -> int:
        if not replica.counts:
            return 0
        return replica.flushed if self.countsFlushed else replica.written

    def _count(self) -> None:
        self._replicated.advance(max(map(self._counted, self._all), default=0))

    # --- what waits ------------------------------------------------------

    def stored(self, end: int) -> Deferred[None]:
        """
        A Deferred that fires once a slave has all up to an offset of the log.  It fails with
        L{SlaveNotAvailable}, at once, if no slave is there or all are too far behind; and with
        L{FlushSlaveTimeout} after C{slaveTimeout}.
        """
        if not any(self.isInSync(each, end) for each in self._all):
            return fail(SlaveNotAvailable(self._why()))
        return self._watched(self._replicated.reaches(end))

    def tablesStored(self, changes: int) -> Deferred[None]:
        """
        A Deferred that fires once a slave has a change of topics or groups, or at once if
        there is no slave to wait for: a plain one asks for the tables in its own time.  It
        fails with L{FlushSlaveTimeout} after C{slaveTimeout}.

        @param changes: how many there are with it
            (L{ITableSource.changes<txrocket.broker.replication.interfaces.ITableSource>}).
        """
        if not any(not each.isPlain and self.isInSync(each) for each in self._all):
            return succeed(None)
        return self._watched(self._changes.reaches(changes))

    def _watched(self, waiting: Deferred[None]) -> Deferred[None]:
        if not waiting.called:
            self._deadlines.watch(waiting)
        return waiting

    def _why(self) -> str:
        if not self._all:
            return "no slave is connected"
        return (
            "all slaves are further behind than haSlaveFallbehindMax,"
            f" {self._settings.haSlaveFallbehindMax} bytes"
        )
