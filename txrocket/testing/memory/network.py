# SPDX-License-Identifier: Apache-2.0
"""
A network in memory, on a clock.

A L{Machine} is one address of the network.  Its listening ports and connections can be
ended as the crash of a process ends them.

L{MemoryNetwork.cut} cuts the way from one machine to another, and L{MemoryNetwork.heal} heals
it.  Connections outlive that, as those of TCP do: their bytes come late.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import (
    CannotListenError,
    ConnectingCancelledError,
    ConnectionRefusedError,
    TimeoutError,
)
from twisted.internet.interfaces import (
    IListeningPort,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
)
from zope.interface import implementer

from txrocket.remoting.addresses import parseAddress
from txrocket.remoting.peers import CONNECT_TIMEOUT
from txrocket.testing.memory.transport import MemoryTransport

__all__ = ["Machine", "MemoryNetwork"]

# The most arrivals while the clock stands still.  Two programs that answer each other
# without end would otherwise hang the test.
_ENDLESS = 1_000_000


class MemoryNetwork:
    """
    A network that is separate from all others.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.clock = clock
        self.listening: dict[tuple[str, int], _Port] = {}
        self._instant = clock.seconds()
        self._arrivals = 0
        # By the two machines of a cut way, what waits until it is healed.
        self._cuts: dict[tuple[str, str], list[Callable[[], None]]] = {}
        # By the two machines of a slow way, how many seconds it takes.
        self._delays: dict[tuple[str, str], float] = {}

    def cut(self, host: str, other: str) -> None:
        """
        Let nothing get from one machine to another, in this direction.
        """
        self._cuts.setdefault((host, other), [])

    def heal(self, host: str, other: str) -> None:
        """
        Let everything get from one machine to another again.
        """
        for function in self._cuts.pop((host, other), ()):
            function()

    def slow(self, host: str, other: str, seconds: float) -> None:
        """
        Let everything take some time to get from one machine to another, in this direction.
        """
        self._delays[host, other] = seconds

    def delay(self, host: str, other: str) -> float:
        """
        How many seconds everything takes to get from one machine to another.
        """
        return self._delays.get((host, other), 0.0)

    def isCut(self, host: str, other: str) -> bool:
        """
        Whether nothing gets from one machine to another.
        """
        return (host, other) in self._cuts

    def whenHealed(self, host: str, other: str, function: Callable[[], None]) -> None:
        """
        Call a function once something gets from one machine to another; now, if it does.
        """
        waiting = self._cuts.get((host, other))
        if waiting is None:
            function()
        else:
            waiting.append(function)

    def soon(self, function: Callable[[], None], delay: float = 0.0) -> None:
        """
        Call a function at the next call of the clock, or after some seconds.

        @raise RuntimeError: from that call, if there are too many at one time.
        """

        def happen() -> None:
            now = self.clock.seconds()
            if now != self._instant:
                self._instant, self._arrivals = now, 0
            self._arrivals += 1
            if self._arrivals > _ENDLESS:
                raise RuntimeError(
                    f"{_ENDLESS} times something has arrived while the clock stood still:"
                    " a peer sends again and again without waiting"
                )
            function()

        self.clock.callLater(delay, happen)


class _Direction:
    """
    The way from one machine to another.
    """

    def __init__(self, network: MemoryNetwork, host: str, other: str) -> None:
        self._network = network
        self._ends = host, other

    def soon(self, function: Callable[[], None]) -> None:
        self._network.soon(function, self._network.delay(*self._ends))

    @property
    def isCut(self) -> bool:
        return self._network.isCut(*self._ends)

    def whenHealed(self, function: Callable[[], None]) -> None:
        self._network.whenHealed(*self._ends, function)


