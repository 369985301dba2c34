# SPDX-License-Identifier: Apache-2.0
"""
The master's tables, as its slaves get them::

    topics, groups  --touched--> dirty of each cursor --> next() --> a payload
    offsets, filters --touched--> changed, a second later dirty --^
    delay, timers    --compared every second --------------------^

Each connection of a slave has a cursor.  At first everything is dirty, so that a slave gets
whole tables, and later what has changed.  A cursor holds names and no values: a change that
is overtaken by another one is not sent, and a slow slave costs no more than the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from txrocket.broker.parts import Delivery, Tables
from txrocket.broker.replication.tables.payload import (
    BROKER,
    DELAY,
    FILTERS,
    GROUPS,
    OFFSETS,
    TIMERS,
    TOPICS,
    membersPayload,
    valuePayload,
)
from txrocket.protocol.bodies import DelayOffsetSerializeWrapper
from txrocket.protocol.bodies.codec import encodeBody

__all__ = ["SharedTables", "TableSource"]

# Seconds between two looks at the tables that change all the time.
_LOOK: Final = 1.0

# Members that are encoded at a time, before their size is looked at.
_STEP: Final = 32


@attrs.frozen
class _Members:
    """
    A table of members.

    @ivar keys: all of them now.
    @ivar encode: a key and its value as JSON; L{None} if it is removed.
    @ivar named: a key as the payload has it.
    @ivar version: the version as JSON.
    @ivar isPrompt: whether a change is sent at once.
    """

    name: str
    keys: Callable[[], Iterable[Any]]
    encode: Callable[[Any], bytes | None]
    named: Callable[[Any], str]
    version: Callable[[], bytes] | None
    isPrompt: bool


class SharedTables:
    """
    The tables that a master shares with its slaves.

    @ivar members: the tables that consist of members, in the order in which they are sent.
    @ivar values: the values that are sent as a whole, by name.
    """

    def __init__(
        self, tables: Tables, delivery: Delivery, role: Callable[[], object], end: Callable[[], int]
    ) -> None:
        """
        @param role: the C{brokerRole} of the master.
        @param end: where the log ends.
        """
        self.end = end
        topics, groups, offsets, filters = (
            tables.topics,
            tables.groups,
            tables.offsets,
            tables.filters,
        )
        self.watches: dict[str, Callable[[Callable[[Any], None]], None]] = {
            TOPICS: topics.watch,
            GROUPS: groups.watch,
            OFFSETS: offsets.watch,
            FILTERS: filters.watch,
        }

        def ofOffsets(key: tuple[str, str]) -> bytes | None:
            found = offsets.of(key[1], key[0])
            text = ",".join([f'"{queueId}":{offset}' for queueId, offset in found.items()])
            return b"%s:{%s}" % (encodeBody("@".join(key)), text.encode()) if found else None

        def versionOf(table: Any) -> Callable[[], bytes]:
            return lambda: encodeBody(table.version)

        self.members = (
            _Members(TOPICS, topics.table.keys, topics.encodeMember, str, versionOf(topics), True),
            _Members(GROUPS, groups.table.keys, groups.encodeMember, str, versionOf(groups), True),
            _Members(OFFSETS, offsets.keys, ofOffsets, "@".join, None, False),
            _Members(FILTERS, filters.topics, filters.encodeMember, str, None, False),
        )
        self.values: dict[str, Callable[[], Any]] = {
            BROKER: role,
            DELAY: lambda: DelayOffsetSerializeWrapper(dict(delivery.delayLevels.offsets)),
            TIMERS: delivery.timers.progress,
        }


class TableSource:
    """
    Gives each slave what it has to know of the master's tables.

    @ivar changes: how often a topic or group has changed.
    """

    def __init__(self, clock: IReactorTime, shared: SharedTables) -> None:
        self._clock = clock
        self._shared = shared
        self._cursors: list[_Cursor] = []
        self._timer: IDelayedCall | None = None
        self.changes = 0
        for each in shared.members:
            shared.watches[each.name](_Touch(self._cursors, each.name, each.isPrompt, self._count))

    def _count(self) -> None:
        self.changes += 1

    def cursor(self) -> _Cursor:
        """
        A cursor for a new connection.
        """
        cursor = _Cursor(self._shared, self)
        self._cursors.append(cursor)
        if self._timer is None:
            self._timer = self._clock.callLater(_LOOK, self._look)
        return cursor

    def forget(self, cursor: _Cursor) -> None:
        """
        A connection has ended.
        """
        if cursor in self._cursors:
            self._cursors.remove(cursor)
        if not self._cursors and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._clock.callLater(_LOOK, self._look)
        for cursor in list(self._cursors):
            cursor.look()


class _Touch:
    """
    Notes in all cursors that a member of a table has changed.
    """

    __slots__ = ("_count", "_cursors", "_isPrompt", "_name")

    def __init__(
        self, cursors: list[_Cursor], name: str, isPrompt: bool, count: Callable[[], None]
    ) -> None:
        self._cursors = cursors
        self._name = name
        self._isPrompt = isPrompt
        self._count = count

    def __call__(self, key: Any) -> None:
        if self._isPrompt:
            self._count()
        for cursor in self._cursors:
            cursor.touch(self._name, key, self._isPrompt)


class _Cursor:
    """
    What one slave has not got yet.

    @ivar onDirty: called when there is something to send, and was nothing before.
    """

    def __init__(self, shared: SharedTables, source: TableSource) -> None:
        self._shared = shared
        self._source = source
        self.onDirty: Callable[[], None] = lambda: None
        self._dirty: dict[str, dict[Any, None]] = {
            each.name: dict.fromkeys(each.keys()) for each in shared.members
        }
        self._changed: dict[str, dict[Any, None]] = {
            each.name: {} for each in shared.members if not each.isPrompt
        }
        # The tables of which nothing was sent yet, and those of which not all was.
        self._toBegin = {each.name for each in shared.members}
        self._toEnd = set(self._toBegin)
        self._values: dict[str, Any] = dict.fromkeys(shared.values)
        self._dirtyValues = self._differing()

    @property
    def dirty(self) -> bool:
        """
        Whether there is something to send.
        """
        return bool(self._toEnd or self._dirtyValues or any(self._dirty.values()))

    def touch(self, name: str, key: Any, isPrompt: bool) -> None:
        """
        A member of a table has changed.
        """
        if not isPrompt:
            self._changed[name][key] = None
            return
        before = self.dirty
        self._dirty[name][key] = None
        if not before:
            self.onDirty()

    def look(self) -> None:
        """
        Look at what changes all the time.
        """
        before = self.dirty
        for name, keys in self._changed.items():
            self._dirty[name] |= keys
            keys.clear()
        self._dirtyValues = self._differing()
        if not before and self.dirty:
            self.onDirty()

    def next(self, most: int) -> bytes | None:
        """
        The next payload; L{None} if there is nothing to send.

        @param most: how many bytes it should have at most.  It has more only if a single
            member does.
        """
        return self._nextValue() if self._dirtyValues else self._nextMembers(most)

    def close(self) -> None:
        """
        The connection has ended.
        """
        self.onDirty = lambda: None
        self._source.forget(self)

    def _differing(self) -> list[str]:
        found = {name: value() for name, value in self._shared.values.items()}
        return [name for name, value in found.items() if value != self._values[name]]

    def _nextValue(self) -> bytes:
        name = self._dirtyValues.pop(0)
        value = self._values[name] = self._shared.values[name]()
        return valuePayload(name, value, 0 if name == BROKER else self._shared.end())

    def _nextMembers(self, most: int) -> bytes | None:
        for table in self._shared.members:
            name = table.name
            if self._dirty[name] or name in self._toEnd:
                return self._some(table, self._dirty[name], most)
        return None

    def _some(self, table: _Members, dirty: dict[Any, None], most: int) -> bytes:
        put: list[bytes] = []
        removed: list[str] = []
        size = 0
        while dirty and size < most:
            for key in list(islice(dirty, _STEP)):
                text = table.encode(key)
                more = len(text or key) + 8
                if size and size + more > most:
                    size = most
                    break
                del dirty[key]
                size += more
                if text is None:
                    removed.append(table.named(key))
                else:
                    put.append(text)
        marks = []
        if table.name in self._toBegin:
            self._toBegin.remove(table.name)
            marks.append("begin")
        if not dirty and table.name in self._toEnd:
            self._toEnd.remove(table.name)
            marks.append("end")
        version = table.version() if table.version is not None else None
        after = 0 if table.isPrompt else self._shared.end()
        return membersPayload(table.name, put, removed, after, version, " ".join(marks))
