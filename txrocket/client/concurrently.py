# SPDX-License-Identifier: Apache-2.0
"""
Consuming messages in any order, many at a time; Java's
C{ConsumeMessageConcurrentlyService}.

    pulled --> waiting --> listener (so many at a time)
                              |-- dealt with: commit the first that is not
                              |-- not: back to the broker, which brings it again
                              |         later; if that fails, here, after 5 s
                              '-- takes too long: the same
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.listening import ConsumeLater, Listening
from txrocket.client.window import Window
from txrocket.errors import RocketError
from txrocket.message import MessageExt

__all__ = ["Concurrently", "SendBack"]

#: Sends a message back, with a delay level.
SendBack = Callable[[MessageExt, int], "Deferred[None]"]

# When to try again here what could not be sent back, in seconds.
_AGAIN: Final = 5.0

# The level at which a message comes again that took too long.
_LATE_LEVEL: Final = 3


class Concurrently:
    """
    Gives messages to a listener.

    @ivar running: how many calls of the listener are under way.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        listening: Listening,
        limit: int,
        consumed: Callable[[Window, int], None],
        sendBack: SendBack | None,
        prepare: Callable[[MessageExt], MessageExt],
    ) -> None:
        """
        @param limit: how many calls may be under way.
        @param consumed: told how far a queue is dealt with.
        @param sendBack: for messages that were not; L{None} drops them, as who
            broadcasts must.
        @param prepare: makes a message fit for a listener.
        """
        self._clock = clock
        self._listening = listening
        self._limit = limit
        self._consumed = consumed
        self._sendBack = sendBack
        self._prepare = prepare
        self._waiting: deque[tuple[Window, Sequence[MessageExt]]] = deque()
        self.running = 0
        self._idle: list[Deferred[None]] = []
        self._stopped = False

    def submit(self, window: Window, messages: Sequence[MessageExt]) -> None:
        """
        Messages were pulled.
        """
        batch = self._listening.batch
        for start in range(0, len(messages), batch):
            self._waiting.append((window, messages[start : start + batch]))
        self._run()

    def locked(self, window: Window) -> None:
        """
        Nothing waits for a lock.
        """

    def stop(self) -> Deferred[None]:
        """
        Begin no more calls.

        @return: a Deferred that fires once none is under way.
        """
        self._stopped = True
        self._waiting.clear()
        idle: Deferred[None] = Deferred()
        self._idle.append(idle)
        self._settle()
        return idle

    def expire(self, windows: Sequence[Window], limit: float) -> None:
        """
        Send back what listeners have had for too long.

        @param limit: in seconds.
        """
        before = self._clock.seconds() - limit
        for window in windows:
            late = window.overdue(before)
            if late and self._sendBack is not None:
                self._log.warn(
                    "{count} messages of {queue} were not dealt with within {limit:g} s"
                    " and are sent back",
                    count=len(late),
                    queue=window.queue,
                    limit=limit,
                )
                self._back(window, late, _LATE_LEVEL)

    def _settle(self) -> None:
        while self._idle and not self.running:
            self._idle.pop().callback(None)

    def _run(self) -> None:
        while self._waiting and self.running < self._limit:
            window, messages = self._waiting.popleft()
            if window.dropped:
                continue
            window.begin(messages, self._clock.seconds())
            self.running += 1
            try:
                given = [self._prepare(each) for each in messages]
                result = self._listening.call(given)
            except Exception:
                result = Failure()
            if isinstance(result, Deferred):
                result.addBoth(self._later, window, messages)
            else:
                self._done(result, window, messages)

    def _later(self, result: Any, window: Window, messages: Sequence[MessageExt]) -> None:
        self._done(result, window, messages)
        self._run()

    def _done(self, result: Any, window: Window, messages: Sequence[MessageExt]) -> None:
        self.running -= 1
        if self._idle:
            self._settle()
        if isinstance(result, Failure):
            self._log.failure(
                "The listener failed with {count} messages of {queue}, the first at {offset}",
                result,
                count=len(messages),
                queue=window.queue,
                offset=messages[0].queueOffset,
            )
            result = ConsumeLater()
        if not isinstance(result, ConsumeLater):
            self._finish(window, messages)
            return
        self._finish(window, messages[: result.done])
        undone = messages[result.done :]
        if self._sendBack is None:
            self._log.warn(
                "{count} messages of {queue} are dropped: who broadcasts cannot send back",
                count=len(undone),
                queue=window.queue,
            )
            self._finish(window, undone)
        elif not window.dropped:
            self._back(window, undone, result.delayLevel)

    def _finish(self, window: Window, messages: Sequence[MessageExt]) -> None:
        if messages and not window.dropped:
            self._consumed(window, window.done(messages))

    def _back(self, window: Window, messages: Sequence[MessageExt], delayLevel: int) -> None:
        failed: list[MessageExt] = []

        def sent(none: None, message: MessageExt) -> None:
            self._finish(window, [message])

        def unsent(failure: Failure, message: MessageExt) -> None:
            failure.trap(RocketError)
            self._log.warn(
                "Message {offset} of {queue} could not be sent back and is tried again here:"
                " {error}",
                offset=message.queueOffset,
                queue=window.queue,
                error=failure.value,
            )
            failed.append(message)

        assert self._sendBack is not None
        sending = []
        for message in messages:
            sending.append(
                self._sendBack(message, delayLevel).addCallbacks(
                    sent, unsent, callbackArgs=(message,), errbackArgs=(message,)
                )
            )

        def again(results: Any) -> None:
            if failed and not self._stopped:
                self._clock.callLater(_AGAIN, self._resubmit, window, failed)

        DeferredList(sending).addCallback(again)

    def _resubmit(self, window: Window, messages: Sequence[MessageExt]) -> None:
        if not self._stopped and not window.dropped:
            self.submit(window, messages)
