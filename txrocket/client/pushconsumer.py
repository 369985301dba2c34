# SPDX-License-Identifier: Apache-2.0
"""
Messages brought to a listener; Java's C{DefaultMQPushConsumer}::

    consumer = PushConsumer(cluster, "billing", handle)
    consumer.subscribe("Orders", "new || changed")
    async with consumer:
        ...

How the parts work together::

    Rebalance --> OwnQueues --> Pulls --> Window --> Concurrently or Orderly --> listener
                                  ^                          |
                                  '------ room again --------+--> offsets --> broker
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace
from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, inlineCallbacks, maybeDeferred, succeed
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.assign import Assign, averagely
from txrocket.client.cluster import Cluster
from txrocket.client.concurrently import Concurrently
from txrocket.client.consuming import IConsumeMessageHook, Watch, Watched
from txrocket.client.fromwhere import FromWhere
from txrocket.client.grouprequests import GroupRequests
from txrocket.client.heldlocks import HeldLocks
from txrocket.client.listening import ConsumeLater, Listener, Listening
from txrocket.client.offsets import MemoryOffsets, OffsetStore, RemoteOffsets
from txrocket.client.orderly import Orderly
from txrocket.client.ownqueues import InOrder, OwnQueues
from txrocket.client.pulling import readable
from txrocket.client.pulls import Pulls
from txrocket.client.rebalance import Rebalance
from txrocket.client.returning import Returning, originTopic
from txrocket.client.running import runningInfo
from txrocket.client.tracing import ConsumeTrace, consumeTrace
from txrocket.client.window import Room, Window
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
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
)
from txrocket.protocol.compression import COMPRESSED_FLAG
from txrocket.protocol.names import RETRY_PREFIX, checkGroupName, checkTopicName

__all__ = ["PushConsumer"]

# In seconds: how often offsets are kept, queues locked, and late messages looked for.
_PERSIST_INTERVAL: Final = 5.0
_LOCK_INTERVAL: Final = 20.0
_EXPIRE_INTERVAL: Final = 60.0

# By default a group begins with what was stored so many seconds ago, if it begins by
# time.
_HALF_AN_HOUR: Final = 1800.0

# How often a message comes again before it is dead, if nothing else is said.
_MAX_TIMES: Final = 16


class PushConsumer(Service):
    """
    Brings messages to a listener.

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
        @param listener: is given each message; see L{txrocket.client.listening}.
        @param orderly: whether the messages of each queue are consumed in order.
        @param blocking: whether the listener blocks, and is called in a thread.
        @param batch: gives the listener lists of so many messages at most.
        @param concurrency: how many calls of the listener may be under way.
        @param consumeFromWhere: where a group begins that is new to a queue.
        @param consumeTimestamp: for CONSUME_FROM_TIMESTAMP, in seconds since 1970;
            half an hour ago if not given.
        @param strategy: divides the queues among the members.
        @param offsets: where offsets are kept: at the brokers, or, for who
            broadcasts, nowhere, unless a
            L{LocalOffsets<txrocket.client.offsets.LocalOffsets>} is given.
        @param room: how much of each queue may be held.
        @param pullBatch: how many messages to pull at a time.
        @param pullInterval: how many seconds to wait between pulls.
        @param consumeTimeout: after how many seconds a message that a listener has
            not dealt with is sent back.  Not in order.
        @param maxReconsumeTimes: how often a message is tried again: 16 times, or
            for ever in order, if not given, or -1 as in Java.
        @param suspend: how many seconds a queue is held up by a message that the
            listener did not deal with.  In order only.
        @param hooks: look at every call of the listener.
        @param trace: whether to write down what becomes of each message, for tools to
            show: in RMQ_SYS_TRACE_TOPIC, or in the topic that is named.
        @raise InvalidMessage: if the group's name is none.
        @raise ConfigError: if the listener is to block, and is an C{async def}.
        """
        checkGroupName(group)
        self.cluster = cluster
        self.group = group
        self._clock = cluster.reactor
        self._broadcast = messageModel is MessageModel.BROADCASTING
        self._model = messageModel
        self._consumeTimeout = consumeTimeout
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._requests = requests = GroupRequests(cluster, group)
        if offsets is None:
            offsets = MemoryOffsets() if self._broadcast else RemoteOffsets(requests)
        self._offsets = offsets
        if consumeTimestamp is None:
            consumeTimestamp = cluster.wall() - _HALF_AN_HOUR
        self._where = consumeFromWhere
        self._pulls = Pulls(
            cluster,
            group,
            offsets,
            self._subscriptions,
            room=room or Room(),
            most=pullBatch,
            interval=pullInterval,
            orderly=orderly,
            broadcast=self._broadcast,
        )
        listening = Listening(listener, batch, cluster.reactor, blocking=blocking)
        self._listening = listening
        self._trace: ConsumeTrace | None = None
        if trace:
            self._trace = consumeTrace(cluster, group, trace)
            hooks = (*hooks, self._trace)
        if hooks:
            watch = Watch(self._clock, group, hooks, consumeTimeout, orderly=orderly)
            listening = Watched(watch, listener, batch, cluster.reactor, blocking=blocking)
        if maxReconsumeTimes == -1:
            maxReconsumeTimes = None
        maxTimes = _MAX_TIMES if maxReconsumeTimes is None else maxReconsumeTimes
        returning = Returning(cluster, requests, group, maxTimes)
        self._orderly = orderly
        self._consuming: Concurrently | Orderly
        inOrder: InOrder | None = None
        if orderly:
            self._consuming = ordered = Orderly(
                self._clock,
                listening,
                concurrency,
                self._consumed,
                returning.toRetryTopic,
                self._prepared,
                suspend=suspend,
                maxTimes=maxReconsumeTimes,
                needsLock=not self._broadcast,
            )
            if not self._broadcast:
                inOrder = InOrder(ordered, HeldLocks(requests))
        else:
            self._consuming = Concurrently(
                self._clock,
                listening,
                concurrency,
                self._consumed,
                None if self._broadcast else returning.sendBack,
                self._prepared,
            )
        self._pulls.consuming = self._consuming
        fromWhere = FromWhere(group, requests, offsets, consumeFromWhere, consumeTimestamp)
        self._queues = OwnQueues(
            self._clock, self._pulls, offsets, fromWhere, self._isMine, inOrder
        )
        self._rebalance = Rebalance(
            cluster,
            group,
            self.topics,
            self._queues.changed,
            strategy=strategy,
            broadcast=self._broadcast,
        )
        self._loops = [
            (self._loop(self._offsets.persist), _PERSIST_INTERVAL),
            (self._loop(self._expire), min(_EXPIRE_INTERVAL, consumeTimeout)),
        ]
        if inOrder is not None:
            self._loops.append((self._loop(self._queues.lockAgain), _LOCK_INTERVAL))
        self._startedAt = 0

    # --- subscriptions ---------------------------------------------------

    def subscribe(self, topic: str, expression: str = "*", expressionType: str = "TAG") -> None:
        """
        Want messages of a topic.  May be called before and after the start.

        @param expression: tags, as C{a || b}, or SQL92.
        @raise InvalidMessage: if the topic's name is none.
        @raise SubscriptionParseFailed: if the expression is none.
        """
        checkTopicName(topic)
        subscription = buildSubscription(topic, expression, expressionType)
        self._subscriptions[topic] = replace(subscription, subVersion=self.cluster.version())
        self._subscriptionsChanged()

    def unsubscribe(self, topic: str) -> None:
        """
        Want no more messages of a topic.
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
        if not self._broadcast:
            retry = RETRY_PREFIX + self.group
            self._subscriptions.setdefault(
                retry,
                replace(buildSubscription(retry, "*", None), subVersion=self.cluster.version()),
            )
        self._offsets.load()
        self.cluster.addConsumer(self)
        Service.startService(self)
        self._startedAt = self.cluster.now()
        if self._trace is not None:
            self._trace.traces.start()
        self._consuming.start()
        self._pulls.start()
        self._queues.start()
        self._rebalance.start()
        for loop, interval in self._loops:
            loop.start(interval, now=False).addErrback(self._ended)

    def start(self) -> Deferred[None]:
        """
        Begin.

        @return: a Deferred that fires at once if all expressions are of tags.  For
            others the brokers are asked, and if one does not evaluate them, the
            consumer is stopped, and the Deferred fails with what that one says.
        """
        try:
            self.startService()
        except RocketError:
            return fail()
        others = [
            each for each in self._subscriptions.values() if not isTagType(each.expressionType)
        ]
        return self._checked(others) if others else succeed(None)

    @inlineCallbacks
    def _checked(
        self, subscriptions: Iterable[SubscriptionData]
    ) -> Generator[Deferred[Any], Any, None]:
        try:
            for each in subscriptions:
                yield self._requests.check(each)
        except RocketError:
            yield self.stop()
            raise

    @inlineCallbacks
    def stop(self, within: float = 5.0) -> Generator[Deferred[Any], Any, None]:
        """
        Pull no more, wait for listeners, keep the offsets, and leave.

        @param within: how many seconds to wait for listeners.
        """
        if not self.running:
            return
        Service.stopService(self)
        end = self._clock.seconds() + within
        self._rebalance.stop()
        self._pulls.stop()
        self._queues.stop()
        yield self._consuming.stop().addTimeout(within, self._clock).addErrback(self._notDone)
        for loop, _ in self._loops:
            if loop.running:
                loop.stop()
        yield maybeDeferred(self._offsets.persist).addErrback(self._notKept)
        yield self._queues.release()
        leaving = self.cluster.removeConsumer(self)
        if self._trace is not None:
            yield self._trace.traces.stop(max(0.0, end - self._clock.seconds()))
        yield leaving

    def stopService(self) -> Deferred[None]:
        """
        The same, for who stops services.
        """
        return self.stop()

    async def __aenter__(self) -> PushConsumer:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    def pause(self) -> None:
        """
        Pull nothing for now.  What was pulled is consumed.
        """
        self._pulls.pause()

    def resume(self) -> None:
        """
        Pull again.
        """
        self._pulls.resume()

    def _notDone(self, failure: Failure) -> None:
        self._log.warn(
            "Consumer {group} stops while {count} calls of its listener are under way:"
            " their messages come again",
            group=self.group,
            count=self._consuming.running,
        )

    def _notKept(self, failure: Failure) -> None:
        self._log.failure(
            "Consumer {group} stops without having kept its offsets", failure, group=self.group
        )

    def _loop(self, function: Any) -> LoopingCall:
        # What takes long is not waited for.
        loop = LoopingCall(lambda: function() and None)
        loop.clock = self._clock
        return loop

    def _ended(self, failure: Failure) -> None:
        self._log.failure("A task of consumer {group} has ended", failure, group=self.group)

    def _isMine(self, queue: MessageQueue) -> bool:
        return queue in self._rebalance.queues.get(queue.topic, ())

    # --- consuming -------------------------------------------------------

    def _prepared(self, message: MessageExt) -> MessageExt:
        if message.sysFlag & COMPRESSED_FLAG:
            message = readable(message)
        if message.topic.startswith(RETRY_PREFIX):
            # The listener sees the topic that it subscribed to.
            return replace(message, topic=originTopic(message))
        return message

    def _consumed(self, window: Window, offset: int) -> None:
        self._offsets.update(window.queue, offset)
        self._pulls.consumed(window)

    def _expire(self) -> None:
        self._consuming.expire(list(self._pulls.each()), self._consumeTimeout)

    # --- as a member -----------------------------------------------------

    def topics(self) -> Iterable[str]:
        """
        The topics that it subscribes to.
        """
        return self._subscriptions.keys()

    def consumerData(self) -> ConsumerData:
        """
        What its heartbeat says.
        """
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            self._model,
            self._where,
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
            self._pulls.move(queue, offset)
        self._offsets.persist(list(offsets))

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """
        The offsets of its queues of a topic.
        """
        return {window.queue: self._committed(window) for window in self._pulls.each(topic)}

    def _committed(self, window: Window) -> int:
        committed = self._offsets.get(window.queue)
        return window.commitOffset if committed is None else committed

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were passed over.
        """
        return self._pulls.unreadable

    def runningInfo(self) -> ConsumerRunningInfo:
        """
        All that it tells of itself.
        """
        return runningInfo(
            self.consumerData(),
            self.cluster.nameServers.addresses,
            self._startedAt,
            {
                each.queue: each.info(self._committed(each), self.cluster.timeOf)
                for each in self._pulls.each()
            },
            PROP_CONSUME_ORDERLY="true" if self._orderly else "false",
            unreadableMessages=str(self.unreadable),
        )

    def consumeDirectly(
        self, message: MessageExt, brokerName: str
    ) -> Deferred[ConsumeMessageDirectlyResult]:
        """
        Have a message consumed that an administrator has chosen.
        """
        began = self._clock.seconds()

        def result(returned: Any) -> ConsumeMessageDirectlyResult:
            what, remark = CMResult.CR_SUCCESS, None
            if isinstance(returned, Failure):
                what, remark = CMResult.CR_THROW_EXCEPTION, returned.getErrorMessage()
            elif isinstance(returned, ConsumeLater):
                what = CMResult.CR_LATER
            spent = int((self._clock.seconds() - began) * 1000)
            return ConsumeMessageDirectlyResult(self._orderly, True, what, remark, spent)

        return maybeDeferred(
            lambda: self._listening.call([self._prepared(replace(message, brokerName=brokerName))])
        ).addBoth(result)
