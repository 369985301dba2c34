# SPDX-License-Identifier: Apache-2.0
"""
The broker's consumer groups, in memory and in C{subscriptionGroup.json}; Java's
C{SubscriptionGroupManager}.

A heartbeat or a pull creates a group that does not exist, and so does an administrator.
Beside the broker's own groups there are at most C{maxSubscriptionGroupNum}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from txrocket.broker.names import checkGroup, isSystemGroup
from txrocket.broker.settings import GroupSettings
from txrocket.broker.tables.configtable import ConfigTable
from txrocket.broker.tables.savedtable import TableFile
from txrocket.config import Live
from txrocket.errors import SubscriptionGroupNotExist
from txrocket.model import SubscriptionGroupConfig
from txrocket.protocol.bodies import SubscriptionGroupWrapper
from txrocket.protocol.names import groupFault

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


class Groups(ConfigTable[SubscriptionGroupConfig]):
    """
    The consumer groups of a broker.
    """

    noun = "consumer group"
    kind = SubscriptionGroupConfig
    wrapperKind = SubscriptionGroupWrapper
    member = "subscriptionGroupTable"

    def __init__(
        self, file: TableFile, settings: Live[GroupSettings], now: Callable[[], int]
    ) -> None:
        """
        @param now: the time of day in milliseconds.
        """
        super().__init__(file, {name: SubscriptionGroupConfig(name) for name in _OWN}, now)
        self._settings = settings

    def complete(self, names: Iterable[str]) -> None:
        """
        If the table was damaged, create the groups that it lacks.

        @param names: the groups that the other tables and the store know.
        """
        if not self._saved.damaged:
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
        self._saveLogged()

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """
        A group, created if it does not exist and the settings allow it.

        @raise ResponseError: if the name of a new group is not valid, or the table is full.
        """
        config = self._table.get(name)
        allowed = self._settings.now.autoCreateSubscriptionGroup
        if config is None and (allowed or isSystemGroup(name)):
            checkGroup(name)
            if full := self.fullReason(name):
                self._refuse(name, full)
            config = SubscriptionGroupConfig(name)
            if self.isCopy:
                # The master creates it, and meanwhile it is served with default settings.
                return config
            self._put(config)
            self._log.info("New consumer group {group}", group=name)
            self._saveLogged()
        return config

    def encoded(self) -> bytes:
        """
        The whole table as JSON.  Only members that have changed since the last time are
        encoded.
        """
        return self._text.text()()

    def nameOf(self, config: SubscriptionGroupConfig) -> str:
        """
        The name of a group.
        """
        return config.groupName

    def fullReason(self, name: str) -> str:
        """
        Why there is no room for a new group; empty if there is.
        """
        count, limit = len(self._table) - len(_OWN), self._settings.now.maxSubscriptionGroupNum
        if count < limit:
            return ""
        return (
            f"there are {count} groups already, and maxSubscriptionGroupNum is {limit}: delete"
            " some, or set it higher in the broker's file and start the broker anew"
        )

    def isPlausible(self, config: SubscriptionGroupConfig) -> bool:
        """
        Whether a group from a damaged file can be right.
        """
        return groupFault(config.groupName) is None

    def _refuse(self, name: str, why: str) -> NoReturn:
        if self._isRefusalLogged():
            self._log.warn("Consumer group {group} is not made: {why}", group=name, why=why)
        raise SubscriptionGroupNotExist(
            f"consumer group {name} does not exist and is not made: {why}"
        )
