# SPDX-License-Identifier: Apache-2.0
"""
What consumers have in common that fetch their messages themselves: a life, offsets
that are kept every five seconds, what can be asked about queues, and what brokers
may ask of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, inlineCallbacks, succeed
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.assign import Assign
from txrocket.client.cluster import Cluster
from txrocket.client.grouprequests import GroupRequests
from txrocket.client.offsets import MemoryOffsets, OffsetStore, RemoteOffsets
from txrocket.client.rebalance import Rebalance
from txrocket.client.running import runningInfo
from txrocket.errors import RemoteSystemError, RocketError, ServiceNotAvailable
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
    ProcessQueueInfo,
)
from txrocket.protocol.names import checkGroupName

__all__ = ["ActiveConsumer"]

_Self = TypeVar("_Self", bound="ActiveConsumer")

# In seconds (persistConsumerOffsetInterval).
_PERSIST_INTERVAL: Final = 5.0


class ActiveConsumer(Service, ABC):
    """
    A consumer that fetches its messages itself.

    @ivar group: the consumer's group.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        messageModel: MessageModel,
        consumeFromWhere: ConsumeFromWhere,
        strategy: Assign,
        offsets: OffsetStore | None,
    ) -> None:
        """
        @param strategy: divides queues among the members.
        @param offsets: where offsets are kept: at the brokers, or, for who
            broadcasts, nowhere, unless it is given.
        @raise InvalidMessage: if the group's name is none.
        """
        checkGroupName(group)
        self.cluster = cluster
        self.group = group
        self._clock = cluster.reactor
        self._model = messageModel
        self._where = consumeFromWhere
        self._requests = GroupRequests(cluster, group)
        broadcast = messageModel is MessageModel.BROADCASTING
        if offsets is None:
            offsets = MemoryOffsets() if broadcast else RemoteOffsets(self._requests)
        self._offsets = offsets
        self._rebalance = Rebalance(
            cluster, group, self._divided, self._changed, strategy=strategy, broadcast=broadcast
        )
        # What takes long is not waited for.
        self._keeping = LoopingCall(lambda: self._keep() and None)
        self._keeping.clock = cluster.reactor
        self._startedAt = 0

    # --- life ------------------------------------------------------------

    def startService(self) -> None:
        """
        Begin.

        @raise ConfigError: if the cluster has a consumer of this group already.
        """
        self._offsets.load()
        self.cluster.addConsumer(self)
        Service.startService(self)
        self._startedAt = self.cluster.now()
        self._keeping.start(_PERSIST_INTERVAL, now=False).addErrback(self._ended)
        self._begin()

    def start(self) -> Deferred[None]:
        """
        Begin.
        """
        try:
            self.startService()
        except RocketError:
            return fail()
        return succeed(None)

    @inlineCallbacks
    def stop(self, within: float = 5.0) -> Generator[Deferred[Any], Any, None]:
        """
        Fetch no more, keep the offsets, and leave.

        @param within: how many seconds to wait until the offsets are kept.
        """
        if not self.running:
            return
        Service.stopService(self)
        if self._keeping.running:
            self._keeping.stop()
        self._rebalance.stop()
        self._end()
        kept: Deferred[None] = Deferred()
        self._offsets.persist().addCallback(kept.callback)
        yield kept.addTimeout(within, self._clock).addErrback(self._notKept)
        yield self.cluster.removeConsumer(self)

    def stopService(self) -> Deferred[None]:
        """
        The same, for who stops services.
        """
        return self.stop()

    async def __aenter__(self: _Self) -> _Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

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

    def _keep(self) -> Deferred[None]:
        """
        Have the offsets kept.
        """
        return self._offsets.persist()

    def _notKept(self, failure: Failure) -> None:
        self._log.warn(
            "Consumer {group} stops, and not all of its offsets are known to be kept",
            group=self.group,
        )

    def _ended(self, failure: Failure) -> None:
        self._log.failure("Consumer {group} keeps no offsets", failure, group=self.group)

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
        return self._requests.minOffset(queue)

    def maxOffset(self, queue: MessageQueue) -> Deferred[int]:
        """
        The offset that a queue's next message will have.
        """
        return self._requests.maxOffset(queue)

    def searchByTime(self, queue: MessageQueue, when: float) -> Deferred[int]:
        """
        The offset of the first message that was stored at a time or after it, or
        near that.

        @param when: seconds since 1970.
        """
        return self._requests.searchByTime(queue, when)

    def earliestTime(self, queue: MessageQueue) -> Deferred[float | None]:
        """
        When a queue's first message was stored, in seconds since 1970, or L{None}
        if there is none.
        """
        return self._requests.earliestTime(queue)

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
        A queue is another member's now: it goes on where this one was.
        """

        def kept(none: None) -> None:
            # Unless it has come back meanwhile.
            if not self._has(queue):
                self._offsets.forget(queue)

        self._offsets.persist([queue]).addCallback(kept)

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
        What it subscribes to.
        """

    def consumerData(self) -> ConsumerData:
        """
        What its heartbeat says.
        """
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            self._model,
            self._where,
            frozenset(self._subscribed()),
        )

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were passed over.
        """
        return 0

    def runningInfo(self) -> ConsumerRunningInfo:
        """
        All that it tells of itself.
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
        What is held of each queue.
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
