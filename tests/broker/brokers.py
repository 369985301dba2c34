# SPDX-License-Identifier: Apache-2.0
"""
Whole brokers in memory: on a clock, with ports, connections, name servers and
threads that do what a test says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.internet.interfaces import (
    IListeningPort,
    IProtocolFactory,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
)
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.remoting.doubles import RemotingTests, Wire, decoded
from tests.store.support import START, Disk, abandon, atOnce
from txrocket.broker.service import Broker
from txrocket.config import Configuration
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.headers.fields import Header
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.settings import ServerSettings
from txrocket.server.environment import Environment
from txrocket.services import BROKER_SECTIONS, Plugins, broker

CLIENT = IPv4Address("TCP", "192.0.2.7", 50001)


class ClosingWire(Wire):
    """
    A transport that closes when it is asked to, as a real one does: when the reactor
    has turned.

    @ivar stubborn: whether the other end never agrees to close.
    """

    def __init__(self, clock: Clock, protocol: Any) -> None:
        super().__init__()
        self._clock = clock
        self._protocol = protocol
        self._lost = False
        self.stubborn = False

    def loseConnection(self) -> None:
        super().loseConnection()
        if not self.stubborn:
            self._clock.callLater(0, self._lose)

    def abortConnection(self) -> None:
        super().abortConnection()
        self._clock.callLater(0, self._lose)

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connectionLost(Failure(ConnectionDone()))


class Caller:
    """
    A client that has connected to a port.
    """

    def __init__(self, clock: Clock, factory: Any) -> None:
        self.protocol = factory.buildProtocol(CLIENT)
        self.wire = ClosingWire(clock, self.protocol)
        self.wire.peerAddr = CLIENT
        self.protocol.makeConnection(self.wire)
        self._opaque = 0

    def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """
        Send a request.
        """
        self._opaque += 1
        request = requestCommand(code, header, body)
        request.opaque = self._opaque
        self.protocol.dataReceived(request.encode())

    def answers(self) -> list[RemotingCommand]:
        """
        What was answered since this was last asked.
        """
        return self.wire.drain()


@implementer(IListeningPort)
class Port:
    """
    A port in memory, which like a real one tells its factory.
    """

    def __init__(self, factory: Any, number: int) -> None:
        self.factory = factory
        self.number = number
        self.open = True

    def startListening(self) -> None:
        """
        It does so from the start.
        """

    def stopListening(self) -> None:
        """
        Close it.
        """
        self.open = False
        self.factory.doStop()

    def getHost(self) -> IPv4Address:
        """
        Where it listens.
        """
        return IPv4Address("TCP", "192.0.2.9", self.number)


@implementer(IStreamServerEndpoint)
class Endpoint:
    """
    Where a port may be opened.
    """

    def __init__(self, opened: list[Port], number: int, taken: bool) -> None:
        self._opened = opened
        self._number = number
        self._taken = taken

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """
        Open it, unless it is taken.
        """
        if self._taken:
            return fail(CannotListenError("", self._number, OSError("in use")))
        protocolFactory.doStart()
        port = Port(protocolFactory, self._number)
        self._opened.append(port)
        return succeed(port)


@implementer(IStreamClientEndpoint)
class NameServer:
    """
    A name server that remembers what it was asked, and says yes to everything.

    @ivar asked: the codes of what it was asked.
    @ivar silent: whether it says nothing.
    @ivar heard: called with each code before it is answered.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.asked: list[int] = []
        self.silent = False
        self.heard: Callable[[int], object] = lambda code: None

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """
        A broker connects.
        """
        protocol: Any = protocolFactory.buildProtocol(CLIENT)
        wire = ClosingWire(self._clock, protocol)
        write = wire.write

        def hear(data: bytes) -> None:
            write(data)
            for request in decoded(data):
                self._clock.callLater(0, self._answer, protocol, request)

        wire.write = hear  # type: ignore[method-assign]
        protocol.makeConnection(wire)
        return succeed(protocol)

    def _answer(self, protocol: Any, request: RemotingCommand) -> None:
        self.asked.append(request.code)
        self.heard(request.code)
        if not self.silent:
            response = responseCommand()
            response.opaque = request.opaque
            protocol.dataReceived(response.encode())


class WholeBrokerTests(RemotingTests):
    """
    The base: brokers, and what is around them.

    @ivar events: what happened around them, in order.
    @ivar taken: ports that are in use.
    """

    inThread: Callable[[Callable[[], None]], Deferred[None]] = staticmethod(atOnce)

    def setUp(self) -> None:
        super().setUp()
        self.clock.advance(START)
        self.root = self.mktemp()
        self.disk = Disk()
        self.happened: list[str] = []
        self.taken: set[int] = set()
        self.ports: list[Port] = []
        self.nameServer = NameServer(self.clock)
        self.dialled: list[str] = []

    def around(self) -> Environment:
        """
        What a broker is given.
        """

        def listen(settings: ServerSettings, port: int) -> IStreamServerEndpoint:
            return Endpoint(self.ports, port, port in self.taken)

        def connect(address: str) -> IStreamClientEndpoint:
            self.dialled.append(address)
            return self.nameServer

        return Environment(
            clock=self.clock,
            wall=self.clock.seconds,
            inThread=lambda function: self.inThread(function),
            listen=listen,
            connect=lambda tls: connect,
            choose=lambda below: 0,
            files=self.disk,
            executor=lambda name, size, queueLimit: InlineExecutor(),
            start=lambda: self.happened.append("started"),
            stop=lambda: self.happened.append("stopped"),
        )

    def configuration(self, **given: str) -> Configuration:
        """
        A broker's settings.
        """
        own = {
            "brokerName": "b",
            "brokerIP1": "192.0.2.9",
            "storePathRootDir": self.root,
            "mappedFileSizeCommitLog": "4096",
            "mappedFileSizeConsumeQueue": "200",
            "maxHashSlotNum": "8",
            "maxIndexNum": "40",
        }
        return Configuration.read(BROKER_SECTIONS, (), None, {**own, **given})

    def make(self, plugins: Plugins | None = None, **given: str) -> Broker:
        """
        A broker that has not started.
        """
        made = broker(self.around(), self.configuration(**given), plugins)
        self.addCleanup(abandon, made.store)
        return made

    def start(self, plugins: Plugins | None = None, **given: str) -> Broker:
        """
        A broker that has.
        """
        made = self.make(plugins, **given)
        made.startService()
        self.clock.advance(0)
        return made

    def call(self, port: int = 0) -> Caller:
        """
        Connect to one of the ports that were opened.
        """
        return Caller(self.clock, self.ports[port].factory)

    def turn(self, seconds: float = 0) -> None:
        """
        Let the reactor turn, as often as one thing may need another.
        """
        self.clock.advance(seconds)
        for _ in range(10):
            self.clock.advance(0)
