# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.javahash}.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.protocol import javahash
from txrocket.protocol.javahash import javaHash, tagsCode

# Results of String.hashCode on JDK 17.
JAVA = {
    "": 0,
    "a": 97,
    "*": 42,
    "TagA": 2598919,
    "TagB": 2598920,
    "polygenelubricants": -2147483648,
    "hello world, this is a rather long key": 86834400,
    "TopicTest#7F0000010B1F18B4AAC2A4E13AB30001": 648645376,
    "\xff\0\xff": 245310,
    "标签": 857175,
    "🚀": 1773027,  # outside the BMP: two units
    "a🚀b🐍": -235433266,
    "\ud800": 55296,  # half a pair counts as it is
    "x\udc00y": 1861361,
    # Lengths around the size of a chunk.
    "\uffff" * 32: 1466416640,
    "\uffff" * 33: -1785658881,
    "\xff" * 64: -1797555200,
    "\xff" * 65: 110363903,
    "ab" * 1000: 1895982568,
    "й" * 1000: 1440479872,
}


def definition(text: str) -> int:
    """
    The hash as Java's documentation defines it, unit by unit.
    """
    data = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for place in range(0, len(data), 2):
        total = total * 31 + int.from_bytes(data[place : place + 2], "big")
    total &= 0xFFFFFFFF
    return total - (1 << 32) if total >= 1 << 31 else total


class JavaHashTests(SynchronousTestCase):
    """
    Java's hash of a string.
    """

    def test_hashIsJavas(self) -> None:
        """
        The hash is what the JDK computes: signed, over UTF-16 units.
        """
        for text, expected in JAVA.items():
            self.assertEqual(javaHash(text), expected, text[:50])

    @given(st.text(st.characters(), max_size=200))
    def test_anyTextHasJavasHash(self, text: str) -> None:
        """
        Any text has its hash, lone surrogates included.
        """
        self.assertEqual(javaHash(text), definition(text))

    @given(st.text(max_size=100), st.text(max_size=100))
    def test_hashContinuesFromPrefix(self, prefix: str, rest: str) -> None:
        """
        A hash can be continued from that of a prefix.
        """
        self.assertEqual(javaHash(rest, javaHash(prefix)), javaHash(prefix + rest))

    def test_everyLengthHasJavasHash(self) -> None:
        """
        Texts of every length around a step or a chunk have their hash.
        """
        for count in range(140):
            for letter in "\0z\xff\uffff":
                self.assertEqual(javaHash(letter * count), definition(letter * count))

    def test_longTagIsNotCached(self) -> None:
        """
        The hash of a long tag is not cached, and is the same.
        """
        before = javahash._tagHash.cache_info().currsize
        for size in range(1025, 1030):
            self.assertEqual(tagsCode("t" * size), javaHash("t" * size))
        self.assertEqual(javahash._tagHash.cache_info().currsize, before)

    def test_tagsCodeIsHashOrZero(self) -> None:
        """
        A tag's code is its hash; without a tag it is 0.
        """
        self.assertEqual(tagsCode("TagA"), 2598919)
        self.assertEqual(tagsCode("polygenelubricants"), -2147483648)
        self.assertEqual(tagsCode(""), 0)
        self.assertEqual(tagsCode(None), 0)
