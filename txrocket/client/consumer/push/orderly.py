# SPDX-License-Identifier: Apache-2.0
"""
Consuming the messages of each queue in order, one call at a time; Java's
C{ConsumeMessageOrderlyService}.

A consumer consumes a queue only while it holds the broker's lock on it, so that no two
members of a group ever do.  A message that the listener did not consume holds up its queue
and is tried again after a while.  After its last time it goes to the dead letters, and the
queue goes on.

A queue that is lost and comes back, or is moved by an administrator, has a new
L{ProcessQueue}, which waits for the call that runs with the old one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from txrocket.client.consumer.push.consumeservice import (
    Consumed,
    ConsumeService,
    Prepare,
    SendBack,
)
from txrocket.client.consumer.push.listener import ConsumeLater, ListenerCaller
from txrocket.client.consumer.push.processqueue import ProcessQueue
from txrocket.errors import RocketError
from txrocket.message import MessageExt
from txrocket.model import MessageQueue

__all__ = ["LOCK_TIME", "Orderly"]

#: For how many seconds a lock counts here; the broker has it expire after 60.
LOCK_TIME: Final = 30.0

# Java's bounds for how long a queue is held up, in seconds.
_LEAST: Final = 0.01
_MOST: Final = 30.0


class Orderly(ConsumeService):
    """
    Gives messages to a listener, in order.
    """

    def __init__(
        self,
        clock: IReactorTime,
        listener: ListenerCaller,
        limit: int,
        consumed: Consumed,
        sendBack: SendBack,
        prepare: Prepare,
        *,
        suspend: float,
        maxTimes: int | None,
        needsLock: bool,
    ) -> None:
        """
        @param limit: how many queues may be consumed at a time.
        @param sendBack: for messages that have had their last time.
        @param suspend: how many seconds a queue is held up by a message that the listener
            did not consume.
        @param maxTimes: how often a message is tried again; L{None} is for ever.
        @param needsLock: whether a queue is consumed only while it is locked.
        """
        super().__init__(clock, listener, limit, consumed, prepare)
        self._sendBack = sendBack
        self._suspend = suspend
        self._maxTimes = maxTimes
        self._needsLock = needsLock
        # By queue: with two ProcessQueues of one queue there would be two calls at a time.
        self._busy: dict[MessageQueue, ProcessQueue] = {}
        self._next: dict[MessageQueue, ProcessQueue] = {}
        self._ready: dict[MessageQueue, ProcessQueue] = {}
        self._suspended: dict[ProcessQueue, IDelayedCall] = {}
        self._freed: dict[MessageQueue, list[Deferred[None]]] = {}

    @property
    def running(self) -> int:  # type: ignore[override]
        """
        How many calls of the listener are running.
        """
        return len(self._busy)

    @property
    def busy(self) -> Collection[MessageQueue]:
        """
        The queues that a call runs with.
        """
        return self._busy.keys()

    def free(self, queue: MessageQueue) -> Deferred[None]:
        """
        A Deferred that fires once no call runs with a queue.
        """
        if queue not in self._busy:
            return succeed(None)
        freed: Deferred[None] = Deferred()
        self._freed.setdefault(queue, []).append(freed)
        return freed

    def submit(self, processQueue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """
        Consume messages that were pulled.
        """
        if processQueue.dropped:
            return
        if processQueue.queue in self._busy:
            self._next[processQueue.queue] = processQueue
        else:
            self._ready[processQueue.queue] = processQueue
            self._run()

    def expire(self, processQueues: Sequence[ProcessQueue], limit: float) -> None:
        """
        Nothing expires: a listener may take as long as it likes, because order goes first.
        """

    def _clear(self) -> None:
        self._ready.clear()
        self._next.clear()
        for call in self._suspended.values():
            call.cancel()
        self._suspended.clear()

    def _isBusy(self) -> bool:
        return bool(self._busy)

    def _mayConsume(self, processQueue: ProcessQueue) -> bool:
        if processQueue.dropped or not processQueue.waiting or processQueue in self._suspended:
            return False
        # After the lock has expired, another consumer may have had the queue.  It is
        # started again once the lock is back.
        return not self._needsLock or self._clock.seconds() - processQueue.lockedAt <= LOCK_TIME

    def _begin(self) -> bool:
        if not self._ready:
            return False
        processQueue = self._ready.pop(next(iter(self._ready)))
        if self._mayConsume(processQueue):
            self._consume(processQueue)
        return True

    def _consume(self, processQueue: ProcessQueue) -> None:
        messages = processQueue.take(self._listener.batch)
        processQueue.consumedAt = self._clock.seconds()
        self._busy[processQueue.queue] = processQueue
        try:
            result = self._listener.call([*map(self._prepare, messages)])
        except Exception:
            result = Failure()
        if isinstance(result, Deferred):
            result.addBoth(self._done, processQueue, messages)
        else:
            self._done(result, processQueue, messages)

    def _done(
        self, result: Any, processQueue: ProcessQueue, messages: Sequence[MessageExt]
    ) -> None:
        if isinstance(result, Failure):
            self._logFailure(result, processQueue, messages)
            result = ConsumeLater()
        if isinstance(result, ConsumeLater) and not processQueue.dropped:
            self._undone(result, processQueue, messages)
        else:
            self._commit(processQueue)

    def _commit(self, processQueue: ProcessQueue) -> None:
        offset = processQueue.commit()
        if not processQueue.dropped:
            self._consumed(processQueue, offset)
        self._release(processQueue)

    def _release(self, processQueue: ProcessQueue) -> None:
        queue = processQueue.queue
        del self._busy[queue]
        following = self._next.pop(queue, processQueue)
        if not self._stopped and following.waiting:
            self._ready[queue] = following
        for freed in self._freed.pop(queue, ()):
            freed.callback(None)
        self._fireIdle()
        self._run()

    def _undone(
        self, later: ConsumeLater, processQueue: ProcessQueue, messages: Sequence[MessageExt]
    ) -> None:
        """
        Send messages that have had their last time to the dead letters.  The others are
        tried again, and hold up the queue.
        """
        left = {each.queueOffset: each for each in messages}

        def sent(none: None, message: MessageExt) -> None:
            del left[message.queueOffset]

        def unsent(failure: Failure, message: MessageExt) -> None:
            failure.trap(RocketError)
            self._log.warn(
                "Message {offset} of {queue} could not be sent to the dead letters: {error}",
                offset=message.queueOffset,
                queue=processQueue.queue,
                error=failure.value,
            )

        sending = [
            self._sendBack(message, -1).addCallbacks(
                sent, unsent, callbackArgs=(message,), errbackArgs=(message,)
            )
            for message in messages
            if self._isLast(message)
        ]
        DeferredList(sending).addCallback(lambda results: self._holdUp(later, processQueue, left))

    def _isLast(self, message: MessageExt) -> bool:
        return self._maxTimes is not None and message.reconsumeTimes >= self._maxTimes

    def _holdUp(
        self, later: ConsumeLater, processQueue: ProcessQueue, left: dict[int, MessageExt]
    ) -> None:
        if left and not processQueue.dropped and not self._stopped:
            seconds = self._suspend if later.seconds is None else later.seconds
            self._suspended[processQueue] = self._clock.callLater(
                min(max(seconds, _LEAST), _MOST), self._goOn, processQueue
            )
        processQueue.giveBack(
            [replace(each, reconsumeTimes=each.reconsumeTimes + 1) for each in left.values()]
        )
        # The dead letters are consumed.
        self._commit(processQueue)

    def _goOn(self, processQueue: ProcessQueue) -> None:
        del self._suspended[processQueue]
        self.submit(processQueue, ())
