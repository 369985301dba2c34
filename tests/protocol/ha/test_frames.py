# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.ha.frames}: the stream between brokers of ours.
"""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.ha.streams import cut, int64, places
from txrocket.errors import FrameTooLarge, MalformedReplication, ProtocolError
from txrocket.protocol.ha.frames import (
    BYTES_LIMIT,
    FrameReader,
    FrameType,
    Refusal,
    ReplicaFrame,
    ReplicaReport,
    ReportReader,
    decodeRefusal,
    encodeRefusal,
)

int32 = st.integers(0, 2**31 - 1)


def frames() -> st.SearchStrategy[ReplicaFrame]:
    """
    Frames that a master sends.
    """
    numbers = (int32, int64, int64, int64, int64)
    empty = st.sampled_from([FrameType.BEAT, FrameType.EPOCH])
    full = st.sampled_from([FrameType.DATA, FrameType.TABLE, FrameType.REFUSAL])
    return st.builds(ReplicaFrame, empty, *numbers, st.just(b"")) | st.builds(
        ReplicaFrame, full, *numbers, st.binary(min_size=1, max_size=60)
    )


def reports() -> st.SearchStrategy[ReplicaReport]:
    """
    Reports that a slave sends.
    """
    return st.tuples(int32, int64, int64, int64, int64).map(
        lambda each: ReplicaReport(
            each[0],
            max(each[1], each[4]),
            max(each[2], each[3]),
            min(each[2], each[3]),
            min(each[1], each[4]),
        )
    )


def whole(reader: FrameReader) -> list[ReplicaFrame]:
    """
    All frames that are whole.
    """
    return list(iter(reader.next, None))


DATA = ReplicaFrame(FrameType.DATA, 3, 7, 4096, 9000, 4000, b"bytes")
REPORT = ReplicaReport(3, 7, 4101, 4096, 5)


class FrameTests(SynchronousTestCase):
    """
    What a master sends.
    """

    @given(st.lists(frames(), max_size=6), places)
    def test_anyCutsGiveSameFrames(self, sent: list[ReplicaFrame], places: list[int]) -> None:
        """
        Frames of each type are decoded as they were encoded, wherever the stream is cut.
        """
        reader = FrameReader()
        found = []
        for each in cut(b"".join(frame.encode() for frame in sent), places):
            reader.feed(each)
            found += whole(reader)
        self.assertEqual(found, sent)
        self.assertEqual(reader.held, 0)

    @given(frames(), st.data())
    def test_anyFlippedBitIsFound(self, frame: ReplicaFrame, data: st.DataObject) -> None:
        """
        A frame of which one bit is another is never taken (W9): it is refused, or waits for
        bytes that a longer one would have.
        """
        stream = bytearray(frame.encode())
        bit = data.draw(st.integers(0, len(stream) * 8 - 1))
        stream[bit // 8] ^= 1 << bit % 8
        reader = FrameReader()
        reader.feed(bytes(stream))
        try:
            found = reader.next()
        except ProtocolError:
            return
        self.assertIsNone(found)

    @given(st.binary(max_size=300), places)
    def test_anyBytesAreTypedError(self, stream: bytes, places: list[int]) -> None:
        """
        Bytes that no master sends wait for more or are a L{ProtocolError}, and no more than a
        frame is held.
        """
        reader = FrameReader(limit=100)
        for each in cut(stream, places):
            reader.feed(each)
            try:
                whole(reader)
            except ProtocolError:
                return
            self.assertLess(reader.held, 145)

    def test_layoutIsAsDrawn(self) -> None:
        """
        The bytes of a DATA frame, field by field.
        """
        fields = bytes.fromhex(
            "01"  # type DATA
            "00000003"  # epoch
            "0000000000000007"  # seq
            "0000000000001000"  # offset
            "0000000000002328"  # end of the master's log
            "0000000000000fa0"  # confirm
            "00000005"  # size
        )
        crc = zlib.crc32(fields + b"bytes").to_bytes(4, "big")
        self.assertEqual(DATA.encode(), fields + crc + b"bytes")

    def test_tooLongFrameIsRefusedWithItsSize(self) -> None:
        """
        A frame beyond the limit is refused as soon as its head is there; none is encoded.
        """
        reader = FrameReader(limit=4)
        reader.feed(DATA.head())
        self.assertRaises(FrameTooLarge, reader.next)
        self.assertRaises(FrameTooLarge, DATA._replace(data=bytes(BYTES_LIMIT + 1)).encode)

    def test_impossibleFrameIsRefused(self) -> None:
        """
        An unknown type, a negative number, a heartbeat with bytes and a refusal without a
        reason are refused, although their sums are right.
        """
        for frame in (
            DATA._replace(type=9),  # type: ignore[arg-type]
            DATA._replace(offset=-1),
            DATA._replace(epoch=-1),
            DATA._replace(type=FrameType.BEAT),
            DATA._replace(type=FrameType.EPOCH),
            DATA._replace(type=FrameType.REFUSAL, data=b""),
        ):
            reader = FrameReader()
            reader.feed(frame.encode())
            self.assertRaises(MalformedReplication, reader.next)

    def test_refusalSaysReason(self) -> None:
        """
        A refusal is decoded as it was encoded; a long reason is shortened, and an unknown code
        refused.
        """
        for code in Refusal:
            self.assertEqual(decodeRefusal(encodeRefusal(code, "why")), (code, "why"))
        self.assertEqual(len(encodeRefusal(Refusal.RETRY, "x" * 5000)), 1025)
        self.assertRaises(MalformedReplication, decodeRefusal, b"\x07why")


class ReportTests(SynchronousTestCase):
    """
    What a slave sends.
    """

    @given(st.lists(reports(), max_size=8), places)
    def test_anyCutsGiveSameReports(self, sent: list[ReplicaReport], places: list[int]) -> None:
        """
        Reports are decoded as they were encoded, wherever the stream is cut, and less than
        one is held.
        """
        reader = ReportReader()
        found = []
        for each in cut(b"".join(report.encode() for report in sent), places):
            found += reader.feed(each)
            self.assertLess(reader.held, 40)
        self.assertEqual(found, sent)

    @given(reports(), st.integers(0, 319))
    def test_anyFlippedBitIsFound(self, report: ReplicaReport, bit: int) -> None:
        """
        A report of which one bit is another is refused.
        """
        stream = bytearray(report.encode())
        stream[bit // 8] ^= 1 << bit % 8
        self.assertRaises(MalformedReplication, ReportReader().feed, bytes(stream))

    def test_impossibleReportIsRefused(self) -> None:
        """
        A slave has not flushed more than it has written, nor taken a table that it has not
        got.
        """
        for report in (
            REPORT._replace(flushed=5000),
            REPORT._replace(table=8),
            REPORT._replace(written=-1, flushed=-1),
        ):
            self.assertRaises(MalformedReplication, ReportReader().feed, report.encode())
