# SPDX-License-Identifier: Apache-2.0
"""
The broker's consumer groups, in memory and in C{subscriptionGroup.json}; Java's
C{SubscriptionGroupManager}.

A heartbeat or a pull makes a group that is not there, and so does an administrator; at
most C{maxSubscriptionGroupNum} of them, beside the broker's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from twisted.internet.defer import Deferred
from twisted.internet.task import Cooperator
from twisted.logger import Logger

from txrocket.broker.kept import Kept
from txrocket.broker.names import checkGroup, isSystemGroup
from txrocket.broker.pieces import Pieces
from txrocket.broker.salvage import decodeTable, legible
from txrocket.broker.settings import GroupSettings
from txrocket.errors import RemoteSystemError, SubscriptionGroupNotExist
from txrocket.model import DataVersion, SubscriptionGroupConfig
from txrocket.protocol.bodies import SubscriptionGroupWrapper
from txrocket.protocol.bodycodec import encodeBody
from txrocket.protocol.names import groupFault
from txrocket.store.flush import InThread
from txrocket.store.tables import Table

__all__ = ["Groups"]

# The groups that every broker has for tools and proxies.
_OWN = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)


class Groups:
    """
    The consumer groups of a broker.

    @ivar settings: may be replaced while the broker runs.
    @ivar version: changes with every change of a group.
    """

    _log = Logger()

    def __init__(
        self,
        table: Table,
        inThread: InThread,
        settings: GroupSettings,
        now: Callable[[], int],
        slices: Cooperator | None = None,
    ) -> None:
        """
        @param now: the time in milliseconds.
        @param slices: as L{Kept} has it.
        """
        self.settings = settings
        self._now = now
        self.version = DataVersion(now(), 0)
        self._table = {name: SubscriptionGroupConfig(name) for name in _OWN}
        self._refused = 0
        self._pieces = Pieces(self._member, self._frame)
        self._pieces.touch(self._table)
        self._kept = Kept(table, self._pieces, inThread, slices)

    def load(self) -> None:
        """
        Read C{subscriptionGroup.json}.  If it is damaged, the table before it is read,
        and with it what is legible of the newer one; L{complete} does the rest.
        """
        saved = self._kept.load(
            lambda data: decodeTable(SubscriptionGroupWrapper, data, b"subscriptionGroupTable"),
            self._mended,
        )
        if saved is not None:
            self._table |= saved.subscriptionGroupTable
            self.version = saved.dataVersion
            self._pieces.touch(saved.subscriptionGroupTable)
            # The broker serves no request yet.
            self._pieces.refresh(len(self._table))

    def _mended(
        self, older: SubscriptionGroupWrapper | None, spoiled: Sequence[bytes]
    ) -> SubscriptionGroupWrapper:
        # As with topics, the table before has the last word where it has one.
        table = dict(older.subscriptionGroupTable) if older is not None else {}
        for text in spoiled:
            for name, config in legible(text, SubscriptionGroupConfig):
                if name not in table and name == config.groupName and groupFault(name) is None:
                    table[name] = config
        version = older.dataVersion if older is not None else self.version
        return SubscriptionGroupWrapper(table, version)

    def complete(self, names: Iterable[str]) -> None:
        """
        Make sure that groups can go on, if the table was damaged.

        @param names: the groups that are known from elsewhere.
        """
        if not self._kept.damaged:
            return
        made = [each for each in names if each not in self._table and groupFault(each) is None]
        for name in made:
            self._put(SubscriptionGroupConfig(name))
        if made:
            self._log.error(
                "The table of consumer groups lacks {count} groups that have consumed; they are"
                " made anew with default settings: {names}",
                count=len(made),
                names=", ".join(made[:100]),
            )
        self._save().addErrback(self._kept.failed)

    @property
    def table(self) -> Mapping[str, SubscriptionGroupConfig]:
        """
        All groups by name.
        """
        return self._table

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """
        A group, made if it is not there and may be made.

        @raise ResponseError: if a new one cannot have that name, or there are as many as
            there may be.
        """
        config = self._table.get(name)
        if config is None and (self.settings.autoCreateSubscriptionGroup or isSystemGroup(name)):
            checkGroup(name)
            if full := self._full():
                self._refuse(name, full)
            config = SubscriptionGroupConfig(name)
            self._put(config)
            self._log.info("New consumer group {group}", group=name)
            self._save().addErrback(self._kept.failed)
        return config

    def put(self, config: SubscriptionGroupConfig) -> Deferred[None]:
        """
        Make or change a group.

        @return: a Deferred that fires once it is on the disk.
        @raise RemoteSystemError: if it is new and there are as many as there may be.
        """
        if config.groupName not in self._table and (full := self._full()):
            raise RemoteSystemError(f"consumer group {config.groupName} is not made: {full}")
        self._put(config)
        return self._save()

    def remove(self, name: str) -> Deferred[None]:
        """
        Forget a group.

        @return: a Deferred that fires once that is on the disk.
        """
        if self._table.pop(name, None) is not None:
            self._pieces.touch([name])
        return self._save()

    def wrapper(self) -> SubscriptionGroupWrapper:
        """
        All groups, as they are told and written.
        """
        return SubscriptionGroupWrapper(self._table, self.version)

    def encoded(self) -> bytes:
        """
        The text of L{wrapper}.  Only what has changed since the last time is encoded.
        """
        return self._pieces.text()()

    def stop(self) -> Deferred[None]:
        """
        A Deferred that fires once all changes are on the disk.  What could not be
        written is tried once more.
        """
        return self._kept.idle()

    def _refuse(self, name: str, why: str) -> NoReturn:
        # At the 1st, 10th, 100th ... time: a line for each would fill the disk.
        self._refused += 1
        if str(self._refused).strip("0") == "1":
            self._log.warn("Consumer group {group} is not made: {why}", group=name, why=why)
        raise SubscriptionGroupNotExist(
            f"consumer group {name} does not exist and is not made: {why}"
        )

    def _full(self) -> str:
        """
        Why there is no room for a new group; nothing if there is.
        """
        count = len(self._table) - len(_OWN)
        if count < self.settings.maxSubscriptionGroupNum:
            return ""
        return (
            f"there are {count} groups already, and maxSubscriptionGroupNum is"
            f" {self.settings.maxSubscriptionGroupNum}: delete some, or set it higher in the"
            " broker's file and start the broker anew"
        )

    def _put(self, config: SubscriptionGroupConfig) -> None:
        self._table[config.groupName] = config
        self._pieces.touch([config.groupName])

    def _member(self, name: str) -> bytes | None:
        config = self._table.get(name)
        return None if config is None else b"%s:%s" % (encodeBody(name), encodeBody(config))

    def _frame(self) -> tuple[bytes, bytes]:
        return b'{"dataVersion":%s,"subscriptionGroupTable":{' % encodeBody(self.version), b"}}"

    def _save(self) -> Deferred[None]:
        self.version = DataVersion(self._now(), self.version.counter + 1)
        return self._kept.save()
