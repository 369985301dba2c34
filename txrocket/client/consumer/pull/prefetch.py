# SPDX-License-Identifier: Apache-2.0
"""
Queues pulled ahead of their reader; the pull tasks of Java's
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
from txrocket.client.consumer.options import PrefetchOptions
from txrocket.client.consumer.puller import Puller
from txrocket.client.consumer.push.processqueue import ProcessQueue
from txrocket.client.sansio.pullrequest import PullRequest
from txrocket.client.sansio.results import PullResult, PullStatus
from txrocket.errors import FlowControl, RocketError
from txrocket.filters.tags import TAG
from txrocket.model import MessageQueue, SubscriptionData

__all__ = ["Prefetch", "PrefetchedQueue"]

# How long a broker holds a pull, and how long it is waited for, in seconds.
_WAIT: Final = 20.0
_TIMEOUT: Final = 30.0

# When to try again, in seconds: to find where to begin, to pull, and to pull where
# the broker asks for a rest.
_BEGIN_AGAIN: Final = 3.0
_PULL_AGAIN: Final = 1.0
_AFTER_FLOW_CONTROL: Final = 0.02


class PrefetchedQueue:
    """
    A queue that is pulled ahead of its reader.

    @ivar processQueue: what is held of it; L{None} until it is known where to begin.
    @ivar paused: whether it is left alone for now.
    """

    __slots__ = ("moved", "paused", "processQueue", "queue", "subscription", "waiting", "working")

    def __init__(self, queue: MessageQueue, subscription: SubscriptionData) -> None:
        self.queue = queue
        self.subscription = subscription
        self.processQueue: ProcessQueue | None = None
        self.paused = False
        # Whether the broker has gone back behind what is held.
        self.moved = False
        self.waiting: IDelayedCall | None = None
        self.working: Deferred[Any] | None = None


class Prefetch:
    """
    The queues that are pulled ahead of their reader.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        find: Callable[[MessageQueue], Deferred[int]],
        arrived: Callable[[PrefetchedQueue], None],
        refused: Callable[[RocketError], None],
        options: PrefetchOptions,
    ) -> None:
        """
        @param find: finds where to begin in a queue.
        @param arrived: is told of a queue that holds messages.
        @param refused: is told of an error that trying again does not cure.
        """
        self._clock = cluster.reactor
        self._puller = Puller(cluster, group)
        self._find = find
        self._arrived = arrived
        self._refused = refused
        self._options = options
        self._queues: dict[MessageQueue, PrefetchedQueue] = {}

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(list(self._queues))

    def get(self, queue: MessageQueue) -> PrefetchedQueue | None:
        """
        A queue that is pulled.
        """
        return self._queues.get(queue)

    def processQueues(self) -> Iterator[tuple[MessageQueue, ProcessQueue]]:
        """
        The held messages of each queue.
        """
        for queue, prefetched in self._queues.items():
            if prefetched.processQueue is not None:
                yield queue, prefetched.processQueue

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were skipped.
        """
        return self._puller.unreadable

    # --- queues ----------------------------------------------------------

    def begin(self, queue: MessageQueue, subscription: SubscriptionData) -> None:
        """
        Pull a queue.
        """
        prefetched = self._queues[queue] = PrefetchedQueue(queue, subscription)
        self._locate(prefetched)

    def end(self, queue: MessageQueue) -> ProcessQueue | None:
        """
        Pull a queue no more.

        @return: what was held of it.
        """
        prefetched = self._queues.pop(queue)
        self._cancel(prefetched)
        self._puller.forget(queue)
        if prefetched.processQueue is not None:
            prefetched.processQueue.dropped = True
        return prefetched.processQueue

    def seek(self, prefetched: PrefetchedQueue, offset: int) -> None:
        """
        Go on elsewhere in a queue: what is held of it is dropped.
        """
        self._cancel(prefetched)
        prefetched.processQueue = ProcessQueue(prefetched.queue, offset)
        prefetched.moved = False
        self.pull(prefetched)

    def pull(self, prefetched: PrefetchedQueue) -> None:
        """
        Pull a queue, unless it is being pulled, enough of it is held or it is
        paused.
        """
        processQueue = prefetched.processQueue
        # Dropped: a reader that was woken may have ended it, or the whole consumer.
        if processQueue is None or processQueue.dropped:
            return
        if prefetched.working or prefetched.waiting or prefetched.paused:
            return
        if prefetched.moved and len(processQueue):
            return
        if prefetched.moved:
            processQueue = prefetched.processQueue = ProcessQueue(
                prefetched.queue, processQueue.nextOffset
            )
            prefetched.moved = False
        if processQueue.fullReason(self._options.room, span=True) is not None:
            return
        wanted = prefetched.subscription
        processQueue.pulledAt = self._clock.seconds()
        pull = PullRequest(
            prefetched.queue,
            processQueue.nextOffset,
            self._options.pullBatch,
            wanted.subString,
            wanted.expressionType,
            # Java names a version only where the broker keeps the compiled expression.
            0 if wanted.expressionType == TAG else wanted.subVersion,
            wait=_WAIT,
        )
        prefetched.working = self._puller.pull(pull, _TIMEOUT)
        prefetched.working.addCallbacks(
            self._pulled,
            self._failed,
            callbackArgs=(prefetched, processQueue),
            errbackArgs=(prefetched, self.pull, _PULL_AGAIN),
        )

    # --- one queue -------------------------------------------------------

    def _cancel(self, prefetched: PrefetchedQueue) -> None:
        working, prefetched.working = prefetched.working, None
        if working is not None:
            working.cancel()
        if prefetched.waiting is not None:
            prefetched.waiting.cancel()
            prefetched.waiting = None

    def _locate(self, prefetched: PrefetchedQueue) -> None:
        def found(offset: int) -> None:
            prefetched.working = None
            prefetched.processQueue = ProcessQueue(prefetched.queue, offset)
            self.pull(prefetched)

        prefetched.working = self._find(prefetched.queue)
        prefetched.working.addCallbacks(
            found, self._failed, errbackArgs=(prefetched, self._locate, _BEGIN_AGAIN)
        )

    def _pulled(
        self, result: PullResult, prefetched: PrefetchedQueue, processQueue: ProcessQueue
    ) -> None:
        prefetched.working = None
        if result.pullStatus is PullStatus.OFFSET_ILLEGAL:
            self._log.warn(
                "{queue} has offsets from {low} to {high}, and not {asked}: going on at {given}",
                queue=prefetched.queue,
                low=result.minOffset,
                high=result.maxOffset,
                asked=processQueue.nextOffset,
                given=result.nextBeginOffset,
            )
            # The offsets of the messages that are held come again: read those first.
            prefetched.moved = result.nextBeginOffset < processQueue.nextOffset
        processQueue.nextOffset = result.nextBeginOffset
        if processQueue.add(result.messages):
            self._arrived(prefetched)
        self.pull(prefetched)

    def _failed(
        self,
        failure: Failure,
        prefetched: PrefetchedQueue,
        again: Callable[[PrefetchedQueue], None],
        seconds: float,
    ) -> None:
        # Already removed, so this is our own cancellation.
        if prefetched.working is None:
            return
        prefetched.working = None
        failure.trap(RocketError)
        error = failure.value
        assert isinstance(error, RocketError)
        if not error.retriable:
            self._refused(error)
        self._log.warn(
            "{queue} could not be pulled, trying again: {error}",
            queue=prefetched.queue,
            error=error,
        )

        def now() -> None:
            prefetched.waiting = None
            again(prefetched)

        if isinstance(error, FlowControl):
            seconds = _AFTER_FLOW_CONTROL
        prefetched.waiting = self._clock.callLater(seconds, now)
