# SPDX-License-Identifier: Apache-2.0
"""
Messages as a stream; Java's C{DefaultLitePullConsumer}::

    consumer = LitePullConsumer(cluster, "billing")
    consumer.subscribe("Orders", "new || changed")
    async with consumer:
        async for message in consumer:
            ...

How the parts work together::

    Rebalance, or assign --> Prefetch --> Window of each queue --> Reading --> poll,
                                 ^                                    |      async for
                                 '---------- room again --------------+--> offsets

Messages are dealt with when the reader comes back for more, and so is the group's
offset moved: a reader that dies with a message gets it again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail, inlineCallbacks, succeed

from txrocket.client.active import ActiveConsumer
from txrocket.client.assign import Assign, averagely
from txrocket.client.cluster import Cluster
from txrocket.client.fromwhere import FromWhere
from txrocket.client.offsets import OffsetStore
from txrocket.client.prefetch import Ahead, Prefetch
from txrocket.client.reading import Reading
from txrocket.client.window import Room, Window
from txrocket.errors import ConfigError, NotAssigned, PullOffsetMoved, RocketError
from txrocket.filters.expressions import buildSubscription
from txrocket.filters.tags import EVERYTHING, TAG
from txrocket.message import MessageExt
from txrocket.model import ConsumeFromWhere, MessageModel, MessageQueue, SubscriptionData
from txrocket.protocol.bodies import ProcessQueueInfo
from txrocket.protocol.names import checkTopicName

__all__ = ["LitePullConsumer"]


class LitePullConsumer(ActiveConsumer):
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
        @param autoCommit: whether the group's offsets are moved as messages are
            dealt with, every five seconds and at the stop; if not, by L{commit}.
        @param consumeFromWhere: where a group begins that is new to a queue.
        @param consumeTimestamp: for CONSUME_FROM_TIMESTAMP, in seconds since 1970;
            half an hour ago if not given.
        @param strategy: divides the queues among the members.
        @param offsets: where offsets are kept: at the brokers, or, for who
            broadcasts, nowhere, unless a
            L{LocalOffsets<txrocket.client.offsets.LocalOffsets>} is given.
        @param room: how much of each queue may be held.
        @param pullBatch: how many messages to pull at a time.
        @raise InvalidMessage: if the group's name is none.
        """
        super().__init__(
            cluster,
            group,
            messageModel=messageModel,
            consumeFromWhere=consumeFromWhere,
            strategy=strategy,
            offsets=offsets,
        )
        if consumeTimestamp is None:
            consumeTimestamp = cluster.wall() - 1800
        self._autoCommit = autoCommit
        self._batch = pullBatch
        # When the reader has dealt with messages there may be room again.
        self._reading = Reading(lambda ahead: self._prefetch.pull(ahead))
        self._prefetch = Prefetch(
            cluster,
            group,
            FromWhere(
                group, self._requests, self._offsets, consumeFromWhere, consumeTimestamp
            ).find,
            self._reading.arrived,
            self._reading.refused,
            room=room or Room(),
            most=pullBatch,
        )
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._assigned: dict[MessageQueue, SubscriptionData] = {}

    # --- subscriptions and assignments -----------------------------------

    def subscribe(
        self, topic: str, expression: str = EVERYTHING, expressionType: str = TAG
    ) -> None:
        """
        Want messages of a topic, whose queues are divided among the group.  May be
        called before and after the start.

        @param expression: tags, as C{a || b}, or SQL92.
        @raise InvalidMessage: if the topic's name is none.
        @raise SubscriptionParseFailed: if the expression is none.
        @raise ConfigError: if queues were assigned.
        """
        if self._assigned:
            raise ConfigError("a consumer to which queues were assigned cannot subscribe")
        subscription = self._subscription(topic, expression, expressionType)
        self._subscriptions[topic] = subscription
        for queue in self._prefetch:
            ahead = self._prefetch.get(queue)
            if ahead is not None and queue.topic == topic:
                ahead.subscription = subscription
        self._subscriptionsChanged()

    def unsubscribe(self, topic: str) -> None:
        """
        Want no more messages of a topic.
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
        @raise InvalidMessage: if a topic's name is none.
        @raise SubscriptionParseFailed: if the expression is none.
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
        The queues that it reads now.
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
        The next messages.  Those that were given before count as dealt with.

        @param timeout: how many seconds to wait for one.
        @param most: how many; as many as are pulled at a time if not given.
        @return: a Deferred of a list, which is empty if no message came in time or
            the consumer was stopped.  It fails with L{MalformedRecord} or
            L{UnsupportedCompression} if the next message cannot be read, and with a
            L{ResponseError} if a broker refuses to give messages; the next call
            goes on behind it.
        """
        if not self.running:
            return fail(self._stopped())
        limit = self._batch if most is None else most
        try:
            messages = self._reading.next(limit)
        except RocketError:
            return fail()
        if messages or timeout <= 0:
            return succeed(messages)

        def late(result: Any, after: float) -> None:
            return None

        arrival = self._reading.arrival().addTimeout(timeout, self._clock, onTimeoutCancel=late)
        return arrival.addCallback(lambda none: self._reading.next(limit))

    def __aiter__(self) -> LitePullConsumer:
        return self

    async def __anext__(self) -> MessageExt:
        """
        The next message.  The one before it counts as dealt with.  It ends when the
        consumer is stopped, and raises what L{poll} fails with.
        """
        if not self.running and not self._startedAt:
            raise self._stopped()
        while self.running:
            messages = self._reading.next(1)
            if messages:
                return messages[0]
            await self._reading.arrival()
        raise StopAsyncIteration

    # --- where to read ---------------------------------------------------

    @inlineCallbacks
    def seek(self, queue: MessageQueue, offset: int) -> Generator[Deferred[Any], Any, None]:
        """
        Go on at an offset of a queue.

        @return: a Deferred that fails with L{NotAssigned} if the queue is not one
            that is read, and with L{PullOffsetMoved} if the offset is outside of it.
        """
        self._ahead(queue)
        low = yield self._requests.minOffset(queue)
        high = yield self._requests.maxOffset(queue)
        if not low <= offset <= high:
            raise PullOffsetMoved(
                f"offset {offset} is not in queue {queue.queueId} of topic {queue.topic} at"
                f" broker {queue.brokerName}, which has {low} to {high}"
            )
        self._prefetch.seek(self._ahead(queue), offset)

    def seekToBegin(self, queue: MessageQueue) -> Deferred[None]:
        """
        Go on at the first message of a queue.
        """
        return self._seekTo(queue, self._requests.minOffset)

    def seekToEnd(self, queue: MessageQueue) -> Deferred[None]:
        """
        Go on with what comes to a queue from now on.
        """
        return self._seekTo(queue, self._requests.maxOffset)

    def seekToTime(self, queue: MessageQueue, when: float) -> Deferred[None]:
        """
        Go on with the first message of a queue that was stored at a time or after
        it, or near that.

        @param when: seconds since 1970.
        """
        return self._seekTo(queue, lambda queue: self._requests.searchByTime(queue, when))

    @inlineCallbacks
    def _seekTo(
        self, queue: MessageQueue, find: Callable[[MessageQueue], Deferred[int]]
    ) -> Generator[Deferred[Any], Any, None]:
        self._ahead(queue)
        offset = yield find(queue)
        # It may have been lost meanwhile.
        self._prefetch.seek(self._ahead(queue), offset)

    def pause(self, *queues: MessageQueue) -> None:
        """
        Give no messages of some queues for now.

        @raise NotAssigned: if one of them is not one that is read.
        """
        for ahead in [self._ahead(queue) for queue in queues]:
            ahead.paused = True

    def resume(self, *queues: MessageQueue) -> None:
        """
        Give messages of some queues again.

        @raise NotAssigned: if one of them is not one that is read.
        """
        for ahead in [self._ahead(queue) for queue in queues]:
            ahead.paused = False
            if ahead.window is not None and ahead.window.waiting:
                self._reading.arrived(ahead)
            self._prefetch.pull(ahead)

    def _ahead(self, queue: MessageQueue) -> Ahead:
        ahead = self._prefetch.get(queue)
        if ahead is None:
            raise NotAssigned(
                f"consumer {self.group} does not read queue {queue.queueId} of topic"
                f" {queue.topic} at broker {queue.brokerName}"
            )
        return ahead

    # --- offsets ---------------------------------------------------------

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> Deferred[None]:
        """
        Move the group's offsets: to behind all messages that were given to the
        reader, which have been dealt with then, or to those given here.

        @return: a Deferred that fires once they are kept.  What a broker does not
            take is tried again.  It fails with L{NotAssigned} if a queue is not one
            that is read.
        """
        if offsets is None:
            self._reading.settle()
            self._mark()
            return self._offsets.persist()
        try:
            for queue in offsets:
                self._ahead(queue)
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
        for queue, window in self._prefetch.windows():
            self._offsets.update(queue, _position(window), back=True)

    def _keep(self) -> Deferred[None]:
        if self._autoCommit:
            self._mark()
        return self._offsets.persist()

    # --- queues ----------------------------------------------------------

    def _divided(self) -> Iterable[str]:
        return self._subscriptions

    def _changed(
        self, topic: str, added: Sequence[MessageQueue], removed: Sequence[MessageQueue]
    ) -> None:
        self._take(added, removed)

    def _take(self, added: Iterable[MessageQueue], removed: Iterable[MessageQueue]) -> None:
        for queue in removed:
            window = self._prefetch.end(queue)
            if window is not None and self._autoCommit:
                self._offsets.update(queue, _position(window), back=True)
            self._leave(queue)
        for queue in added:
            wanted = self._assigned.get(queue) or self._subscriptions[queue.topic]
            self._prefetch.begin(queue, wanted)

    def _has(self, queue: MessageQueue) -> bool:
        return self._prefetch.get(queue) is not None

    # --- life ------------------------------------------------------------

    async def __aexit__(self, *exception: object) -> None:
        if exception[0] is None:
            self._reading.settle()
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
        self._reading.clear()

    # --- as a member -----------------------------------------------------

    def topics(self) -> Iterable[str]:
        """
        The topics that it reads.
        """
        return {*self._subscriptions, *(queue.topic for queue in self._assigned)}

    def _subscribed(self) -> Iterable[SubscriptionData]:
        return self._subscriptions.values()

    def resetOffsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """
        An administrator moves the group.
        """
        for queue, offset in offsets.items():
            ahead = self._prefetch.get(queue)
            if ahead is not None:
                self._prefetch.seek(ahead, offset)
                self._offsets.update(queue, offset, back=True)

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """
        Where it is in its queues of a topic.
        """
        return {
            queue: _position(window)
            for queue, window in self._prefetch.windows()
            if queue.topic == topic
        }

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were passed over.
        """
        return self._prefetch.unreadable

    def _queueInfo(self) -> dict[MessageQueue, ProcessQueueInfo]:
        return {
            queue: window.info(_position(window), self.cluster.timeOf)
            for queue, window in self._prefetch.windows()
        }


def _position(window: Window) -> int:
    """
    All before this is dealt with, or was not wanted.
    """
    return window.commitOffset if len(window) else window.nextOffset
