# SPDX-License-Identifier: Apache-2.0
"""
A cluster in this process, on the real reactor: ports that are free, and files in a
folder of its own.
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
from txrocket.services import Plugins, broker, nameServer
from txrocket.surroundings import Surroundings
from txrocket.testing.cluster import Cluster
from txrocket.testing.plan import Setting, brokerSettings, freePort, namesrvSettings

__all__ = ["RealCluster"]

_HOST = "127.0.0.1"

# The second port of a broker lies so far below the first.
_VIP = 2

# Somebody else may take a port between our looking and our listening.
_ATTEMPTS = 10

# A test does not need a gibibyte of disk for its messages, nor 420 MB for keys, and
# must not fail because the disk of the machine is nearly full.
_SMALL: Mapping[str, Setting] = {
    "mappedFileSizeCommitLog": 32 * 1024 * 1024,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "rocketmq.broker.diskSpaceCleanForciblyRatio": 1,
    "rocketmq.broker.diskSpaceWarningLevelRatio": 1,
}

_Server = TypeVar("_Server", NameServer, Broker)


class RealCluster(Cluster):
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
        @param brokers: how many.
        @param nameServers: how many.
        @param settings: by RocketMQ's names, for all servers that know them.
        @param plugins: what is plugged into each broker.
        @param folder: where to keep files; without it they are in a temporary
            folder that is gone after the stop.
        @param ports: the servers' ports, name servers first; any that are free if
            there are none.
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

        @raise KeyError: if there is none.
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
        Stop all servers, brokers first, and remove the files, unless they are in a
        folder of the test's.
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
            return nameServer(Surroundings.real(self._reactor), configuration)

        started = self._listening(make, ())
        address = addressOf(started.ports[0].getHost())
        self.nameServers.append(address)
        self._services[address] = started

    def _startBroker(self, folder: str, name: str) -> Broker:
        def make(port: int) -> Broker:
            configuration = brokerSettings(
                self._settings, name, _HOST, port, f"{folder}/{name}", self.nameServers
            )
            return broker(Surroundings.real(self._reactor), configuration, self._plugins)

        started = self._listening(make, (_VIP,))
        address = started.announcement.identity.address
        self.brokers.append(address)
        self._services[address] = started
        return started

    def _listening(self, make: Callable[[int], _Server], below: Collection[int]) -> _Server:
        """
        A server that has been started.

        @param make: makes it, for a port.
        @param below: how far below that port its other ports are.
        """
        count = len(self._services)
        given = self._ports[count : count + 1]
        for attempt in range(_ATTEMPTS):
            server = make(given[0] if given else freePort(_HOST, below))
            try:
                server.startService()
                break
            except CannotListenError:
                if given or attempt == _ATTEMPTS - 1:
                    raise
        return server
