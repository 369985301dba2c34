# SPDX-License-Identifier: Apache-2.0
"""
One end of a connection, without the connection: bytes in, commands out.

Twisted's glue, a blocking client and a test all drive this object, so that what
a stream of bytes means is decided in one place, however it was cut up.
"""

from __future__ import annotations

from txrocket.errors import ProtocolError
from txrocket.protocol.command import RemotingCommand, decodeCommand
from txrocket.protocol.frames import FRAME_LIMIT, FrameBuffer

__all__ = ["Connection"]


class Connection:
    """
    The state of a stream of commands.

    @ivar fault: what the peer did wrong, or L{None}.  After a fault nothing
        that comes in can be trusted, and it is dropped: the connection is to be
        closed.  The commands before it were returned as ever.
    """

    __slots__ = ("_frames", "_opaque", "fault")

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._frames = FrameBuffer(limit)
        self._opaque = -1
        self.fault: ProtocolError | None = None

    @property
    def held(self) -> int:
        """
        How many bytes wait for the rest of their frame.
        """
        return self._frames.held

    def receive(self, data: bytes) -> list[RemotingCommand]:
        """
        Take what came in.

        @return: the commands that are complete now.  Look at L{fault} after
            having dealt with them.
        """
        if self.fault is not None:
            return []
        commands: list[RemotingCommand] = []
        try:
            for frame in self._frames.feed(data):
                commands.append(decodeCommand(frame))
        except ProtocolError as error:
            self.fault = error
        else:
            self.fault = self._frames.fault
        return commands

    def nextOpaque(self) -> int:
        """
        A number for a request.  Java's is an C{int}, so it starts anew before
        it would become negative.
        """
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque
