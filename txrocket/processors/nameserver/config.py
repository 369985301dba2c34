# SPDX-License-Identifier: Apache-2.0
"""
Requests for the name server's own settings.
"""

from __future__ import annotations

from txrocket.config import Configuration
from txrocket.processors.admin.settingchanges import SettingChanges
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.configtext import ConfigText
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["NamesrvConfigRequests"]


class NamesrvConfigRequests:
    """
    Reads settings, and changes live ones.
    """

    def __init__(self, configuration: Configuration, changes: SettingChanges) -> None:
        """
        @param changes: changes settings.
        """
        self._configuration = configuration
        self._changes = changes

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.get,
        }

    def update(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        UPDATE_NAMESRV_CONFIG.
        """
        self._changes.make(decodeBody(ConfigText, request.body), peer.address)
        return responseCommand()

    def get(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        GET_NAMESRV_CONFIG.
        """
        return responseCommand(body=encodeBody(self._configuration.properties()))
