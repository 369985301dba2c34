# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.lean}, with a reactor of its own and real sockets.
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

from txrocket.remoting.lean import readLeanly


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
            readLeanly(reactor)
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
        stop = readLeanly(reactor)
        self.assertEqual(reactor.doIteration, reactor.doSelect)
        stop()

    def test_stop(self) -> None:
        """
        A reactor can be had back as it was.
        """
        reactor = EPollReactor()
        stop = readLeanly(reactor)
        self.assertNotEqual(reactor.doIteration, reactor.doPoll)
        stop()
        self.assertEqual(reactor.doIteration, reactor.doPoll)
        reactor.disconnectAll()
