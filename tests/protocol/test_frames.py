# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.frames} and L{txrocket.protocol.connection}: where
one command ends and the next begins, and what is never held.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.captures import captures
from txrocket.errors import (
    FrameTooLarge,
    HeaderTooLong,
    InvalidFrameLength,
    MalformedHeader,
    ProtocolError,
    UnknownSerializeType,
)
from txrocket.protocol.codes import LanguageCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.connection import RemotingConnection
from txrocket.protocol.frames import FRAME_LIMIT, FrameBuffer

int32 = st.integers(-(2**31), 2**31 - 1)
words = st.text(min_size=1, max_size=8)


def commands() -> st.SearchStrategy[RemotingCommand]:
    """
    Commands that both forms can carry.
    """
    return st.builds(
        RemotingCommand,
        code=st.integers(-(2**15), 2**15 - 1),
        language=st.sampled_from(list(LanguageCode.__members__)),
        version=st.integers(-(2**15), 2**15 - 1),
        opaque=int32,
        flag=int32,
        remark=st.none() | words,
        fields=st.dictionaries(words, words, max_size=3),
        body=st.binary(max_size=40),
        serializeType=st.sampled_from([0, 1]),
    )


def meaning(command: RemotingCommand) -> tuple[object, ...]:
    """
    All that a command says.
    """
    return (
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
        command.extFields,
        command.body,
        command.serializeType,
    )


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    """
    The stream in pieces.
    """
    marks = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:stop] for start, stop in itertools.pairwise(marks)]


def whole(data: bytes, start: int, stop: int) -> bytes:
    """
    A frame as it is.
    """
    return data[start:stop]


class ChunkingTests(SynchronousTestCase):
    """
    A stream means the same however it is cut.
    """

    @given(st.lists(commands(), max_size=5), st.lists(st.integers(0, 2**20), max_size=12))
    def test_anyCutsGiveSameCommands(self, sent: list[RemotingCommand], places: list[int]) -> None:
        """
        Commands of both formats are decoded as they were encoded, and no bytes remain,
        wherever the stream is cut.
        """
        connection = RemotingConnection()
        received = []
        for piece in cut(b"".join(each.encode() for each in sent), places):
            received += connection.feed(piece)
        self.assertIsNone(connection.fault)
        self.assertEqual([meaning(each) for each in received], [meaning(each) for each in sent])
        self.assertEqual(connection.held, 0)

    def test_lastByteCompletesCommand(self) -> None:
        """
        A command is complete with its last byte and not before; until then exactly its
        own bytes are held.
        """
        for command in (RemotingCommand(5, body=b"body"), RemotingCommand(5, serializeType=1)):
            connection = RemotingConnection()
            frame = command.encode()
            for count in range(1, len(frame)):
                self.assertEqual(connection.feed(frame[count - 1 : count]), [])
                self.assertEqual(connection.held, count)
            (received,) = connection.feed(frame[-1:])
            self.assertEqual(meaning(received), meaning(command))
            self.assertEqual(connection.held, 0)

    def test_pieceMayHoldSeveralFrames(self) -> None:
        """
        A piece may end one frame, hold others and start one more.
        """
        frame = RemotingCommand(5).encode()
        connection = RemotingConnection()
        self.assertEqual(len(connection.feed(frame[:10])), 0)
        self.assertEqual(len(connection.feed(frame[10:] + frame + frame[:3])), 2)
        self.assertEqual(connection.held, 3)
        self.assertEqual(len(connection.feed(frame[3:])), 1)

    def test_shortFrameDoesNotWaitAfterLongOne(self) -> None:
        """
        A long frame that came in pieces does not delay a short one after it: the short
        one's length is known with its own four bytes.
        """
        long, short = RemotingCommand(5, body=bytes(1000)).encode(), RemotingCommand(6).encode()
        connection = RemotingConnection()
        connection.feed(long[:500])
        self.assertEqual(len(connection.feed(long[500:] + short[:3])), 1)
        (command,) = connection.feed(short[3:])
        self.assertEqual(command.code, 6)

    def test_noBytesGiveNoCommands(self) -> None:
        """
        An empty piece gives no commands.
        """
        connection = RemotingConnection()
        self.assertEqual(connection.feed(b""), [])
        self.assertEqual((connection.held, connection.fault), (0, None))


