# SPDX-License-Identifier: Apache-2.0
"""
The master's tables, as a slave takes them::

    payload --> topics, groups -----------------> table and file, then reported
            \\-> after: 123456 --> the log is there? --> table
                                 \\-> waits; what comes meanwhile is merged with it

Progress of deliveries and of consumers waits for the log, because a slave that is promoted
must not pass over messages that it does not have.  Of each table only the latest state waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from txrocket.broker.parts import Delivery, Tables
from txrocket.broker.replication.tables.payload import (
    BROKER,
    DELAY,
    FILTERS,
    GROUPS,
    OFFSETS,
    TIMERS,
    TOPICS,
    BrokerPayload,
    DelayPayload,
    FilterPayload,
    GroupPayload,
    OffsetPayload,
    TablePayload,
    TimerPayload,
    TopicPayload,
)
from txrocket.broker.settings import BrokerRole
from txrocket.errors import StoreError
from txrocket.protocol.bodies.codec import decodeBody

__all__ = ["TableSink"]

_KINDS: Final[dict[str, type[TablePayload]]] = {
    TOPICS: TopicPayload,
    GROUPS: GroupPayload,
    OFFSETS: OffsetPayload,
    FILTERS: FilterPayload,
    DELAY: DelayPayload,
    TIMERS: TimerPayload,
    BROKER: BrokerPayload,
}


class _Log(Protocol):
    """
    How far the slave's log has come.
    """

    @property
    def end(self) -> int: ...

    def whenGrown(self, offset: int) -> Deferred[None]: ...


@attrs.define
class _Late:
    """
    Offsets that wait for the log.

    @ivar whole: whether they are a part of the whole table.
    """

    after: int
    put: dict[str, dict[int, int]]
    removed: dict[str, None]
    whole: bool


class TableSink:
    """
    Takes what a master sends of its tables.
    """

    _log = Logger()

    def __init__(
        self,
        tables: Tables,
        delivery: Delivery,
        log: _Log,
        removeQueues: Callable[[str], object],
        groupRole: Callable[[BrokerRole], None],
    ) -> None:
        """
        @param removeQueues: removes the queues of a topic.
        @param groupRole: told of the master's C{brokerRole}.
        """
        self._tables = tables
        self._delivery = delivery
        self._end = log
        self._removeQueues = removeQueues
        self._groupRole = groupRole
        # By table, the names that were in a whole table so far.
        self._named: dict[str, set[str]] = {}
        self._values: dict[str, Any] = {}
        self._offsets: list[_Late] = []
        self._waiting: Deferred[None] | None = None

    def apply(self, payload: bytes) -> Deferred[None] | None:
        """
        Take a payload.

        @return: a Deferred that fires once it is on the disk, or L{None} if nothing has to be
            waited for.
        @raise MalformedBody: if it cannot be decoded.
        @raise StoreError: if the disk fails.
        """
        kind = _KINDS.get(decodeBody(TablePayload, payload).table)
        if kind is None:
            # A newer master may have more tables.
            return None
        return self.take(decodeBody(kind, payload))

    def take(self, value: TablePayload) -> Deferred[None] | None:
        """
        Take a payload that is decoded.

        @return: as L{apply}.
        """
        if isinstance(value, TopicPayload):
            return self._topics(value)
        if isinstance(value, GroupPayload):
            groups = self._tables.groups
            removed = self._removed(value, value.put, groups.table.keys() - groups.own)
            return groups.adopt(value.put, removed, value.version)
        if isinstance(value, FilterPayload):
            filters = self._tables.filters
            filters.adopt(value.put, self._removed(value, value.put, filters.topics()))
        elif isinstance(value, OffsetPayload):
            self._later(value)
        elif isinstance(value, BrokerPayload):
            self.forget()
            self._groupRole(value.value)
        else:
            self._values[value.table] = value
        self._catchUp()
        return None

    def forget(self) -> None:
        """
        Forget what a connection has left unfinished.  If this broker becomes the master, its
        log grows by other messages than those that progress waits for.
        """
        self._named.clear()
        self._values.clear()
        self._offsets.clear()
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _topics(self, value: TopicPayload) -> Deferred[None]:
        topics = self._tables.topics
        # Those that every broker has for itself may differ with the settings.
        known = topics.table.keys() - topics.own
        removed = self._removed(value, value.put, known)
        for each in removed:
            if each in topics.table:
                try:
                    self._removeQueues(each)
                except StoreError as error:
                    self._log.error("{error}", error=error)
        return topics.adopt(value.put, removed, value.version)

    def _removed(self, payload: TablePayload, put: Any, known: Any) -> list[str]:
        """
        The names that are not in the master's table any more.
        """
        removed = list(payload.remove)
        if payload.begin:
            self._named[payload.table] = set()
        named = self._named.get(payload.table)
        if named is not None:
            named |= set(put)
            named -= set(removed)
            if payload.end:
                del self._named[payload.table]
                removed += [each for each in known if each not in named]
        return removed

    # --- what waits for the log ------------------------------------------

    def _later(self, value: OffsetPayload) -> None:
        whole = value.begin or (OFFSETS in self._named)
        # A whole table removes nothing: the slave may have commits that the master missed.
        removed = self._removed(value, value.put, ())
        late = _Late(value.after, value.put, dict.fromkeys(removed), whole)
        last = self._offsets[-1] if self._offsets else None
        if last is None or last.whole != whole or last.after <= self._end.end:
            self._offsets.append(late)
            return
        last.after = late.after
        for name, offsets in late.put.items():
            last.removed.pop(name, None)
            last.put[name] = offsets
        for name in late.removed:
            last.put.pop(name, None)
            last.removed[name] = None

    def _catchUp(self) -> None:
        """
        Apply what the log allows, and wait for the log if something is left.
        """
        end = self._end.end
        while self._offsets and self._offsets[0].after <= end:
            late = self._offsets.pop(0)
            self._tables.offsets.adopt(late.put, late.removed, mayGoBack=not late.whole)
        for name in [name for name, each in self._values.items() if each.after <= end]:
            value = self._values.pop(name)
            if isinstance(value, DelayPayload):
                self._delivery.delayLevels.adopt(value.value.offsetTable)
            elif isinstance(value, TimerPayload):
                self._delivery.timers.adopt(value.value)
        afters = [each.after for each in (*self._offsets, *self._values.values())]
        if afters and self._waiting is None:
            self._waiting = self._end.whenGrown(min(afters) - 1)
            self._waiting.addCallbacks(self._grown, lambda failure: failure.trap(CancelledError))

    def _grown(self, none: None) -> None:
        self._waiting = None
        self._catchUp()
