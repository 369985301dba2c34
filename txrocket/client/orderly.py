# SPDX-License-Identifier: Apache-2.0
"""
Consuming the messages of each queue in order, one call at a time; Java's
C{ConsumeMessageOrderlyService}.

Only who holds the broker's lock on a queue consumes it, so that no two members
of a group ever do.  A message that was not dealt with holds up its queue: it is
tried again after a while, and only after its last time does it leave for the dead
letters and let the queue go on.

A queue that is lost and comes back, or is moved by an administrator, has a new
window, which waits for the call that is under way with the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.concurrently import SendBack
from txrocket.client.listening import ConsumeLater, Listening
from txrocket.client.window import Window
from txrocket.errors import RocketError
from txrocket.message import MessageExt
from txrocket.model import MessageQueue

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
        # By queue, and not by window: the calls of two windows of one queue would be
        # two at a time.
        self._busy: dict[MessageQueue, Window] = {}
        self._next: dict[MessageQueue, Window] = {}
        self._ready: dict[MessageQueue, Window] = {}
        self._suspended: dict[Window, IDelayedCall] = {}
        self._freed: dict[MessageQueue, list[Deferred[None]]] = {}
        self._idle: list[Deferred[None]] = []
        self._stopped = False
        self._looping = False

    @property
    def running(self) -> int:
        """
        How many calls of the listener are under way.
        """
        return len(self._busy)

    @property
    def busy(self) -> Collection[MessageQueue]:
        """
        The queues that a call is under way with.
        """
        return self._busy.keys()

    def free(self, queue: MessageQueue) -> Deferred[None]:
        """
        A Deferred that fires once no call is under way with a queue.
        """
        if queue not in self._busy:
            return succeed(None)
        freed: Deferred[None] = Deferred()
        self._freed.setdefault(queue, []).append(freed)
        return freed

    def submit(self, window: Window, messages: Sequence[MessageExt]) -> None:
        """
        Messages were pulled.
        """
        if window.dropped:
            return
        if window.queue in self._busy:
            self._next[window.queue] = window
        else:
            self._ready[window.queue] = window
            self._run()

    def expire(self, windows: Sequence[Window], limit: float) -> None:
        """
        A listener may take as long as it likes: order goes first.
        """

    def start(self) -> None:
        """
        Begin calls, after a stop.
        """
        self._stopped = False

    def stop(self) -> Deferred[None]:
        """
        Begin no more calls.

        @return: a Deferred that fires once none is under way.
        """
        self._stopped = True
        self._ready.clear()
        self._next.clear()
        for call in self._suspended.values():
            call.cancel()
        self._suspended.clear()
        idle: Deferred[None] = Deferred()
        self._idle.append(idle)
        self._settle()
        return idle

    def _settle(self) -> None:
        while self._idle and not self._busy:
            self._idle.pop().callback(None)

    def _mayConsume(self, window: Window) -> bool:
        if window.dropped or not window.waiting or window in self._suspended:
            return False
        # Who has let his lock run out begins the queue anew once he has it again:
        # another may have had it meanwhile.
        return not self._needsLock or self._clock.seconds() - window.lockedAt <= LOCK_TIME

    def _run(self) -> None:
        # A call that is over at once leads here again: the loop goes on by itself.
        if self._looping:
            return
        self._looping = True
        try:
            while self._ready and len(self._busy) < self._limit:
                window = self._ready.pop(next(iter(self._ready)))
                if self._mayConsume(window):
                    self._consume(window)
        finally:
            self._looping = False

    def _consume(self, window: Window) -> None:
        messages = window.take(self._listening.batch)
        window.consumedAt = self._clock.seconds()
        self._busy[window.queue] = window
        try:
            result = self._listening.call([self._prepare(each) for each in messages])
        except Exception:
            result = Failure()
        if isinstance(result, Deferred):
            result.addBoth(self._done, window, messages)
        else:
            self._done(result, window, messages)

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
        if isinstance(result, ConsumeLater) and not window.dropped:
            self._undone(result, window, messages)
        else:
            self._commit(window)

    def _commit(self, window: Window) -> None:
        offset = window.commit()
        if not window.dropped:
            self._consumed(window, offset)
        self._release(window)

    def _release(self, window: Window) -> None:
        queue = window.queue
        del self._busy[queue]
        following = self._next.pop(queue, window)
        if not self._stopped and following.waiting:
            self._ready[queue] = following
        for freed in self._freed.pop(queue, ()):
            freed.callback(None)
        self._settle()
        self._run()

    def _undone(self, later: ConsumeLater, window: Window, messages: Sequence[MessageExt]) -> None:
        """
        Try again what has times left, and send the rest to the dead letters; the
        queue goes on once none is left.
        """
        left = {each.queueOffset: each for each in messages}

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

        sending = [
            self._sendBack(message, -1).addCallbacks(
                sent, unsent, callbackArgs=(message,), errbackArgs=(message,)
            )
            for message in messages
            if self._isLast(message)
        ]
        DeferredList(sending).addCallback(lambda results: self._holdUp(later, window, left))

    def _isLast(self, message: MessageExt) -> bool:
        return self._maxTimes is not None and message.reconsumeTimes >= self._maxTimes

    def _holdUp(self, later: ConsumeLater, window: Window, left: dict[int, MessageExt]) -> None:
        if left and not window.dropped and not self._stopped:
            seconds = self._suspend if later.seconds is None else later.seconds
            self._suspended[window] = self._clock.callLater(
                min(max(seconds, _LEAST), _MOST), self._goOn, window
            )
        window.giveBack(
            [replace(each, reconsumeTimes=each.reconsumeTimes + 1) for each in left.values()]
        )
        # What has left for the dead letters is dealt with.
        self._commit(window)

    def _goOn(self, window: Window) -> None:
        del self._suspended[window]
        self.submit(window, ())
