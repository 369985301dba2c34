# SPDX-License-Identifier: Apache-2.0
"""
Messages delivered to a listener; Java's C{DefaultMQPushConsumer}::

    consumer = PushConsumer(cluster, "billing", handle)
    consumer.subscribe("Orders", "new || changed")
    async with consumer:
        ...

How the parts work together::

    Rebalance --> AssignedQueues --> PullLoop --> ProcessQueue --> Concurrently --> listener
                                        ^                          or Orderly
                                        |                              |
                                        '--------- room again ---------+--> offsets --> broker
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.allocate import Assign, averagely
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.offsetstore import OffsetStore
from txrocket.client.consumer.options import PushOptions
from txrocket.client.consumer.push.assignedqueues import AssignedQueues, InOrder
from txrocket.client.consumer.push.consumehooks import IConsumeMessageHook
from txrocket.client.consumer.push.listener import Listener, ListenerCaller, consumeDirectly
from txrocket.client.consumer.push.listenercalls import consumeService, prepared
from txrocket.client.consumer.push.orderly import Orderly
from txrocket.client.consumer.push.processqueue import ProcessQueue, Room
from txrocket.client.consumer.push.pullloop import PullLoop
from txrocket.client.consumer.push.queuelocks import ConsumerLocks
from txrocket.client.consumer.rebalance import Rebalance
from txrocket.client.consumer.runninginfo import runningInfo
from txrocket.client.memberservice import MemberService
from txrocket.client.trace.hooks import consumeTrace
from txrocket.errors import ConfigError, RocketError
from txrocket.filters.expressions import buildSubscription
from txrocket.filters.tags import isTagType
from txrocket.message import MessageExt
from txrocket.model import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from txrocket.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
)
from txrocket.protocol.names import RETRY_PREFIX, checkGroupName, checkTopicName

__all__ = ["PushConsumer"]

# In seconds: how often offsets are persisted, queues locked, and late messages looked for.
_PERSIST_INTERVAL: Final = 5.0
_LOCK_INTERVAL: Final = 20.0
_EXPIRE_INTERVAL: Final = 60.0


class PushConsumer(MemberService):
    """
    Delivers messages to a listener.

    @ivar group: the consumer's group.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        listener: Listener,
        *,
        orderly: bool = False,
        blocking: bool = False,
        batch: int = 0,
        concurrency: int = 20,
        messageModel: MessageModel = MessageModel.CLUSTERING,
        consumeFromWhere: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consumeTimestamp: float | None = None,
        strategy: Assign = averagely,
        offsets: OffsetStore | None = None,
        room: Room | None = None,
        pullBatch: int = 32,
        pullInterval: float = 0.0,
        consumeTimeout: float = 900.0,
        maxReconsumeTimes: int | None = None,
        suspend: float = 1.0,
        hooks: Sequence[IConsumeMessageHook] = (),
        trace: bool | str = False,
    ) -> None:
        """
        The keywords are the fields of
        L{PushOptions<txrocket.client.consumer.options.PushOptions>}, and C{trace}.

        @param listener: is given each message; see L{txrocket.client.consumer.push.listener}.
        @param trace: whether to trace each message, for tools to show: in
            RMQ_SYS_TRACE_TOPIC, or in the topic of this name.
        @raise InvalidMessage: if the group's name is not valid.
        @raise ConfigError: if the listener is to block, and is an C{async def}.
        """
        checkGroupName(group)
        self._trace = consumeTrace(cluster, group, trace) if trace else None
        options = PushOptions(
            orderly=orderly,
            blocking=blocking,
            batch=batch,
            concurrency=concurrency,
            messageModel=messageModel,
            consumeFromWhere=consumeFromWhere,
            consumeTimestamp=consumeTimestamp,
            strategy=strategy,
            offsets=offsets,
            room=room or Room(),
            pullBatch=pullBatch,
            pullInterval=pullInterval,
            consumeTimeout=consumeTimeout,
            maxReconsumeTimes=maxReconsumeTimes,
            suspend=suspend,
            hooks=hooks if self._trace is None else (*hooks, self._trace),
        )
        self.cluster = cluster
        self.group = group
        self._build(listener, options)

    def _build(self, listener: Listener, options: PushOptions) -> None:
        cluster, group = self.cluster, self.group
        self._options = options
        self._clock = cluster.reactor
        self._startedAt = 0
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._calls = calls = GroupCalls(cluster, group)
        self._offsets = offsets = options.offsetStore(calls)
        self._caller = ListenerCaller(
            listener, options.batch, cluster.reactor, blocking=options.blocking
        )
        self._consume = consume = consumeService(
            cluster, group, calls, listener, options, self._consumed
        )
        self._pullLoop = PullLoop(
            cluster, group, offsets, self._subscriptions, consume.submit, options
        )
        inOrder: InOrder | None = None
        if isinstance(consume, Orderly) and not options.broadcast:
            inOrder = InOrder(consume, ConsumerLocks(calls))
        self._queues = AssignedQueues(
            self._clock,
            self._pullLoop,
            offsets,
            options.startOffset(cluster, group, calls, offsets),
            self._isMine,
            inOrder,
        )
        self._rebalance = Rebalance(
            cluster,
            group,
            self.topics,
            self._queues.changed,
            strategy=options.strategy,
            broadcast=options.broadcast,
        )
        self._loops = [
            (self._loop(offsets.persist), _PERSIST_INTERVAL),
            (self._loop(self._expire), min(_EXPIRE_INTERVAL, options.consumeTimeout)),
        ]
        if inOrder is not None:
            self._loops.append((self._loop(self._queues.lockAgain), _LOCK_INTERVAL))

    # --- subscriptions ---------------------------------------------------

    def subscribe(self, topic: str, expression: str = "*", expressionType: str = "TAG") -> None:
        """
        Subscribe to a topic.  May be called before and after the start.

        @param expression: tags, as C{a || b}, or SQL92.
        @raise InvalidMessage: if the topic's name is not valid.
        @raise SubscriptionParseFailed: if the expression cannot be parsed.
        """
        checkTopicName(topic)
        subscription = buildSubscription(topic, expression, expressionType)
        self._subscriptions[topic] = replace(subscription, subVersion=self.cluster.version())
        self._subscriptionsChanged()

    def unsubscribe(self, topic: str) -> None:
        """
        End the subscription to a topic.
        """
        self._subscriptions.pop(topic, None)
        self._subscriptionsChanged()

    def _subscriptionsChanged(self) -> None:
        if self.running:
            self.cluster.heartbeat()
            self._rebalance.soon()

    # --- life ------------------------------------------------------------

    def startService(self) -> None:
        """
        Begin.

        @raise ConfigError: if there is nothing to consume, or the cluster has a
            consumer of this group already.
        """
        if not self._subscriptions:
            raise ConfigError(f"consumer group {self.group} subscribes to nothing")
        if not self._options.broadcast:
            retry = RETRY_PREFIX + self.group
            self._subscriptions.setdefault(
                retry,
                replace(buildSubscription(retry, "*", None), subVersion=self.cluster.version()),
            )
        self._offsets.load()
        self.cluster.addConsumer(self)
        super().startService()
        self._startedAt = self.cluster.now()
        if self._trace is not None:
            self._trace.traces.start()
        self._consume.start()
        self._pullLoop.start()
        self._queues.start()
        self._rebalance.start()
        for loop, interval in self._loops:
            loop.start(interval, now=False).addErrback(self._ended)

    def start(self) -> Deferred[None]:
        """
        Start.

        @return: a Deferred that fires at once if all expressions are of tags.  Brokers are
            asked to evaluate the others.  If one refuses, the consumer is stopped, and the
            Deferred fails with that broker's error.
        """
        return super().start().addCallback(lambda none: self._check())

    @inlineCallbacks
    def _check(self) -> Generator[Deferred[Any], Any, None]:
        try:
            for each in list(self._subscriptions.values()):
                if not isTagType(each.expressionType):
                    yield self._calls.check(each)
        except RocketError:
            yield self.stop()
            raise

    @inlineCallbacks
    def _shutDown(self, within: float) -> Generator[Deferred[Any], Any, None]:
        """
        Pull no more, wait for the listener, persist the offsets, and leave.
        """
        end = self._clock.seconds() + within
        self._rebalance.stop()
        self._pullLoop.stop()
        self._queues.stop()
        yield self._consume.stop().addTimeout(within, self._clock).addErrback(self._notIdle)
        for loop, _ in self._loops:
            if loop.running:
                loop.stop()
        yield maybeDeferred(self._offsets.persist).addErrback(self._notPersisted)
        yield self._queues.release()
        leaving = self.cluster.removeConsumer(self)
        if self._trace is not None:
            yield self._trace.traces.stop(max(0.0, end - self._clock.seconds()))
        yield leaving

    def pause(self) -> None:
        """
        Pull nothing for now.  Messages that were pulled are consumed.
        """
        self._pullLoop.pause()

    def resume(self) -> None:
        """
        Pull again.
        """
        self._pullLoop.resume()

    def _notIdle(self, failure: Failure) -> None:
        self._log.warn(
            "Consumer {group} stops while {count} calls of its listener are running:"
            " their messages are delivered again",
            group=self.group,
            count=self._consume.running,
        )

    def _notPersisted(self, failure: Failure) -> None:
        self._log.failure(
            "Consumer {group} stops without having persisted its offsets", failure, group=self.group
        )

    def _loop(self, function: Any) -> LoopingCall:
        # The next round does not wait for a slow one.
        loop = LoopingCall(lambda: function() and None)
        loop.clock = self._clock
        return loop

    def _ended(self, failure: Failure) -> None:
        self._log.failure("A task of consumer {group} has ended", failure, group=self.group)

    def _isMine(self, queue: MessageQueue) -> bool:
        return queue in self._rebalance.queues.get(queue.topic, ())

    # --- consuming -------------------------------------------------------

    def _consumed(self, processQueue: ProcessQueue, offset: int) -> None:
        self._offsets.update(processQueue.queue, offset)
        self._pullLoop.consumed(processQueue)

    def _expire(self) -> None:
        self._consume.expire(list(self._pullLoop.each()), self._options.consumeTimeout)

    # --- as a member -----------------------------------------------------

    def topics(self) -> Iterable[str]:
        """
        The topics that this consumer subscribes to.
        """
        return self._subscriptions.keys()

    def consumerData(self) -> ConsumerData:
        """
        Its part of a heartbeat.
        """
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            self._options.messageModel,
            self._options.consumeFromWhere,
            frozenset(self._subscriptions.values()),
        )

    def idsChanged(self) -> None:
        """
        A member has come to the group, or has left it.
        """
        self._rebalance.soon()

    def resetOffsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """
        An administrator moves the group.
        """
        for queue, offset in offsets.items():
            self._pullLoop.move(queue, offset)
        self._offsets.persist(list(offsets))

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """
        The offsets of its queues of a topic.
        """
        return {each.queue: self._committed(each) for each in self._pullLoop.each(topic)}

    def _committed(self, processQueue: ProcessQueue) -> int:
        committed = self._offsets.get(processQueue.queue)
        return processQueue.commitOffset if committed is None else committed

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were skipped.
        """
        return self._pullLoop.unreadable

    def runningInfo(self) -> ConsumerRunningInfo:
        """
        Its state, for an administrator.
        """
        return runningInfo(
            self.consumerData(),
            self.cluster.nameServers.addresses,
            self._startedAt,
            {
                each.queue: each.info(self._committed(each), self.cluster.timeOf)
                for each in self._pullLoop.each()
            },
            PROP_CONSUME_ORDERLY="true" if self._options.orderly else "false",
            unreadableMessages=str(self.unreadable),
        )

    def consumeDirectly(
        self, message: MessageExt, brokerName: str
    ) -> Deferred[ConsumeMessageDirectlyResult]:
        """
        Have a message consumed that an administrator has chosen.
        """
        message = prepared(replace(message, brokerName=brokerName))
        return consumeDirectly(self._caller, message, self._clock, orderly=self._options.orderly)
