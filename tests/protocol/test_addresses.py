# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.addresses}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import ConfigError
from txrocket.protocol.addresses import nameServerAddresses, parseAddress, parseAddresses


class AddressTests(SynchronousTestCase):
    """
    Addresses as text.
    """

    def test_lastColonSeparatesPort(self) -> None:
        """
        The port follows the last colon. Brackets around an IPv6 host, which Java does not
        write but other clients do, are removed.
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

    def test_malformedAddressNamesReason(self) -> None:
        """
        An address that is not valid is refused with its text and the reason.
        """
        for text, reason in (
            ("", "host:port was expected"),
            ("localhost", "host:port was expected"),
            (":9876", "host:port was expected"),
            ("localhost:", "'' is not a port"),
            ("localhost:0", "'0' is not a port"),
            ("localhost:65536", "'65536' is not a port"),
            ("localhost:-1", "'-1' is not a port"),
            ("localhost:http", "'http' is not a port"),
            ("localhost:٣", "'٣' is not a port"),
        ):
            error = self.assertRaises(ValueError, parseAddress, text)
            self.assertEqual(str(error), f"address {text!r}: {reason}")

    def test_listIgnoresBlanksAndRepetitions(self) -> None:
        """
        Addresses are separated by semicolons. Blanks, empty members and repetitions are
        ignored; the order stays.
        """
        self.assertEqual(
            parseAddresses(" b:2 ;a:1;;b:2; [::1]:3;"),
            ["b:2", "a:1", "[::1]:3"],
        )
        self.assertEqual(parseAddresses(""), [])

    def test_listWithMalformedAddressIsRefused(self) -> None:
        """
        If one address of a list is not valid, the error names it.
        """
        error = self.assertRaises(ValueError, parseAddresses, "a:1;b")
        self.assertIn("'b'", str(error))


class NameServerTests(SynchronousTestCase):
    """
    The name servers of a client.
    """

    def test_givenAddressesOverrideEnvironment(self) -> None:
        """
        A text and a list mean the same, and both override the environment.
        """
        for given in ("a:1;b:2", ["a:1", "b:2"], ("a:1;b:2",)):
            self.assertEqual(nameServerAddresses(given, "c:3"), ["a:1", "b:2"])
        self.assertEqual(nameServerAddresses(None, "c:3;d:4"), ["c:3", "d:4"])

    def test_noNameServerIsRefused(self) -> None:
        """
        Without any name server a client is refused.
        """
        nothing: tuple[str | list[str] | None, ...] = (None, "", [], " ; ")
        for given in nothing:
            error = self.assertRaises(ConfigError, nameServerAddresses, given, "")
            self.assertIn("NAMESRV_ADDR", str(error))
        # An empty value differs from no value.
        self.assertRaises(ConfigError, nameServerAddresses, "", "c:3")

    def test_malformedNameServerIsNamed(self) -> None:
        """
        A name server's address that is not valid is named.
        """
        error = self.assertRaises(ConfigError, nameServerAddresses, "a:1;b", "")
        self.assertEqual(str(error), "name servers: address 'b': host:port was expected")
