# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.ha.plain}: the replication stream of RocketMQ 4.9.7.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.ha.streams import cut, int64, places
from txrocket.errors import FrameTooLarge, MalformedReplication, ProtocolError
from txrocket.protocol.ha.plain import (
    HELLO,
    PIECE_LIMIT,
    OffsetReader,
    Piece,
    PieceReader,
    encodeOffset,
    encodePiece,
)


def pieces(reader: PieceReader) -> list[Piece]:
    """
    All pieces that are whole.
    """
    return list(iter(reader.next, None))


class OffsetTests(SynchronousTestCase):
    """
    What a slave sends.
    """

    @given(st.lists(int64, max_size=20), places)
    def test_anyCutsGiveSameOffsets(self, offsets: list[int], places: list[int]) -> None:
        """
        Offsets are decoded as they were encoded, wherever the stream is cut, and never more
        than 7 bytes are held.
        """
        reader = OffsetReader()
        found = []
        for each in cut(b"".join(map(encodeOffset, offsets)), places):
            found += reader.feed(each)
            self.assertLess(reader.held, 8)
        self.assertEqual(found, offsets)
        self.assertEqual(reader.held, 0)

    def test_negativeOffsetIsRefused(self) -> None:
        """
        A slave cannot have come to a negative offset.
        """
        for offset in (-1, -5, -(2**63)):
            self.assertRaises(MalformedReplication, OffsetReader().feed, encodeOffset(offset))

    def test_helloIsWhatJavaTakesForNothing(self) -> None:
        """
        The first offset of a slave of ours is -1: Java's master goes on waiting.
        """
        self.assertEqual(encodeOffset(HELLO), b"\xff" * 8)


class PieceTests(SynchronousTestCase):
    """
    What a master sends.
    """

    @given(st.lists(st.builds(Piece, int64, st.binary(max_size=50)), max_size=8), places)
    def test_anyCutsGiveSamePieces(self, sent: list[Piece], places: list[int]) -> None:
        """
        Pieces and heartbeats are decoded as they were encoded, wherever the stream is cut.
        """
        reader = PieceReader()
        found = []
        for each in cut(b"".join(encodePiece(*piece) for piece in sent), places):
            reader.feed(each)
            found += pieces(reader)
        self.assertEqual(found, sent)
        self.assertEqual(reader.held, 0)

    @given(st.binary(max_size=200), places)
    def test_anyBytesAreTypedError(self, stream: bytes, places: list[int]) -> None:
        """
        Bytes that no master sends are pieces, wait for more, or are a L{ProtocolError}.
        """
        reader = PieceReader(limit=100)
        for each in cut(stream, places):
            reader.feed(each)
            try:
                pieces(reader)
            except ProtocolError:
                return
            self.assertLess(reader.held, 112)

    def test_tooLongPieceIsRefusedWithItsSize(self) -> None:
        """
        A piece beyond the limit is refused as soon as its size is there, and none of its
        bytes is waited for.
        """
        reader = PieceReader(limit=10)
        reader.feed(b"\0" * 8 + b"\0\0\0")
        self.assertIsNone(reader.next())
        reader.feed(b"\x0b")
        self.assertRaises(FrameTooLarge, reader.next)

    def test_negativeNumberIsRefused(self) -> None:
        """
        A piece has neither a negative size nor a negative offset.
        """
        for head in (b"\0" * 8 + b"\xff" * 4, b"\xff" * 8 + b"\0" * 4):
            reader = PieceReader()
            reader.feed(head)
            self.assertRaises(MalformedReplication, reader.next)

    def test_pieceThatJavaNeverTakesIsNotEncoded(self) -> None:
        """
        The longest piece fills the 4 MiB buffer of Java's slave, with its head; a longer one
        is refused.
        """
        self.assertEqual(len(encodePiece(0, bytes(PIECE_LIMIT))), 4 * 1024 * 1024)
        self.assertRaises(FrameTooLarge, encodePiece, 0, bytes(PIECE_LIMIT + 1))
