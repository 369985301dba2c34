# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.addresses}.
"""

from __future__ import annotations

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.remoting.doubles import PEER, Wire
from txrocket.remoting.addresses import NO_HOST, addressOf, hostOf
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import Remoting


class AddressTests(SynchronousTestCase):
    """
    Addresses of transports.
    """

    def test_ofTransport(self) -> None:
        """
        A transport's address reads as it would be configured; one that has no
        host says what it is.
        """
        self.assertEqual(addressOf(IPv4Address("TCP", "192.0.2.7", 10911)), "192.0.2.7:10911")
        self.assertEqual(addressOf(IPv6Address("TCP", "::1", 10911)), "[::1]:10911")
        unix = UNIXAddress(b"socket")
        self.assertEqual(addressOf(unix), str(unix))

    def test_hostOf(self) -> None:
        """
        For records an address has 4 or 16 bytes and a port of 4; an IPv4 client of
        a socket for both kinds has 4, and what has no IP address has zeros.
        """
        port = (10911).to_bytes(4, "big")
        for address, expected in (
            (IPv4Address("TCP", "192.0.2.7", 10911), b"\xc0\x00\x02\x07" + port),
            (IPv6Address("TCP", "::1", 10911), bytes(15) + b"\1" + port),
            (IPv6Address("TCP", "::ffff:192.0.2.7", 10911), b"\xc0\x00\x02\x07" + port),
            (IPv4Address("TCP", "localhost", 10911), NO_HOST),
            (UNIXAddress(b"socket"), NO_HOST),
        ):
            self.assertEqual(hostOf(address), expected)
        self.assertEqual(NO_HOST, bytes(8))

    def test_hostOfConnection(self) -> None:
        """
        A connection knows its peer's from the time when it is up.
        """
        protocol = RemotingProtocol(Remoting(Clock()), accepted=True)
        self.assertEqual((protocol.address, protocol.host), ("", NO_HOST))
        protocol.makeConnection(Wire())
        self.assertEqual(protocol.host, hostOf(PEER))
