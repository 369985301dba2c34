# SPDX-License-Identifier: Apache-2.0
"""
Consuming the messages of each queue in order, one call at a time; Java's
C{ConsumeMessageOrderlyService}.

Only who holds the broker's lock on a queue consumes it, so that no two members
of a group ever do.  A message that was not dealt with holds up its queue: it is
tried again after a while, and only after its last time does it leave for the dead
letters and let the queue go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.concurrently import SendBack
from txrocket.client.listening import ConsumeLater, Listening
from txrocket.client.window import Window
from txrocket.errors import RocketError
from txrocket.message import MessageExt

__all__ = ["LOCK_TIME", "Orderly"]

#: For how many seconds a lock is good; the broker keeps it for 60.
LOCK_TIME: Final = 30.0

# Java's bounds for how long a queue is held up, in seconds.
_LEAST: Final = 0.01
_MOST: Final = 30.0


class Orderly:
    """
    Gives messages to a listener, in order.

    @ivar running: how many calls of the listener are under way.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        listening: Listening,
        limit: int,
        consumed: Callable[[Window, int], None],
        sendBack: SendBack,
        prepare: Callable[[MessageExt], MessageExt],
        *,
        suspend: float,
        maxTimes: int | None,
        needsLock: bool,
    ) -> None:
        """
        @param limit: how many queues may be consumed at a time.
        @param consumed: told how far a queue is dealt with.
        @param sendBack: for messages that have had their last time.
        @param prepare: makes a message fit for a listener.
        @param suspend: how many seconds a queue is held up by a message that was
            not dealt with.
        @param maxTimes: how often a message is tried again; L{None} is for ever.
        @param needsLock: whether a queue is consumed only while it is locked.
        """
        self._clock = clock
        self._listening = listening
        self._limit = limit
        self._consumed = consumed
        self._sendBack = sendBack
        self._prepare = prepare
        self._suspend = suspend
        self._maxTimes = maxTimes
        self._needsLock = needsLock
        self._busy: set[Window] = set()
        self._suspended: set[Window] = set()
        self._ready: dict[Window, None] = {}
        self._idle: list[Deferred[None]] = []
        self._stopped = False

    @property
    def running(self) -> int:
        """
        How many calls of the listener are under way.
        """
        return len(self._busy)

    def submit(self, window: Window, messages: Sequence[MessageExt]) -> None:
        """
        Messages were pulled.
        """
        self._ready[window] = None
        self._run()

    def locked(self, window: Window) -> None:
        """
        A queue was locked for this consumer.
        """
        if window.waiting:
            self.submit(window, ())

    def expire(self, windows: Sequence[Window], limit: float) -> None:
        """
        A listener may take as long as it likes: order goes first.
        """

    def stop(self) -> Deferred[None]:
        """
        Begin no more calls.

        @return: a Deferred that fires once none is under way.
        """
        self._stopped = True
        self._ready.clear()
        idle: Deferred[None] = Deferred()
        self._idle.append(idle)
        self._settle()
        return idle

    def _settle(self) -> None:
        while self._idle and not self._busy:
            self._idle.pop().callback(None)

    def _mayConsume(self, window: Window) -> bool:
        if window.dropped or not window.waiting:
            return False
        if window in self._busy or window in self._suspended:
            return False
        if not self._needsLock:
            return True
        # Without its lock it waits until the lock is had again.
        return window.locked and self._clock.seconds() - window.lockedAt <= LOCK_TIME

    def _run(self) -> None:
        while self._ready and len(self._busy) < self._limit:
            window = next(iter(self._ready))
            del self._ready[window]
            if self._mayConsume(window):
                self._consume(window)

    def _consume(self, window: Window) -> None:
        messages = window.take(self._listening.batch)
        window.consumedAt = self._clock.seconds()
        self._busy.add(window)
        try:
            result = self._listening.call([self._prepare(each) for each in messages])
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
        if isinstance(result, Failure):
            self._log.failure(
                "The listener failed with {count} messages of {queue}, the first at {offset}",
                result,
                count=len(messages),
                queue=window.queue,
                offset=messages[0].queueOffset,
            )
            result = ConsumeLater()
        if isinstance(result, ConsumeLater):
            self._undone(result, window, messages)
        else:
            self._release(window)
            self._commit(window)

    def _release(self, window: Window) -> None:
        self._busy.discard(window)
        if self._idle:
            self._settle()
        if not self._stopped and window.waiting:
            self._ready[window] = None

    def _commit(self, window: Window) -> None:
        offset = window.commit()
        if not window.dropped:
            self._consumed(window, offset)

    def _undone(self, later: ConsumeLater, window: Window, messages: Sequence[MessageExt]) -> None:
        """
        Try again what has times left, and send the rest to the dead letters; the
        queue goes on once none is left.
        """
        last = [each for each in messages if self._isLast(each)]
        left = {each.queueOffset: each for each in messages}
        sending = []

        def sent(none: None, message: MessageExt) -> None:
            del left[message.queueOffset]

        def unsent(failure: Failure, message: MessageExt) -> None:
            failure.trap(RocketError)
            self._log.warn(
                "Message {offset} of {queue} could not be sent to the dead letters: {error}",
                offset=message.queueOffset,
                queue=window.queue,
                error=failure.value,
            )

        for message in last:
            sending.append(
                self._sendBack(message, -1).addCallbacks(
                    sent, unsent, callbackArgs=(message,), errbackArgs=(message,)
                )
            )
        DeferredList(sending).addCallback(lambda results: self._holdUp(later, window, left))

    def _isLast(self, message: MessageExt) -> bool:
        return self._maxTimes is not None and message.reconsumeTimes >= self._maxTimes

    def _holdUp(self, later: ConsumeLater, window: Window, left: dict[int, MessageExt]) -> None:
        if not left:
            self._release(window)
            self._commit(window)
            self._run()
            return
        again = [
            replace(each, reconsumeTimes=each.reconsumeTimes + 1)
            for _, each in sorted(left.items())
        ]
        window.giveBack(again)
        # What was sent to the dead letters is dealt with.
        window.commit()
        seconds = self._suspend if later.seconds is None else later.seconds
        self._suspended.add(window)
        self._release(window)
        self._clock.callLater(min(max(seconds, _LEAST), _MOST), self._goOn, window)

    def _goOn(self, window: Window) -> None:
        self._suspended.discard(window)
        if not self._stopped:
            self.submit(window, ())
