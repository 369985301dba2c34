# SPDX-License-Identifier: Apache-2.0
"""
Queues pulled ahead of who reads them; the pull tasks of Java's
C{DefaultLitePullConsumerImpl}.

One queue::

    begin --> where from? --> pull --> found: held for the reader, and pull on
                  |             ^  |-- nothing: pull on; the broker waits
               failed:          |  |-- enough is held: when the reader has dealt
               after 3 s        |  |   with some
                                |  |-- paused: when it goes on
                                |  '-- failed: after 1 s
                                '----- the reader goes elsewhere
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.pulling import Puller
from txrocket.client.results import PullResult, PullStatus
from txrocket.client.window import Room, Window
from txrocket.errors import FlowControl, RocketError
from txrocket.filters.tags import TAG
from txrocket.model import MessageQueue, SubscriptionData

__all__ = ["Ahead", "Prefetch"]

# How long a broker holds a pull, and how long it is waited for, in seconds.
_WAIT: Final = 20.0
_TIMEOUT: Final = 30.0

# When to try again, in seconds: to find where to begin, to pull, and to pull where
# the broker asks for a rest.
_BEGIN_AGAIN: Final = 3.0
_PULL_AGAIN: Final = 1.0
_AFTER_FLOW_CONTROL: Final = 0.02


class Ahead:
    """
    A queue that is pulled ahead.

    @ivar window: what is held of it; L{None} until it is known where to begin.
    @ivar paused: whether it is left alone for now.
    """

    __slots__ = ("moved", "paused", "queue", "subscription", "waiting", "window", "working")

    def __init__(self, queue: MessageQueue, subscription: SubscriptionData) -> None:
        self.queue = queue
        self.subscription = subscription
        self.window: Window | None = None
        self.paused = False
        # Whether the broker has gone back behind what is held.
        self.moved = False
        self.waiting: IDelayedCall | None = None
        self.working: Deferred[Any] | None = None


class Prefetch:
    """
    The queues that are pulled ahead.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        find: Callable[[MessageQueue], Deferred[int]],
        arrived: Callable[[Ahead], None],
        refused: Callable[[RocketError], None],
        *,
        room: Room,
        most: int,
    ) -> None:
        """
        @param find: finds where to begin in a queue.
        @param arrived: is told of a queue that holds messages.
        @param refused: is told of an error that trying again does not cure.
        @param room: how much of each queue may be held.
        @param most: how many messages to pull at a time.
        """
        self._clock = cluster.reactor
        self._puller = Puller(cluster, group)
        self._find = find
        self._arrived = arrived
        self._refused = refused
        self._room = room
        self._most = most
        self._queues: dict[MessageQueue, Ahead] = {}

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(list(self._queues))

    def get(self, queue: MessageQueue) -> Ahead | None:
        """
        A queue that is pulled.
        """
        return self._queues.get(queue)

    def windows(self) -> Iterator[tuple[MessageQueue, Window]]:
        """
        What is held of each queue.
        """
        for queue, ahead in self._queues.items():
            if ahead.window is not None:
                yield queue, ahead.window

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were passed over.
        """
        return self._puller.unreadable

    # --- queues ----------------------------------------------------------

    def begin(self, queue: MessageQueue, subscription: SubscriptionData) -> None:
        """
        Pull a queue.
        """
        ahead = self._queues[queue] = Ahead(queue, subscription)
        self._locate(ahead)

    def end(self, queue: MessageQueue) -> Window | None:
        """
        Pull a queue no more.

        @return: what was held of it.
        """
        ahead = self._queues.pop(queue)
        self._cancel(ahead)
        self._puller.forget(queue)
        if ahead.window is not None:
            ahead.window.dropped = True
        return ahead.window

    def seek(self, ahead: Ahead, offset: int) -> None:
        """
        Go on elsewhere in a queue: what is held of it is dropped.
        """
        self._cancel(ahead)
        ahead.window = Window(ahead.queue, offset)
        ahead.moved = False
        self.pull(ahead)

    def pull(self, ahead: Ahead) -> None:
        """
        Pull a queue, unless it is being pulled, enough of it is held or it is
        paused.
        """
        window = ahead.window
        # Dropped: a reader that was woken may have ended it, or the whole consumer.
        if window is None or window.dropped or ahead.working or ahead.waiting or ahead.paused:
            return
        if ahead.moved and len(window):
            return
        if ahead.moved:
            window = ahead.window = Window(ahead.queue, window.nextOffset)
            ahead.moved = False
        if window.why(self._room, span=True) is not None:
            return
        wanted = ahead.subscription
        window.pulledAt = self._clock.seconds()
        ahead.working = self._puller.pull(
            ahead.queue,
            window.nextOffset,
            self._most,
            expression=wanted.subString,
            expressionType=wanted.expressionType,
            # Java names a version only where the broker keeps what it compiled.
            version=0 if wanted.expressionType == TAG else wanted.subVersion,
            brought=True,
            wait=_WAIT,
            timeout=_TIMEOUT,
        )
        ahead.working.addCallbacks(
            self._pulled,
            self._failed,
            callbackArgs=(ahead, window),
            errbackArgs=(ahead, self.pull, _PULL_AGAIN),
        )

    # --- one queue -------------------------------------------------------

    def _cancel(self, ahead: Ahead) -> None:
        working, ahead.working = ahead.working, None
        if working is not None:
            working.cancel()
        if ahead.waiting is not None:
            ahead.waiting.cancel()
            ahead.waiting = None

    def _locate(self, ahead: Ahead) -> None:
        def found(offset: int) -> None:
            ahead.working = None
            ahead.window = Window(ahead.queue, offset)
            self.pull(ahead)

        ahead.working = self._find(ahead.queue)
        ahead.working.addCallbacks(
            found, self._failed, errbackArgs=(ahead, self._locate, _BEGIN_AGAIN)
        )

    def _pulled(self, result: PullResult, ahead: Ahead, window: Window) -> None:
        ahead.working = None
        if result.pullStatus is PullStatus.OFFSET_ILLEGAL:
            self._log.warn(
                "{queue} has offsets from {low} to {high}, and not {asked}: going on at {given}",
                queue=ahead.queue,
                low=result.minOffset,
                high=result.maxOffset,
                asked=window.nextOffset,
                given=result.nextBeginOffset,
            )
            # What is held has offsets that come again: it is dealt with first.
            ahead.moved = result.nextBeginOffset < window.nextOffset
        window.nextOffset = result.nextBeginOffset
        if window.add(result.messages):
            self._arrived(ahead)
        self.pull(ahead)

    def _failed(
        self, failure: Failure, ahead: Ahead, again: Callable[[Ahead], None], seconds: float
    ) -> None:
        # Cancelled: by who took it out already.
        if ahead.working is None:
            return
        ahead.working = None
        failure.trap(RocketError)
        error = failure.value
        assert isinstance(error, RocketError)
        if not error.retriable:
            self._refused(error)
        self._log.warn(
            "{queue} could not be pulled, trying again: {error}", queue=ahead.queue, error=error
        )

        def now() -> None:
            ahead.waiting = None
            again(ahead)

        if isinstance(error, FlowControl):
            seconds = _AFTER_FLOW_CONTROL
        ahead.waiting = self._clock.callLater(seconds, now)
