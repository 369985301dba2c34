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
means is for the decoder to say that a L{FrameBuffer} is given.

A length is judged as soon as its four bytes are there, so a peer can make this
end hold one frame of at most the limit and never more.  So is the length of a header,
which has a limit of its own: it is decoded as a whole, and a body is not.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Generic, TypeVar

from txrocket.errors import FrameTooLarge, HeaderOverLimit, InvalidFrameLength, ProtocolError

__all__ = ["FRAME_LIMIT", "HEADER_LIMIT", "FrameBuffer"]

# com.rocketmq.remoting.frameMaxLength.  Netty counts the prefix in it, and so do we.
FRAME_LIMIT = 16 * 1024 * 1024

#: The longest header that a frame can have, because its length has three bytes.
HEADER_LIMIT = 0xFFFFFF

_HEADER_MASK = HEADER_LIMIT

_LENGTH = Struct(">i").unpack_from
_PREFIX = 4

_Decoded = TypeVar("_Decoded")


class FrameBuffer(Generic[_Decoded]):
    """
    Bytes in, decoded frames out.

    @ivar partial: the bytes that wait for the rest of their frame; always the same object.
    @ivar needed: how many bytes that frame has, or 4 while that is not known.
    @ivar fault: what broke the stream, or L{None}.  After a fault there is no
        telling what the rest means, and it is dropped.  The frames before it
        were returned as ever.
    """

    __slots__ = ("_decode", "_headerLimit", "_limit", "fault", "needed", "partial")

    def __init__(
        self,
        decode: Callable[[bytes, int, int], _Decoded],
        limit: int = FRAME_LIMIT,
        headerLimit: int = HEADER_LIMIT,
    ) -> None:
        """
        @param decode: makes something of the frame, without its length, that
            lies between two offsets; may raise L{ProtocolError}.  It is called
            with the offsets and not with the frame, to save it a copy.
        @param limit: the longest frame in bytes, with its length.
        @param headerLimit: the longest header in bytes.
        """
        self._decode = decode
        self._limit = limit
        self._headerLimit = headerLimit
        self.partial = bytearray()
        self.needed = _PREFIX
        self.fault: ProtocolError | None = None

    @property
    def held(self) -> int:
        """
        How many bytes wait for the rest of their frame.
        """
        return len(self.partial)

    def feed(
        self, data: bytes, express: Callable[[bytes, int], int] | None = None
    ) -> list[_Decoded]:
        """
        Take what came in.

        @param express: deals with whole frames from an offset on, as many as it likes,
            and tells where the first begins that it leaves.
        @return: what is complete now.  Look at C{fault} after having dealt
            with it.
        """
        decoded: list[_Decoded] = []
        if self.fault is not None:
            return decoded
        partial = self.partial
        if partial:
            # Growing one bytearray, rather than keeping the chunks in a list,
            # holds a peer that sends two bytes at a time to two bytes' memory.
            partial += data
            if len(partial) < self.needed:
                return decoded
            data = bytes(partial)
            partial.clear()
        start, end, decode, limit = 0, len(data), self._decode, self._limit
        if express is not None:
            start = express(data, start)
        self.needed = _PREFIX
        try:
            while end - start >= _PREFIX:
                needed = _PREFIX + _LENGTH(data, start)[0]
                # A frame holds at least its header's length.
                if needed < _PREFIX + 4:
                    raise InvalidFrameLength(needed - _PREFIX)
                if needed > limit:
                    raise FrameTooLarge(needed, limit)
                stop = start + needed
                # A frame no longer than that has no header that is.
                if needed > self._headerLimit:
                    if end - start < _PREFIX + 4:
                        self.needed = _PREFIX + 4
                        break
                    header = _LENGTH(data, start + _PREFIX)[0] & _HEADER_MASK
                    if header > self._headerLimit:
                        raise HeaderOverLimit(header, self._headerLimit)
                if stop > end:
                    self.needed = needed
                    break
                decoded.append(decode(data, start + _PREFIX, stop))
                start = stop
        except ProtocolError as error:
            self.fault = error
        else:
            if start < end:
                partial += data[start:]
        return decoded
