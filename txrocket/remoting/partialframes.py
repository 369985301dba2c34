# SPDX-License-Identifier: Apache-2.0
"""
Frames that accepted connections have begun and not finished, and the memory that they
hold together::

    bytes of a frame --> within the budget: read on
                     \\-> above it: the oldest frame is read on, other long ones wait

    every second     --> above the budget: frames whose peer sends nothing are dropped
                     --> a frame that takes too long: its connection is closed

A peer may begin a frame of 16 MiB and leave it at that.  Sixty of them held 923 MB when
there was a limit for each connection only.  To wait is the kinder way: a peer that sends
loses nothing by it, and TCP slows it down.  The oldest frame is always read on, so that
something ends; and a peer that is made to wait is not taken for one that sends nothing.

Short frames never wait: an attack with long ones must not stop ordinary traffic.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

if TYPE_CHECKING:
    from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["SHORT", "PartialFrames"]

#: What is shorter is not counted: a read mostly ends within a frame, and to look at each
#: would cost more than the memory is worth.
SHORT = 8 * 1024

# A frame that is to have fewer bytes never waits.
_ORDINARY = 64 * 1024

# How often, and after how many seconds of silence, frames above the budget are dropped.
_PERIOD = 1.0
_SILENCE = 5.0


@attrs.define(eq=False)
class _Frame:
    """
    @ivar size: how many bytes have come.
    @ivar begun: when it was first seen; later by as long as it was made to wait.
    @ivar heard: when bytes came last.
    @ivar waits: whether it is made to wait.
    """

    size: int
    begun: float
    heard: float
    waits: bool = False


class PartialFrames:
    """
    The unfinished frames of a server.

    @ivar size: how many bytes they have together.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, limit: int, timeout: float) -> None:
        """
        @param limit: how many bytes they may have together, C{serverMaxUnfinishedBytes}.
        @param timeout: how many seconds one may take, C{serverFrameTimeoutSeconds}.
        """
        self._clock = clock
        self._limit = limit
        self._timeout = timeout
        # The oldest first.
        self._frames: dict[RemotingProtocol, _Frame] = {}
        self._timer: IDelayedCall | None = None
        self._waiting = 0
        self.size = 0

    def note(self, connection: RemotingProtocol, size: int, needed: int, came: int) -> None:
        """
        A connection has read, and has part of a frame.

        @param size: how many bytes it has.
        @param needed: how many the whole frame has.
        @param came: how many bytes have just come, of this frame and those before it.
        """
        now = self._clock.seconds()
        frame = self._frames.get(connection)
        if frame is not None and size != frame.size + came:
            # That one has ended, and this is another.
            self._pop(connection)
            frame = None
        if frame is None:
            frame = self._frames[connection] = _Frame(0, now, now)
            if self._timer is None:
                self._timer = self._clock.callLater(_PERIOD, self._look)
        self.size += size - frame.size
        frame.size = size
        frame.heard = now
        if (
            self.size > self._limit
            and needed > _ORDINARY
            and not frame.waits
            and next(iter(self._frames)) is not connection
        ):
            frame.waits = True
            self._waiting += 1
            connection.stopReading()

    def forget(self, connection: RemotingProtocol) -> None:
        """
        A connection's frame is finished.
        """
        if connection in self._frames:
            self._pop(connection)
            self._goOn()

    def lost(self, connection: RemotingProtocol) -> None:
        """
        A connection is gone.
        """
        self.forget(connection)
        # Else it runs out by itself: to cancel it for every frame would cost more.
        if self._timer is not None and not self._frames:
            self._timer.cancel()
            self._timer = None

    def _pop(self, connection: RemotingProtocol) -> None:
        frame = self._frames.pop(connection)
        self.size -= frame.size
        if frame.waits:
            self._waiting -= 1
            connection.goOnReading()

    def _goOn(self) -> None:
        """
        Read on where there is room, and from the oldest in any case.
        """
        if not self._waiting:
            return
        most = 1 if self.size > self._limit else len(self._frames)
        now = self._clock.seconds()
        for connection, frame in list(islice(self._frames.items(), most)):
            if frame.waits:
                frame.waits = False
                frame.heard = now
                self._waiting -= 1
                connection.goOnReading()

    def _look(self) -> None:
        self._timer = self._clock.callLater(_PERIOD, self._look) if self._frames else None
        now = self._clock.seconds()
        for connection, frame in list(self._frames.items()):
            if frame.waits:
                frame.begun += _PERIOD
            elif now - frame.begun >= self._timeout:
                self._drop(
                    connection,
                    frame,
                    f"it has not finished a frame within {self._timeout:g} s"
                    " (serverFrameTimeoutSeconds)",
                )
            elif self.size > self._limit and now - frame.heard >= _SILENCE:
                self._drop(
                    connection,
                    frame,
                    f"it has sent nothing for {now - frame.heard:.0f} s, and unfinished frames"
                    f" have {self.size} bytes together (serverMaxUnfinishedBytes is"
                    f" {self._limit})",
                )
        self._goOn()

    def _drop(self, connection: RemotingProtocol, frame: _Frame, why: str) -> None:
        self._log.warn(
            "Closing the connection to {address} within a frame, of which {size} bytes have"
            " come: {why}",
            address=connection.address,
            size=frame.size,
            why=why,
        )
        self.forget(connection)
        connection.drop()
