# SPDX-License-Identifier: Apache-2.0
"""
One reader of many queues: which message it is given next, and when it has dealt
with those that it was given::

    queue 0  [ 7  8  9 ] --+
    queue 1  [ 3  4 ] -----+--> in turn --> reader --> dealt with, when it comes back
    queue 2  [ ]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred, fail

from txrocket.client.prefetch import Ahead
from txrocket.client.pulling import readable
from txrocket.client.window import Window
from txrocket.errors import ConfigError, RocketError
from txrocket.message import MessageExt

__all__ = ["Reading"]


class Reading:
    """
    A reader's place.
    """

    def __init__(self, settled: Callable[[Ahead], None]) -> None:
        """
        @param settled: is told of a queue of which messages were dealt with.
        """
        self._settled = settled
        # Queues with messages that may be read, each once.
        self._ready: deque[Ahead] = deque()
        # Those of which the reader has messages, until it comes back.
        self._taken: dict[Window, Ahead] = {}
        self._waiting: Deferred[None] | None = None
        self._error: RocketError | None = None

    def next(self, most: int) -> list[MessageExt]:
        """
        The next messages, if there are any.  The reader has come back: it has dealt
        with what it was given before.

        @raise MalformedRecord: if the next message cannot be read; it is passed over
            when the reader comes back.
        @raise UnsupportedCompression: likewise.
        @raise ResponseError: if a broker refuses to give messages.
        """
        self.settle()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        messages: list[MessageExt] = []
        while self._ready and len(messages) < most:
            ahead = self._ready.popleft()
            window = ahead.window
            if window is None or window.dropped or ahead.paused:
                continue
            taken = window.take(most - len(messages))
            self._taken[window] = ahead
            for index, message in enumerate(taken):
                try:
                    messages.append(readable(message))
                except RocketError:
                    self._ready.appendleft(ahead)
                    if messages:
                        window.giveBack(taken[index:])
                        return messages
                    window.giveBack(taken[1:])
                    raise
            if window.waiting:
                self._ready.append(ahead)
        return messages

    def settle(self) -> None:
        """
        The reader has dealt with what it was given.
        """
        while self._taken:
            window, ahead = self._taken.popitem()
            window.settle()
            self._settled(ahead)

    def arrival(self) -> Deferred[None]:
        """
        A Deferred that fires when there may be something to read.  There is one
        reader: it fails with L{ConfigError} if one waits already.
        """
        if self._waiting is not None:
            return fail(ConfigError("there is a reader that waits for messages already"))

        def leave(waiting: Deferred[None]) -> None:
            self._waiting = None

        self._waiting = Deferred(leave)
        return self._waiting

    def arrived(self, ahead: Ahead) -> None:
        """
        There are messages of a queue.  One that is paused arrives when it goes on.
        """
        if not ahead.paused:
            if ahead not in self._ready:
                self._ready.append(ahead)
            self.wake()

    def refused(self, error: RocketError) -> None:
        """
        A broker refuses to give messages: the reader is told once.
        """
        self._error = error
        self.wake()

    def wake(self) -> None:
        """
        Let a reader that waits look.
        """
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def clear(self) -> None:
        """
        There is nothing to read any more.
        """
        self._ready.clear()
        self._taken.clear()
        self._error = None
        self.wake()
