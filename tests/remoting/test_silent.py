# SPDX-License-Identifier: Apache-2.0
"""
Tests for how L{txrocket.remoting.server.RemotingServerFactory} treats peers that
connect and say nothing.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from txrocket.protocol.command import requestCommand
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.server import RemotingServerFactory


class SilentTests(SynchronousTestCase):
    """
    Connections without a first byte.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.factory = RemotingServerFactory(Remoting(self.clock), idleTimeout=120.0)
        self.factory.startFactory()

    def connect(self, said: bytes = b"") -> StringTransport:
        """
        The transport of a peer that says so much and no more.
        """
        transport = StringTransport()
        protocol = self.factory.buildProtocol(None)
        assert protocol is not None
        protocol.makeConnection(transport)
        if said:
            protocol.dataReceived(said)
        return transport

    def test_closed(self) -> None:
        """
        One that says nothing is closed when it has been idle for as long as any
        other may be.
        """
        transport = self.connect()
        self.clock.pump([10.0] * 12)
        self.assertFalse(transport.disconnected)
        self.clock.advance(10.0)
        self.assertTrue(transport.disconnected)

    def test_spoke(self) -> None:
        """
        One that has spoken is not taken for silent.
        """
        transport = self.connect(requestCommand(34).encode())
        self.clock.advance(10.0)
        self.assertFalse(transport.disconnected)
        self.assertEqual(len(list(self.factory.connections)), 1)

    def test_gone(self) -> None:
        """
        One that went away by itself is forgotten.
        """
        transport = StringTransport()
        protocol = self.factory.buildProtocol(None)
        assert protocol is not None
        protocol.makeConnection(transport)
        protocol.connectionLost()
        self.clock.pump([10.0] * 13)
        self.assertFalse(transport.disconnected)

    def test_stop(self) -> None:
        """
        When the server stops, silent connections are closed too.
        """
        transport = self.connect()
        self.factory.stopFactory()
        self.assertTrue(transport.disconnecting)
