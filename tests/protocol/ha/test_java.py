# SPDX-License-Identifier: Apache-2.0
"""
Tests of L{txrocket.protocol.ha.plain} against what RocketMQ 4.9.7's brokers send.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.ha.javastreams import MASTER_STREAM, RECORD, SLAVE_STREAM
from txrocket.protocol.ha.plain import (
    OffsetReader,
    Piece,
    PieceReader,
    encodeOffset,
    encodePiece,
)
from txrocket.protocol.record import decodeRecords


class CapturedTests(SynchronousTestCase):
    """
    Java's bytes are read as Java means them, and ours are the same.
    """

    def test_masterStreamIsRead(self) -> None:
        """
        The master's stream is a piece and two heartbeats, also byte by byte.
        """
        expected = [Piece(0, RECORD), Piece(156, b""), Piece(156, b"")]
        for size in (1, len(MASTER_STREAM)):
            reader = PieceReader()
            found = []
            for start in range(0, len(MASTER_STREAM), size):
                reader.feed(MASTER_STREAM[start : start + size])
                found += list(iter(reader.next, None))
            self.assertEqual(found, expected)
        self.assertEqual(b"".join(encodePiece(*each) for each in expected), MASTER_STREAM)

    def test_recordIsMessage(self) -> None:
        """
        What a piece has is the log as it lies in the file.
        """
        (message,) = decodeRecords(RECORD, checkCrc=True)
        self.assertEqual((message.topic, message.body), ("TopicTest", b"hello"))

    def test_slaveStreamIsRead(self) -> None:
        """
        The slave's stream is its offset, again and again.
        """
        reader = OffsetReader()
        found = [reader.feed(each) for each in SLAVE_STREAM]
        self.assertEqual(found, [[0, 0], [0, 0], [156, 156]])
        self.assertEqual(encodeOffset(156), SLAVE_STREAM[2][:8])