class LimitTests(SynchronousTestCase):
    """
    The maximum length of a frame.
    """

    def test_limitIsJavas(self) -> None:
        """
        The limit is Java's, and includes the length itself.
        """
        self.assertEqual(FRAME_LIMIT, 16777216)

    def test_frameOverLimitIsRefused(self) -> None:
        """
        A frame of exactly the limit is accepted; one byte more is refused.
        """
        frame = RemotingCommand(5, body=b"x" * 20).encode()
        connection = RemotingConnection(len(frame))
        self.assertEqual(len(connection.feed(frame)), 1)
        self.assertIsNone(connection.fault)
        connection = RemotingConnection(len(frame) - 1)
        self.assertEqual(connection.feed(frame), [])
        assert isinstance(connection.fault, FrameTooLarge)
        self.assertEqual(connection.fault.size, len(frame))
        self.assertEqual(connection.fault.limit, len(frame) - 1)

    def test_defaultLimitIs16MiB(self) -> None:
        """
        With the default limit, a length of 16 MiB is accepted and a byte more is refused,
        before any byte of the frame arrives.
        """
        for length, fault in ((FRAME_LIMIT - 4, None), (FRAME_LIMIT - 3, FrameTooLarge)):
            connection = RemotingConnection()
            self.assertEqual(connection.feed(struct.pack(">i", length)), [])
            self.assertEqual(type(connection.fault), fault or type(None))

    def test_lengthIsCheckedWithItsFourthByte(self) -> None:
        """
        A length is checked with its fourth byte, even if the four arrive one by one, and
        no bytes are held afterwards.
        """
        for length, kind in ((1000, FrameTooLarge), (3, InvalidFrameLength)):
            connection = RemotingConnection(100)
            prefix = struct.pack(">i", length)
            for index in range(3):
                connection.feed(prefix[index : index + 1])
                self.assertIsNone(connection.fault)
            connection.feed(prefix[3:])
            self.assertIsInstance(connection.fault, kind)
            self.assertEqual(connection.held, 0)

    def test_shortLengthIsFault(self) -> None:
        """
        A length that is negative, or has no room for a header's length, is a fault of the
        stream.
        """
        for length in (3, 1, 0, -1, -4, -5, -(2**31)):
            connection = RemotingConnection()
            self.assertEqual(connection.feed(struct.pack(">i", length) + bytes(8)), [])
            assert isinstance(connection.fault, InvalidFrameLength)
            self.assertEqual(connection.fault.size, length)

    def test_fourBytesAreAFrame(self) -> None:
        """
        Four bytes are a frame to the buffer; their meaning is for the decoder.
        """
        buffer = FrameBuffer()
        data = b"\x00\x00\x00\x04\x02\x00\x00\x00"
        self.assertEqual(buffer.runs(data), [(-1, data, 0, 8)])
        self.assertIsNone(buffer.fault)

    @given(st.lists(st.binary(max_size=60), max_size=20))
    def test_heldBytesStayWithinOneFrame(self, pieces: list[bytes]) -> None:
        """
        Whatever comes, no more than one frame of the limit is ever held.
        """
        buffer = FrameBuffer(50)
        for piece in pieces:
            buffer.runs(piece)
            self.assertLess(buffer.held, 50)


