# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.properties}.
"""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import MalformedBody
from txrocket.protocol.bodycodec import decodeBody, encodeBody
from txrocket.protocol.properties import Properties


class PropertiesTests(SynchronousTestCase):
    """
    Tests for L{Properties}.
    """

    def test_read(self) -> None:
        """
        Lines are read as by java.util.Properties of JDK 17, which printed these.
        """
        for text, table in [
            ("a=b", {"a": "b"}),
            ("a = b", {"a": "b"}),
            ("a:b", {"a": "b"}),
            ("a b", {"a": "b"}),
            ("  a=b  ", {"a": "b  "}),
            ("a", {"a": ""}),
            ("a=", {"a": ""}),
            ("#c\na=b", {"a": "b"}),
            ("!c\na=b", {"a": "b"}),
            ("  # c\na=1", {"a": "1"}),
            ("a=b\\\n  c", {"a": "bc"}),
            ("a=1\\\n# not", {"a": "1# not"}),
            ("a\\ b=c", {"a b": "c"}),
            ("a\\=b=c", {"a=b": "c"}),
            ("\\#a=1", {"#a": "1"}),
            ("a\\:b\\n=1", {"a:b\n": "1"}),
            ("a=\\u4e2d\\t\\n\\\\", {"a": "中\t\n\\"}),
            ("a==b", {"a": "=b"}),
            ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
            ("\n\n", {}),
            ("a=\\q", {"a": "q"}),
            ("=b", {"": "b"}),
            ("a=b\\", {"a": "b"}),
            ("a\t:\t b", {"a": "b"}),
            ("a\f=\fb", {"a": "b"}),
            ("a=b\n\\\n c=d", {"a": "b", "c": "d"}),
            ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ]:
            self.assertEqual(decodeBody(Properties, text.encode()), table, text)

    def test_beyondASCII(self) -> None:
        """
        Bytes beyond ASCII are UTF-8 here, though Java's own reader takes them for
        Latin-1: they were written as UTF-8.
        """
        self.assertEqual(decodeBody(Properties, "a=é中".encode()), {"a": "é中"})

    def test_refusals(self) -> None:
        """
        What java.util.Properties does not take, and what is no text, is refused.
        """
        for data in (b"a=\\u12", b"a=\\u12x4", b"a=\xff", b"a=\\ud800"):
            error = self.assertRaises(MalformedBody, decodeBody, Properties, data)
            self.assertIn("Properties", str(error))

    def test_write(self) -> None:
        """
        Settings are written as Java writes them where it can read them back, and
        escaped where it could not.
        """
        self.assertEqual(
            encodeBody(
                Properties(
                    {
                        "namesrvAddr": "127.0.0.1:9876;127.0.0.2:9876",
                        "messageDelayLevel": "1s 5s = #!",
                        "path": "C:\\new",
                        "a b=c": " é\n😀",
                    }
                )
            ),
            b"namesrvAddr=127.0.0.1:9876;127.0.0.2:9876\n"
            b"messageDelayLevel=1s 5s = #!\n"
            b"path=C:\\\\new\n"
            b"a\\ b\\=c=\\ \\u00E9\\n\\uD83D\\uDE00\n",
        )

    @given(st.dictionaries(st.text(), st.text()))
    def test_roundTrip(self, table: dict[str, str]) -> None:
        """
        All settings are read back as written.
        """
        self.assertEqual(decodeBody(Properties, encodeBody(Properties(table))), table)

    @given(st.binary())
    def test_anyBytes(self, data: bytes) -> None:
        """
        Any bytes are settings or MalformedBody.
        """
        with contextlib.suppress(MalformedBody):
            decodeBody(Properties, data)
