# SPDX-License-Identifier: Apache-2.0
"""
The base of consumers that the application polls: their life, offsets that are persisted
every five seconds, requests about queues, and answers to the requests of brokers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, inlineCallbacks
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.options import ConsumerOptions
from txrocket.client.consumer.rebalance import Rebalance
from txrocket.client.consumer.runninginfo import runningInfo
from txrocket.client.memberservice import MemberService
from txrocket.errors import RemoteSystemError, ServiceNotAvailable
from txrocket.message import MessageExt
from txrocket.model import (
    ConsumeType,
    MessageQueue,
    SubscriptionData,
)
from txrocket.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from txrocket.protocol.names import checkGroupName

__all__ = ["PollingConsumer"]

# In seconds (persistConsumerOffsetInterval).
_PERSIST_INTERVAL: Final = 5.0


class PollingConsumer(MemberService):
    """
    A consumer that the application polls.

    @ivar group: the consumer's group.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        options: ConsumerOptions,
    ) -> None:
        """
        @raise InvalidMessage: if the group's name is not valid.
        """
        checkGroupName(group)
        self.cluster = cluster
        self.group = group
        self._clock = cluster.reactor
        self._options = options
        self._calls = GroupCalls(cluster, group)
        self._offsets = options.offsetStore(self._calls)
        self._rebalance = Rebalance(
            cluster,
            group,
            self._divided,
            self._changed,
            strategy=options.strategy,
            broadcast=options.broadcast,
        )
        # The next round does not wait for a slow one.
        self._persistLoop = LoopingCall(lambda: self._persist() and None)
        self._persistLoop.clock = cluster.reactor
        self._startedAt = 0

    # --- life ------------------------------------------------------------

    def startService(self) -> None:
        """
        Begin.

        @raise ConfigError: if the cluster has a consumer of this group already.
        """
        self._offsets.load()
        self.cluster.addConsumer(self)
        super().startService()
        self._startedAt = self.cluster.now()
        self._persistLoop.start(_PERSIST_INTERVAL, now=False).addErrback(self._ended)
        self._begin()

    @inlineCallbacks
    def _shutDown(self, within: float) -> Generator[Deferred[Any], Any, None]:
        """
        Pull no more, persist the offsets, and leave.
        """
        if self._persistLoop.running:
            self._persistLoop.stop()
        self._rebalance.stop()
        self._end()
        persisted: Deferred[None] = Deferred()
        self._offsets.persist().addCallback(persisted.callback)
        yield persisted.addTimeout(within, self._clock).addErrback(self._notPersisted)
        yield self.cluster.removeConsumer(self)

    @abstractmethod
    def _begin(self) -> None:
        """
        The consumer has started.
        """

    @abstractmethod
    def _end(self) -> None:
        """
        The consumer stops.
        """

    def _persist(self) -> Deferred[None]:
        """
        Persist the offsets.
        """
        return self._offsets.persist()

    def _notPersisted(self, failure: Failure) -> None:
        self._log.warn(
            "Consumer {group} stops, and not all of its offsets are known to be persisted",
            group=self.group,
        )

    def _ended(self, failure: Failure) -> None:
        self._log.failure("Consumer {group} persists no more offsets", failure, group=self.group)

    def _stopped(self) -> ServiceNotAvailable:
        return ServiceNotAvailable(f"consumer {self.group} is not started, or was stopped")

    # --- queues ----------------------------------------------------------

    def queuesOf(self, topic: str) -> Deferred[tuple[MessageQueue, ...]]:
        """
        The queues of a topic, as the name servers know them now.

        @return: a Deferred that fails with L{TopicNotExist}, or with a
            L{RemotingError} if no name server answers.
        """
        return self.cluster.routes.refresh(topic).addCallback(lambda route: route.readQueues)

    def minOffset(self, queue: MessageQueue) -> Deferred[int]:
        """
        The offset of a queue's first message.
        """
        return self._calls.minOffset(queue)

    def maxOffset(self, queue: MessageQueue) -> Deferred[int]:
        """
        The offset that a queue's next message will have.
        """
        return self._calls.maxOffset(queue)

    def searchByTime(self, queue: MessageQueue, when: float) -> Deferred[int]:
        """
        The offset of the first message that was stored at a time or after it, or
        near that.

        @param when: seconds since 1970.
        """
        return self._calls.searchByTime(queue, when)

    def earliestTime(self, queue: MessageQueue) -> Deferred[float | None]:
        """
        When a queue's first message was stored, in seconds since 1970, or L{None}
        if there is none.
        """
        return self._calls.earliestTime(queue)

    # --- queues that are divided -----------------------------------------

    @abstractmethod
    def _divided(self) -> Iterable[str]:
        """
        The topics whose queues are divided among the group.
        """

    @abstractmethod
    def _changed(
        self, topic: str, added: Sequence[MessageQueue], removed: Sequence[MessageQueue]
    ) -> None:
        """
        This member has got queues, or lost some.
        """

    def _divide(self) -> None:
        """
        Divide the queues, now and from now on.
        """
        if self._rebalance.started:
            self._rebalance.soon()
        else:
            self._rebalance.start()

    def _leave(self, queue: MessageQueue) -> None:
        """
        Persist the offset of a queue that is another member's now: that one goes on there.
        """

        def persisted(none: None) -> None:
            # Unless it has come back meanwhile.
            if not self._has(queue):
                self._offsets.forget(queue)

        self._offsets.persist([queue]).addCallback(persisted)

    @abstractmethod
    def _has(self, queue: MessageQueue) -> bool:
        """
        Whether a queue is this member's.
        """

    # --- as a member -----------------------------------------------------

    @abstractmethod
    def topics(self) -> Iterable[str]:
        """
        The topics whose routes it needs.
        """

    @abstractmethod
    def _subscribed(self) -> Iterable[SubscriptionData]:
        """
        Its subscriptions.
        """

    def consumerData(self) -> ConsumerData:
        """
        Its part of a heartbeat.
        """
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            self._options.messageModel,
            self._options.consumeFromWhere,
            frozenset(self._subscribed()),
        )

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were skipped.
        """
        return 0

    def runningInfo(self) -> ConsumerRunningInfo:
        """
        Its state, for an administrator.
        """
        return runningInfo(
            self.consumerData(),
            self.cluster.nameServers.addresses,
            self._startedAt,
            self._queueInfo(),
            unreadableMessages=str(self.unreadable),
        )

    def _queueInfo(self) -> dict[MessageQueue, ProcessQueueInfo]:
        """
        The state of each queue.
        """
        return {}

    def idsChanged(self) -> None:
        """
        A member has come to the group, or has left it.
        """
        self._rebalance.soon()

    @abstractmethod
    def resetOffsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """
        An administrator moves the group.
        """

    @abstractmethod
    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """
        The offsets of its queues of a topic.
        """

    def consumeDirectly(
        self, message: MessageExt, brokerName: str
    ) -> Deferred[ConsumeMessageDirectlyResult]:
        """
        An administrator has chosen a message to be consumed, and there is no
        listener.
        """
        return fail(RemoteSystemError(f"consumer group {self.group} has no listener"))
