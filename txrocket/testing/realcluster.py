# SPDX-License-Identifier: Apache-2.0
"""
A cluster in this process, on the real reactor, with free ports and a folder of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.error import CannotListenError

from txrocket.broker.service import Broker
from txrocket.nameserver.service import NameServer
from txrocket.remoting.addresses import addressOf
from txrocket.server.environment import Environment
from txrocket.services import Plugins, broker, nameServer
from txrocket.testing.cluster import ClusterView
from txrocket.testing.clustersettings import Setting, brokerSettings, freePort, namesrvSettings

__all__ = ["RealCluster"]

_HOST = "127.0.0.1"

# The distances from a broker's port down to its VIP port, and up to that for its slaves.
_OTHERS = (2, -1)

# Another process may take a port between the check and the listening.
_ATTEMPTS = 10

# A test needs neither a log file of a gibibyte nor an index file of 420 MB, and must not
# fail because the machine's disk is nearly full.
_SMALL: Mapping[str, Setting] = {
    "mappedFileSizeCommitLog": 32 * 1024 * 1024,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "rocketmq.broker.diskSpaceCleanForciblyRatio": 1,
    "rocketmq.broker.diskSpaceWarningLevelRatio": 1,
}

_Server = TypeVar("_Server", NameServer, Broker)


class RealCluster(ClusterView):
    """
    Name servers and brokers on loopback::

        cluster = RealCluster(reactor)
        await cluster.start()
        ...                              # cluster.nameServers, cluster.brokers
        await cluster.stop()
    """

    def __init__(
        self,
        reactor: Any,
        *,
        brokers: int = 1,
        nameServers: int = 1,
        settings: Mapping[str, Setting] | None = None,
        plugins: Plugins | None = None,
        folder: str | None = None,
        ports: Sequence[int] = (),
    ) -> None:
        """
        @param brokers: the number of brokers.
        @param nameServers: the number of name servers.
        @param settings: settings by RocketMQ's names, for all servers that know them.
        @param plugins: the plugins of each broker.
        @param folder: the folder of all files; by default a temporary folder, which is
            removed at the stop.
        @param ports: the servers' ports, name servers first; by default free ones.
        """
        super().__init__()
        self._reactor = reactor
        self._counts = nameServers, brokers
        self._settings = {**_SMALL, **(settings or {})}
        self._plugins = plugins
        self._folder = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._ports = ports
        self._services: dict[str, NameServer | Broker] = {}

    def service(self, address: str) -> NameServer | Broker:
        """
        The server at an address.

        @raise KeyError: if there is no server.
        """
        return self._services[address]

    @inlineCallbacks
    def start(self) -> Generator[Deferred[Any], Any, None]:
        """
        Start all servers.

        @return: a Deferred that fires once the name servers know the brokers.
        """
        folder = self._folder
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="txrocket-")
            folder = self._temporary.name
        nameServers, brokers = self._counts
        for index in range(nameServers):
            self._startNameServer(f"{folder}/namesrv-{index}")
        started = [self._startBroker(folder, f"broker-{index}") for index in range(brokers)]
        for each in started:
            yield each.whenAnnounced()

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], Any, None]:
        """
        Stop all servers, brokers first.  Remove the files if the folder is temporary.
        """
        while self._services:
            yield self._services.popitem()[1].stopService()
        self.nameServers, self.brokers = [], []
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _startNameServer(self, folder: str) -> None:
        def make(port: int) -> NameServer:
            configuration = namesrvSettings(self._settings, _HOST, port, folder)
            return nameServer(Environment.real(self._reactor), configuration)

        started = self._start(make, ())
        address = addressOf(started.ports[0].getHost())
        self.nameServers.append(address)
        self._services[address] = started

    def _startBroker(self, folder: str, name: str) -> Broker:
        def make(port: int) -> Broker:
            configuration = brokerSettings(
                self._settings, name, _HOST, port, f"{folder}/{name}", self.nameServers
            )
            return broker(Environment.real(self._reactor), configuration, self._plugins)

        started = self._start(make, _OTHERS)
        address = started.registration.identity.address
        self.brokers.append(address)
        self._services[address] = started
        return started

    def _start(self, make: Callable[[int], _Server], below: Collection[int]) -> _Server:
        """
        Start a server.

        @param make: makes it, for a port.
        @param below: the distances from that port down to the server's other ports.
        """
        count = len(self._services)
        ports = self._ports[count : count + 1]
        for attempt in range(_ATTEMPTS):
            server = make(ports[0] if ports else freePort(_HOST, below))
            try:
                server.startService()
                break
            except CannotListenError:
                if ports or attempt == _ATTEMPTS - 1:
                    raise
        return server
