# SPDX-License-Identifier: Apache-2.0
"""
Consuming messages in any order, many at a time; Java's
C{ConsumeMessageConcurrentlyService}::

    pulled --> waiting --> listener (so many at a time)
                              |-- dealt with: commit the first that is not
                              |-- not: back to the broker, which brings it again
                              |         later; if that fails, here, after 5 s
                              '-- takes too long: the same
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import CoroutineType
from typing import Any, Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.listening import ConsumeLater, Listener, Listening
from txrocket.client.window import Window
from txrocket.errors import RocketError
from txrocket.message import MessageExt

__all__ = ["Concurrently", "SendBack"]

#: Sends a message back, with a delay level.
SendBack = Callable[[MessageExt, int], "Deferred[None]"]

# When to try again here what could not be sent back, in seconds.
_AGAIN: Final = 5.0

# What a listener returns, or comes of it, that is not done yet, or not at all.
_UNDONE: Final = Deferred, CoroutineType, ConsumeLater, Failure

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
        # Those that L{_giveEach} has at hand.
        self._left: deque[MessageExt] = deque()
        self.running = 0
        # Groups of messages on their way back, and those to be tried again here.
        self._sending = 0
        self._again: set[IDelayedCall] = set()
        self._idle: list[Deferred[None]] = []
        self._stopped = False
        self._looping = False

    def submit(self, window: Window, messages: Sequence[MessageExt]) -> None:
        """
        Messages were pulled.
        """
        if self._listening.plain is not None and not self._waiting and not self._looping:
            messages = self._giveEach(self._listening.plain, window, messages)
        batch = self._listening.batch
        for start in range(0, len(messages), batch):
            self._waiting.append((window, messages[start : start + batch]))
        self._run()

    def start(self) -> None:
        """
        Begin calls, after a stop.
        """
        self._stopped = False

    def stop(self) -> Deferred[None]:
        """
        Begin no more calls.

        @return: a Deferred that fires once none is under way, and nothing on its
            way back.
        """
        self._stopped = True
        self._waiting.clear()
        self._left.clear()
        for call in self._again:
            call.cancel()
        self._again.clear()
        idle: Deferred[None] = Deferred()
        self._idle.append(idle)
        self._settle()
        return idle

    def expire(self, windows: Sequence[Window], limit: float) -> None:
        """
        Send back what listeners have had for too long.

        @param limit: in seconds.
        """
        if self._sendBack is None:
            return
        before = self._clock.seconds() - limit
        for window in windows:
            late = window.overdue(before)
            if late:
                self._log.warn(
                    "{count} messages of {queue} were not dealt with within {limit:g} s"
                    " and are sent back",
                    count=len(late),
                    queue=window.queue,
                    limit=limit,
                )
                self._back(window, late, _LATE_LEVEL, self._lateAgain)

    def _lateAgain(self, window: Window, messages: Sequence[MessageExt]) -> None:
        # Unless the listener was done with them after all.
        window.begin([each for each in messages if each in window], self._clock.seconds())

    def _settle(self) -> None:
        while self._idle and not self.running and not self._sending:
            self._idle.pop().callback(None)

    def _run(self) -> None:
        # A call that is over at once leads here again, once for each message that
        # waits: the loop goes on by itself.
        if self._looping:
            return
        self._looping = True
        try:
            while self._waiting and self.running < self._limit:
                window, messages = self._waiting.popleft()
                if not window.dropped:
                    self._call(window, messages)
        finally:
            self._looping = False

    def _giveEach(
        self, listener: Listener, window: Window, messages: Sequence[MessageExt]
    ) -> Sequence[MessageExt]:
        """
        Give messages to a listener that is done with each when it returns, and see once
        for all of them to what follows from that; it is half of what a message costs.

        @return: those that are left for L{_run}, because too many calls are under way.
        """
        prepare, left, done = self._prepare, self._left, []
        left.extend(messages)
        now = self._clock.seconds()
        # One more than may be: this one is no call, but has the calls.
        self.running += 1
        self._looping = True
        try:
            while left and self.running <= self._limit and not window.dropped:
                message = left.popleft()
                window.consumedAt = now
                try:
                    result = listener(prepare(message))
                except Exception:
                    result = Failure()
                if result is None or not isinstance(result, _UNDONE):
                    done.append(message)
                else:
                    window.begin([message], now)
                    self.running += 1
                    self._called(self._listening.outcome(result), window, [message])
        finally:
            self._looping = False
        self._finish(window, done)
        messages = list(left)
        left.clear()
        self.running -= 1
        self._settle()
        return messages

    def _call(self, window: Window, messages: Sequence[MessageExt]) -> None:
        window.begin(messages, self._clock.seconds())
        self.running += 1
        try:
            result = self._listening.call([self._prepare(each) for each in messages])
        except Exception:
            result = Failure()
        self._called(result, window, messages)

    def _called(self, result: Any, window: Window, messages: Sequence[MessageExt]) -> None:
        if isinstance(result, Deferred):
            result.addBoth(self._later, window, messages)
        else:
            self._done(result, window, messages)

    def _later(self, result: Any, window: Window, messages: Sequence[MessageExt]) -> None:
        self._done(result, window, messages)
        self._run()

    def _done(self, result: Any, window: Window, messages: Sequence[MessageExt]) -> None:
        if isinstance(result, Failure):
            self._log.failure(
                "The listener failed with {count} messages of {queue}, the first at {offset}",
                result,
                count=len(messages),
                queue=window.queue,
                offset=messages[0].queueOffset,
            )
            result = ConsumeLater()
        later = isinstance(result, ConsumeLater)
        done = result.done if later else len(messages)
        window.end(messages[:done])
        self._finish(window, messages[:done])
        if later:
            self._undone(window, window.end(messages[done:]), result.delayLevel)
        # Only now: who waits for it keeps the offsets next.
        self.running -= 1
        self._settle()

    def _undone(self, window: Window, messages: Sequence[MessageExt], delayLevel: int) -> None:
        if window.dropped or not messages:
            return
        if self._sendBack is None:
            self._log.warn(
                "{count} messages of {queue} are dropped: who broadcasts cannot send back",
                count=len(messages),
                queue=window.queue,
            )
            self._finish(window, messages)
        else:
            self._back(window, messages, delayLevel, self._tryAgain)

    def _finish(self, window: Window, messages: Sequence[MessageExt]) -> None:
        if messages and not window.dropped:
            self._consumed(window, window.done(messages))

    def _back(
        self,
        window: Window,
        messages: Sequence[MessageExt],
        delayLevel: int,
        otherwise: Callable[[Window, Sequence[MessageExt]], None],
    ) -> None:
        """
        Send messages back.

        @param otherwise: is given those that could not be.
        """
        failed: list[MessageExt] = []

        def sent(none: None, message: MessageExt) -> None:
            self._finish(window, [message])

        def unsent(failure: Failure, message: MessageExt) -> None:
            failure.trap(RocketError)
            self._log.warn(
                "Message {offset} of {queue} could not be sent back: {error}",
                offset=message.queueOffset,
                queue=window.queue,
                error=failure.value,
            )
            failed.append(message)

        def over(results: object) -> None:
            if failed:
                otherwise(window, failed)
            self._sending -= 1
            self._settle()

        assert self._sendBack is not None
        self._sending += 1
        sending = [
            self._sendBack(message, delayLevel).addCallbacks(
                sent, unsent, callbackArgs=(message,), errbackArgs=(message,)
            )
            for message in messages
        ]
        DeferredList(sending).addCallback(over)

    def _tryAgain(self, window: Window, messages: Sequence[MessageExt]) -> None:
        def now() -> None:
            self._again.discard(call)
            if not window.dropped:
                self.submit(window, again)

        if not self._stopped:
            again = [replace(each, reconsumeTimes=each.reconsumeTimes + 1) for each in messages]
            call = self._clock.callLater(_AGAIN, now)
            self._again.add(call)
