# SPDX-License-Identifier: Apache-2.0
"""
Changes of settings by request.  Those of C{configBlackList} are refused, and the log names
the peer, the old and the new value::

    UPDATE_..._CONFIG --> a key of configBlackList?  NO_PERMISSION, nothing is changed
                      \\-> all changed, or none --> warning: address, key: old -> new

C{configBlackList} is a setting of RocketMQ 4.9.8, which closes a way to make a broker run
programs.  There is no access control, so any client that reaches the port may change
settings.  So the default list here also has those that can weaken or destroy stored
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from twisted.logger import Logger

from txrocket.config import Configuration
from txrocket.errors import NoPermission

__all__ = ["ALWAYS", "SettingChanges"]

#: Keys that are always refused, as in Java: with the list every other key could be freed.
ALWAYS: Final = frozenset(
    {"brokerConfigPath", "configBlackList", "configStorePath", "rocketmqHome"}
)

# The beginning of the remark, as Java's clients know it.
_REMARK: Final = "Can not update config in black list."


class SettingChanges:
    """
    Changes the settings of a server while it runs.
    """

    _log = Logger()

    def __init__(
        self, configuration: Configuration, blackList: str, now: Callable[[], int]
    ) -> None:
        """
        @param blackList: keys with semicolons between them.
        @param now: the time in milliseconds.
        """
        self._configuration = configuration
        self._blackList = ALWAYS | {each.strip() for each in blackList.split(";")}
        self._now = now

    def make(self, changes: Mapping[str, str], address: str) -> None:
        """
        Change settings, all that are named or none.

        @param address: the peer that asks for it.
        @raise NoPermission: if C{configBlackList} has one of them.
        @raise ConfigError: if one cannot be changed, or a value is not valid.
        """
        if kept := sorted(self._blackList & changes.keys()):
            named = ", ".join(kept)
            self._log.warn(
                "Refused to change settings for {address}: configBlackList has {named}",
                address=address,
                named=named,
            )
            raise NoPermission(
                f"{_REMARK} {named}: change it in the server's file and start the server anew,"
                " or take it out of configBlackList there"
            )
        before = self._configuration.properties()
        changed = self._configuration.update(changes, self._now())
        after = self._configuration.properties()
        for key in sorted(changed):
            self._log.warn(
                "{address} changed the setting {key}: {before} -> {after}",
                address=address,
                key=key,
                before=before[key],
                after=after[key],
            )
