# SPDX-License-Identifier: Apache-2.0
"""
Pulling the queues that a push consumer has, each as fast as it is consumed; Java's
C{PullMessageService}.

One queue's life::

    begin --> ProcessQueue --> pull --> found: into the ProcessQueue, to the listener,
                   ^             |      and pull on
                   |             |-- nothing: pull on; the broker waits
                   |             |-- ProcessQueue full: once there is room
                   |             |-- failed: after 3 s
                   |             '-- offset not valid: go on at the broker's offset; if that
                   |                 is further back, once all that was pulled is consumed,
                   |                 in a new ProcessQueue
    end: dropped   '-- moved by an administrator
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.offsetstore import OffsetStore
from txrocket.client.consumer.options import PushOptions
from txrocket.client.consumer.puller import Puller
from txrocket.client.consumer.push.processqueue import ProcessQueue
from txrocket.client.sansio.pullrequest import PullRequest
from txrocket.client.sansio.results import PullResult, PullStatus
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

__all__ = ["PullLoop"]

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


class PullLoop:
    """
    The queues that are pulled.

    @ivar processQueues: by queue.
    @ivar paused: whether to pull nothing for now.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        offsets: OffsetStore,
        subscriptions: Mapping[str, SubscriptionData],
        submit: Callable[[ProcessQueue, list[MessageExt]], None],
        options: PushOptions,
    ) -> None:
        """
        @param subscriptions: by topic.
        @param submit: is given the messages that were pulled.
        """
        self._cluster = cluster
        self._clock = cluster.reactor
        self._group = group
        self._puller = Puller(cluster, group)
        self._offsets = offsets
        self._subscriptions = subscriptions
        self._submit = submit
        self._options = options
        self.processQueues: dict[MessageQueue, ProcessQueue] = {}
        self.paused = False
        self._stopped = False
        self._throttled: set[ProcessQueue] = set()
        # Where to go on, further back than the messages that are held.
        self._behind: dict[ProcessQueue, int] = {}
        self._failing: set[ProcessQueue] = set()
        self._later: dict[ProcessQueue, IDelayedCall] = {}
        self._inFlight: dict[ProcessQueue, Deferred[PullResult]] = {}

    # --- queues ----------------------------------------------------------

    def begin(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        """
        Pull a queue from an offset on.
        """
        processQueue = self.processQueues[queue] = ProcessQueue(queue, offset)
        return processQueue

    def end(self, queue: MessageQueue) -> ProcessQueue | None:
        """
        Pull a queue no more.
        """
        processQueue = self.processQueues.pop(queue, None)
        if processQueue is not None:
            self._drop(processQueue)
            self._puller.forget(queue)
        return processQueue

    def move(self, queue: MessageQueue, offset: int) -> None:
        """
        Go on at another offset: messages that were pulled are not given to the listener
        any more.
        """
        old = self.processQueues.get(queue)
        if old is None:
            return
        self._drop(old)
        self._offsets.update(queue, offset, back=True)
        processQueue = self.begin(queue, offset)
        processQueue.locked, processQueue.lockedAt = old.locked, old.lockedAt
        self.pull(processQueue)

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were skipped.
        """
        return self._puller.unreadable

    def start(self) -> None:
        """
        Pull, unless there is a pause.
        """
        self._stopped = False

    def stop(self) -> None:
        """
        Pull no more.  Messages that were pulled are consumed, and committed.
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
        for processQueue in self.processQueues.values():
            self._cancel(processQueue)
        self._throttled.clear()

    def resume(self) -> None:
        """
        Pull again, after a pause.
        """
        self.paused = False
        for processQueue in list(self.processQueues.values()):
            self.pull(processQueue)

    def consumed(self, processQueue: ProcessQueue) -> None:
        """
        Messages of a queue are consumed: there may be room again.
        """
        if processQueue in self._throttled:
            self.pull(processQueue)
        elif self._behind and not len(processQueue) and processQueue in self._behind:
            self.move(processQueue.queue, self._behind[processQueue])

    def _drop(self, processQueue: ProcessQueue) -> None:
        processQueue.dropped = True
        self._behind.pop(processQueue, None)
        self._throttled.discard(processQueue)
        self._failing.discard(processQueue)
        self._cancel(processQueue)

    def _cancel(self, processQueue: ProcessQueue) -> None:
        call = self._later.pop(processQueue, None)
        if call is not None:
            call.cancel()
        pulling = self._inFlight.pop(processQueue, None)
        if pulling is not None:
            pulling.cancel()

    # --- one queue -------------------------------------------------------

    def pull(self, processQueue: ProcessQueue) -> None:
        """
        Pull a queue, unless it is being pulled.
        """
        self._throttled.discard(processQueue)
        if processQueue.dropped or self.paused or self._stopped:
            return
        if (
            processQueue in self._inFlight
            or processQueue in self._later
            or processQueue in self._behind
        ):
            return
        if processQueue.fullReason(self._options.room, span=not self._options.orderly) is not None:
            self._throttled.add(processQueue)
            return
        subscription = self._subscriptions.get(processQueue.queue.topic)
        if subscription is None:
            # The queue is about to be taken away, unless there is another by then.
            self._pullLater(processQueue, _AFTER_FAILURE)
            return
        processQueue.pulledAt = self._clock.seconds()
        committed = None if self._options.broadcast else self._offsets.get(processQueue.queue)
        pull = PullRequest(
            processQueue.queue,
            processQueue.nextOffset,
            self._options.pullBatch,
            subscription.subString,
            subscription.expressionType,
            subscription.subVersion,
            brought=False,
            commitOffset=committed or None,
            wait=_WAIT,
        )
        pulling = self._puller.pull(pull, _TIMEOUT)
        self._inFlight[processQueue] = pulling
        pulling.addCallbacks(
            self._pulled, self._failed, callbackArgs=(processQueue,), errbackArgs=(processQueue,)
        ).addErrback(self._broke, processQueue)

    def _pullLater(self, processQueue: ProcessQueue, seconds: float) -> None:
        def now() -> None:
            del self._later[processQueue]
            self.pull(processQueue)

        self._later[processQueue] = self._clock.callLater(seconds, now)

    def _pulled(self, result: PullResult, processQueue: ProcessQueue) -> None:
        self._inFlight.pop(processQueue, None)
        self._failing.discard(processQueue)
        status = result.pullStatus
        if status is PullStatus.OFFSET_ILLEGAL:
            self._log.warn(
                "{queue} has offsets from {low} to {high}, and not {asked}: going on at {given}",
                queue=processQueue.queue,
                low=result.minOffset,
                high=result.maxOffset,
                asked=processQueue.nextOffset,
                given=result.nextBeginOffset,
            )
            self._correct(processQueue, result.nextBeginOffset)
            return
        processQueue.nextOffset = result.nextBeginOffset
        if status is PullStatus.FOUND:
            fresh = processQueue.add(result.messages)
            if fresh:
                self._submit(processQueue, fresh)
            if self._options.pullInterval:
                self._pullLater(processQueue, self._options.pullInterval)
                return
        if not len(processQueue):
            # Messages that the filter has skipped are consumed as well.
            self._offsets.update(processQueue.queue, processQueue.nextOffset)
        self.pull(processQueue)

    def _correct(self, processQueue: ProcessQueue, offset: int) -> None:
        """
        A queue does not have the offset of the pull; go on at the broker's.
        """
        if offset == processQueue.nextOffset:
            # A broker that contradicts itself is not asked again at once.
            self._pullLater(processQueue, _AFTER_FAILURE)
        elif not len(processQueue):
            self.move(processQueue.queue, offset)
        elif offset < processQueue.nextOffset:
            # The offsets of the messages that are held come again: consume those first.
            self._behind[processQueue] = offset
        else:
            processQueue.nextOffset = offset
            self.pull(processQueue)

    def _failed(self, failure: Failure, processQueue: ProcessQueue) -> None:
        # Already removed, so this is our own cancellation.
        if self._inFlight.pop(processQueue, None) is None:
            return
        failure.trap(RocketError)
        if failure.check(FlowControl):
            self._pullLater(processQueue, _AFTER_FLOW_CONTROL)
            return
        # Once, and not every 3 s.
        if processQueue not in self._failing:
            self._failing.add(processQueue)
            self._log.warn(
                "{queue} could not be pulled, trying again: {error}",
                queue=processQueue.queue,
                error=failure.value,
            )
        if failure.check(*_UNHEARD):
            self._cluster.heartbeat()
        self._pullLater(processQueue, _AFTER_FAILURE)

    def _broke(self, failure: Failure, processQueue: ProcessQueue) -> None:
        self._log.failure(
            "{queue} is pulled again after a fault", failure, queue=processQueue.queue
        )
        if (
            not processQueue.dropped
            and processQueue not in self._inFlight
            and processQueue not in self._later
        ):
            self._pullLater(processQueue, _AFTER_FAILURE)

    def each(self, topic: str | None = None) -> Iterable[ProcessQueue]:
        """
        The queues of a topic, or all.
        """
        return [
            processQueue
            for queue, processQueue in self.processQueues.items()
            if topic is None or queue.topic == topic
        ]
