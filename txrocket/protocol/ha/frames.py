# SPDX-License-Identifier: Apache-2.0
"""
Frames from a master of ours to its slave, and the slave's reports, after the handshake of
L{txrocket.protocol.ha.hello}::

      0      1       5     13       21    29        37     41       45
      +------+-------+-----+--------+-----+---------+------+--------+------- - - -+
      | type | epoch | seq | offset | end | confirm | size | CRC-32 | bytes       |
      +------+-------+-----+--------+-----+---------+------+--------+------- - - -+

      DATA   bytes of the log at offset         BEAT   a heartbeat; offset is where DATA goes on
      TABLE  a change of the tables             EPOCH  epoch begins at offset
      REFUSAL  why the master closes: a L{Refusal} as one byte, and a text in UTF-8

      0       4     12        20        28      36       40
      +-------+-----+---------+---------+-------+--------+
      | epoch | seq | written | flushed | table | CRC-32 |      a report
      +-------+-----+---------+---------+-------+--------+

The sum is that of the bytes and of all before it, because the sum of a record covers its body
only.  C{epoch} is the master's: a slave takes nothing from a master whose epoch is over.
C{seq} counts the frames of a connection from 1.  C{end} is where the master's log ends, and
C{confirm} how much of it a slave has.  A report has the C{seq} of the last frame that the
slave has taken, and that of the last TABLE.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from txrocket.errors import FrameTooLarge, MalformedReplication

__all__ = [
    "BYTES_LIMIT",
    "FrameReader",
    "FrameType",
    "Refusal",
    "ReplicaFrame",
    "ReplicaReport",
    "ReportReader",
    "decodeRefusal",
    "encodeRefusal",
]

#: The most bytes in a frame.
BYTES_LIMIT: Final = 4 * 1024 * 1024

# The longest reason of a refusal.
_REASON: Final = 1024

_FIELDS = Struct(">BiqqqqI")
_SUM = Struct(">I")
_HEAD: Final = _FIELDS.size + _SUM.size
_REPORT = Struct(">iqqqq")


class FrameType(IntEnum):
    """
    What a frame is.
    """

    DATA = 1
    BEAT = 2
    TABLE = 3
    EPOCH = 4
    REFUSAL = 5


class Refusal(IntEnum):
    """
    What a slave can do about a refusal.
    """

    #: Try again later, because only an operator can help.
    RETRY = 0
    #: Cut off the newest epoch, because its bytes differ, and try again.
    CUT_EPOCH = 1


class ReplicaFrame(NamedTuple):
    """
    A frame from the master.
    """

    type: FrameType
    epoch: int
    seq: int
    offset: int
    end: int
    confirm: int
    data: bytes = b""

    def head(self) -> bytes:
        """
        All before the frame's bytes, so that a piece of the log need not be copied.

        @raise FrameTooLarge: if it has more bytes than a slave takes.
        """
        kind, epoch, seq, offset, end, confirm, data = self
        if len(data) > BYTES_LIMIT:
            raise FrameTooLarge(len(data), BYTES_LIMIT)
        fields = _FIELDS.pack(kind, epoch, seq, offset, end, confirm, len(data))
        return fields + _SUM.pack(zlib.crc32(data, zlib.crc32(fields)))

    def encode(self) -> bytes:
        """
        The bytes of the frame.

        @raise FrameTooLarge: if it has more bytes than a slave takes.
        """
        return self.head() + self.data


class FrameReader:
    """
    Frames from a master.  At most one read of the socket and one frame are held.
    """

    def __init__(self, limit: int = BYTES_LIMIT) -> None:
        """
        @param limit: the most bytes in a frame.
        """
        self._limit = limit
        self._data = bytearray()
        self._start = 0

    @property
    def held(self) -> int:
        """
        How many bytes wait.
        """
        return len(self._data) - self._start

    def feed(self, data: bytes) -> None:
        """
        Take bytes from the stream.
        """
        del self._data[: self._start]
        self._start = 0
        self._data += data

    def next(self) -> ReplicaFrame | None:
        """
        The next frame, if it is whole.

        @raise MalformedReplication: if it is damaged.
        @raise FrameTooLarge: if it is longer than allowed, as soon as its size is there.
        """
        head = self._start
        start = head + _HEAD
        if len(self._data) < start:
            return None
        kind, epoch, seq, offset, end, confirm, size = _FIELDS.unpack_from(self._data, head)
        if size > self._limit:
            raise FrameTooLarge(size, self._limit)
        stop = start + size
        if len(self._data) < stop:
            return None
        with memoryview(self._data) as view:
            data = bytes(view[start:stop])
            fields = zlib.crc32(view[head : head + _FIELDS.size])
        if _SUM.unpack_from(self._data, head + _FIELDS.size)[0] != zlib.crc32(data, fields):
            raise MalformedReplication(f"a frame of {size} bytes does not match its CRC")
        frame = ReplicaFrame(_frameType(kind), epoch, seq, offset, end, confirm, data)
        if min(epoch, seq, offset, end, confirm) < 0:
            raise MalformedReplication(f"a {frame.type.name} frame with a negative number")
        if (frame.type is FrameType.BEAT or frame.type is FrameType.EPOCH) and data:
            raise MalformedReplication(f"a {frame.type.name} frame with {size} bytes")
        if frame.type is FrameType.REFUSAL and not data:
            raise MalformedReplication("a REFUSAL frame without a reason")
        self._start = stop
        return frame


def _frameType(kind: int) -> FrameType:
    try:
        return FrameType(kind)
    except ValueError:
        raise MalformedReplication(f"a frame of type {kind}") from None


def encodeRefusal(code: Refusal, reason: str) -> bytes:
    """
    The bytes of a REFUSAL frame.
    """
    return bytes([code]) + reason.encode()[:_REASON]


def decodeRefusal(data: bytes) -> tuple[Refusal, str]:
    """
    What a REFUSAL frame says.

    @raise MalformedReplication: if its code is not known.
    """
    try:
        return Refusal(data[0]), data[1:].decode(errors="replace")
    except ValueError:
        raise MalformedReplication(f"a refusal with code {data[0]}") from None


class ReplicaReport(NamedTuple):
    """
    How far a slave has come.

    @ivar epoch: the newest epoch that it knows.
    @ivar seq: that of the last frame it has taken.
    @ivar written: where its log ends.
    @ivar flushed: up to where its log is on the disk.
    @ivar table: the C{seq} of the last TABLE that it has taken; 0 before the first.
    """

    epoch: int
    seq: int
    written: int
    flushed: int
    table: int

    def encode(self) -> bytes:
        """
        The bytes of the report.
        """
        fields = _REPORT.pack(*self)
        return fields + _SUM.pack(zlib.crc32(fields))


class ReportReader:
    """
    Reports from a slave.  Less than one report is held.
    """

    _SIZE: Final = _REPORT.size + _SUM.size

    def __init__(self) -> None:
        self._partial = b""

    @property
    def held(self) -> int:
        """
        How many bytes wait for the rest of their report.
        """
        return len(self._partial)

    def feed(self, data: bytes) -> list[ReplicaReport]:
        """
        Take bytes from the stream.

        @return: the reports that are whole now.
        @raise MalformedReplication: if a report is damaged, or says what cannot be.
        """
        data = self._partial + data
        whole = len(data) - len(data) % self._SIZE
        self._partial = data[whole:]
        return [self._report(data, start) for start in range(0, whole, self._SIZE)]

    def _report(self, data: bytes, start: int) -> ReplicaReport:
        end = start + _REPORT.size
        if _SUM.unpack_from(data, end)[0] != zlib.crc32(data[start:end]):
            raise MalformedReplication("a report does not match its CRC")
        report = ReplicaReport._make(_REPORT.unpack_from(data, start))
        if min(report) < 0 or report.flushed > report.written or report.table > report.seq:
            raise MalformedReplication(f"{report} cannot be")
        return report
