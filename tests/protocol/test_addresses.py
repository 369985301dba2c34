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


class NameServerTests(SynchronousTestCase):
    """
    The name servers of a client.
    """

    def test_given(self) -> None:
        """
        A text and a list say the same; what is given counts before the
        environment.
        """
        for given in ("a:1;b:2", ["a:1", "b:2"], ("a:1;b:2",)):
            self.assertEqual(nameServerAddresses(given, "c:3"), ["a:1", "b:2"])
        self.assertEqual(nameServerAddresses(None, "c:3;d:4"), ["c:3", "d:4"])

    def test_none(self) -> None:
        """
        Without a name server there is nothing that a client could do.
        """
        nothing: tuple[str | list[str] | None, ...] = (None, "", [], " ; ")
        for given in nothing:
            error = self.assertRaises(ConfigError, nameServerAddresses, given, "")
            self.assertIn("NAMESRV_ADDR", str(error))
        # To be given nothing is not the same as not to be given anything.
        self.assertRaises(ConfigError, nameServerAddresses, "", "c:3")

    def test_noAddress(self) -> None:
        """
        What is no address is named.
        """
        error = self.assertRaises(ConfigError, nameServerAddresses, "a:1;b", "")
        self.assertEqual(str(error), "name servers: address 'b': host:port was expected")
