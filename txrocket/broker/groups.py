# SPDX-License-Identifier: Apache-2.0
"""
The broker's consumer groups, in memory and in C{subscriptionGroup.json}; Java's
C{SubscriptionGroupManager}.

A heartbeat or a pull makes a group that is not there, and so does an administrator; at
most C{maxSubscriptionGroupNum} of them, beside the broker's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.broker.kept import Kept
from txrocket.broker.names import checkGroup, isSystemGroup
from txrocket.broker.settings import GroupSettings
from txrocket.errors import RemoteSystemError, SubscriptionGroupNotExist
from txrocket.model import DataVersion, SubscriptionGroupConfig
from txrocket.protocol.bodies import SubscriptionGroupWrapper
from txrocket.protocol.bodycodec import decodeBody, encodeBody
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
        self, table: Table, inThread: InThread, settings: GroupSettings, now: Callable[[], int]
    ) -> None:
        """
        @param now: the time in milliseconds.
        """
        self.settings = settings
        self._now = now
        self.version = DataVersion(now(), 0)
        self._table = {name: SubscriptionGroupConfig(name) for name in _OWN}
        self._refused = 0
        self._kept = Kept(table, lambda: encodeBody(self.wrapper()), inThread)

    def load(self) -> None:
        """
        Read C{subscriptionGroup.json}.

        @raise StoreCorrupt: if it cannot be read.
        """
        saved = self._kept.load(lambda data: decodeBody(SubscriptionGroupWrapper, data))
        if saved is not None:
            self._table |= saved.subscriptionGroupTable
            self.version = saved.dataVersion

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
            config = self._table[name] = SubscriptionGroupConfig(name)
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
        self._table[config.groupName] = config
        return self._save()

    def remove(self, name: str) -> Deferred[None]:
        """
        Forget a group.

        @return: a Deferred that fires once that is on the disk.
        """
        self._table.pop(name, None)
        return self._save()

    def wrapper(self) -> SubscriptionGroupWrapper:
        """
        All groups, as they are told and written.
        """
        return SubscriptionGroupWrapper(self._table, self.version)

    def stop(self) -> Deferred[None]:
        """
        A Deferred that fires once all changes are on the disk.
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

    def _save(self) -> Deferred[None]:
        self.version = DataVersion(self._now(), self.version.counter + 1)
        return self._kept.save()
