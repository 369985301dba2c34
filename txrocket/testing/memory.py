# SPDX-License-Identifier: Apache-2.0
"""
A cluster in memory, on a clock: no sockets, no threads, no files, no waiting::

    cluster = MemoryCluster()
    cluster.start()
    peers = Peers(Remoting(cluster.clock), cluster.connect)
    answer = peers.request(cluster.brokers[0], request, timeout=3.0)
    cluster.advance()                       # what is on its way arrives
    ...                                     # answer has a result
    cluster.stop()

The servers are the real ones, given other surroundings.  Each has a machine of its
own, with an address on the cluster's network and a disk; both outlast a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import Clock, deferLater
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocket.broker.service import Broker
from txrocket.errors import ConfigError
from txrocket.nameserver.service import NameServer
from txrocket.remoting.executors import PoolExecutor
from txrocket.remoting.peers import Connect
from txrocket.remoting.settings import BrokerServerSettings
from txrocket.remoting.tls import ClientTLS
from txrocket.services import Plugins, broker, nameServer
from txrocket.surroundings import Surroundings
from txrocket.testing.cluster import Cluster
from txrocket.testing.files import MemoryFiles
from txrocket.testing.network import Machine, Network
from txrocket.testing.plan import Setting, brokerSettings, namesrvSettings

__all__ = ["MemoryCluster"]

# What the clock shows first, in seconds: 14 November 2023.
_START = 1_700_000_000

_NAMESRV_PORT = 9876
_BROKER_PORT = 10911

# How many seconds of the clock a server may take to start or to stop.
_PATIENCE = 60.0

_Result = TypeVar("_Result")
_Server = NameServer | Broker


class MemoryCluster(Cluster):
    """
    Name servers and brokers in memory.

    @ivar clock: the time of all servers, for clients to share: what is periodic follows
        it, and time-outs do.
    @ivar wall: the time of day of all machines, in seconds; the clock's, unless the test
        sets it by L{shiftWall}.
    @ivar connect: how clients dial; what L{Peers<txrocket.remoting.peers.Peers>}
        takes.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        nameServers: int = 1,
        settings: Mapping[str, Setting] | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        """
        @param brokers: how many.
        @param nameServers: how many.
        @param settings: by RocketMQ's names, for all servers that know them.
        @param plugins: what is plugged into each broker.
        @raise ConfigError: if a setting is wrong.
        """
        super().__init__()
        self.clock = Clock()
        self.clock.advance(_START)
        self._shift = 0.0
        self._network = Network(self.clock)
        self._settings = settings or {}
        self._plugins = plugins
        self._machines: dict[str, _Host] = {}
        # Addresses that are for documentation, so that none of them is real.
        for index in range(nameServers):
            self.nameServers.append(self._addNameServer(f"192.0.2.{1 + index}"))
        for index in range(brokers):
            self.brokers.append(self._addBroker(f"198.51.100.{1 + index}", f"broker-{index}"))
        self.connect: Connect = Machine(self._network, "203.0.113.1").connect

    def wall(self) -> float:
        """
        The time of day, in seconds.
        """
        return self.clock.seconds() + self._shift

    def shiftWall(self, seconds: float) -> None:
        """
        Set the time of day of all machines ahead, or back if it is below zero, as an
        administrator does.  The clock is not touched.
        """
        self._shift += seconds

    def service(self, address: str) -> _Server:
        """
        The server at an address.

        @raise KeyError: if there is none, or it does not run.
        """
        service = self._machines[address].service
        if service is None:
            raise KeyError(address)
        return service

    def start(self, address: str | None = None) -> None:
        """
        Start all servers that do not run, and wait until the name servers know the
        brokers.

        @param address: the one server to start, if not all.
        """
        for each in [address] if address else [*self.nameServers, *self.brokers]:
            if self._machines[each].service is None:
                service = self._machines[each].start()
                if isinstance(service, Broker):
                    self.resultOf(service.whenAnnounced())
        self.advance()

    def stop(self, address: str | None = None) -> None:
        """
        Have all servers that run stop gracefully.

        @param address: the one server to stop, if not all.
        """
        for each in [address] if address else [*self.brokers, *self.nameServers]:
            stopping = self._machines[each].stop()
            if stopping is not None:
                self.resultOf(stopping)
        self.advance()

    def crash(self, address: str) -> None:
        """
        End a server as C{kill -9} does.  Its connections break, and it keeps nothing
        but what it has written to its disk.
        """
        self._machines[address].crash()
        self.advance()

    def advance(self, seconds: float = 0.0) -> None:
        """
        Let time pass, and everything happen in its turn: all that is on its way
        arrives.
        """
        end = self.clock.seconds() + seconds
        while self._step(end):
            pass
        self.clock.advance(end - self.clock.seconds())

    def resultOf(self, deferred: Deferred[_Result], within: float = _PATIENCE) -> _Result:
        """
        The result of a Deferred, for which time passes as far as it must.

        @param within: how many seconds that may be.
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
        Have the next thing happen.

        @return: whether there was one, not later than C{end}.
        """
        calls = self.clock.getDelayedCalls()
        due = min((each.getTime() for each in calls), default=end + 1)
        if due > end:
            return False
        self.clock.advance(max(0.0, due - self.clock.seconds()))
        return True

    def _addNameServer(self, host: str) -> str:
        def make(around: Surroundings) -> NameServer:
            return nameServer(around, namesrvSettings(self._settings, host, _NAMESRV_PORT, ""))

        address = f"{host}:{_NAMESRV_PORT}"
        self._machines[address] = _Host(self._network, host, make, self.wall)
        return address

    def _addBroker(self, host: str, name: str) -> str:
        def configuration() -> Any:
            return brokerSettings(self._settings, name, host, _BROKER_PORT, "", self.nameServers)

        def make(around: Surroundings) -> Broker:
            return broker(around, configuration(), self._plugins)

        address = f"{host}:{configuration()[BrokerServerSettings].listenPort}"
        self._machines[address] = _Host(self._network, host, make, self.wall)
        return address


