# SPDX-License-Identifier: Apache-2.0
"""
The name server as a service: Java's C{NamesrvController}.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import gatherResults, inlineCallbacks, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IListeningPort, IStreamServerEndpoint
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.nameserver.kvconfig import KVConfig
from txrocket.nameserver.routetable import RouteTable
from txrocket.remoting.addresses import addressOf
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.server import RemotingServerFactory

__all__ = ["NameServer"]

# Seconds until the first scan for expired brokers, and between scans.
_FIRST_SCAN: Final = 5.0
_SCAN_INTERVAL: Final = 10.0


class NameServer(Service):
    """
    Listens for brokers and clients, and removes expired brokers.

    @ivar remoting: the table of processors.
    @ivar routes: the route table.
    @ivar ports: the listening ports.
    """

    _log = Logger()

    def __init__(
        self,
        remoting: Remoting,
        factory: RemotingServerFactory,
        endpoints: Sequence[IStreamServerEndpoint],
        routes: RouteTable,
        kvConfig: KVConfig,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """
        @param factory: makes the connections, which C{remoting} serves.
        @param before: called at the beginning of C{startService}.
        @param after: called at the end of C{stopService}.
        """
        self._before = before
        self._after = after
        self.remoting = remoting
        self.routes = routes
        self.ports: list[IListeningPort] = []
        self._factory = factory
        self._endpoints = endpoints
        self._kvConfig = kvConfig
        self._firstScan: IDelayedCall | None = None
        self._scanning = LoopingCall(self._scan)
        self._scanning.clock = remoting.clock

    def startService(self) -> None:
        """
        Listen.

        @raise CannotListenError: if an address is in use or not available.
        """
        self._before()
        Service.startService(self)
        for endpoint in self._endpoints:
            listening = endpoint.listen(self._factory).addCallback(self._listens)
            if listening.called:
                # Raise now, because a server that cannot listen must not appear to run.
                refusals: list[Failure] = []
                listening.addErrback(refusals.append)
                for each in refusals:
                    each.raiseException()
        self._firstScan = self.remoting.clock.callLater(_FIRST_SCAN, self._startScanning)

    @inlineCallbacks
    def stopService(self) -> Generator[Any, Any, None]:
        """
        Save pending changes of the key-value table, then stop listening and close all
        connections.

        @return: a Deferred that fires at the end.
        """
        Service.stopService(self)
        if self._firstScan is not None and self._firstScan.active():
            self._firstScan.cancel()
        if self._scanning.running:
            self._scanning.stop()
        yield self._kvConfig.saved()
        ports, self.ports = self.ports, []
        yield gatherResults([maybeDeferred(each.stopListening) for each in ports])
        yield gatherResults([each.whenLost() for each in self._factory.connections])
        self._after()

    def _listens(self, port: IListeningPort) -> None:
        self.ports.append(port)
        self._log.info("The name server listens on {address}", address=addressOf(port.getHost()))

    def _startScanning(self) -> None:
        self._scanning.start(_SCAN_INTERVAL).addErrback(
            lambda failure: self._log.failure("Expired brokers are no longer removed", failure)
        )

    def _scan(self) -> None:
        for each in self.routes.expire(int(self.remoting.clock.seconds() * 1000)):
            self._log.warn("{broker} has expired and is removed", broker=each.broker)
            each.channel.close()
