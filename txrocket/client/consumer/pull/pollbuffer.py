# SPDX-License-Identifier: Apache-2.0
"""
One reader of many queues: which message it is given next, and when it has consumed the
ones before::

    queue 0  [ 7  8  9 ] --+
    queue 1  [ 3  4 ] -----+--> in turn --> reader --> consumed, when it comes back
    queue 2  [ ]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred, fail

from txrocket.client.consumer.pull.prefetch import PrefetchedQueue
from txrocket.client.consumer.puller import readable
from txrocket.client.consumer.push.processqueue import ProcessQueue
from txrocket.errors import ConfigError, RocketError
from txrocket.message import MessageExt

__all__ = ["PollBuffer"]


class PollBuffer:
    """
    The messages that a reader may be given, and those that it has.
    """

    def __init__(self, consumed: Callable[[PrefetchedQueue], None]) -> None:
        """
        @param consumed: is told of a queue of which messages were consumed.
        """
        self._consumed = consumed
        # Queues with messages that may be read, each once.
        self._ready: deque[PrefetchedQueue] = deque()
        # Those of which the reader has messages, until it comes back.
        self._taken: dict[ProcessQueue, PrefetchedQueue] = {}
        self._waiting: Deferred[None] | None = None
        self._error: RocketError | None = None

    def next(self, most: int) -> list[MessageExt]:
        """
        The next messages, if there are any.  The reader has come back, so it has consumed
        the messages before.

        @raise MalformedRecord: if the next message cannot be read; it is skipped when the
            reader comes back.
        @raise UnsupportedCompression: likewise.
        @raise ResponseError: if a broker refuses to give messages.
        """
        self.consumed()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        messages: list[MessageExt] = []
        while self._ready and len(messages) < most:
            prefetched = self._ready.popleft()
            processQueue = prefetched.processQueue
            if processQueue is None or processQueue.dropped or prefetched.paused:
                continue
            taken = processQueue.take(most - len(messages))
            self._taken[processQueue] = prefetched
            for index, message in enumerate(taken):
                try:
                    messages.append(readable(message))
                except RocketError:
                    self._ready.appendleft(prefetched)
                    if messages:
                        processQueue.giveBack(taken[index:])
                        return messages
                    processQueue.giveBack(taken[1:])
                    raise
            if processQueue.waiting:
                self._ready.append(prefetched)
        return messages

    def consumed(self) -> None:
        """
        The reader has consumed the messages that it was given.
        """
        while self._taken:
            processQueue, prefetched = self._taken.popitem()
            processQueue.commit()
            self._consumed(prefetched)

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

    def arrived(self, prefetched: PrefetchedQueue) -> None:
        """
        There are messages of a queue.  One that is paused arrives when it goes on.
        """
        if not prefetched.paused:
            if prefetched not in self._ready:
                self._ready.append(prefetched)
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
