# SPDX-License-Identifier: Apache-2.0
"""
A cluster in memory, on a clock: no sockets, no threads, no files, no waiting::

    cluster = MemoryCluster()
    cluster.start()
    peers = Peers(Remoting(cluster.clock), cluster.connect)
    answer = peers.request(cluster.brokers[0], request, timeout=3.0)
    cluster.advance()                       # everything in flight arrives
    ...                                     # answer has a result
    cluster.stop()

The servers are the real ones in another environment.  Each has a machine of its own, with
an address on the cluster's network and a disk; both survive a crash.  L{MemoryCluster.cut}
cuts the network between two machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from txrocket.broker.service import Broker
from txrocket.errors import ConfigError
from txrocket.nameserver.service import NameServer
from txrocket.remoting.executors import PoolExecutor
from txrocket.remoting.peers import Connect
from txrocket.remoting.settings import BrokerServerSettings
from txrocket.remoting.tls import ClientTLS
from txrocket.server.environment import Environment
from txrocket.services import Plugins, broker, nameServer
from txrocket.testing.cluster import ClusterView
from txrocket.testing.clustersettings import Setting, brokerSettings, namesrvSettings
from txrocket.testing.memory.clock import MemoryClock
from txrocket.testing.memory.files import MemoryFiles
from txrocket.testing.memory.network import Machine, MemoryNetwork
from txrocket.testing.memory.process import MemoryProcess

__all__ = ["MemoryCluster"]

# The clock's first time in seconds: 14 November 2023.
_START = 1_700_000_000

# The distance between the last numbers in the addresses of a master and its first slave.
_APART = 50

_NAMESRV_PORT = 9876
_BROKER_PORT = 10911

# The seconds of the clock that a server may take to start or to stop.
_PATIENCE = 60.0

_Result = TypeVar("_Result")
_Server = NameServer | Broker


class MemoryCluster(ClusterView):
    """
    Name servers and brokers in memory.

    @ivar clock: the clock of all servers, which clients share.  Periodic tasks and
        timeouts follow it.
    @ivar connect: dials for clients, as L{Peers<txrocket.remoting.peers.Peers>} needs it.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        slaves: int = 0,
        nameServers: int = 1,
        settings: Mapping[str, Setting] | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        """
        @param brokers: the number of brokers that are masters when they start.
        @param slaves: the number of slaves of each.
        @param nameServers: the number of name servers.
        @param settings: settings by RocketMQ's names, for all servers that know them.
        @param plugins: the plugins of each broker.
        @raise ConfigError: if a setting is not valid.
        """
        super().__init__()
        self.clock = MemoryClock()
        self.clock.advance(_START)
        self._shift = 0.0
        self._network = MemoryNetwork(self.clock)
        self._settings = settings or {}
        self._plugins = plugins
        self._machines: dict[str, _Host] = {}
        # Addresses reserved for documentation, which no real machine has.
        for index in range(nameServers):
            self.nameServers.append(self._addNameServer(f"192.0.2.{1 + index}"))
        for index in range(brokers):
            self.brokers.append(self._addBroker(f"198.51.100.{1 + index}", f"broker-{index}"))
            for number in range(1, slaves + 1):
                host = f"198.51.100.{1 + index + number * _APART}"
                self.slaves.append(self._addBroker(host, f"broker-{index}", number))
        self.connect: Connect = Machine(self._network, "203.0.113.1").connect

    def wall(self) -> float:
        """
        The time of day of all machines, in seconds: the clock's plus L{shiftWall}.
        """
        return self.clock.seconds() + self._shift

    def shiftWall(self, seconds: float) -> None:
        """
        Set the time of day of all machines ahead, or back if C{seconds} is negative, as an
        administrator does.  The clock stays.
        """
        self._shift += seconds

    def service(self, address: str) -> _Server:
        """
        The server at an address.

        @raise KeyError: if there is no server, or it does not run.
        """
        service = self._machines[address].service
        if service is None:
            raise KeyError(address)
        return service

    def start(self, address: str | None = None) -> None:
        """
        Start all servers that do not run, and wait until the name servers know the
        brokers.

        @param address: the only server to start; L{None} for all.
        """
        for each in [address] if address else [*self.nameServers, *self.brokers, *self.slaves]:
            if self._machines[each].service is None:
                service = self._machines[each].start()
                if isinstance(service, Broker):
                    self.resultOf(service.whenAnnounced())
        self.advance()

    def stop(self, address: str | None = None) -> None:
        """
        Stop all running servers gracefully.

        @param address: the only server to stop; L{None} for all.
        """
        for each in [address] if address else [*self.slaves, *self.brokers, *self.nameServers]:
            stopping = self._machines[each].stop()
            if stopping is not None:
                self.resultOf(stopping)
        self.advance()

    def crash(self, address: str) -> None:
        """
        End a server as C{kill -9} does.  Its connections break, and only its disk stays.
        """
        self._machines[address].crash()
        self.advance()

    def cut(self, address: str, other: str, *, oneWay: bool = False) -> None:
        """
        Cut the network between the machines of two servers.  Connections stay, and what is
        sent waits.

        @param oneWay: whether only what goes from the first to the second is cut.
        """
        for ends in self._ways(address, other, oneWay):
            self._network.cut(*ends)

    def heal(self, address: str, other: str, *, oneWay: bool = False) -> None:
        """
        Heal the network between the machines of two servers.

        @param oneWay: whether only what goes from the first to the second is healed.
        """
        for ends in self._ways(address, other, oneWay):
            self._network.heal(*ends)

    def slow(self, address: str, other: str, seconds: float) -> None:
        """
        Let the network between the machines of two servers take some time for everything.
        """
        for ends in self._ways(address, other, False):
            self._network.slow(*ends, seconds)

    def slowDisk(self, address: str, seconds: float) -> None:
        """
        Let the disk of a server's machine take some time for each sync and each table.
        """
        self._machines[address].diskSeconds = seconds

    def _ways(self, address: str, other: str, oneWay: bool) -> list[tuple[str, str]]:
        here, there = (each.rpartition(":")[0] for each in (address, other))
        return [(here, there)] if oneWay else [(here, there), (there, here)]

    def advance(self, seconds: float = 0.0) -> None:
        """
        Let time pass.  All calls that are due happen in order, and everything in flight
        arrives.
        """
        end = self.clock.seconds() + seconds
        while self._step(end):
            pass
        self.clock.advance(end - self.clock.seconds())

    def resultOf(self, deferred: Deferred[_Result], within: float = _PATIENCE) -> _Result:
        """
        Let time pass until a Deferred has a result, and return it.

        @param within: the most seconds to pass.
        @raise TimeoutError: if there is no result by then.
        """
        results: list[Any] = []
        deferred.addBoth(results.append)
        end = self.clock.seconds() + within
        while not results:
            if not self._step(end):
                deferred.cancel()
                raise TimeoutError(f"there is no result after {within:g} s")
        if isinstance(results[0], Failure):
            results[0].raiseException()
        result: _Result = results[0]
        return result

    def _step(self, end: float) -> bool:
        """
        Advance the clock to the next call.

        @return: whether there was a call not later than C{end}.
        """
        due = self.clock.due
        if due is None or due > end:
            return False
        self.clock.advance(max(0.0, due - self.clock.seconds()))
        return True

    def _addNameServer(self, host: str) -> str:
        def make(environment: Environment) -> NameServer:
            return nameServer(environment, namesrvSettings(self._settings, host, _NAMESRV_PORT, ""))

        address = f"{host}:{_NAMESRV_PORT}"
        self._machines[address] = _Host(self._network, host, make, self.wall)
        return address

    def _addBroker(self, host: str, name: str, number: int = 0) -> str:
        def configuration() -> Any:
            servers = self.nameServers
            return brokerSettings(self._settings, name, host, _BROKER_PORT, "", servers, number)

        def make(environment: Environment) -> Broker:
            return broker(environment, configuration(), self._plugins)

        address = f"{host}:{configuration()[BrokerServerSettings].listenPort}"
        self._machines[address] = _Host(self._network, host, make, self.wall)
        return address


