# SPDX-License-Identifier: Apache-2.0
"""
Messages fetched as they are wanted, from any queue and offset; Java's
C{DefaultMQPullConsumer}::

    async with PullConsumer(cluster, "audit") as consumer:
        for queue in await consumer.queuesOf("Orders"):
            offset = await consumer.fetchOffset(queue) or 0
            result = await consumer.pull(queue, offset)
            ...
            consumer.updateOffset(queue, result.nextBeginOffset)

L{LitePullConsumer<txrocket.client.consumer.pull.litepull.LitePullConsumer>} leaves less to
the application.  L{PullSchedule<txrocket.client.consumer.pull.pullschedule.PullSchedule>}
divides the queues, and visits each from time to time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.allocate import Assign, averagely
from txrocket.client.consumer.offsetstore import OffsetStore
from txrocket.client.consumer.options import ConsumerOptions
from txrocket.client.consumer.pull.base import PollingConsumer
from txrocket.client.consumer.puller import Puller
from txrocket.client.consumer.rebalance import Changed
from txrocket.client.sansio.pullrequest import PullRequest, readAll
from txrocket.client.sansio.results import PullResult
from txrocket.errors import RocketError
from txrocket.filters.expressions import buildSubscription
from txrocket.filters.tags import EVERYTHING, TAG
from txrocket.message import MessageExt
from txrocket.model import MessageModel, MessageQueue, SubscriptionData
from txrocket.protocol.names import checkTopicName

__all__ = ["PullConsumer"]

# How many messages a broker gives at once by default, if they are in memory
# (maxTransferCountOnMessageInMemory).
_MOST: Final = 32


class PullConsumer(PollingConsumer):
    """
    Pulls messages.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        timeout: float = 10.0,
        wait: float = 20.0,
        waitTimeout: float = 30.0,
        messageModel: MessageModel = MessageModel.CLUSTERING,
        strategy: Assign = averagely,
        offsets: OffsetStore | None = None,
        maxReconsumeTimes: int = 16,
    ) -> None:
        """
        @param timeout: how many seconds a pull may take.
        @param wait: how many seconds a broker may wait for a message to come.
        @param waitTimeout: how many seconds a pull that waits may take.
        @param messageModel: like C{strategy} and C{offsets} a field of
            L{ConsumerOptions<txrocket.client.consumer.options.ConsumerOptions>}.
        @param maxReconsumeTimes: how often a message that is sent back may be delivered
            again.
        @raise InvalidMessage: if the group's name is not valid.
        """
        options = ConsumerOptions(messageModel=messageModel, strategy=strategy, offsets=offsets)
        super().__init__(cluster, group, options)
        self._timeout = timeout
        self._wait = wait
        self._waitTimeout = waitTimeout
        self._maxReconsumeTimes = maxReconsumeTimes
        self._puller = Puller(cluster, group)
        self._pulling: set[Deferred[PullResult]] = set()
        self._topics: dict[str, None] = {}
        self._listeners: dict[str, Changed] = {}

    # --- pulling ---------------------------------------------------------

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        most: int = _MOST,
        *,
        expression: str = EVERYTHING,
        expressionType: str = TAG,
        timeout: float | None = None,
    ) -> Deferred[PullResult]:
        """
        Pull messages that are there.

        @param offset: where to begin.
        @param most: how many messages at most.
        @param expression: which messages: tags, as C{a || b}, or SQL92.
        @param timeout: in seconds, in place of the consumer's.
        @return: a Deferred that fails with a L{RemotingError} if no broker answers,
            with a L{ResponseError} if it refuses, with a L{ProtocolError} if its answer
            cannot be understood, and with L{UnsupportedCompression} if the library for
            the first message is not installed; those before one that needs it are given.
            Damaged messages are skipped, counted and logged.
        """
        seconds = self._timeout if timeout is None else timeout
        return self._pull(queue, offset, most, expression, expressionType, 0.0, seconds)

    def pullAndWait(
        self,
        queue: MessageQueue,
        offset: int,
        most: int = _MOST,
        *,
        expression: str = EVERYTHING,
        expressionType: str = TAG,
    ) -> Deferred[PullResult]:
        """
        Pull messages, and wait for one if there is none
        (C{pullBlockIfNotFound}).

        @return: as L{pull}.  After C{wait} seconds without a message it is
            NO_NEW_MSG.
        """
        return self._pull(
            queue, offset, most, expression, expressionType, self._wait, self._waitTimeout
        )

    def _pull(
        self,
        queue: MessageQueue,
        offset: int,
        most: int,
        expression: str,
        expressionType: str,
        wait: float,
        timeout: float,
    ) -> Deferred[PullResult]:
        if not self.running:
            return fail(self._stopped())
        self._topics[queue.topic] = None
        # Java names a version only where the broker keeps the compiled expression.
        version = 0 if expressionType == TAG else self.cluster.version()
        pull = PullRequest(queue, offset, most, expression, expressionType, version, wait=wait)
        try:
            pulling = self._puller.pull(pull, timeout)
        except RocketError:
            return fail()
        self._pulling.add(pulling)
        read = pulling.addBoth(self._pulled, pulling)
        return read.addCallback(self._readAll, queue, offset)

    def _readAll(self, result: PullResult, queue: MessageQueue, offset: int) -> PullResult:
        whole = readAll(result)
        faults = whole.faults[len(result.faults) :]
        if faults:
            self._puller.passedOver(queue, offset, faults)
        return whole

    @property
    def unreadable(self) -> int:
        """
        How many messages could not be read, and were skipped.
        """
        return self._puller.unreadable

    def _pulled(
        self, result: PullResult | Failure, pulling: Deferred[PullResult]
    ) -> PullResult | Failure:
        self._pulling.discard(pulling)
        if isinstance(result, Failure) and result.check(CancelledError) and not self.running:
            return Failure(self._stopped())
        return result

    def sendBack(self, message: MessageExt, delayLevel: int = 0) -> Deferred[None]:
        """
        Give a message back to its broker, to come again later in the group's retry
        topic.

        @param delayLevel: when; 0 leaves it to the broker, -1 is never: it is a dead
            letter.
        """
        return self._calls.sendBack(message, delayLevel, maxReconsumeTimes=self._maxReconsumeTimes)

    # --- offsets ---------------------------------------------------------

    def fetchOffset(self, queue: MessageQueue, *, fromStore: bool = False) -> Deferred[int | None]:
        """
        The group's offset in a queue, or L{None} if it has none.

        @param fromStore: whether to ask the broker even if it is known here.
        """
        known = None if fromStore else self._offsets.get(queue)
        return self._offsets.fetch(queue) if known is None else succeed(known)

    def updateOffset(self, queue: MessageQueue, offset: int) -> None:
        """
        The group has come to an offset in a queue.  It is persisted within five seconds,
        by L{persist} and at the stop.
        """
        self._offsets.update(queue, offset, back=True)

    def persist(self) -> Deferred[None]:
        """
        Persist the offsets now.  An offset that a broker refuses is tried again.
        """
        return self._offsets.persist()

    # --- queues that are divided -----------------------------------------

    def listen(self, topic: str, changed: Changed) -> None:
        """
        Have the queues of a topic divided among the group, and be told of this
        member's (C{registerMessageQueueListener}).

        @param changed: is called with the topic, queues that are added and queues
            that are removed.
        @raise InvalidMessage: if the topic's name is not valid.
        """
        checkTopicName(topic)
        self._listeners[topic] = changed
        if self.running:
            self.cluster.heartbeat()
            self._divide()

    def _divided(self) -> Iterable[str]:
        return self._listeners

    def _changed(
        self, topic: str, added: Sequence[MessageQueue], removed: Sequence[MessageQueue]
    ) -> None:
        self._listeners[topic](topic, added, removed)
        for queue in removed:
            self._puller.forget(queue)
            self._leave(queue)

    def _has(self, queue: MessageQueue) -> bool:
        return queue in self._rebalance.queues.get(queue.topic, ())

    # --- life ------------------------------------------------------------

    def _begin(self) -> None:
        if self._listeners:
            self._divide()

    def _end(self) -> None:
        for pulling in list(self._pulling):
            pulling.cancel()

    # --- as a member -----------------------------------------------------

    def topics(self) -> Iterable[str]:
        """
        The topics that it pulls, and those that are divided.
        """
        return {**self._topics, **self._listeners}

    def _subscribed(self) -> Iterable[SubscriptionData]:
        return [buildSubscription(topic, EVERYTHING, TAG) for topic in self._listeners]

    def resetOffsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """
        An administrator moves the group.  Where to pull is the caller's affair, but
        old offsets must not be persisted again.
        """
        for queue, offset in offsets.items():
            self._offsets.update(queue, offset, back=True)

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """
        The offsets of the queues of a topic, as they are known here.
        """
        route = self.cluster.routes.get(topic)
        queues = () if route is None else route.readQueues
        known = {queue: self._offsets.get(queue) for queue in queues}
        return {queue: offset for queue, offset in known.items() if offset is not None}
