# SPDX-License-Identifier: Apache-2.0
"""
One end of a connection, without the connection: bytes in, commands out.

Twisted's glue, a blocking client and a test all drive this object, so that what
a stream of bytes means is decided in one place, however it was cut up.
"""

from __future__ import annotations

from txrocket.errors import ProtocolError
from txrocket.protocol.command import RemotingCommand, decodeCommand
from txrocket.protocol.frames import (
    FRAME_LIMIT,
    HEADER_LIMIT,
    FrameBuffer,
    Split,
    frameEnd,
    splitFrames,
)

__all__ = ["RemotingConnection"]


class RemotingConnection(FrameBuffer):
    """
    The state of a stream of commands: give it what comes in, number what goes out.
    """

    __slots__ = ("_opaque",)

    def __init__(
        self,
        limit: int = FRAME_LIMIT,
        headerLimit: int = HEADER_LIMIT,
        split: Split = splitFrames,
    ) -> None:
        super().__init__(limit, headerLimit, split)
        self._opaque = -1

    def feed(self, data: bytes) -> list[RemotingCommand]:
        """
        Take bytes from the stream.

        @return: the commands that are complete now.  Look at C{fault} after having handled
            them.
        """
        commands: list[RemotingCommand] = []
        for _, whole, start, end in self.runs(data):
            while start < end:
                stop = frameEnd(whole, start)
                command = self.decode(whole, start, stop)
                if command is None:
                    return commands
                commands.append(command)
                start = stop
        return commands

    def decode(self, data: bytes, start: int, stop: int) -> RemotingCommand | None:
        """
        The command of the frame between two offsets.

        @return: L{None} if it is malformed.  That breaks the stream: what follows it must
            not be served.
        """
        try:
            return decodeCommand(data, start + 4, stop)
        except ProtocolError as error:
            self.fault = error
            self.partial.clear()
            return None

    def nextOpaque(self) -> int:
        """
        A number for a request.  Java's is an C{int}, so it starts anew before
        it would become negative.
        """
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque
