# SPDX-License-Identifier: Apache-2.0
"""
One end of a connection, without the connection: bytes in, commands out.

Twisted's glue, a blocking client and a test all drive this object, so that what
a stream of bytes means is decided in one place, however it was cut up.
"""

from __future__ import annotations

from txrocket.protocol.command import RemotingCommand, decodeCommand
from txrocket.protocol.frames import FRAME_LIMIT, HEADER_LIMIT, FrameBuffer

__all__ = ["Connection"]


class Connection(FrameBuffer[RemotingCommand]):
    """
    The state of a stream of commands: L{feed<FrameBuffer.feed>} it what comes
    in, number what goes out.
    """

    __slots__ = ("_opaque",)

    def __init__(self, limit: int = FRAME_LIMIT, headerLimit: int = HEADER_LIMIT) -> None:
        super().__init__(decodeCommand, limit, headerLimit)
        self._opaque = -1

    def nextOpaque(self) -> int:
        """
        A number for a request.  Java's is an C{int}, so it starts anew before
        it would become negative.
        """
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque
