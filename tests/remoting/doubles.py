# SPDX-License-Identifier: Apache-2.0
"""
Stand-ins that the tests of remoting share: a transport that shows what was
written and can be full, a hook that remembers, connections in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogLevel, globalLogPublisher
from twisted.python.failure import Failure
from twisted.test.iosim import FakeTransport, IOPump, connect
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.connection import RemotingConnection
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.interfaces import IHook
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import FunctionProcessor, Limits, Remoting

PEER = IPv4Address("TCP", "192.0.2.7", 10911)
ADDRESS = "192.0.2.7:10911"


class Wire(StringTransport):
    """
    A transport that keeps its writes apart and, like the real one, tells its
    producer when it is full and may be asked to close more than once.

    @ivar capacity: how many bytes it takes before it is full.
    """

    def __init__(self, capacity: int = 1 << 30) -> None:
        super().__init__(peerAddress=PEER, lenient=True)
        self.writes: list[bytes] = []
        self.capacity = capacity
        self.aborts = 0
        self.noDelay = False
        self._full = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.noDelay = enabled

    def write(self, data: bytes) -> None:
        super().write(data)
        self.writes.append(data)
        if not self._full and len(self.value()) > self.capacity and self.producer is not None:
            self._full = True
            self.producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self.producer = None

    def abortConnection(self) -> None:
        self.aborts += 1
        super().abortConnection()

    def drain(self) -> list[RemotingCommand]:
        """
        The peer reads everything.
        """
        read = decoded(self.value())
        self.clear()
        if self._full:
            self._full = False
            if self.producer is not None:
                self.producer.resumeProducing()
        return read


@implementer(IHook)
class Recorder:
    """
    A hook that writes down what it sees.

    @ivar before: what else to do before a request.
    @ivar after: what else to do after a response.
    """

    def __init__(self, name: str, seen: list[tuple[object, ...]]) -> None:
        self.name = name
        self.seen = seen
        self.before: Callable[[RemotingCommand], object] = lambda request: None
        self.after: Callable[[RemotingCommand], object] = lambda response: None

    def beforeRequest(self, address: str, request: RemotingCommand) -> None:
        self.seen.append((self.name, "before", address, request.code))
        self.before(request)

    def afterResponse(
        self, address: str, request: RemotingCommand, response: RemotingCommand
    ) -> None:
        self.seen.append((self.name, "after", address, request.code, response.code))
        self.after(response)


class Raise:
    """
    A function that raises.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, *args: object) -> Any:
        raise self.error


def decoded(data: bytes) -> list[RemotingCommand]:
    """
    The commands in some bytes that hold nothing else.
    """
    frames = RemotingConnection()
    commands = frames.feed(data)
    assert frames.fault is None and not frames.held, (frames.fault, frames.held)
    return commands


def frame(code: int, opaque: int, body: bytes = b"", **changes: Any) -> bytes:
    """
    A request as a peer would write it.
    """
    command = requestCommand(code, body=body)
    command.opaque = opaque
    for name, value in changes.items():
        setattr(command, name, value)
    return command.encode()


def serving(
    clock: Clock, processors: dict[int, Callable[..., Any]], limits: Limits | None = None
) -> Remoting:
    """
    A program that serves some codes by plain functions, in the reactor.
    """
    remoting = Remoting(clock, limits)
    for code, function in processors.items():
        remoting.registerProcessor(code, FunctionProcessor(function), InlineExecutor())
    return remoting


def connected(
    remoting: Remoting, *, accepted: bool = True, capacity: int = 1 << 30
) -> tuple[RemotingProtocol, Wire]:
    """
    One end of a connection whose other end is the test.
    """
    protocol, wire = RemotingProtocol(remoting, accepted=accepted), Wire(capacity)
    protocol.makeConnection(wire)
    return protocol, wire


def pair(client: Remoting, server: Remoting) -> tuple[RemotingProtocol, RemotingProtocol, IOPump]:
    """
    Two ends of one connection in memory: the dialling, the accepting, and what
    moves bytes between them.
    """
    dialled = RemotingProtocol(client, accepted=False)
    accepted = RemotingProtocol(server, accepted=True)
    pump = connect(
        accepted,
        FakeTransport(accepted, isServer=True, peerAddress=IPv4Address("TCP", "192.0.2.1", 50000)),
        dialled,
        FakeTransport(dialled, isServer=False, peerAddress=PEER),
    )
    return dialled, accepted, pump


def lose(protocol: RemotingProtocol, reason: Exception) -> None:
    """
    The connection breaks.
    """
    protocol.connectionLost(Failure(reason))


class RemotingTests(SynchronousTestCase):
    """
    The base of tests that look at what was logged.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.events: list[dict[str, Any]] = []
        observer: Any = self.events.append
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def logged(self, level: LogLevel) -> list[str]:
        """
        What txrocket logged so far at one level.
        """
        return [
            str(each["log_format"]).format_map(each)
            for each in self.events
            if each["log_level"] is level and each["log_namespace"].startswith("txrocket.")
        ]
