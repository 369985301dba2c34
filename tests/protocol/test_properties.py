# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.properties}.
"""

from __future__ import annotations

import contextlib

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import MalformedBody
from txrocket.protocol.bodycodec import decodeBody, encodeBody
from txrocket.protocol.properties import Entry, Properties, amend, entries, parse


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
        for data, where in (
            (b"a=\\u12", "Properties, line 1"),
            (b"# c\nb=\\\n1\na=\\\n\\u12x4", "Properties, line 4"),
            (b"a=\xff", "Properties: not UTF-8 at byte 2"),
            (b"\n\\ud800=1", "Properties, line 2"),
        ):
            error = self.assertRaises(MalformedBody, decodeBody, Properties, data)
            self.assertIn(where, str(error))

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


class EntryTests(SynchronousTestCase):
    """
    Tests for L{entries}.
    """

    def test_lines(self) -> None:
        """
        Each key comes with the lines that it and its value stand on, also where
        lines are joined, and a key that is there twice comes twice.
        """
        text = "# c\r\na=1\r\n\r\nb = 2\\\r\n  3\r\n! d\ra:4\nc 5\\"
        self.assertEqual(
            list(entries(text)),
            [
                Entry(2, 2, "a", "1"),
                Entry(4, 5, "b", "23"),
                Entry(7, 7, "a", "4"),
                Entry(8, 8, "c", "5"),
            ],
        )

    def test_joinedAtTheEnd(self) -> None:
        """
        A text may end where a joined line would go on.
        """
        self.assertEqual(list(entries("a=1\\\nb\\")), [Entry(1, 2, "a", "1b")])


LINE = st.one_of(
    st.sampled_from(
        ["", "# a=1", "!b", " a = 1", "b:2", "c 3", "d", "a=1\\", "#\\", "\\", "  x\\\\"]
    ),
    st.text(st.sampled_from("ab =:#\\\t"), max_size=6),
)
TEXT = st.lists(st.tuples(LINE, st.sampled_from(["\n", "\r\n", "\r", ""]))).map(
    lambda lines: "".join(line + end for line, end in lines)
)


class AmendTests(SynchronousTestCase):
    """
    Tests for L{amend}.
    """

    def test_others(self) -> None:
        """
        Only the lines of the changed keys change, and those keep their spacing.
        """
        text = "# port\r\n  listenPort = 1 \r\n\r\na:1\r\nb=x\\\r\n y\r\n# end\r\n"
        self.assertEqual(
            amend(text, {"listenPort": "2", "b": "z"}),
            "# port\r\n  listenPort = 2\r\n\r\na:1\r\nb=z\r\n# end\r\n",
        )

    def test_appended(self) -> None:
        """
        A key that is not there is written on a line of its own at the end, with
        the text's own line ends.
        """
        for text, expected in (
            ("", "k=v\n"),
            ("a=1", "a=1\nk=v\n"),
            ("a=1\r\nb=2", "a=1\r\nb=2\r\nk=v\r\n"),
            ("a=1\n", "a=1\nk=v\n"),
            ("a=1\\", "a=1\\\n\nk=v\n"),
            ("a=1\\\n", "a=1\\\n\nk=v\n"),
        ):
            self.assertEqual(amend(text, {"k": "v"}), expected)

    def test_twice(self) -> None:
        """
        Of a key that is there twice the one that counts is changed.
        """
        self.assertEqual(amend("a=1\na=2\n", {"a": "3"}), "a=1\na=3\n")

    def test_separator(self) -> None:
        """
        A value that could be taken for a separator gets one of its own.
        """
        self.assertEqual(amend("a 1\nb\n", {"a": "=2", "b": "3"}), "a==2\nb=3\n")

    @given(TEXT, st.dictionaries(st.sampled_from(["a", "b", "c", "d", "k", "a b"]), st.text()))
    @example("\na=1\\\r", {"b": ""})
    def test_read(self, text: str, changes: dict[str, str]) -> None:
        """
        Whatever the text was, it is read with the changes and otherwise as before.
        """
        self.assertEqual(parse(amend(text, changes).encode()), {**parse(text.encode()), **changes})
