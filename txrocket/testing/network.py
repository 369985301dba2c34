# SPDX-License-Identifier: Apache-2.0
"""
A network in memory, on a clock.

A L{Machine} is one address of the network; what listens or dials on it can be ended
as a crash ends a process.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import (
    CannotListenError,
    ConnectingCancelledError,
    ConnectionRefusedError,
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
from txrocket.testing.transport import End

__all__ = ["Machine", "Network"]

# How often something may arrive while the clock stands still.  Two programs that
# answer each other without end would otherwise hang the test.
_ENDLESS = 1_000_000


class Network:
    """
    A network of its own: nobody on it meets anybody on another.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.clock = clock
        self.listening: dict[tuple[str, int], _Port] = {}
        self._instant = clock.seconds()
        self._arrivals = 0

    def soon(self, function: Callable[[], None]) -> None:
        """
        Have something happen at the next call of the clock.

        @raise RuntimeError: from that call, if there is no end to such happenings.
        """

        def happen() -> None:
            now = self.clock.seconds()
            if now != self._instant:
                self._instant, self._arrivals = now, 0
            self._arrivals += 1
            if self._arrivals > _ENDLESS:
                raise RuntimeError(
                    f"{_ENDLESS} times something has arrived while the clock stood still:"
                    " somebody asks again and again without waiting"
                )
            function()

        self.clock.callLater(0, happen)


class Machine:
    """
    An address on a network.

    @ivar ends: of the connections that are up.
    @ivar crashes: how often a process has ended here.
    """

    def __init__(self, network: Network, host: str) -> None:
        self.network = network
        self.host = host
        self.ends: set[End] = set()
        self.crashes = 0
        # The first that Linux gives to who dials.
        self._lastPort = 32767

    def listen(self, port: int) -> IStreamServerEndpoint:
        """
        Where to listen.
        """
        return _Listen(self, port)

    def connect(self, address: str) -> IStreamClientEndpoint:
        """
        How to dial C{host:port}; a
        L{Connect<txrocket.remoting.peers.Peers>}.

        @raise ValueError: if that is no address.
        """
        return _Dial(self, *parseAddress(address))

    def nextAddress(self) -> IPv4Address:
        """
        The address of one who dials.
        """
        self._lastPort += 1
        return IPv4Address("TCP", self.host, self._lastPort)

    def crash(self) -> None:
        """
        The process here ends.  It is not told; all others find their connections
        broken.
        """
        self.crashes += 1
        listening = self.network.listening
        for key in [each for each in listening if each[0] == self.host]:
            del listening[key]
        for end in list(self.ends):
            end.vanish()


@implementer(IListeningPort)
class _Port:
    """
    What listens.
    """

    def __init__(self, machine: Machine, port: int, factory: IProtocolFactory) -> None:
        self._address = IPv4Address("TCP", machine.host, port)
        self.machine = machine
        self.factory = factory

    def startListening(self) -> None:
        """
        Let others in.

        @raise CannotListenError: if somebody listens there.
        """
        key = self._address.host, self._address.port
        listening = self.machine.network.listening
        if key in listening:
            raise CannotListenError(*key, OSError("somebody listens there already"))
        self.factory.doStart()
        listening[key] = self

    def stopListening(self) -> Deferred[None]:
        """
        Let nobody in any more.
        """
        listening = self.machine.network.listening
        if listening.pop((self._address.host, self._address.port), None) is not None:
            self.factory.doStop()
        return succeed(None)

    def getHost(self) -> IPv4Address:
        """
        Where it listens.
        """
        return self._address


@implementer(IStreamServerEndpoint)
class _Listen:
    """
    A port to listen at.
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
    An address to dial.
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

        machine = self._machine
        crashes = machine.crashes
        connected: Deferred[IProtocol] = Deferred(cancel)

        def connect() -> None:
            if not connected.called and machine.crashes == crashes:
                self._connect(protocolFactory, connected)

        machine.network.soon(connect)
        return connected

    def _connect(self, factory: IProtocolFactory, connected: Deferred[IProtocol]) -> None:
        address = self._address
        port = self._machine.network.listening.get((address.host, address.port))
        own = self._machine.nextAddress()
        accepting = port and port.factory.buildProtocol(own)
        if port is None or accepting is None:
            connected.errback(
                ConnectionRefusedError(f"nobody listens at {address.host}:{address.port}")
            )
            return
        factory.doStart()
        dialling = factory.buildProtocol(address)
        soon = self._machine.network.soon
        here = End(soon, self._machine.ends, own, address)
        there = End(soon, port.machine.ends, address, own)
        here.other, there.other = there, here
        here.whenLost = factory.doStop
        there.begin(accepting)
        here.begin(dialling)
        connected.callback(dialling)  # type: ignore[arg-type]
