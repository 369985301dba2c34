# SPDX-License-Identifier: Apache-2.0
"""
Cutting a stream of bytes into frames, as Java's C{NettyDecoder} does::

      0         4           5             8
      +---------+-----------+-------------+----------- - -+------- - -+
      | length  | serialize | header      | header        | body      |
      |         | type      | length      |               |           |
      +---------+-----------+-------------+----------- - -+------- - -+
      |<-- 4 -->|<------------------- length --------------------------->|

All integers are big-endian.  C{length} does not count itself.  What a frame
means is L{txrocket.protocol.command}'s business.

A length is judged as soon as its four bytes are there, so a peer can make this
end hold one frame of at most the limit and never more.
"""

from __future__ import annotations

from struct import Struct

from txrocket.errors import FrameTooLarge, InvalidFrameLength, ProtocolError

__all__ = ["FRAME_LIMIT", "FrameBuffer"]

# com.rocketmq.remoting.frameMaxLength.  Netty counts the prefix in it, and so do we.
FRAME_LIMIT = 16 * 1024 * 1024

_LENGTH = Struct(">i").unpack_from
_PREFIX = 4


class FrameBuffer:
    """
    Bytes in, frames out.

    @ivar fault: what broke the stream, or L{None}.  After a fault there is no
        telling where the next frame begins, so what follows is dropped.
    """

    __slots__ = ("_limit", "_needed", "_partial", "fault")

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._needed = _PREFIX
        self.fault: ProtocolError | None = None

    @property
    def held(self) -> int:
        """
        How many bytes wait for the rest of their frame.
        """
        return len(self._partial)

    def feed(self, data: bytes) -> list[bytes]:
        """
        Take what came in.

        @return: the frames that are complete now, each without its length.
        """
        if self.fault is not None:
            return []
        partial = self._partial
        if partial:
            # Growing one bytearray, rather than keeping the chunks in a list,
            # holds a peer that sends two bytes at a time to two bytes' memory.
            partial += data
            if len(partial) < self._needed:
                return []
            data = bytes(partial)
            partial.clear()
        frames: list[bytes] = []
        start, end, needed = 0, len(data), _PREFIX
        while end - start >= _PREFIX:
            length = _LENGTH(data, start)[0]
            needed = _PREFIX + length
            # A frame holds at least its header's length.
            if length < _PREFIX or needed > self._limit:
                self.fault = (
                    InvalidFrameLength(length)
                    if length < _PREFIX
                    else FrameTooLarge(needed, self._limit)
                )
                return frames
            stop = start + needed
            if stop > end:
                break
            frames.append(data[start + _PREFIX : stop])
            start, needed = stop, _PREFIX
        if start < end:
            partial += data[start:]
            self._needed = needed
        return frames