class Machine:
    """
    An address on a network.

    @ivar transports: the transports of the open connections.
    @ivar crashes: the number of processes that have crashed here.
    """

    def __init__(self, network: MemoryNetwork, host: str) -> None:
        self.network = network
        self.host = host
        self.transports: set[MemoryTransport] = set()
        self.crashes = 0
        # Linux gives the next port to the first connection.
        self._lastPort = 32767

    def listen(self, port: int) -> IStreamServerEndpoint:
        """
        An endpoint to listen on a port.
        """
        return _Listen(self, port)

    def connect(self, address: str) -> IStreamClientEndpoint:
        """
        An endpoint to dial C{host:port}, as L{Peers<txrocket.remoting.peers.Peers>} needs
        it.

        @raise ValueError: if the address cannot be parsed.
        """
        return _Dial(self, *parseAddress(address))

    def nextAddress(self) -> IPv4Address:
        """
        The local address of a new connection.
        """
        self._lastPort += 1
        return IPv4Address("TCP", self.host, self._lastPort)

    def crash(self) -> None:
        """
        End the process here without a word to it.  Its peers lose their connections.
        """
        self.crashes += 1
        listening = self.network.listening
        for key in [each for each in listening if each[0] == self.host]:
            del listening[key]
        for transport in list(self.transports):
            transport.vanish()


@implementer(IListeningPort)
class _Port:
    """
    A listening port.
    """

    def __init__(self, machine: Machine, port: int, factory: IProtocolFactory) -> None:
        self._address = IPv4Address("TCP", machine.host, port)
        self.machine = machine
        self.factory = factory

    def startListening(self) -> None:
        """
        Accept connections.

        @raise CannotListenError: if the port is in use.
        """
        key = self._address.host, self._address.port
        listening = self.machine.network.listening
        if key in listening:
            raise CannotListenError(*key, OSError("the port is in use"))
        self.factory.doStart()
        listening[key] = self

    def stopListening(self) -> Deferred[None]:
        """
        Accept no more connections.
        """
        listening = self.machine.network.listening
        if listening.pop((self._address.host, self._address.port), None) is not None:
            self.factory.doStop()
        return succeed(None)

    def getHost(self) -> IPv4Address:
        """
        The address of the port.
        """
        return self._address


@implementer(IStreamServerEndpoint)
class _Listen:
    """
    An endpoint for a port.
    """

    def __init__(self, machine: Machine, port: int) -> None:
        self._machine = machine
        self._port = port

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """
        See L{IStreamServerEndpoint}.
        """
        port = _Port(self._machine, self._port, protocolFactory)
        try:
            port.startListening()
        except CannotListenError:
            return fail()
        return succeed(port)


@implementer(IStreamClientEndpoint)
class _Dial:
    """
    An endpoint for an address to dial.
    """

    def __init__(self, machine: Machine, host: str, port: int) -> None:
        self._machine = machine
        self._address = IPv4Address("TCP", host, port)

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """
        See L{IStreamClientEndpoint}.
        """

        def cancel(cancelled: Deferred[IProtocol]) -> None:
            cancelled.errback(ConnectingCancelledError(self._address))

        machine, network = self._machine, self._machine.network
        crashes, there = machine.crashes, self._address.host
        connected: Deferred[IProtocol] = Deferred(cancel)

        def connect() -> None:
            if connected.called or machine.crashes != crashes:
                return
            if network.isCut(machine.host, there) or network.isCut(there, machine.host):
                network.clock.callLater(CONNECT_TIMEOUT, giveUp)
            else:
                self._connect(protocolFactory, connected)

        def giveUp() -> None:
            if not connected.called and machine.crashes == crashes:
                connected.errback(TimeoutError(f"nothing gets through to {there}"))

        network.soon(connect)
        return connected

    def _connect(self, factory: IProtocolFactory, connected: Deferred[IProtocol]) -> None:
        address = self._address
        port = self._machine.network.listening.get((address.host, address.port))
        own = self._machine.nextAddress()
        accepting = port and port.factory.buildProtocol(own)
        if port is None or accepting is None:
            connected.errback(
                ConnectionRefusedError(f"no server listens at {address.host}:{address.port}")
            )
            return
        factory.doStart()
        dialling = factory.buildProtocol(address)
        network = self._machine.network
        out = _Direction(network, own.host, address.host)
        back = _Direction(network, address.host, own.host)
        here = MemoryTransport(out, self._machine.transports, own, address)
        there = MemoryTransport(back, port.machine.transports, address, own)
        here.other, there.other = there, here
        here.whenLost = factory.doStop
        there.begin(accepting)
        here.begin(dialling)
        connected.callback(dialling)  # type: ignore[arg-type]
