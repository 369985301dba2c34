# SPDX-License-Identifier: Apache-2.0
"""
Held pulls: they found nothing and wait for a message; Java's C{PullRequestHoldService}.

A held pull is woken by the first message that may match its subscription, at its time
limit, or when the broker stops::

    hold --> { (topic, queue): held pulls } <-- arrived(topic, queue, hash)
         \\-> heap of time limits ----------- one timer, for the nearest

Ten thousand held pulls cost memory and nothing else: there is one timer, for the nearest
limit, and no scan.

A message to a queue at which more than L{_AT_ONCE} pulls are held waits with them in a
crowd.  A crowd takes several turns of the reactor, each with a bounded amount of work,
because each woken pull reads the queue and writes a response::

    arrived --> few pulls --> woken at once
           \\-> crowd: news --> turn, turn, ... each L{_WORK} units at most

If messages come faster than the crowd is worked through, each pull is compared with all of
them together.  If more than L{_NEWS} wait, all pulls of the queue are woken: a pull that
finds nothing is answered, and its client pulls again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from txrocket.broker.settings import PullSettings
from txrocket.config import Live
from txrocket.errors import SystemBusy
from txrocket.message import MessageExt

__all__ = ["LongPoll"]

# Time limits that are this near, in seconds, are met together.
_GRAIN = 0.05

# Up to this many pulls of a queue are woken in the turn in which its message comes.
_AT_ONCE: Final = 16

# The work of one turn on crowds and time limits: to compare a pull with a message is one
# unit, to wake a pull is _WAKE units.
_WORK: Final = 4096
_WAKE: Final = 32

# A turn also ends after this many seconds, because an expression may be slow.
_SECONDS: Final = 0.01

# Messages that may wait for a crowd; more wake all of it.  A crowd has more pulls than
# that, so the number of pulls bounds the number of messages.
_NEWS: Final = 16

_Key: TypeAlias = tuple[str, int]


class _Held(Deferred[None]):
    """
    One pull.
    """

    # Slots, because there may be ten thousand.
    __slots__ = ("accepts", "due", "key", "matches", "offset")

    key: _Key
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
            # A plugin's filter.  It fails again when the pull reads the queue, and there
            # the error goes to the consumer, and not to the producer as here.
            return True

    def wantsAny(self, news: list[tuple[int, int, MessageExt]]) -> bool:
        """
        Whether it may want one of some messages.
        """
        return any(
            offset >= self.offset and self.wants(hashed, message)
            for offset, hashed, message in news
        )


class _Crowd:
    """
    A queue at which many pulls are held, and the messages that have come to it.

    @ivar news: offset, hash and message; L{None} if there were too many.
    @ivar steps: what is left of going through the pulls.
    """

    __slots__ = ("news", "steps")

    def __init__(self) -> None:
        self.news: list[tuple[int, int, MessageExt]] | None = []
        self.steps: Iterator[int] = iter(())


class LongPoll:
    """
    The pulls that are held, at most C{pullThreadPoolQueueCapacity}.
    """

    def __init__(self, clock: IReactorTime, settings: Live[PullSettings]) -> None:
        self._clock = clock
        self._settings = settings
        # A dict of pulls is an ordered set: a pull leaves it without a search.
        self._held: dict[_Key, dict[_Held, None]] = {}
        self._awaited: set[_Key] = set()
        self._crowds: dict[_Key, _Crowd] = {}
        self._busy: deque[_Key] = deque()
        self._turn: IDelayedCall | None = None
        self._heap: list[_Held] = []
        self._count = 0
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def awaited(self) -> Container[_Key]:
        """
        The queues, by topic and number, of whose messages L{arrived} needs to hear.
        """
        return self._awaited

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
        limit = self._settings.now.pullThreadPoolQueueCapacity
        if self._count >= limit:
            raise SystemBusy(
                f"{self._count} pulls are held already, and pullThreadPoolQueueCapacity is"
                f" {limit}: try again in a while"
            )
        held = _Held(self._release)
        held.key = topic, queueId
        held.offset = offset
        held.due = self._clock.seconds() + seconds
        held.matches = matches
        held.accepts = accepts
        waiting = self._held.get(held.key)
        if waiting is None:
            waiting = self._held[held.key] = {}
            self._awaited.add(held.key)
        waiting[held] = None
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
        key = topic, queueId
        waiting = self._held.get(key)
        if waiting is None:
            return
        if len(waiting) > _AT_ONCE or key in self._crowds:
            self._tell(key, queueOffset, hashed, message)
            return
        for held in list(waiting):
            if queueOffset >= held.offset and held.wants(hashed, message):
                self._wake(held)

    def stop(self) -> None:
        """
        Wake all held pulls.
        """
        self._crowds.clear()
        self._busy.clear()
        for waiting in list(self._held.values()):
            for held in list(waiting):
                self._wake(held)
        self._heap.clear()
        self._watch()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    # --- crowds ----------------------------------------------------------

    def _tell(self, key: _Key, queueOffset: int, hashed: int, message: MessageExt) -> None:
        """
        Have a message wait until the crowd of its queue is worked through.
        """
        crowd = self._crowds.get(key)
        if crowd is None:
            crowd = self._crowds[key] = _Crowd()
            self._busy.append(key)
            if self._turn is None:
                self._turn = self._clock.callLater(0, self._work)
        if crowd.news is not None and len(crowd.news) < _NEWS:
            crowd.news.append((queueOffset, hashed, message))
        else:
            crowd.news = None
            # All pulls will be woken, whatever comes now.
            self._awaited.discard(key)

    def _work(self) -> None:
        """
        Work on the crowds, one queue after the other, for one turn.
        """
        self._turn = None
        left = _WORK
        end = self._clock.seconds() + _SECONDS
        while self._busy and left > 0 and self._clock.seconds() < end:
            key = self._busy.popleft()
            crowd = self._crowds[key]
            for done in crowd.steps:
                left -= done
                if left <= 0 or self._clock.seconds() >= end:
                    break
            else:
                if crowd.news == []:
                    self._crowds.pop(key, None)
                    continue
                crowd.steps = self._through(key, crowd)
            # stop() may have emptied both, called by a woken pull.
            if key in self._crowds:
                self._busy.append(key)
        if self._busy and self._turn is None:
            self._turn = self._clock.callLater(0, self._work)

    def _through(self, key: _Key, crowd: _Crowd) -> Iterator[int]:
        """
        Wake each pull of a queue that one of the messages may match.

        @return: the units of work since the last step, step by step.
        """
        news, crowd.news = crowd.news, []
        waiting = self._held.get(key, {})
        if waiting:
            self._awaited.add(key)
        done = 0
        for held in list(waiting):
            done += 1 if news is None else len(news)
            if news is None or held.wantsAny(news):
                self._wake(held)
                yield done + _WAKE
                done = 0
            elif done >= _WAKE or held.accepts is not None:
                yield done
                done = 0
        yield done

    def _wake(self, held: _Held) -> None:
        # A pull that was woken before it may have closed its connection.
        if not held.called:
            self._release(held)
            held.callback(None)

    def _release(self, held: Deferred[None]) -> None:
        assert isinstance(held, _Held)
        waiting = self._held[held.key]
        del waiting[held]
        if not waiting:
            del self._held[held.key]
            self._awaited.discard(held.key)
        self._count -= 1
        # It stays in the heap until its limit, without its filter.
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
        left = _WORK
        while self._heap and (self._heap[0].called or self._heap[0].due <= now):
            if left <= 0 or self._clock.seconds() >= now + _SECONDS:
                self._timer = self._clock.callLater(0, self._expire)
                return
            held = heappop(self._heap)
            left -= 1 if held.called else _WAKE
            self._wake(held)
        self._watch()
