# SPDX-License-Identifier: Apache-2.0
"""
Pulling the queues that a push consumer has, each as fast as it is consumed; Java's
C{PullMessageService}.

One queue's life::

    begin --> where from? --> Window --> pull --> found: into the window, to the
                                 ^         |      listener, and pull on
                                 |         |-- nothing: pull on; the broker waits
                                 |         |-- window full: once there is room
                                 |         |-- failed: after 3 s
                                 |         '-- offset is none: go on where the broker
                                 |             says; if that is before, once what was
                                 |             pulled is dealt with, in a new window
    end: dropped                 '-- moved by an administrator
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.offsets import OffsetStore
from txrocket.client.pulling import Puller
from txrocket.client.results import PullResult, PullStatus
from txrocket.client.window import Room, Window
from txrocket.errors import (
    FilterDataNotExist,
    FilterDataNotLatest,
    FlowControl,
    RocketError,
    SubscriptionNotExist,
    SubscriptionNotLatest,
)
from txrocket.message import MessageExt
from txrocket.model import MessageQueue, SubscriptionData

__all__ = ["Consuming", "Pulls"]

# How long a broker holds a pull, and how long it is waited for, in seconds.
_WAIT: Final = 15.0
_TIMEOUT: Final = 30.0

# When to pull again, in seconds: after a failure, and if the broker asks for a rest.
_AFTER_FAILURE: Final = 3.0
_AFTER_FLOW_CONTROL: Final = 0.02

# The broker has not heard of the group or its expression, or not the latest.
_UNHEARD: Final = (
    SubscriptionNotExist,
    SubscriptionNotLatest,
    FilterDataNotExist,
    FilterDataNotLatest,
)


class Consuming(Protocol):
    """
    What is done with messages: L{Concurrently<txrocket.client.concurrently.Concurrently>}
    or L{Orderly<txrocket.client.orderly.Orderly>}.
    """

    def submit(self, window: Window, messages: list[MessageExt]) -> None:
        """
        Messages were pulled.
        """


class Pulls:
    """
    The queues that are pulled.

    @ivar windows: by queue.
    @ivar paused: whether to pull nothing for now.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        offsets: OffsetStore,
        subscriptions: Mapping[str, SubscriptionData],
        *,
        room: Room,
        most: int,
        interval: float,
        orderly: bool,
        broadcast: bool,
    ) -> None:
        """
        @param subscriptions: by topic.
        @param room: how much of a queue may be held.
        @param most: how many messages to pull at a time.
        @param interval: how many seconds to wait between two pulls that found
            something.
        """
        self._cluster = cluster
        self._clock = cluster.reactor
        self._group = group
        self._puller = Puller(cluster, group)
        self._offsets = offsets
        self._subscriptions = subscriptions
        self._room = room
        self._most = most
        self._interval = interval
        self._orderly = orderly
        self._broadcast = broadcast
        self.windows: dict[MessageQueue, Window] = {}
        self.consuming: Consuming
        self.paused = False
        self._stopped = False
        self._throttled: set[Window] = set()
        # Where the broker wants to go on, before what is held.
        self._behind: dict[Window, int] = {}
        self._failing: set[Window] = set()
        self._later: dict[Window, IDelayedCall] = {}
        self._underWay: dict[Window, Deferred[PullResult]] = {}

    # --- queues ----------------------------------------------------------

    def begin(self, queue: MessageQueue, offset: int) -> Window:
        """
        Pull a queue from an offset on.
        """
        window = self.windows[queue] = Window(queue, offset)
        return window

    def end(self, queue: MessageQueue) -> Window | None:
        """
        Pull a queue no more.
        """
        window = self.windows.pop(queue, None)
        if window is not None:
            self._drop(window)
            self._puller.forget(queue)
        return window

    def move(self, queue: MessageQueue, offset: int) -> None:
        """
        Go on elsewhere: what was pulled is not given to the listener any more.
        """
        old = self.windows.get(queue)
        if old is None:
            return
        self._drop(old)
        self._offsets.update(queue, offset, back=True)
        window = self.begin(queue, offset)
        window.locked, window.lockedAt = old.locked, old.lockedAt
        self.pull(window)

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were passed over.
        """
        return self._puller.unreadable

    def start(self) -> None:
        """
        Pull, unless there is a pause.
        """
        self._stopped = False

    def stop(self) -> None:
        """
        Pull nothing any more.  What was pulled is consumed, and its offsets count.
        """
        self._stopped = True
        self._halt()

    def pause(self) -> None:
        """
        Pull nothing for now.
        """
        self.paused = True
        self._halt()

    def _halt(self) -> None:
        for window in self.windows.values():
            self._cancel(window)
        self._throttled.clear()

    def resume(self) -> None:
        """
        Pull again, after a pause.
        """
        self.paused = False
        for window in list(self.windows.values()):
            self.pull(window)

    def consumed(self, window: Window) -> None:
        """
        Messages of a queue were dealt with: there may be room again.
        """
        if window in self._throttled:
            self.pull(window)
        elif self._behind and not len(window) and window in self._behind:
            self.move(window.queue, self._behind[window])

    def _drop(self, window: Window) -> None:
        window.dropped = True
        self._behind.pop(window, None)
        self._throttled.discard(window)
        self._failing.discard(window)
        self._cancel(window)

    def _cancel(self, window: Window) -> None:
        call = self._later.pop(window, None)
        if call is not None:
            call.cancel()
        pulling = self._underWay.pop(window, None)
        if pulling is not None:
            pulling.cancel()

    # --- one queue -------------------------------------------------------

    def pull(self, window: Window) -> None:
        """
        Pull a queue, unless it is being pulled.
        """
        self._throttled.discard(window)
        if window.dropped or self.paused or self._stopped:
            return
        if window in self._underWay or window in self._later or window in self._behind:
            return
        if window.why(self._room, span=not self._orderly) is not None:
            self._throttled.add(window)
            return
        subscription = self._subscriptions.get(window.queue.topic)
        if subscription is None:
            # The queue is about to be taken away, unless there is another by then.
            self._pullLater(window, _AFTER_FAILURE)
            return
        window.pulledAt = self._clock.seconds()
        committed = None if self._broadcast else self._offsets.get(window.queue)
        pulling = self._puller.pull(
            window.queue,
            window.nextOffset,
            self._most,
            expression=subscription.subString,
            expressionType=subscription.expressionType,
            version=subscription.subVersion,
            brought=False,
            commitOffset=committed or None,
            wait=_WAIT,
            timeout=_TIMEOUT,
        )
        self._underWay[window] = pulling
        pulling.addCallbacks(
            self._pulled, self._failed, callbackArgs=(window,), errbackArgs=(window,)
        ).addErrback(self._broke, window)

    def _pullLater(self, window: Window, seconds: float) -> None:
        def now() -> None:
            del self._later[window]
            self.pull(window)

        self._later[window] = self._clock.callLater(seconds, now)

    def _pulled(self, result: PullResult, window: Window) -> None:
        self._underWay.pop(window, None)
        self._failing.discard(window)
        status = result.pullStatus
        if status is PullStatus.OFFSET_ILLEGAL:
            self._log.warn(
                "{queue} has offsets from {low} to {high}, and not {asked}: going on at {given}",
                queue=window.queue,
                low=result.minOffset,
                high=result.maxOffset,
                asked=window.nextOffset,
                given=result.nextBeginOffset,
            )
            self._correct(window, result.nextBeginOffset)
            return
        window.nextOffset = result.nextBeginOffset
        if status is PullStatus.FOUND:
            fresh = window.add(result.messages)
            if fresh:
                self.consuming.submit(window, fresh)
            if self._interval:
                self._pullLater(window, self._interval)
                return
        if not len(window):
            # What was passed over is dealt with as well.
            self._offsets.update(window.queue, window.nextOffset)
        self.pull(window)

    def _correct(self, window: Window, offset: int) -> None:
        """
        A queue does not have the offset that was asked for, but another.
        """
        if offset == window.nextOffset:
            # A broker that contradicts itself is not asked again at once.
            self._pullLater(window, _AFTER_FAILURE)
        elif not len(window):
            self.move(window.queue, offset)
        elif offset < window.nextOffset:
            # What is held has offsets that come again: it is dealt with first.
            self._behind[window] = offset
        else:
            window.nextOffset = offset
            self.pull(window)

    def _failed(self, failure: Failure, window: Window) -> None:
        # Cancelled: by who took it out already.
        if self._underWay.pop(window, None) is None:
            return
        failure.trap(RocketError)
        if failure.check(FlowControl):
            self._pullLater(window, _AFTER_FLOW_CONTROL)
            return
        # Once, and not every 3 s.
        if window not in self._failing:
            self._failing.add(window)
            self._log.warn(
                "{queue} could not be pulled, trying again: {error}",
                queue=window.queue,
                error=failure.value,
            )
        if failure.check(*_UNHEARD):
            self._cluster.heartbeat()
        self._pullLater(window, _AFTER_FAILURE)

    def _broke(self, failure: Failure, window: Window) -> None:
        self._log.failure("{queue} is pulled again after a fault", failure, queue=window.queue)
        if not window.dropped and window not in self._underWay and window not in self._later:
            self._pullLater(window, _AFTER_FAILURE)

    def each(self, topic: str | None = None) -> Iterable[Window]:
        """
        The windows of a topic, or all.
        """
        return [
            window
            for queue, window in self.windows.items()
            if topic is None or queue.topic == topic
        ]
