# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.server}.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.logger import LogLevel
from twisted.python.failure import Failure

from tests.remoting.doubles import ADDRESS, PEER, Raise, RemotingTests, Wire, frame, serving
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.remoting.server import IDLE_TIMEOUT, RemotingServerFactory
from txrocket.remoting.tls import ServerTLS, TLSMode
from txrocket.server.echo import echo

CODE = RequestCode.HEART_BEAT


class ServerTests(RemotingTests):
    """
    The factory of accepted connections, on a clock.
    """

    def setUp(self) -> None:
        super().setUp()
        self.factory = RemotingServerFactory(serving(self.clock, {CODE: echo}))
        self.factory.doStart()

    def accept(self, first: bytes = frame(CODE, 1)) -> tuple[Any, Wire]:
        """
        A connection comes in, and says something.
        """
        protocol, wire = self.factory.buildProtocol(None), Wire()
        assert protocol is not None
        protocol.makeConnection(wire)
        if first:
            protocol.dataReceived(first)
        return protocol, wire

    def test_serves(self) -> None:
        """
        A connection is served from its first byte on, and is known while it is
        up.
        """
        protocol, wire = self.accept(frame(CODE, 1, b"hello") + frame(CODE, 2))
        self.assertEqual([each.opaque for each in wire.drain()], [1, 2])
        (connection,) = self.factory.connections
        self.assertEqual((connection.address, connection.accepted), (ADDRESS, True))
        protocol.dataReceived(frame(CODE, 3))
        self.assertEqual([each.opaque for each in wire.drain()], [3])
        protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(list(self.factory.connections), [])

    def test_byteByByte(self) -> None:
        """
        The first bytes may come one at a time.
        """
        protocol, wire = self.accept(b"")
        for byte in frame(CODE, 1, b"hello"):
            protocol.dataReceived(bytes([byte]))
        (answer,) = wire.drain()
        self.assertEqual(answer.body, b"hello")

    def refusing(self, **limits: Any) -> RemotingServerFactory:
        """
        A factory with limits of its own.
        """
        factory = RemotingServerFactory(serving(self.clock, {CODE: echo}), **limits)
        factory.doStart()
        self.addCleanup(factory.doStop)
        return factory

    def test_tooMany(self) -> None:
        """
        No more connections are taken than C{serverMaxConnectionNum}, silent ones included;
        the log says so at the 1st, 10th, 100th ... time, and one that ends makes room.
        """
        factory = self.refusing(most=2)
        first = factory.buildProtocol(PEER)
        assert first is not None
        first.makeConnection(Wire())
        second = factory.buildProtocol(PEER)
        assert second is not None
        second.makeConnection(Wire())
        second.dataReceived(frame(CODE, 1))
        for _ in range(10):
            self.assertIsNone(factory.buildProtocol(PEER))
        said = self.logged(LogLevel.warn)
        self.assertEqual(len(said), 2)
        self.assertIn("192.0.2.7: there are 2, and serverMaxConnectionNum is 2", said[0])
        second.connectionLost(Failure(ConnectionDone()))
        self.assertIsNotNone(factory.buildProtocol(PEER))
        self.assertIsNone(factory.buildProtocol(PEER))

    def test_tooManyOfOneAddress(self) -> None:
        """
        One address has no more connections than C{serverMaxConnectionNumPerAddress}, and
        another one has its own.
        """
        factory = self.refusing(mostPerAddress=1)
        for address in (PEER, IPv4Address("TCP", "192.0.2.8", 1)):
            protocol = factory.buildProtocol(address)
            assert protocol is not None
            protocol.makeConnection(Wire())
            protocol.dataReceived(frame(CODE, 1))
            self.assertIsNone(factory.buildProtocol(address))
            protocol.connectionLost(Failure(ConnectionDone()))
            self.assertIsNotNone(factory.buildProtocol(address))
        [said] = self.logged(LogLevel.warn)
        self.assertIn("it has 1, and serverMaxConnectionNumPerAddress is 1", said)

    def test_idle(self) -> None:
        """
        A connection on which nothing is read or written for two minutes, as
        RocketMQ has it, is closed, soon after.
        """
        self.assertEqual(IDLE_TIMEOUT, 120)
        _protocol, wire = self.accept()
        self.clock.pump([1] * 120)
        self.assertFalse(wire.disconnecting)
        self.clock.pump([1] * 11)
        self.assertEqual(wire.aborts, 1)
        self.assertIn(
            f"Closing the connection to {ADDRESS}: idle for 120 s", self.logged(LogLevel.info)
        )

    def test_idleSilent(self) -> None:
        """
        A connection on which nothing was ever said is closed in the same time,
        and is no connection to those who ask for them.
        """
        _protocol, wire = self.accept(b"")
        self.assertEqual(list(self.factory.connections), [])
        self.clock.pump([1] * 119)
        self.assertFalse(wire.disconnecting)
        self.clock.pump([1] * 12)
        self.assertEqual(wire.aborts, 1)

    def test_firstWordCounts(self) -> None:
        """
        Who says the first word late has its full time from then on.
        """
        protocol, wire = self.accept(b"")
        self.clock.pump([1] * 115)
        protocol.dataReceived(frame(CODE, 1))
        self.clock.pump([1] * 119)
        self.assertFalse(wire.disconnecting)

    def test_nothingKept(self) -> None:
        """
        Of a connection that is lost nothing is kept, not even until the next
        look for idle ones: half a frame may be 16 MiB, and who sends it may
        come again a thousand times a second.
        """
        for first in (frame(CODE, 1), frame(CODE, 1)[:-1], b"\x16", b""):
            protocol, wire = self.accept(first)
            protocol.connectionLost(Failure(ConnectionDone()))
            wire.producer = None
            kept = weakref.ref(protocol)
            del protocol, wire
            self.events.clear()  # each names the protocol as its source
            gc.collect()
            self.assertIsNone(kept())

    def test_reading(self) -> None:
        """
        What the peer sends every minute keeps the connection, even if it is
        half a frame.
        """
        protocol, wire = self.accept()
        for byte in frame(CODE, 2)[:10]:
            self.clock.pump([1] * 60)
            protocol.dataReceived(bytes([byte]))
        self.assertFalse(wire.disconnecting)

    def test_writing(self) -> None:
        """
        So does what we send.
        """
        _protocol, wire = self.accept()
        (connection,) = self.factory.connections
        for _ in range(10):
            self.clock.pump([1] * 60)
            connection.oneway(requestCommand(CODE))
        self.assertFalse(wire.disconnecting)
        self.clock.pump([1] * 131)
        self.assertTrue(wire.disconnecting)

    def test_ownTimeout(self) -> None:
        """
        The time is a setting (serverChannelMaxIdleTimeSeconds).
        """
        self.factory = RemotingServerFactory(serving(self.clock, {}), idleTimeout=12.0)
        self.factory.doStart()
        _protocol, wire = self.accept()
        self.clock.pump([1] * 14)
        self.assertTrue(wire.disconnecting)

    def test_stop(self) -> None:
        """
        When the port closes, so do all connections, and no one looks for idle
        ones any more.
        """
        ends = [self.accept() for _ in range(3)] + [self.accept(b"")]
        self.factory.doStop()
        for protocol, wire in ends:
            self.assertTrue(wire.disconnecting)
            protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_sweepFails(self) -> None:
        """
        Should looking for idle connections fail, it is told once.
        """
        _protocol, wire = self.accept()
        wire.abortConnection = Raise(ZeroDivisionError())  # type: ignore[method-assign]
        self.clock.pump([1] * 200)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_silentEnd(self) -> None:
        """
        Who connects and leaves without a word, as a health check does, is not
        worth a line in the log.
        """
        protocol, wire = self.accept(b"")
        protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual((list(self.factory.connections), wire.writes), ([], []))
        self.clock.pump([1] * 200)
        self.assertEqual(wire.aborts, 0)
        self.assertEqual(self.logged(LogLevel.info) + self.logged(LogLevel.warn), [])

    def test_badCertificates(self) -> None:
        """
        Certificates that cannot be used keep the port from opening, rather than
        every client from connecting; in test mode, and where TLS is off, none
        are looked at.
        """
        for mode, testMode, fails in (
            (TLSMode.ENFORCING, False, True),
            (TLSMode.PERMISSIVE, False, True),
            (TLSMode.DISABLED, False, False),
            (TLSMode.ENFORCING, True, False),
        ):
            tls = ServerTLS(mode=mode, testMode=testMode, certPath="no-such-file")
            factory = RemotingServerFactory(serving(self.clock, {}), tls)
            if fails:
                error = self.assertRaises(ValueError, factory.doStart)
                self.assertIn("tls.server.certPath", str(error))
            else:
                factory.doStart()
                factory.doStop()
