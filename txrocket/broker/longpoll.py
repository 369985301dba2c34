# SPDX-License-Identifier: Apache-2.0
"""
Pulls that found nothing and wait for a message; Java's C{PullRequestHoldService}.

A held pull is woken by the first message that it may want, at its time limit, or
when the broker stops, whichever comes first::

    hold --> { (topic, queue): held pulls } <-- arrived(topic, queue, hash)
         \\-> heap of time limits ----------- one timer, for the nearest

Ten thousand of them cost memory, and nothing else: there is no timer for each and
no scan, only the timer for the nearest limit.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from heapq import heapify, heappop, heappush

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from txrocket.errors import SystemBusy
from txrocket.message import MessageExt

__all__ = ["LongPoll"]

# Time limits that are this near, in seconds, are met together.
_GRAIN = 0.05


class _Held(Deferred[None]):
    """
    One pull.
    """

    # Ten thousand of them are to be cheap.
    __slots__ = ("accepts", "due", "key", "matches", "offset")

    key: tuple[str, int]
    offset: int
    due: float
    matches: Callable[[int], bool] | None
    accepts: Callable[[MessageExt], bool] | None

    def __lt__(self, other: _Held) -> bool:
        return self.due < other.due

    def wants(self, hashed: int, message: MessageExt) -> bool:
        """
        Whether it may want a message.
        """
        try:
            return (self.matches is None or self.matches(hashed)) and (
                self.accepts is None or self.accepts(message)
            )
        except Exception:
            # A filter of somebody's own: it will fail again when the pull looks, and
            # there it is the pull's affair, and not the sender's as here.
            return True


class LongPoll:
    """
    The pulls that are held.

    @ivar limit: how many may be held.
    """

    def __init__(self, clock: IReactorTime, limit: int) -> None:
        self._clock = clock
        self.limit = limit
        self._held: dict[tuple[str, int], list[_Held]] = {}
        self._heap: list[_Held] = []
        self._count = 0
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def awaited(self) -> Container[tuple[str, int]]:
        """
        The queues, by topic and number, that pulls are held for.
        """
        return self._held

    def hold(
        self,
        topic: str,
        queueId: int,
        offset: int,
        seconds: float,
        matches: Callable[[int], bool] | None = None,
        accepts: Callable[[MessageExt], bool] | None = None,
    ) -> Deferred[None]:
        """
        Hold a pull.

        @param offset: where it looks for messages.
        @param seconds: how long it may be held.
        @param matches: whether a message may be wanted, by the hash of its tag.
        @param accepts: whether it is, by all of it but its body.
        @return: a Deferred that fires when it is time to look again.  Cancelling
            it gives the pull up.
        @raise SystemBusy: if too many are held already.
        """
        if self._count >= self.limit:
            raise SystemBusy(
                f"{self._count} pulls are held already, and pullThreadPoolQueueCapacity is"
                f" {self.limit}: try again in a while"
            )
        held = _Held(self._release)
        held.key = topic, queueId
        held.offset = offset
        held.due = self._clock.seconds() + seconds
        held.matches = matches
        held.accepts = accepts
        self._held.setdefault(held.key, []).append(held)
        self._count += 1
        heappush(self._heap, held)
        if self._heap[0] is held:
            self._watch()
        return held

    def arrived(
        self, topic: str, queueId: int, queueOffset: int, hashed: int, message: MessageExt
    ) -> None:
        """
        A message has come to a queue.
        """
        waiting = self._held.get((topic, queueId))
        if waiting is None:
            return
        for held in waiting[:]:
            if queueOffset >= held.offset and held.wants(hashed, message):
                self._wake(held)

    def stop(self) -> None:
        """
        Wake all that are held.
        """
        for waiting in list(self._held.values()):
            for held in waiting[:]:
                self._wake(held)
        self._heap.clear()
        self._watch()

    def _wake(self, held: _Held) -> None:
        # Another that was woken before it may have closed its connection.
        if not held.called:
            self._release(held)
            held.callback(None)

    def _release(self, held: Deferred[None]) -> None:
        assert isinstance(held, _Held)
        waiting = self._held[held.key]
        waiting.remove(held)
        if not waiting:
            del self._held[held.key]
        self._count -= 1
        # It stays in the heap until its time, with little to hold on to.
        held.matches = held.accepts = None
        if len(self._heap) > 64 and len(self._heap) > 4 * self._count:
            self._heap = [each for each in self._heap if not each.called]
            heapify(self._heap)

    def _watch(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if self._heap:
            delay = max(_GRAIN, self._heap[0].due - self._clock.seconds())
            self._timer = self._clock.callLater(delay, self._expire)

    def _expire(self) -> None:
        now = self._clock.seconds()
        while self._heap and (self._heap[0].called or self._heap[0].due <= now):
            self._wake(heappop(self._heap))
        self._watch()
