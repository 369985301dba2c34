# SPDX-License-Identifier: Apache-2.0
"""
The replication stream of RocketMQ 4.9.7, as Java's C{HAConnection} and C{HAClient} speak it.

The slave sends offsets and nothing else: where to begin, and then how far it has come.  The
master sends pieces of its log; a piece without bytes is a heartbeat::

      slave to master       0                 8
                            +-----------------+
                            |     offset      |
                            +-----------------+

      master to slave       0                 8         12
                            +-----------------+---------+------- - - -+
                            |     offset      |  size   | bytes       |
                            +-----------------+---------+------- - - -+

All integers are big-endian and signed.  Nothing in the stream is checked by a sum, and the
first offset may be anything.  The stream between two brokers of ours begins with the offset
-1, which Java's master takes as "not asked yet" (L{txrocket.protocol.ha.hello}).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from txrocket.errors import FrameTooLarge, MalformedReplication

__all__ = [
    "HELLO",
    "OFFSET_SIZE",
    "PIECE_LIMIT",
    "OffsetReader",
    "Piece",
    "PieceReader",
    "encodeOffset",
    "encodePiece",
]

#: The first offset of a slave of ours.
HELLO: Final = -1

#: The bytes of an offset.
OFFSET_SIZE: Final = 8

_OFFSET = Struct(">q")
_HEAD = Struct(">qi")

#: The most bytes in a piece.  The buffer of Java's slave has 4 MiB: a longer piece fills it
#: and is never whole.
PIECE_LIMIT: Final = 4 * 1024 * 1024 - _HEAD.size


class Piece(NamedTuple):
    """
    Bytes of the master's log, and where they belong; no bytes are a heartbeat.
    """

    offset: int
    data: bytes


def encodeOffset(offset: int) -> bytes:
    """
    The request of a slave, or its report.
    """
    return _OFFSET.pack(offset)


def encodePiece(offset: int, data: bytes = b"") -> bytes:
    """
    A piece of the log, or a heartbeat.

    @raise FrameTooLarge: if Java's slave would never take it.
    """
    if len(data) > PIECE_LIMIT:
        raise FrameTooLarge(len(data), PIECE_LIMIT)
    return _HEAD.pack(offset, len(data)) + data


class OffsetReader:
    """
    Offsets from a slave.  At most 7 bytes are held.
    """

    def __init__(self) -> None:
        self._partial = b""

    @property
    def held(self) -> int:
        """
        How many bytes wait for the rest of their offset.
        """
        return len(self._partial)

    def feed(self, data: bytes) -> list[int]:
        """
        Take bytes from the stream.

        @return: the offsets that are whole now.
        @raise MalformedReplication: if an offset is negative.
        """
        data = self._partial + data
        whole = len(data) - len(data) % OFFSET_SIZE
        offsets = [offset for (offset,) in _OFFSET.iter_unpack(data[:whole])]
        self._partial = data[whole:]
        for offset in offsets:
            if offset < 0:
                raise MalformedReplication(f"a slave cannot have come to offset {offset}")
        return offsets


class PieceReader:
    """
    Pieces from a master.  At most one read of the socket and one piece are held.
    """

    def __init__(self, limit: int = PIECE_LIMIT) -> None:
        """
        @param limit: the most bytes in a piece.
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

    def next(self) -> Piece | None:
        """
        The next piece, if it is whole.

        @raise MalformedReplication: if its offset or size is negative.
        @raise FrameTooLarge: if it is longer than allowed, as soon as its size is there.
        """
        start = self._start + _HEAD.size
        if len(self._data) < start:
            return None
        offset, size = _HEAD.unpack_from(self._data, self._start)
        if offset < 0 or size < 0:
            raise MalformedReplication(f"a piece of {size} bytes at offset {offset}")
        if size > self._limit:
            raise FrameTooLarge(size, self._limit)
        if len(self._data) < start + size:
            return None
        self._start = start + size
        with memoryview(self._data) as view:
            return Piece(offset, bytes(view[start : self._start]))