class _Host:
    """
    A server's machine.

    @ivar service: the server, while it runs.
    """

    def __init__(
        self,
        network: Network,
        host: str,
        make: Callable[[Surroundings], _Server],
        wall: Callable[[], float],
    ) -> None:
        self._clock = network.clock
        self._machine = Machine(network, host)
        self._files = MemoryFiles(wall)
        self._make = make
        self._wall = wall
        self._process = _Process(self._clock)
        # The same each time, so that a failure comes again.
        self._chance = Random(host)
        self.service: _Server | None = None

    def start(self) -> _Server:
        """
        Start the server.
        """
        self._process = _Process(self._clock)
        try:
            service = self._make(self._around(self._process))
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

    def _around(self, process: _Process) -> Surroundings:
        def executor(name: str, size: int, queueLimit: int) -> PoolExecutor:
            return PoolExecutor(process, process, name=name, size=size, queueLimit=queueLimit)

        return Surroundings(
            clock=process,
            wall=self._wall,
            inThread=lambda function: deferLater(process, 0, function),
            listen=lambda settings, port: self._machine.listen(port),
            connect=self._connect,
            choose=self._chance.randrange,
            files=self._files,
            executor=executor,
        )

    def _connect(self, tls: ClientTLS | None) -> Connect:
        if tls is not None:
            # Twisted's keeps the time of the reactor, which does not run.
            raise ConfigError("TLS is not spoken in memory: take a RealCluster")
        return self._machine.connect


@implementer(IReactorTime)
class _Process:
    """
    The reactor and the threads of one server, which end with it.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def seconds(self) -> float:
        """
        The time.
        """
        seconds: float = self._clock.seconds()
        return seconds

    def callLater(self, delay: float, callable: Any, *args: Any, **kwargs: Any) -> IDelayedCall:
        """
        Have something called, unless the process ends before.
        """
        call: IDelayedCall = self._clock.callLater(delay, _Own(self, callable), *args, **kwargs)
        return call

    def getDelayedCalls(self) -> list[IDelayedCall]:
        """
        What is still to be called.
        """
        return [
            each
            for each in self._clock.getDelayedCalls()
            if isinstance(each.func, _Own) and each.func.process is self
        ]

    def callFromThread(self, callable: Any, *args: Any) -> None:
        """
        What a thread tells the reactor.
        """
        self.callLater(0, callable, *args)

    def callInThreadWithCallback(self, onResult: Any, func: Any, *args: Any) -> None:
        """
        What a thread does: in its turn, since there is none.
        """

        def work() -> None:
            try:
                result = func(*args)
            except Exception:
                onResult(False, Failure())
            else:
                onResult(True, result)

        self.callLater(0, work)

    def crash(self) -> None:
        """
        It ends.
        """
        for each in self.getDelayedCalls():
            each.cancel()


class _Own:
    """
    A call of one process.
    """

    __slots__ = ("_callable", "process")

    def __init__(self, process: _Process, callable: Any) -> None:
        self.process = process
        self._callable = callable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._callable(*args, **kwargs)
