# SPDX-License-Identifier: Apache-2.0
"""
Messages as a stream; Java's C{DefaultLitePullConsumer}::

    consumer = LitePullConsumer(cluster, "billing")
    consumer.subscribe("Orders", "new || changed")
    async with consumer:
        async for message in consumer:
            ...

How the parts work together::

    Rebalance, or assign --> Prefetch --> ProcessQueue --> PollBuffer --> poll, async for
                                 ^        of each queue        |
                                 '-------- room again ---------+--> offsets

Messages count as consumed when the reader comes back for more, and only then the group's
offset moves.  A reader that dies with a message gets it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail, succeed

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.allocate import Assign, averagely
from txrocket.client.consumer.offsetstore import OffsetStore
from txrocket.client.consumer.options import PrefetchOptions
from txrocket.client.consumer.pull.base import PollingConsumer
from txrocket.client.consumer.pull.pollbuffer import PollBuffer
from txrocket.client.consumer.pull.prefetch import Prefetch
from txrocket.client.consumer.pull.seek import QueueSeek
from txrocket.client.consumer.push.processqueue import ProcessQueue, Room
from txrocket.errors import ConfigError, NotAssigned, RocketError
from txrocket.filters.expressions import buildSubscription
from txrocket.filters.tags import EVERYTHING, TAG
from txrocket.message import MessageExt
from txrocket.model import ConsumeFromWhere, MessageModel, MessageQueue, SubscriptionData
from txrocket.protocol.bodies import ProcessQueueInfo
from txrocket.protocol.names import checkTopicName

__all__ = ["LitePullConsumer"]


class LitePullConsumer(PollingConsumer):
    """
    Gives messages to a reader.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        autoCommit: bool = True,
        messageModel: MessageModel = MessageModel.CLUSTERING,
        consumeFromWhere: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consumeTimestamp: float | None = None,
        strategy: Assign = averagely,
        offsets: OffsetStore | None = None,
        room: Room | None = None,
        pullBatch: int = 32,
    ) -> None:
        """
        Beside C{autoCommit}, the keywords are the fields of
        L{PrefetchOptions<txrocket.client.consumer.options.PrefetchOptions>}.

        @param autoCommit: whether to commit the offsets of messages that the reader has
            consumed, every five seconds and at the stop; if not, L{commit} does.
        @raise InvalidMessage: if the group's name is not valid.
        """
        options = PrefetchOptions(
            messageModel=messageModel,
            consumeFromWhere=consumeFromWhere,
            consumeTimestamp=consumeTimestamp,
            strategy=strategy,
            offsets=offsets,
            room=room or Room(),
            pullBatch=pullBatch,
        )
        super().__init__(cluster, group, options)
        self._autoCommit = autoCommit
        self._pullBatch = pullBatch
        # When the reader has consumed messages there may be room again.
        self._pollBuffer = PollBuffer(lambda prefetched: self._prefetch.pull(prefetched))
        self._prefetch = Prefetch(
            cluster,
            group,
            options.startOffset(cluster, group, self._calls, self._offsets).find,
            self._pollBuffer.arrived,
            self._pollBuffer.refused,
            options,
        )
        self._seek = QueueSeek(group, self._calls, self._prefetch)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._assigned: dict[MessageQueue, SubscriptionData] = {}

    # --- subscriptions and assignments -----------------------------------

    def subscribe(
        self, topic: str, expression: str = EVERYTHING, expressionType: str = TAG
    ) -> None:
        """
        Subscribe to a topic, whose queues are divided among the group.  May be called
        before and after the start.

        @param expression: tags, as C{a || b}, or SQL92.
        @raise InvalidMessage: if the topic's name is not valid.
        @raise SubscriptionParseFailed: if the expression cannot be parsed.
        @raise ConfigError: if queues were assigned.
        """
        if self._assigned:
            raise ConfigError("a consumer to which queues were assigned cannot subscribe")
        subscription = self._subscription(topic, expression, expressionType)
        self._subscriptions[topic] = subscription
        for queue in self._prefetch:
            prefetched = self._prefetch.get(queue)
            if prefetched is not None and queue.topic == topic:
                prefetched.subscription = subscription
        self._subscriptionsChanged()

    def unsubscribe(self, topic: str) -> None:
        """
        End the subscription to a topic.
        """
        self._subscriptions.pop(topic, None)
        self._subscriptionsChanged()

    def assign(
        self,
        queues: Iterable[MessageQueue],
        expression: str = EVERYTHING,
        expressionType: str = TAG,
    ) -> None:
        """
        Read these queues and no others, whatever the other members of the group do.
        May be called before and after the start.

        @param expression: tags, as C{a || b}, or SQL92.
        @raise InvalidMessage: if a topic's name is not valid.
        @raise SubscriptionParseFailed: if the expression cannot be parsed.
        @raise ConfigError: if there are subscriptions.
        """
        if self._subscriptions:
            raise ConfigError("a consumer that subscribes cannot be assigned queues")
        assigned = {
            queue: self._subscription(queue.topic, expression, expressionType) for queue in queues
        }
        removed = [queue for queue in self._assigned if queue not in assigned]
        self._assigned = assigned
        if self.running:
            self._take([queue for queue in assigned if queue not in self._prefetch], removed)

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """
        The queues that this consumer reads now.
        """
        return frozenset(self._prefetch)

    def _subscription(self, topic: str, expression: str, expressionType: str) -> SubscriptionData:
        checkTopicName(topic)
        subscription = buildSubscription(topic, expression, expressionType)
        return replace(subscription, subVersion=self.cluster.version())

    def _subscriptionsChanged(self) -> None:
        if self.running:
            self.cluster.heartbeat()
            self._divide()

    # --- reading ---------------------------------------------------------

    def poll(self, timeout: float = 5.0, most: int | None = None) -> Deferred[list[MessageExt]]:
        """
        The next messages.  Those that were given before count as consumed.

        @param timeout: how many seconds to wait for one.
        @param most: how many; as many as are pulled at a time if not given.
        @return: a Deferred of a list, which is empty after the time, or a stop.  It fails
            with L{MalformedRecord} or L{UnsupportedCompression} if the next message cannot
            be read, and with a
            L{ResponseError} if a broker refuses to give messages.  The next call goes on.
        """
        if not self.running:
            return fail(self._stopped())
        limit = self._pullBatch if most is None else most
        try:
            messages = self._pollBuffer.next(limit)
        except RocketError:
            return fail()
        if messages or timeout <= 0:
            return succeed(messages)

        arrival = self._pollBuffer.arrival()
        arrival.addTimeout(timeout, self._clock, onTimeoutCancel=lambda result, after: None)
        return arrival.addCallback(lambda none: self._pollBuffer.next(limit))

    def __aiter__(self) -> LitePullConsumer:
        return self

    async def __anext__(self) -> MessageExt:
        """
        The next message.  The one before it counts as consumed.  The iteration ends when
        the consumer is stopped, and raises as L{poll} fails.
        """
        if not self.running and not self._startedAt:
            raise self._stopped()
        while self.running:
            messages = self._pollBuffer.next(1)
            if messages:
                return messages[0]
            await self._pollBuffer.arrival()
        raise StopAsyncIteration

    # --- where to read ---------------------------------------------------

    def seek(self, queue: MessageQueue, offset: int) -> Deferred[None]:
        """
        Go on at an offset of a queue.

        @return: a Deferred that fails with L{NotAssigned} if the queue is not read here,
            and with L{PullOffsetMoved} if the queue does not have the offset.
        """
        return self._seek.seek(queue, offset)

    def seekToBegin(self, queue: MessageQueue) -> Deferred[None]:
        """
        Go on at the first message of a queue.
        """
        return self._seek.seekTo(queue, self._calls.minOffset)

    def seekToEnd(self, queue: MessageQueue) -> Deferred[None]:
        """
        Go on with messages that come to a queue from now on.
        """
        return self._seek.seekTo(queue, self._calls.maxOffset)

    def seekToTime(self, queue: MessageQueue, when: float) -> Deferred[None]:
        """
        Go on with the first message of a queue that was stored at a time or after it, or
        near that.

        @param when: seconds since 1970.
        """
        return self._seek.seekTo(queue, lambda queue: self._calls.searchByTime(queue, when))

    def pause(self, *queues: MessageQueue) -> None:
        """
        Give no messages of some queues for now.

        @raise NotAssigned: if one of them is not read here.
        """
        for prefetched in [self._seek.find(queue) for queue in queues]:
            prefetched.paused = True

    def resume(self, *queues: MessageQueue) -> None:
        """
        Give messages of some queues again.

        @raise NotAssigned: if one of them is not read here.
        """
        for prefetched in [self._seek.find(queue) for queue in queues]:
            prefetched.paused = False
            if prefetched.processQueue is not None and prefetched.processQueue.waiting:
                self._pollBuffer.arrived(prefetched)
            self._prefetch.pull(prefetched)

    # --- offsets ---------------------------------------------------------

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> Deferred[None]:
        """
        Move the group's offsets: behind all messages that were given to the reader, which
        then count as consumed, or to the offsets given here.

        @return: a Deferred that fires once they are persisted.  An offset that a broker
            refuses is tried again.  It fails with L{NotAssigned} if a queue is not read
            here.
        """
        if offsets is None:
            self._pollBuffer.consumed()
            self._mark()
            return self._offsets.persist()
        try:
            for queue in offsets:
                self._seek.find(queue)
        except NotAssigned:
            return fail()
        for queue, offset in offsets.items():
            self._offsets.update(queue, offset, back=True)
        return self._offsets.persist(offsets)

    def committed(self, queue: MessageQueue) -> Deferred[int | None]:
        """
        The group's offset in a queue, or L{None} if it has none.
        """
        known = self._offsets.get(queue)
        return self._offsets.fetch(queue) if known is None else succeed(known)

    def _mark(self) -> None:
        for queue, processQueue in self._prefetch.processQueues():
            self._offsets.update(queue, _position(processQueue), back=True)

    def _persist(self) -> Deferred[None]:
        if self._autoCommit:
            self._mark()
        return self._offsets.persist()

    # --- queues ----------------------------------------------------------

    def _divided(self) -> Iterable[str]:
        return self._subscriptions

    def _changed(self, topic: str, *changes: Sequence[MessageQueue]) -> None:
        self._take(*changes)

    def _take(self, added: Iterable[MessageQueue], removed: Iterable[MessageQueue]) -> None:
        for queue in removed:
            processQueue = self._prefetch.end(queue)
            if processQueue is not None and self._autoCommit:
                self._offsets.update(queue, _position(processQueue), back=True)
            self._leave(queue)
        for queue in added:
            wanted = self._assigned.get(queue) or self._subscriptions[queue.topic]
            self._prefetch.begin(queue, wanted)

    def _has(self, queue: MessageQueue) -> bool:
        return self._prefetch.get(queue) is not None

    # --- life ------------------------------------------------------------

    async def __aexit__(self, *exception: object) -> None:
        if exception[0] is None:
            self._pollBuffer.consumed()
        await self.stop()

    def _begin(self) -> None:
        if self._subscriptions:
            self._divide()
        self._take(self._assigned, ())

    def _end(self) -> None:
        if self._autoCommit:
            self._mark()
        for queue in self._prefetch:
            self._prefetch.end(queue)
        self._pollBuffer.clear()

    # --- as a member -----------------------------------------------------

    def topics(self) -> Iterable[str]:
        """
        The topics that this consumer reads.
        """
        return {*self._subscriptions, *(queue.topic for queue in self._assigned)}

    def _subscribed(self) -> Iterable[SubscriptionData]:
        return self._subscriptions.values()

    def resetOffsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """
        An administrator moves the group.
        """
        for queue, offset in offsets.items():
            prefetched = self._prefetch.get(queue)
            if prefetched is not None:
                self._prefetch.seek(prefetched, offset)
                self._offsets.update(queue, offset, back=True)

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """
        The offsets of the queues of a topic that this consumer reads.
        """
        return {
            queue: _position(processQueue)
            for queue, processQueue in self._prefetch.processQueues()
            if queue.topic == topic
        }

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were skipped.
        """
        return self._prefetch.unreadable

    def _queueInfo(self) -> dict[MessageQueue, ProcessQueueInfo]:
        return {
            queue: processQueue.info(_position(processQueue), self.cluster.timeOf)
            for queue, processQueue in self._prefetch.processQueues()
        }


def _position(processQueue: ProcessQueue) -> int:
    """
    All messages before this are consumed, or filtered out.
    """
    return processQueue.commitOffset if len(processQueue) else processQueue.nextOffset
