# SPDX-License-Identifier: Apache-2.0
"""
Requests for the name server's own settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.logger import Logger

from txrocket.config import Configuration
from txrocket.errors import NoPermission
from txrocket.protocol.bodycodec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.properties import Properties
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["NamesrvConfigRequests"]

# To these alone Java answers NO_PERMISSION.
_PATHS: Final = frozenset({"kvConfigPath", "configStorePath"})


class NamesrvConfigRequests:
    """
    Read settings, and change those that may be changed.
    """

    _log = Logger()

    def __init__(self, configuration: Configuration, now: Callable[[], int]) -> None:
        """
        @param now: tells the time in milliseconds.
        """
        self._configuration = configuration
        self._now = now

    def codes(self) -> dict[int, Process]:
        """
        Who serves which request code.
        """
        return {
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.get,
        }

    def update(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        UPDATE_NAMESRV_CONFIG.
        """
        changes = decodeBody(Properties, request.body)
        if paths := sorted(_PATHS & changes.keys()):
            raise NoPermission(f"{', '.join(paths)}: a path cannot be changed by a request")
        changed = self._configuration.update(changes, self._now())
        if changed:
            self._log.info(
                "{peer} changed settings: {changed}",
                peer=peer.address,
                changed=", ".join(f"{each}={changes[each]}" for each in sorted(changed)),
            )
        return responseCommand()

    def get(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        GET_NAMESRV_CONFIG.
        """
        return responseCommand(body=encodeBody(self._configuration.properties()))
