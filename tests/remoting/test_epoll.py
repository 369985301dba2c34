# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.epoll}, with a reactor of its own and real sockets.
"""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.tcp import Server
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.remoting.epoll import drive
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import BulkFunctionProcessor, Remoting
from txrocket.remoting.server import RemotingServerFactory
from txrocket.remoting.turn import Call


class Noted(Protocol):
    """
    Notes what happens, and does what it is told.
    """

    transport: Any

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def connectionMade(self) -> None:
        """
        Note it.
        """
        self.seen.append("made")

    def dataReceived(self, data: bytes) -> None:
        """
        Answer, leave, or break.
        """
        self.seen.append(data)
        if data == b"break":
            raise ZeroDivisionError
        if data == b"leave":
            self.transport.loseConnection()
        elif data == b"abort":
            self.transport.abortConnection()
        else:
            self.transport.write(data.upper())

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """
        Note why.
        """
        self.seen.append(type(reason.value).__name__)


class LeanTests(SynchronousTestCase):
    """
    A reactor that reads leanly does what it did.
    """

    def outcome(self, lean: bool, *said: bytes) -> tuple[list[Any], bytes]:
        """
        Say something to a server, and go.

        @return: what it notes, and what it answers.
        """
        reactor = EPollReactor()
        if lean:
            drive(reactor, [])
        seen: list[Any] = []
        factory = Factory.forProtocol(lambda: Noted(seen))
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        answered = b""
        with socket.create_connection(("127.0.0.1", port.getHost().port)) as client:
            client.settimeout(0)
            for data in said:
                client.send(data)
                for _ in range(4):
                    reactor.iterate(0.01)
            try:
                answered = client.recv(100)
            except (BlockingIOError, ConnectionResetError):
                answered = b"none"
        for _ in range(4):
            reactor.iterate(0.01)
        port.stopListening()
        reactor.iterate(0)
        reactor.disconnectAll()
        return seen, answered

    def test_same(self) -> None:
        """
        Answers, and connections that are closed by either side, go as ever.
        """
        for said in ((b"a", b"b"), (b"leave",), (b"a", b"abort"), ()):
            self.assertEqual(self.outcome(True, *said), self.outcome(False, *said))
        self.assertEqual(self.outcome(True, b"a", b"b")[1], b"AB")

    def test_raises(self) -> None:
        """
        What a protocol raises is logged, and the connection is closed.
        """
        for lean in (True, False):
            seen, answered = self.outcome(lean, b"break")
            self.assertEqual((seen, answered), (["made", b"break", "ZeroDivisionError"], b""))
            self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))

    def test_lean(self) -> None:
        """
        Reads of accepted connections do not go the ordinary way.
        """
        ordinary: list[type] = []
        reads = EPollReactor._doReadOrWrite

        def noted(reactor: Any, selectable: Any, handle: int, event: int) -> None:
            ordinary.append(type(selectable))
            reads(reactor, selectable, handle, event)

        self.patch(EPollReactor, "_doReadOrWrite", noted)
        self.outcome(True, b"a")
        self.assertNotIn(Server, ordinary[:-1])
        self.outcome(False, b"a")
        self.assertIn(Server, ordinary)

    def test_other(self) -> None:
        """
        Another reactor is left alone.
        """
        reactor = SelectReactor()
        stop = drive(reactor, [])
        self.assertEqual(reactor.doIteration, reactor.doSelect)
        stop()

    def test_stop(self) -> None:
        """
        A reactor can be had back as it was.
        """
        reactor = EPollReactor()
        stop = drive(reactor, [])
        self.assertNotEqual(reactor.doIteration, reactor.doPoll)
        stop()
        self.assertEqual(reactor.doIteration, reactor.doPoll)
        reactor.disconnectAll()


class TurnTests(SynchronousTestCase):
    """
    The loop ends the turns of the programs that it drives.
    """

    def setUp(self) -> None:
        self.reactor: Any = EPollReactor()
        self.addCleanup(self.reactor.disconnectAll)
        self.remoting = Remoting(self.reactor)
        self.served: list[list[int]] = []
        self.committed: list[int] = []
        self.remoting.registerProcessor(
            7, BulkFunctionProcessor(self.one, self.many), InlineExecutor()
        )
        self.remoting.turn.onCommit(lambda: self.committed.append(len(self.served)))
        self.release = drive(self.reactor, [self.remoting.turn])

    def one(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Serve one request.
        """
        return responseCommand()

    def many(self, calls: list[Call], starts: list[int]) -> None:
        """
        Serve none, and note of how many peers there were requests.
        """
        self.served.append([call.end - call.start for call in calls])

    def iterate(self) -> None:
        """
        Let the reactor go round a few times.
        """
        for _ in range(4):
            self.reactor.iterate(0.01)

    def test_connectionsReadableInOneRoundAreServedTogether(self) -> None:
        """
        Two peers that have sent before the loop looks share a turn, and both are answered.
        """
        factory = RemotingServerFactory(self.remoting)
        port = self.reactor.listenTCP(0, factory, interface="127.0.0.1")
        address = ("127.0.0.1", port.getHost().port)
        request = requestCommand(7).encode()
        with socket.create_connection(address) as one, socket.create_connection(address) as other:
            self.iterate()
            for each in (one, other):
                each.sendall(request)
            self.iterate()
            self.assertEqual(self.served[0], [len(request)] * 2)
            for each in (one, other):
                each.settimeout(10)
                self.assertTrue(each.recv(1000))
        self.iterate()
        port.stopListening()
        self.release()

    def test_turnLeftOpenByATimerEndsBeforeTheLoopWaits(self) -> None:
        """
        If a timer has left something to commit, the loop ends the turn before it waits.
        """
        self.reactor.callLater(0, self.remoting.turn.wake)
        self.reactor.iterate(0)
        self.reactor.iterate(0)
        self.assertEqual(self.committed, [0])
        self.release()

    def test_releasedLoopEndsTheLastTurn(self) -> None:
        """
        A loop that is given back ends the turns first, and drives them no more.
        """
        self.remoting.turn.wake()
        self.assertEqual(self.committed, [])
        self.release()
        self.assertEqual(self.committed, [0])
        self.assertFalse(self.remoting.turn.driven)
