# SPDX-License-Identifier: Apache-2.0
"""
Servers under C{twistd}: what was plugged in, starting or saying why not, and
stopping one after the other.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.plugin import getPlugins

import txrocket.plugins
from txrocket.broker.interfaces import IBrokerProcessor, IMessageFilter, ISendHook
from txrocket.errors import RocketError
from txrocket.services import Plugins

__all__ = ["InTurn", "installedPlugins"]


def installedPlugins() -> Plugins:
    """
    What third parties have put into C{txrocket.plugins}.
    """

    def found(interface: Any) -> list[Any]:
        return list(getPlugins(interface, txrocket.plugins))

    return Plugins(found(IBrokerProcessor), found(IMessageFilter), found(ISendHook))


class InTurn(MultiService):
    """
    Servers that start one after the other, and stop the other way round: a broker
    says goodbye to a name server that is still there.
    """

    _log = Logger()

    def __init__(self, *services: Service) -> None:
        MultiService.__init__(self)
        for each in services:
            MultiService.addService(self, each)

    def startService(self) -> None:
        """
        Start all of them.

        @raise SystemExit: if one cannot start, with the reason for the operator:
            no traceback helps if a port is taken.
        """
        Service.startService(self)
        started: list[Any] = []
        try:
            for each in self.services:
                each.startService()
                started.append(each)
        except (RocketError, CannotListenError) as error:
            self._log.critical("Cannot start: {error}", error=error)
            for each in reversed(started):
                each.stopService()
            raise SystemExit(f"Cannot start: {error}") from None

    @inlineCallbacks
    def stopService(self) -> Generator[Deferred[Any], Any, None]:
        """
        Stop all of them, the last first.
        """
        Service.stopService(self)
        for each in reversed(self.services):
            if each.running:
                yield maybeDeferred(each.stopService)
