# SPDX-License-Identifier: Apache-2.0
"""
Cutting a stream of bytes into frames, as Java's C{NettyDecoder} does::

      0         4           5             8
      +---------+-----------+-------------+----------- - -+------- - -+
      | length  | serialize | header      | header        | body      |
      |         | type      | length      |               |           |
      +---------+-----------+-------------+----------- - -+------- - -+
      |<-- 4 -->|<------------------- length --------------------------->|

All integers are big-endian.  C{length} does not count itself.  Frames of one code that
follow each other are a L{Run}, so that a processor can serve many of them at a time::

    | SEND | SEND | SEND | PULL | SE        runs: (SEND, 3 frames), (PULL, 1); SE is kept

A length is judged as soon as its four bytes are there, so a peer can make this
end hold one frame of at most the limit and never more.  So is the length of a header,
which has a limit of its own: it is decoded as a whole, and a body is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import TypeAlias

from txrocket.errors import FrameTooLarge, HeaderOverLimit, InvalidFrameLength, ProtocolError

__all__ = ["FRAME_LIMIT", "HEADER_LIMIT", "FrameBuffer", "Run", "Split", "frameEnd", "splitFrames"]

# com.rocketmq.remoting.frameMaxLength.  Netty counts the prefix in it, and so do we.
FRAME_LIMIT = 16 * 1024 * 1024

#: The longest header that a frame can have, because its length has three bytes.
HEADER_LIMIT = 0xFFFFFF

_HEADER_MASK = HEADER_LIMIT

_LENGTH = Struct(">i").unpack_from
_LENGTHS = Struct(">iI").unpack_from
_SHORT = Struct(">h").unpack_from
_PREFIX = 4
_JSON_CODE = re.compile(rb'\{"code":(\d+)[,}]').match


#: Whole frames of one code that follow each other: their code, as L{splitFrames} sees it, or
#: -1 if only decoding tells it; the bytes that hold them; where the first one begins, with its
#: length; where the last one ends.
Run: TypeAlias = tuple[int, bytes, int, int]

#: See L{splitFrames}.
Split: TypeAlias = Callable[[bytes, int, int], tuple[list[Run], int]]


def splitFrames(data: bytes, limit: int, headerLimit: int) -> tuple[list[Run], int]:
    """
    The whole frames at the front of some bytes, those of one code together.

    The code of a frame is read at a glance: it is the first member of a JSON header as
    RocketMQ's clients write it, and the first two bytes of a binary one.

    @param limit: the longest frame in bytes, with its length.
    @param headerLimit: the longest header in bytes.
    @return: the runs; and where the first frame begins that is not whole or breaks a limit.
    """
    runs: list[Run] = []
    start, end = 0, len(data)
    while end - start >= _PREFIX + 4:
        length, mark = _LENGTHS(data, start)
        header = mark & _HEADER_MASK
        stop = start + _PREFIX + length
        if length < 4 or stop - start > limit or stop > end or header > headerLimit:
            break
        code = -1 if header > length - 4 else _peekCode(data, start + 8, header, mark >> 24)
        if runs and runs[-1][0] == code:
            runs[-1] = code, data, runs[-1][2], stop
        else:
            runs.append((code, data, start, stop))
        start = stop
    return runs, start


def frameEnd(data: bytes, start: int) -> int:
    """
    Where the whole frame ends that begins at an offset.
    """
    return start + _PREFIX + int(_LENGTH(data, start)[0])


def _peekCode(data: bytes, start: int, size: int, serializeType: int) -> int:
    if serializeType == 1:
        return int(_SHORT(data, start)[0]) if size >= 2 else -1
    if serializeType or size < 10:
        return -1
    found = _JSON_CODE(data, start, start + min(size, 14))
    return int(found[1]) if found else -1


class FrameBuffer:
    """
    Bytes in, runs of frames out.

    @ivar partial: the bytes that wait for the rest of their frame; always the same object.
    @ivar needed: how many bytes that frame has, or 4 while that is not known.
    @ivar fault: what broke the stream, or L{None}.  After a fault the meaning of the rest
        is not known, and it is dropped.  The frames before it are returned.
    """

    __slots__ = ("_headerLimit", "_limit", "_split", "fault", "needed", "partial")

    def __init__(
        self,
        limit: int = FRAME_LIMIT,
        headerLimit: int = HEADER_LIMIT,
        split: Split = splitFrames,
    ) -> None:
        """
        @param limit: the longest frame in bytes, with its length.
        @param headerLimit: the longest header in bytes.
        @param split: does what L{splitFrames} does.
        """
        self._limit = limit
        self._headerLimit = headerLimit
        self._split = split
        self.partial = bytearray()
        self.needed = _PREFIX
        self.fault: ProtocolError | None = None

    @property
    def held(self) -> int:
        """
        How many bytes wait for the rest of their frame.
        """
        return len(self.partial)

    def runs(self, data: bytes) -> list[Run]:
        """
        Take bytes from the stream.

        @return: the frames that are whole now.  Look at C{fault} after having served them.
        """
        if self.fault is not None:
            return []
        partial = self.partial
        if partial:
            # Growing one bytearray, rather than keeping the chunks in a list,
            # holds a peer that sends two bytes at a time to two bytes' memory.
            partial += data
            if len(partial) < self.needed:
                return []
            data = bytes(partial)
            partial.clear()
        runs, end = self._split(data, self._limit, self._headerLimit)
        self.needed = _PREFIX
        if end < len(data):
            self._keep(data, end)
        return runs

    def _keep(self, data: bytes, start: int) -> None:
        """
        Keep what is not a whole frame yet, unless it can never become one.
        """
        there = len(data) - start
        if there >= _PREFIX:
            needed = _PREFIX + _LENGTH(data, start)[0]
            # A frame holds at least its header's length.
            if needed < _PREFIX + 4:
                self.fault = InvalidFrameLength(needed - _PREFIX)
                return
            if needed > self._limit:
                self.fault = FrameTooLarge(needed, self._limit)
                return
            self.needed = needed
            # A frame no longer than that has no header that is.
            if needed > self._headerLimit:
                if there < _PREFIX + 4:
                    self.needed = _PREFIX + 4
                else:
                    header = _LENGTH(data, start + _PREFIX)[0] & _HEADER_MASK
                    if header > self._headerLimit:
                        self.fault = HeaderOverLimit(header, self._headerLimit)
                        return
        self.partial += data[start:]
