# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.configtext}.
"""

from __future__ import annotations

import contextlib

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import MalformedBody
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.configtext import ConfigEntry, ConfigText, amend, entries, parse


class PropertiesTests(SynchronousTestCase):
    """
    Tests for L{ConfigText}.
    """

    def test_linesAreParsedAsInJava(self) -> None:
        """
        Lines are parsed as by java.util.Properties of JDK 17, which printed these
        expectations.
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
            self.assertEqual(decodeBody(ConfigText, text.encode()), table, text)

    def test_bytesBeyondAsciiAreUtf8(self) -> None:
        """
        Bytes beyond ASCII are UTF-8, because peers write UTF-8; Java's own reader takes
        them for Latin-1.
        """
        self.assertEqual(decodeBody(ConfigText, "a=é中".encode()), {"a": "é中"})

    def test_malformedTextIsRefused(self) -> None:
        """
        Text that java.util.Properties refuses, and bytes that are not UTF-8, are refused.
        """
        for data, where in (
            (b"a=\\u12", "Properties, line 1"),
            (b"# c\nb=\\\n1\na=\\\n\\u12x4", "Properties, line 4"),
            (b"a=\xff", "Properties: not UTF-8 at byte 2"),
            (b"\n\\ud800=1", "Properties, line 2"),
        ):
            error = self.assertRaises(MalformedBody, decodeBody, ConfigText, data)
            self.assertIn(where, str(error))

    def test_onlyUnsafeTextIsEscaped(self) -> None:
        """
        Settings are written as Java writes them if Java can read them back, and escaped
        if it could not.
        """
        self.assertEqual(
            encodeBody(
                ConfigText(
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
    def test_writtenSettingsAreParsed(self, table: dict[str, str]) -> None:
        """
        All settings are parsed as they were written.
        """
        self.assertEqual(decodeBody(ConfigText, encodeBody(ConfigText(table))), table)

    @given(st.binary())
    def test_anyBytesRaiseOnlyMalformedBody(self, data: bytes) -> None:
        """
        Any bytes are settings or MalformedBody.
        """
        with contextlib.suppress(MalformedBody):
            decodeBody(ConfigText, data)


class EntryTests(SynchronousTestCase):
    """
    Tests for L{entries}.
    """

    def test_entriesHaveLineNumbers(self) -> None:
        """
        Each key comes with the numbers of its lines, even if lines are joined, and a
        repeated key comes twice.
        """
        text = "# c\r\na=1\r\n\r\nb = 2\\\r\n  3\r\n! d\ra:4\nc 5\\"
        self.assertEqual(
            list(entries(text)),
            [
                ConfigEntry(2, 2, "a", "1"),
                ConfigEntry(4, 5, "b", "23"),
                ConfigEntry(7, 7, "a", "4"),
                ConfigEntry(8, 8, "c", "5"),
            ],
        )

    def test_backslashAtTheEndIsAccepted(self) -> None:
        """
        A text may end with a backslash that would join another line.
        """
        self.assertEqual(list(entries("a=1\\\nb\\")), [ConfigEntry(1, 2, "a", "1b")])


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

    def test_onlyChangedLinesChange(self) -> None:
        """
        Only the lines of the changed keys change, and those keep their spacing.
        """
        text = "# port\r\n  listenPort = 1 \r\n\r\na:1\r\nb=x\\\r\n y\r\n# end\r\n"
        self.assertEqual(
            amend(text, {"listenPort": "2", "b": "z"}),
            "# port\r\n  listenPort = 2\r\n\r\na:1\r\nb=z\r\n# end\r\n",
        )

    def test_newKeyIsAppended(self) -> None:
        """
        A new key is written on its own line at the end, with the text's line ends.
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

    def test_lastOfRepeatedKeysIsChanged(self) -> None:
        """
        Of a repeated key, the last one is changed, which is the one that counts.
        """
        self.assertEqual(amend("a=1\na=2\n", {"a": "3"}), "a=1\na=3\n")

    def test_valueLikeSeparatorGetsSeparator(self) -> None:
        """
        A value that begins like a separator gets an additional one.
        """
        self.assertEqual(amend("a 1\nb\n", {"a": "=2", "b": "3"}), "a==2\nb=3\n")

    @given(TEXT, st.dictionaries(st.sampled_from(["a", "b", "c", "d", "k", "a b"]), st.text()))
    @example("\na=1\\\r", {"b": ""})
    def test_amendedTextHasChanges(self, text: str, changes: dict[str, str]) -> None:
        """
        Any text is parsed with the changes, and otherwise as before.
        """
        self.assertEqual(parse(amend(text, changes).encode()), {**parse(text.encode()), **changes})
