# SPDX-License-Identifier: Apache-2.0
"""
A table of configurations by name, in memory and in a JSON file; the part of Java's
C{ConfigManager} that topics and consumer groups have in common::

    {"dataVersion":{"counter":7,...},"topicConfigTable":{"A":{...},"B":{...}}}
                              |
      each change: ++counter -+

Of a damaged file every legible configuration is read, and the older table decides where it
has one.  An owner then adds what the store and the other tables still know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.broker.tables.salvage import decodeTable, legible
from txrocket.broker.tables.savedtable import SavedTable, TableFile
from txrocket.broker.tables.tabletext import TableText
from txrocket.errors import RemoteSystemError
from txrocket.model import DataVersion
from txrocket.protocol.bodies.codec import encodeBody

__all__ = ["ConfigTable"]

_Config = TypeVar("_Config", bound=Any)


class ConfigTable(Generic[_Config]):
    """
    Configurations by name.

    @cvar noun: what is configured, for error texts.
    @cvar kind: the class of a configuration.
    @cvar wrapperKind: the class of the whole table: its map, then its version.
    @cvar member: the name of that map in the file.
    @ivar version: changes with every change of the table.
    @ivar isCopy: whether this broker is a slave, and the table its master's.  Then the broker
        itself creates nothing in it.
    """

    _log = Logger()

    noun: str
    kind: type[_Config]
    wrapperKind: Callable[[Any, DataVersion], Any]
    member: str

    def __init__(self, file: TableFile, own: Mapping[str, _Config], now: Callable[[], int]) -> None:
        """
        @param own: the configurations that every broker has.
        @param now: the time of day in milliseconds.
        """
        self._now = now
        self.version = DataVersion(now(), 0)
        self._table = dict(own)
        self.own = frozenset(own)
        self.isCopy = False
        self._refusals = 0
        self._watchers: list[Callable[[str], None]] = []
        self._text: TableText[str] = TableText(self.encodeMember, self._frame)
        self._text.touch(self._table)
        self._saved = SavedTable(file, self._text)

    # --- what an owner decides ---------------------------------------------

    def nameOf(self, config: _Config) -> str:
        """
        The name of a configuration.
        """
        raise NotImplementedError

    def fullReason(self, name: str) -> str:
        """
        Why there is no room for a new configuration; empty if there is.
        """
        raise NotImplementedError

    def isPlausible(self, config: _Config) -> bool:
        """
        Whether a configuration from a damaged file can be right.
        """
        raise NotImplementedError

    # --- the table ---------------------------------------------------------

    @property
    def table(self) -> Mapping[str, _Config]:
        """
        All configurations by name.
        """
        return self._table

    def get(self, name: str) -> _Config | None:
        """
        A configuration, or L{None} if there is none of that name.
        """
        return self._table.get(name)

    def put(self, config: _Config) -> Deferred[None]:
        """
        Add or change a configuration.

        @return: a Deferred that fires once it is on the disk.
        @raise RemoteSystemError: if it is new and the table is full.
        """
        name = self.nameOf(config)
        if name not in self._table and (full := self.fullReason(name)):
            raise RemoteSystemError(f"{self.noun} {name} is not made: {full}")
        self._put(config)
        return self._save(name)

    def remove(self, name: str) -> Deferred[None]:
        """
        Remove a configuration, which need not be there.

        @return: a Deferred that fires once that is on the disk.
        """
        self._remove(name)
        return self._save()

    def watch(self, touched: Callable[[str], None]) -> None:
        """
        Have a function called with the name of each configuration that is new, changed or
        removed.
        """
        self._watchers.append(touched)

    def adopt(
        self, put: Mapping[str, _Config], removed: Iterable[str], version: DataVersion
    ) -> Deferred[None]:
        """
        Take over a change of the master's table.

        @return: a Deferred that fires once it is on the disk.
        """
        changed = [name for name, config in put.items() if self._table.get(name) != config]
        gone = [name for name in removed if name in self._table]
        if not changed and not gone and version == self.version:
            return self._saved.saved()
        for name in changed:
            self._put(put[name])
        for name in gone:
            self._remove(name)
        saved = self._save(*changed)
        self.version = version
        return saved

    def wrapper(self) -> Any:
        """
        The whole table, as peers and the file get it.
        """
        return type(self).wrapperKind(self._table, self.version)

    # --- its file ----------------------------------------------------------

    def load(self) -> bool:
        """
        Read the file.  If it is damaged, read the older table, and from the newer one
        every configuration that is legible.

        @return: whether there is a file and all of it could be read.
        """
        saved = self._saved.load(
            lambda data: decodeTable(self.wrapperKind, data, self.member.encode()),  # type: ignore[arg-type]
            self._mended,
        )
        if saved is None:
            return False
        table: dict[str, _Config] = getattr(saved, self.member)
        self._table |= table
        self.version = saved.dataVersion
        self._text.touch(table)
        # The broker serves no request yet, so this may take long.
        self._text.refresh(len(self._table))
        return not self._saved.damaged

    def flush(self) -> Deferred[None]:
        """
        Write the table if a change is not written yet.  A failure is logged.

        @return: a Deferred that fires once nothing is being written.
        """
        return self._saved.idle()

    def _mended(self, older: Any, damaged: Sequence[bytes]) -> Any:
        # A damaged number looks like a changed one, so the older table decides.
        table = {} if older is None else dict(getattr(older, self.member))
        for text in damaged:
            for name, config in legible(text, self.kind):
                if name not in table and name == self.nameOf(config) and self.isPlausible(config):
                    table[name] = config
        return type(self).wrapperKind(table, self.version if older is None else older.dataVersion)

    # --- for owners --------------------------------------------------------

    def _put(self, config: _Config) -> None:
        self._table[self.nameOf(config)] = config
        self._touch(self.nameOf(config))

    def _remove(self, name: str) -> None:
        if self._table.pop(name, None) is not None:
            self._touch(name)

    def _touch(self, name: str) -> None:
        self._text.touch([name])
        for touched in self._watchers:
            touched(name)

    def _save(self, *names: str) -> Deferred[None]:
        """
        Count and write a change.

        @param names: the configurations that are new or changed.
        """
        self.version = DataVersion(self._now(), self.version.counter + 1)
        return self._saved.save()

    def _saveLogged(self, *names: str) -> None:
        """
        Count and write a change that no caller waits for.
        """
        self._save(*names).addErrback(self._saved.failed)

    def _isRefusalLogged(self) -> bool:
        """
        Count a refusal.  The 1st, 10th, 100th ... is logged: a line for each request
        would fill the disk.
        """
        self._refusals += 1
        return str(self._refusals).strip("0") == "1"

    def encodeMember(self, name: str, **changes: Any) -> bytes | None:
        """
        A name and its configuration as JSON; L{None} if there is none of that name.
        """
        config = self._table.get(name)
        if config is None:
            return None
        if changes:
            config = replace(config, **changes)
        return b"%s:%s" % (encodeBody(name), encodeBody(config))

    def _frame(self) -> tuple[bytes, bytes]:
        head = b'{"dataVersion":%s,"%s":{' % (encodeBody(self.version), self.member.encode())
        return head, b"}}"
