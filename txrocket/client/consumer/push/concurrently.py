# SPDX-License-Identifier: Apache-2.0
"""
Consuming messages in any order, many at a time; Java's
C{ConsumeMessageConcurrentlyService}::

    pulled --> waiting --> listener (a limited number of calls at a time)
                              |-- done: commit up to the first that is not
                              |-- not done: back to the broker, which delivers it again
                              |         later; if that fails, again here after 5 s
                              '-- takes too long: the same
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList
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

__all__ = ["Concurrently"]

# When to try again here a message that could not be sent back, in seconds.
_AGAIN: Final = 5.0

# Results of a call that is not done yet, or not done at all.
_UNDONE: Final = Deferred, ConsumeLater, Failure

# The delay level of a message that took too long.
_LATE_LEVEL: Final = 3


class Concurrently(ConsumeService):
    """
    Gives messages to a listener, in any order.
    """

    def __init__(
        self,
        clock: IReactorTime,
        listener: ListenerCaller,
        limit: int,
        consumed: Consumed,
        sendBack: SendBack | None,
        prepare: Prepare,
    ) -> None:
        """
        @param limit: how many calls may run at a time.
        @param sendBack: for messages that the listener did not consume; L{None} drops
            them, as a broadcasting consumer must.
        """
        super().__init__(clock, listener, limit, consumed, prepare)
        self._sendBack = sendBack
        # The messages of each pull that no call has begun with.
        self._waiting: deque[tuple[ProcessQueue, deque[MessageExt]]] = deque()
        self.running = 0
        # Groups of messages that are being sent back, and those to be tried again here.
        self._sending = 0
        self._again: set[IDelayedCall] = set()

    def submit(self, processQueue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """
        Consume messages that were pulled.
        """
        self._waiting.append((processQueue, deque(messages)))
        self._run()

    def _clear(self) -> None:
        # Also of the pull that the loop has in hand, if the listener stops the consumer.
        for _, messages in self._waiting:
            messages.clear()
        self._waiting.clear()
        for call in self._again:
            call.cancel()
        self._again.clear()

    def _isBusy(self) -> bool:
        return self.running > 0 or self._sending > 0

    def expire(self, processQueues: Sequence[ProcessQueue], limit: float) -> None:
        """
        Send back messages that a listener has had for too long.

        @param limit: in seconds.
        """
        if self._sendBack is None:
            return
        before = self._clock.seconds() - limit
        for processQueue in processQueues:
            late = processQueue.overdue(before)
            if late:
                self._log.warn(
                    "{count} messages of {queue} were not consumed within {limit:g} s"
                    " and are sent back",
                    count=len(late),
                    queue=processQueue.queue,
                    limit=limit,
                )
                self._back(processQueue, late, _LATE_LEVEL, self._lateAgain)

    def _lateAgain(self, processQueue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        # Unless the listener has finished after all.
        processQueue.begin(
            [each for each in messages if each in processQueue], self._clock.seconds()
        )

    # --- calls -----------------------------------------------------------

    def _begin(self) -> bool:
        """
        Give the messages of one pull to the listener, until as many calls run as may.
        Those that it is done with when it returns are finished together: that is half of
        what a message costs.
        """
        if not self._waiting:
            return False
        processQueue, messages = self._waiting[0]
        call, size, now = self._listener.call, self._listener.batch, self._clock.seconds()
        done: list[MessageExt] = []
        # Count this loop as one running call, so that stop() waits for it.
        self.running += 1
        while messages and self.running <= self._limit and not processQueue.dropped:
            given = [messages.popleft()]
            while messages and len(given) < size:
                given.append(messages.popleft())
            processQueue.consumedAt = now
            try:
                result = call([*map(self._prepare, given)])
            except Exception:
                result = Failure()
            if result is None or not isinstance(result, _UNDONE):
                done += given
            else:
                self._notYet(result, processQueue, given)
        self._finish(processQueue, done)
        if self._waiting and (processQueue.dropped or not messages):
            self._waiting.popleft()
        self.running -= 1
        self._fireIdle()
        return True

    def _notYet(
        self, result: Any, processQueue: ProcessQueue, messages: Sequence[MessageExt]
    ) -> None:
        """
        A call has not finished, or has not succeeded.
        """
        processQueue.begin(messages, self._clock.seconds())
        self.running += 1
        if isinstance(result, Deferred):
            result.addBoth(self._later, processQueue, messages)
        else:
            self._done(result, processQueue, messages)

    def _later(
        self, result: Any, processQueue: ProcessQueue, messages: Sequence[MessageExt]
    ) -> None:
        self._done(result, processQueue, messages)
        self._run()

    def _done(
        self, result: Any, processQueue: ProcessQueue, messages: Sequence[MessageExt]
    ) -> None:
        if isinstance(result, Failure):
            self._logFailure(result, processQueue, messages)
            result = ConsumeLater()
        later = isinstance(result, ConsumeLater)
        done = result.done if later else len(messages)
        processQueue.end(messages[:done])
        self._finish(processQueue, messages[:done])
        if later:
            self._undone(processQueue, processQueue.end(messages[done:]), result.delayLevel)
        # Only now: the caller of stop() persists the offsets next.
        self.running -= 1
        self._fireIdle()

    def _undone(
        self, processQueue: ProcessQueue, messages: Sequence[MessageExt], delayLevel: int
    ) -> None:
        if processQueue.dropped or not messages:
            return
        if self._sendBack is None:
            self._log.warn(
                "{count} messages of {queue} are dropped: a broadcasting consumer cannot send back",
                count=len(messages),
                queue=processQueue.queue,
            )
            self._finish(processQueue, messages)
        else:
            self._back(processQueue, messages, delayLevel, self._tryAgain)

    def _finish(self, processQueue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        if messages and not processQueue.dropped:
            self._consumed(processQueue, processQueue.done(messages))

    def _back(
        self,
        processQueue: ProcessQueue,
        messages: Sequence[MessageExt],
        delayLevel: int,
        otherwise: Callable[[ProcessQueue, Sequence[MessageExt]], None],
    ) -> None:
        """
        Send messages back.

        @param otherwise: is given the messages that could not be sent back.
        """
        failed: list[MessageExt] = []

        def sent(none: None, message: MessageExt) -> None:
            self._finish(processQueue, [message])

        def unsent(failure: Failure, message: MessageExt) -> None:
            failure.trap(RocketError)
            self._log.warn(
                "Message {offset} of {queue} could not be sent back: {error}",
                offset=message.queueOffset,
                queue=processQueue.queue,
                error=failure.value,
            )
            failed.append(message)

        def over(results: object) -> None:
            if failed:
                otherwise(processQueue, failed)
            self._sending -= 1
            self._fireIdle()

        assert self._sendBack is not None
        self._sending += 1
        sending = [
            self._sendBack(message, delayLevel).addCallbacks(
                sent, unsent, callbackArgs=(message,), errbackArgs=(message,)
            )
            for message in messages
        ]
        DeferredList(sending).addCallback(over)

    def _tryAgain(self, processQueue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        def now() -> None:
            self._again.discard(call)
            if not processQueue.dropped:
                self.submit(processQueue, again)

        if not self._stopped:
            again = [replace(each, reconsumeTimes=each.reconsumeTimes + 1) for each in messages]
            call = self._clock.callLater(_AGAIN, now)
            self._again.add(call)
