# SPDX-License-Identifier: Apache-2.0
r"""
The next write of the log: all messages that are appended before it share their store time,
one call of the system, and their fate::

    append append append --> write of all of them --> append ...
       \______ one Write ______/

A caller that appends holds the L{Write}.  After the write it knows whether its messages are
in the files.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from txrocket.errors import StoreError

__all__ = ["Write", "WriteSchedule"]

_DAY = 86_400_000


class Write:
    """
    One write, shared by all appends since the last one.

    @ivar isWritten: whether the messages are in the files.
    @ivar error: why the messages are lost; L{None} while the write is pending, and once the
        messages are in the files.
    """

    __slots__ = ("error", "isWritten")

    def __init__(self) -> None:
        self.isWritten = False
        self.error: StoreError | None = None


class WriteSchedule:
    """
    When the next write is, and the store time of its messages.

    @ivar isPending: whether a message was appended since the last write.
    @ivar timestamp: the store time in milliseconds.  It does not go back with the clock,
        because searches by time need the order, unless the clock is set back by more than
        a day.
    """

    _log = Logger()

    def __init__(
        self,
        soon: Callable[[], IDelayedCall | None],
        wall: Callable[[], float],
        folder: str,
    ) -> None:
        """
        @param soon: has all messages written before the reactor waits for events.
        @param wall: the time of day in seconds.
        @param folder: the folder of the store, for the log.
        """
        self._soon = soon
        self._wall = wall
        self._folder = folder
        self._call: IDelayedCall | None = None
        self._pending: Write | None = None
        self.isPending = False
        self.timestamp = 0

    @property
    def pending(self) -> Write:
        """
        The next write.
        """
        if self._pending is None:
            self._pending = Write()
        return self._pending

    def begin(self) -> None:
        """
        The first message since the last write is appended: take the time, and schedule the
        write.
        """
        if self.isPending:
            return
        now = int(self._wall() * 1000)
        if now > self.timestamp:
            self.timestamp = now
        elif self.timestamp - now > _DAY:
            # The time of the log would stand still for long.
            self._goBack(now)
        self.isPending = True
        self._call = self._soon()

    def resume(self, timestamp: int) -> None:
        """
        Go on behind the time of the last message.  A damaged record's time is not followed
        into the far future.
        """
        if timestamp <= int(self._wall() * 1000) + _DAY:
            self.timestamp = timestamp

    def end(self) -> None:
        """
        The write begins, or the store is closed.
        """
        call, self._call = self._call, None
        self.isPending = False
        if call is not None and call.active():
            call.cancel()

    def settle(self, error: StoreError | None = None) -> None:
        """
        All messages are in the files, or lost.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.isWritten = error is None
            pending.error = error

    def _goBack(self, now: int) -> None:
        """
        The clock was set back by more than a day, so that it was wrong before.
        """
        self._log.warn(
            "{folder}: the last message was stored {hours:.0f} hours from now by the clock of this"
            " machine. The clock was set back, and the times of new messages follow it; a search"
            " by time may miss messages that were stored in between",
            folder=self._folder,
            hours=(self.timestamp - now) / 3_600_000,
        )
        self.timestamp = now