class _Host:
    """
    A server's machine.

    @ivar service: the server, while it runs.
    @ivar diskSeconds: how long a thread works.
    """

    diskSeconds = 0.0

    def __init__(
        self,
        network: MemoryNetwork,
        host: str,
        make: Callable[[Environment], _Server],
        wall: Callable[[], float],
    ) -> None:
        self._clock = network.clock
        self._machine = Machine(network, host)
        self._files = MemoryFiles(wall)
        self._make = make
        self._wall = wall
        self._process = MemoryProcess(self._clock)
        # Seeded, so that a failure can be reproduced.
        self._chance = Random(host)
        self.service: _Server | None = None

    def start(self) -> _Server:
        """
        Start the server.
        """
        self._process = MemoryProcess(self._clock)
        try:
            service = self._make(self._environment(self._process))
            service.startService()
        except BaseException:
            self.crash()
            raise
        self.service = service
        return service

    def stop(self) -> Deferred[None] | None:
        """
        Stop the server, if it runs.
        """
        service, self.service = self.service, None
        return None if service is None else service.stopService()

    def crash(self) -> None:
        """
        End the server.
        """
        self._machine.crash()
        self._process.crash()
        self._files.crash()
        self.service = None

    def _environment(self, process: MemoryProcess) -> Environment:
        def executor(name: str, size: int, queueLimit: int) -> PoolExecutor:
            return PoolExecutor(process, process, name=name, size=size, queueLimit=queueLimit)

        return Environment(
            clock=process,
            wall=self._wall,
            inThread=lambda function: deferLater(process, self.diskSeconds, function),
            listen=lambda settings, port: self._machine.listen(port),
            connect=self._connect,
            choose=self._chance.randrange,
            files=self._files,
            executor=executor,
        )

    def _connect(self, tls: ClientTLS | None) -> Connect:
        if tls is not None:
            # Twisted's TLS uses the reactor's timers, and the reactor does not run.
            raise ConfigError("a MemoryCluster does not support TLS: use a RealCluster")
        return self._machine.connect
