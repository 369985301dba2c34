# SPDX-License-Identifier: Apache-2.0
"""
Requests of administrators about the broker itself; all of them
C{AdminBrokerProcessor}'s in Java.

    VIEW_BROKER_STATS_DATA     GET_BROKER_CONFIG
    GET_BROKER_RUNTIME_INFO    UPDATE_BROKER_CONFIG
"""

from __future__ import annotations

from collections.abc import Mapping

from txrocket.broker.runtimeinfo import RuntimeInfo
from txrocket.broker.stats import Stats
from txrocket.config import Configuration
from txrocket.errors import RemoteSystemError
from txrocket.processors.admin.settingchanges import SettingChanges
from txrocket.protocol.bodies import KVTable
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.configtext import ConfigText
from txrocket.protocol.headers import (
    GetBrokerConfigResponseHeader,
    ViewBrokerStatsDataRequestHeader,
)
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["BrokerProcessor"]

# Settings of RocketMQ that mean nothing here, with its defaults: mqadmin exportConfigs
# fails if it misses one.
_FOR_TOOLS = {"filterServerNums": "0", "useTLS": "false"}


class BrokerProcessor:
    """
    Serves administrators that look at the broker and change its settings.
    """

    def __init__(
        self,
        stats: Stats,
        runtime: RuntimeInfo,
        configuration: Configuration,
        changes: SettingChanges,
        found: Mapping[str, str],
    ) -> None:
        """
        @param changes: changes settings.
        @param found: the values of settings that the operator need not set.
        """
        self._stats = stats
        self._runtime = runtime
        self._configuration = configuration
        self._changes = changes
        self._found = found

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime,
            RequestCode.GET_BROKER_CONFIG: self.settings,
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
        }

    def stats(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The statistics of a topic, a group or the broker, in the last minute, hour and day.

        @raise RemoteSystemError: if nothing was counted.
        """
        header = request.decodeHeader(ViewBrokerStatsDataRequestHeader)
        data = self._stats.data(header.statsName, header.statsKey)
        if data is None:
            raise RemoteSystemError(
                f"nothing was counted under {header.statsName} for {header.statsKey}"
            )
        return responseCommand(body=encodeBody(data))

    def runtime(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The state and the statistics of the broker.
        """
        return responseCommand(body=encodeBody(KVTable(self._runtime.table())))

    def settings(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        All settings but secret ones, and their version.
        """
        version = encodeBody(self._configuration.version).decode()
        settings = {**_FOR_TOOLS, **self._configuration.properties(), **self._found}
        return responseCommand(
            header=GetBrokerConfigResponseHeader(version), body=encodeBody(ConfigText(settings))
        )

    def update(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Change settings, all that are named or none.

        @raise NoPermission: if C{configBlackList} has one of them.
        @raise ConfigError: if one cannot be changed, or a value is not valid.
        """
        self._changes.make(decodeBody(ConfigText, request.body), peer.address)
        return responseCommand()