class FaultTests(SynchronousTestCase):
    """
    Streams with a fault.
    """

    def fault(self, frame: bytes) -> ProtocolError:
        """
        What breaks a stream at this frame.
        """
        connection = RemotingConnection()
        self.assertEqual(connection.feed(frame), [])
        assert connection.fault is not None
        return connection.fault

    def test_framesBeforeFaultAreReturned(self) -> None:
        """
        Frames before the fault are returned, and bytes after it are dropped: the beginning
        of a next frame is unknown.
        """
        good, bad = RemotingCommand(5).encode(), struct.pack(">iI", 4, 7 << 24)
        connection = RemotingConnection()
        self.assertEqual(len(connection.feed(good + good + bad + good)), 2)
        fault = connection.fault
        assert isinstance(fault, UnknownSerializeType)
        self.assertEqual(fault.serializeType, 7)
        self.assertEqual(connection.feed(good), [])
        self.assertEqual((connection.held, connection.fault), (0, fault))

    def test_headerLongerThanFrameIsFault(self) -> None:
        """
        A header cannot be longer than its frame, even if the bytes of the next frame are
        there.
        """
        frame = struct.pack(">iI", 6, 3) + b"{}"
        fault = self.fault(frame + frame)
        assert isinstance(fault, HeaderTooLong)
        self.assertEqual((fault.size, fault.room), (3, 2))
        self.assertIsInstance(self.fault(struct.pack(">iI", 4, 0xFFFFFF)), HeaderTooLong)

    def test_unknownSerializeTypeIsFault(self) -> None:
        """
        There are two formats of header; the 254 other numbers are a fault.
        """
        for number in range(2, 256):
            fault = self.fault(struct.pack(">iI", 4, number << 24))
            assert isinstance(fault, UnknownSerializeType)
            self.assertEqual(fault.serializeType, number)

    @given(st.lists(st.binary(max_size=200), max_size=5))
    def test_randomBytesGiveCommandsOrFault(self, pieces: list[bytes]) -> None:
        """
        Random bytes are commands or a fault, and no other error.
        """
        self.swallow(pieces)

    @given(st.integers(0, 1), st.binary(max_size=100))
    def test_randomHeaderGivesCommandOrFault(self, form: int, header: bytes) -> None:
        """
        Random bytes in a valid frame are a command or a fault.
        """
        self.swallow([struct.pack(">iI", 4 + len(header), form << 24 | len(header)) + header])

    @settings(max_examples=400)
    @given(st.data())
    def test_mutatedFrameGivesCommandsOrFault(self, data: st.DataObject) -> None:
        """
        Real frames with bytes changed, removed or inserted are commands or a fault.
        """
        frame = bytearray(data.draw(st.sampled_from(captures())).frame[:600])
        # The middle of a body is of no interest here.
        place = st.integers(0, min(len(frame) - 1, 250))
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(place)
            width = data.draw(st.integers(0, 2))
            frame[at : at + width] = data.draw(st.binary(max_size=3))
        self.swallow([bytes(frame)])

    def swallow(self, pieces: list[bytes]) -> None:
        """
        Feed a connection, and look into all that comes out.
        """
        limit = 2000
        connection = RemotingConnection(limit)
        for piece in pieces:
            for command in connection.feed(piece):
                try:
                    command.extFields  # noqa: B018
                except ProtocolError:
                    continue
                command.encode()
                str(command)
            self.assertLess(connection.held, limit)
        if connection.fault is not None:
            self.assertIsInstance(connection.fault, ProtocolError)
            self.assertEqual(connection.held, 0)

    def test_truncatedHeaderIsMalformed(self) -> None:
        """
        A header that ends too early is malformed wherever it ends, in both formats.
        """
        for form in (0, 1):
            command = RemotingCommand(
                5, remark="why", fields={"a": "b", "c" * 70: "d"}, serializeType=form
            )
            header = command.encode()[8:]
            for size in range(len(header)):
                # Bytes of a body follow, which a careless reader would go on to.
                frame = struct.pack(">iI", 4 + size + 50, form << 24 | size)
                fault = self.fault(frame + header[:size] + bytes(50))
                self.assertIsInstance(fault, MalformedHeader)


class OpaqueTests(SynchronousTestCase):
    """
    The numbers of requests.
    """

    def test_opaqueWrapsAfterJavasInt(self) -> None:
        """
        Numbers count from 0 and start again after Java's greatest int.
        """
        connection = RemotingConnection()
        self.assertEqual([connection.nextOpaque() for _ in range(3)], [0, 1, 2])
        connection._opaque = 2**31 - 2
        self.assertEqual([connection.nextOpaque() for _ in range(3)], [2**31 - 1, 0, 1])

    def test_connectionsCountSeparately(self) -> None:
        """
        Every connection has its own numbers.
        """
        first, second = RemotingConnection(), RemotingConnection()
        first.nextOpaque()
        self.assertEqual((first.nextOpaque(), second.nextOpaque()), (1, 0))
