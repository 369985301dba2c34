# SPDX-License-Identifier: Apache-2.0
"""
What consumers ask of brokers beside messages: offsets, the other members' ids,
locks; the consumers' part of Java's C{MQClientAPIImpl} and C{MQAdminImpl}.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import suppress
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, fail, inlineCallbacks, succeed
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.puller import unknownBroker
from txrocket.client.routes import Route
from txrocket.errors import (
    ConnectFailed,
    QueryNotFound,
    RemoteSystemError,
    ResponseError,
    RocketError,
    SubscriptionParseFailed,
)
from txrocket.message import MessageExt
from txrocket.model import MASTER_ID, MessageQueue, SubscriptionData
from txrocket.protocol.bodies import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

__all__ = ["GroupCalls"]

# How long Java waits for these, in seconds.
_OFFSET_TIMEOUT: Final = 5.0
_LOCK_TIMEOUT: Final = 1.0


class GroupCalls:
    """
    Requests of a consumer group to brokers, except pulls.  All methods return Deferreds
    that fail with a L{RemotingError} if no broker answers, and with a L{ResponseError} if
    one refuses.  Times are in seconds.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._routes = cluster.routes

    # --- the group's offsets ---------------------------------------------

    def offset(self, queue: MessageQueue) -> Deferred[int | None]:
        """
        The group's offset in a queue, or L{None} if it has none there.
        """
        header = QueryConsumerOffsetRequestHeader(
            self._group, queue.topic, queue.queueId, queue.brokerName
        )
        request = requestCommand(RequestCode.QUERY_CONSUMER_OFFSET, header)

        def read(answer: RemotingCommand) -> int | None:
            return answer.decodeHeader(QueryConsumerOffsetResponseHeader).offset

        def none(failure: Failure) -> None:
            failure.trap(QueryNotFound)

        asked = self._ask(queue, request, _OFFSET_TIMEOUT, slave=True)
        return asked.addCallbacks(read, none)

    def updateOffset(self, queue: MessageQueue, offset: int) -> Deferred[None]:
        """
        Commit the group's offset in a queue.
        """
        header = UpdateConsumerOffsetRequestHeader(
            self._group, queue.topic, queue.queueId, offset, queue.brokerName
        )
        request = requestCommand(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        return self._ask(queue, request, _OFFSET_TIMEOUT, slave=True).addCallback(_nothing)

    # --- a queue ---------------------------------------------------------

    def minOffset(self, queue: MessageQueue) -> Deferred[int]:
        """
        The offset of a queue's first message.
        """
        header = GetMinOffsetRequestHeader(queue.topic, queue.queueId, queue.brokerName)
        asked = self._ask(queue, requestCommand(RequestCode.GET_MIN_OFFSET, header))
        return asked.addCallback(
            lambda answer: answer.decodeHeader(GetMinOffsetResponseHeader).offset
        )

    def maxOffset(self, queue: MessageQueue) -> Deferred[int]:
        """
        The offset that a queue's next message will have.
        """
        header = GetMaxOffsetRequestHeader(queue.topic, queue.queueId, queue.brokerName)
        asked = self._ask(queue, requestCommand(RequestCode.GET_MAX_OFFSET, header))
        return asked.addCallback(
            lambda answer: answer.decodeHeader(GetMaxOffsetResponseHeader).offset
        )

    def searchByTime(self, queue: MessageQueue, when: float) -> Deferred[int]:
        """
        The offset of a message that was stored at a time, or near it.

        @param when: seconds since 1970.
        """
        header = SearchOffsetRequestHeader(
            queue.topic, queue.queueId, int(when * 1000), queue.brokerName
        )
        asked = self._ask(queue, requestCommand(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))
        return asked.addCallback(
            lambda answer: answer.decodeHeader(SearchOffsetResponseHeader).offset
        )

    def earliestTime(self, queue: MessageQueue) -> Deferred[float | None]:
        """
        When a queue's first message was stored, in seconds since 1970, or L{None}
        if there is none.
        """
        header = GetEarliestMsgStoretimeRequestHeader(queue.topic, queue.queueId, queue.brokerName)

        def read(answer: RemotingCommand) -> float | None:
            timestamp = answer.decodeHeader(GetEarliestMsgStoretimeResponseHeader).timestamp
            return None if timestamp < 0 else timestamp / 1000

        asked = self._ask(queue, requestCommand(RequestCode.GET_EARLIEST_MSG_STORETIME, header))
        return asked.addCallback(read)

    # --- the group -------------------------------------------------------

    @inlineCallbacks
    def consumerIds(self, topic: str) -> Generator[Deferred[Any], Any, list[str]]:
        """
        The ids of the group's members, as the brokers of a topic know them.

        Java asks any one of them.  But a new broker knows only the members that have found
        it, and a member that believes it takes the queues of all others.

        @return: a Deferred of them, sorted.  It fails if no broker knows the group.
        """
        header = GetConsumerListByGroupRequestHeader(self._group)
        addresses = yield self._brokers(topic)
        if not addresses:
            raise ConnectFailed("", f"topic {topic} has no broker")
        asked = [
            self._cluster.ask(
                address,
                requestCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header),
            ).addCallback(_consumerIds)
            for address in addresses
        ]
        results = yield DeferredList(asked, consumeErrors=True)
        known = [ids for answered, ids in results if answered]
        if not known:
            # One that has answered says more than one that has not.
            failures = [failure for _, failure in results]
            next(
                (each for each in failures if each.check(ResponseError)), failures[0]
            ).raiseException()
        return sorted(set().union(*known))

    @inlineCallbacks
    def check(self, subscription: SubscriptionData) -> Any:
        """
        Ask the brokers of a topic whether they evaluate a subscription's expression.  Java
        asks one of them, but each has its own settings.  A broker that does not answer does
        not count: its answer comes with the pulls.

        @return: a Deferred that fails with L{SubscriptionParseFailed} or
            L{RemoteSystemError} if one does not.
        """
        body = encodeBody(CheckClientRequestBody(self._cluster.clientId, self._group, subscription))
        asked: list[Deferred[RemotingCommand]] = []
        with suppress(RocketError):
            addresses = yield self._brokers(subscription.topic)
            for address in addresses:
                request = requestCommand(RequestCode.CHECK_CLIENT_CONFIG, None, body)
                asked.append(self._cluster.ask(address, request))
        results = yield DeferredList(asked, consumeErrors=True)
        for answered, failure in results:
            if not answered and failure.check(SubscriptionParseFailed, RemoteSystemError):
                failure.raiseException()

    def lock(
        self, brokerName: str, queues: Collection[MessageQueue]
    ) -> Deferred[frozenset[MessageQueue]]:
        """
        Have queues of a broker locked for this client, as consuming in order needs.

        @return: a Deferred of the queues that are locked.
        """
        body = LockBatchRequestBody(self._group, self._cluster.clientId, frozenset(queues))
        request = requestCommand(RequestCode.LOCK_BATCH_MQ, None, encodeBody(body))
        asked = self._master(brokerName).addCallback(self._cluster.ask, request, _LOCK_TIMEOUT)
        return asked.addCallback(
            lambda answer: decodeBody(LockBatchResponseBody, answer.body).lockOKMQSet
        )

    def unlock(self, brokerName: str, queues: Collection[MessageQueue]) -> Deferred[None]:
        """
        Give locks back.
        """
        body = UnlockBatchRequestBody(self._group, self._cluster.clientId, frozenset(queues))
        request = requestCommand(RequestCode.UNLOCK_BATCH_MQ, None, encodeBody(body))
        master = self._master(brokerName)
        return master.addCallback(self._cluster.ask, request, _LOCK_TIMEOUT).addCallback(_nothing)

    def sendBack(
        self, message: MessageExt, delayLevel: int = 0, *, maxReconsumeTimes: int = 16
    ) -> Deferred[None]:
        """
        Give a message back to its broker, to come again later in the group's retry
        topic.

        @param delayLevel: when; 0 leaves it to the broker, -1 is never: it is a dead
            letter.
        @param maxReconsumeTimes: how often it may come again before it is one.
        """
        header = ConsumerSendMsgBackRequestHeader(
            message.commitLogOffset,
            self._group,
            delayLevel,
            message.msgId,
            message.topic,
            maxReconsumeTimes=maxReconsumeTimes,
            bname=message.brokerName,
        )
        request = requestCommand(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        queue = MessageQueue(message.topic, message.brokerName, message.queueId)
        return self._ask(queue, request).addCallback(_nothing)

    # --- addresses -------------------------------------------------------

    def _ask(
        self,
        queue: MessageQueue,
        request: RemotingCommand,
        timeout: float | None = None,
        *,
        slave: bool = False,
    ) -> Deferred[RemotingCommand]:
        address = self._address(queue, slave=slave)
        return address.addCallback(self._cluster.ask, request, timeout)

    def _address(self, queue: MessageQueue, *, slave: bool) -> Deferred[str]:
        """
        The master of a queue.

        @param slave: whether a slave will do if there is no master.
        """
        known = self._routes.address(queue.brokerName)
        if known is not None:
            return succeed(known)

        def look(route: Route) -> str:
            found = self._routes.anyAddress(queue.brokerName)
            if found is None or (found[1] != MASTER_ID and not slave):
                raise unknownBroker(queue.brokerName)
            return found[0]

        return self._routes.refresh(queue.topic).addCallback(look)

    def _brokers(self, topic: str) -> Deferred[list[str]]:
        """
        One address of each broker of a topic: its master's, if it has one.
        """

        def read(route: Route) -> list[str]:
            brokers = [each.brokerAddrs for each in route.data.brokerDatas]
            return [each[min(each)] for each in brokers if each]

        return self._routes.find(topic).addCallback(read)

    def _master(self, brokerName: str) -> Deferred[str]:
        address = self._routes.address(brokerName)
        return fail(unknownBroker(brokerName)) if address is None else succeed(address)


def _consumerIds(answer: RemotingCommand) -> tuple[str, ...]:
    return decodeBody(GetConsumerListByGroupResponseBody, answer.body).consumerIdList


def _nothing(answer: object) -> None:
    """
    That there was an answer is all that counts.
    """
