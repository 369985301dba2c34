# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.addresses}.
"""

from __future__ import annotations

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.remoting.doubles import PEER, Wire
from txrocket.remoting.addresses import NO_HOST, addressOf, hostOf, parseAddress, parseAddresses
from txrocket.remoting.node import Remoting
from txrocket.remoting.protocol import RemotingProtocol


class AddressTests(SynchronousTestCase):
    """
    Addresses in text.
    """

    def test_parse(self) -> None:
        """
        The port is what follows the last colon; brackets around an IPv6 host,
        which Java does not write but other clients do, are taken off.
        """
        for text, expected in (
            ("127.0.0.1:9876", ("127.0.0.1", 9876)),
            (" broker-a.example.org:10911 ", ("broker-a.example.org", 10911)),
            ("[::1]:9876", ("::1", 9876)),
            ("fe80::1:9876", ("fe80::1", 9876)),
            ("localhost:1", ("localhost", 1)),
            ("localhost:65535", ("localhost", 65535)),
        ):
            self.assertEqual(parseAddress(text), expected)

    def test_errors(self) -> None:
        """
        What is no address is refused with its own text and the reason.
        """
        for text, reason in (
            ("", "host:port was expected"),
            ("localhost", "host:port was expected"),
            (":9876", "host:port was expected"),
            ("localhost:", "'' is no port"),
            ("localhost:0", "'0' is no port"),
            ("localhost:65536", "'65536' is no port"),
            ("localhost:-1", "'-1' is no port"),
            ("localhost:http", "'http' is no port"),
            ("localhost:٣", "'٣' is no port"),
        ):
            error = self.assertRaises(ValueError, parseAddress, text)
            self.assertEqual(str(error), f"address {text!r}: {reason}")

    def test_list(self) -> None:
        """
        Lists are joined by semicolons; blanks, empty members and repetitions
        do not count, and order does.
        """
        self.assertEqual(
            parseAddresses(" b:2 ;a:1;;b:2; [::1]:3;"),
            ["b:2", "a:1", "[::1]:3"],
        )
        self.assertEqual(parseAddresses(""), [])

    def test_badList(self) -> None:
        """
        One bad member spoils the list, and is named.
        """
        error = self.assertRaises(ValueError, parseAddresses, "a:1;b")
        self.assertIn("'b'", str(error))

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
