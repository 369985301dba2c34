# SPDX-License-Identifier: Apache-2.0
"""
The part of the blocking client that asks and changes no message: topics, offsets, and
messages by id or key.

A call asks the broker that the route names, and repeats a failed request::

    route --> broker --> request --> answer --> result
      ^                     |           |
      |   no answer: refresh the route  |  a retriable error
      +---------------------+-----------+
          another broker, if there is one; the same broker after a pause

If the error is not retriable, or the time of the call is over, the call raises at once.
"""

from __future__ import annotations

import random
from typing import Final

from txrocket.blocking.brokercalls import BrokerCalls
from txrocket.blocking.connections import BlockingConnections
from txrocket.blocking.deadline import Deadline
from txrocket.blocking.routes import BlockingRoutes
from txrocket.blocking.settings import Settings
from txrocket.client.sansio.pullrequest import readable
from txrocket.client.sansio.topicroute import DEFAULT_TOPIC
from txrocket.errors import (
    ConnectFailed,
    QueryNotFound,
    responseError,
)
from txrocket.message import PROPERTY_UNIQ_KEY, MessageExt
from txrocket.model import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    MessageQueue,
    TopicRouteData,
)
from txrocket.protocol.bodies import ConsumeStats, TopicStatsTable
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    CreateTopicRequestHeader,
    GetConsumeStatsRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    ViewMessageRequestHeader,
)
from txrocket.protocol.headers.fields import Header
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.names import checkTopicName
from txrocket.protocol.record import decodeRecord, decodeRecords

__all__ = ["Lookups", "checkAnswer"]

# The most messages that a broker gives by default, if they are in memory
# (maxTransferCountOnMessageInMemory).
_MOST: Final = 32

# The field that marks a key as a unique id.
_UNIQUE: Final = "_UNIQUE_KEY_QUERY"

# Java's Long.MAX_VALUE.
_EVER: Final = 2**63 - 1


class Lookups:
    """
    Asks name servers and brokers.

    @ivar settings: its settings.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._connections = BlockingConnections(
            settings.tls, settings.frameMaxLength, settings.credentials
        )
        self._routes = BlockingRoutes(
            self._connections, settings.nameServers, random.randrange(len(settings.nameServers))
        )
        self._brokers = BrokerCalls(self._connections, self._routes, settings.retries)

    def close(self) -> None:
        """
        Close all connections.  A later call opens new ones.
        """
        self._connections.close()

    # --- topics ----------------------------------------------------------

    def route(self, topic: str, timeout: float | None = None) -> TopicRouteData:
        """
        The route of a topic from a name server; the cached one if no name server has it.

        @raise TopicNotExist: if the topic does not exist.
        """
        return self._routes.refresh(topic, self._deadline(timeout)).data

    def queues(self, topic: str, timeout: float | None = None) -> tuple[MessageQueue, ...]:
        """
        The queues of a topic that can be pulled from, by the route of L{route}.

        @raise TopicNotExist: if the topic does not exist.
        """
        return self._routes.refresh(topic, self._deadline(timeout)).readQueues

    def topics(self, timeout: float | None = None) -> frozenset[str]:
        """
        The names of all topics, also of RocketMQ's own.
        """
        return self._routes.topics(self._deadline(timeout))

    def createTopic(
        self,
        topic: str,
        queues: int = 8,
        *,
        perm: int = PERM_READ | PERM_WRITE,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """
        Create or change a topic at all brokers.

        @param queues: the number of queues at each broker.
        @param cluster: only at the brokers of this cluster.
        """
        checkTopicName(topic)
        deadline = self._deadline(timeout)
        info = self._routes.clusterInfo(deadline)
        masters = [
            each.brokerAddrs[MASTER_ID]
            for each in info.brokerAddrTable.values()
            if cluster in (None, each.cluster) and MASTER_ID in each.brokerAddrs
        ]
        if not masters:
            where = "no cluster" if cluster is None else f"the cluster {cluster}"
            raise ConnectFailed("", f"{where} has a master to make topic {topic} at")
        header = CreateTopicRequestHeader(
            topic, DEFAULT_TOPIC, queues, queues, perm, "SINGLE_TAG", 0
        )
        request = requestCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        for address in sorted(masters):
            self._brokers.askAt(address, request, checkAnswer, deadline)
        self._routes.forget(topic)

    # --- offsets ---------------------------------------------------------

    def offset(self, group: str, queue: MessageQueue, timeout: float | None = None) -> int | None:
        """
        A group's offset in a queue, or L{None} if the group has no offset there.
        """
        header = QueryConsumerOffsetRequestHeader(
            group, queue.topic, queue.queueId, queue.brokerName
        )
        request = requestCommand(RequestCode.QUERY_CONSUMER_OFFSET, header)
        try:
            answer = self._brokers.ask(
                queue.topic,
                queue.brokerName,
                request,
                checkAnswer,
                self._deadline(timeout),
                slaves=True,
            )
        except QueryNotFound:
            return None
        return answer.decodeHeader(QueryConsumerOffsetResponseHeader).offset

    def minOffset(self, queue: MessageQueue, timeout: float | None = None) -> int:
        """
        The offset of a queue's first message.
        """
        header = GetMinOffsetRequestHeader(queue.topic, queue.queueId, queue.brokerName)
        answer = self._atMaster(queue, RequestCode.GET_MIN_OFFSET, header, timeout)
        return answer.decodeHeader(GetMinOffsetResponseHeader).offset

    def maxOffset(self, queue: MessageQueue, timeout: float | None = None) -> int:
        """
        The offset behind a queue's last message.
        """
        header = GetMaxOffsetRequestHeader(queue.topic, queue.queueId, queue.brokerName)
        answer = self._atMaster(queue, RequestCode.GET_MAX_OFFSET, header, timeout)
        return answer.decodeHeader(GetMaxOffsetResponseHeader).offset

    def bounds(
        self, topic: str, brokerName: str, timeout: float | None = None
    ) -> dict[MessageQueue, tuple[int, int]]:
        """
        The offsets of the first message and behind the last message, of all queues of a
        topic at a broker, in one request.
        """
        request = requestCommand(
            RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic)
        )
        answer = self._brokers.ask(topic, brokerName, request, checkAnswer, self._deadline(timeout))
        table = decodeBody(TopicStatsTable, answer.body).offsetTable
        return {queue: (ends.minOffset, ends.maxOffset) for queue, ends in table.items()}

    def progress(
        self, group: str, topic: str, brokerName: str, timeout: float | None = None
    ) -> dict[MessageQueue, tuple[int, int]]:
        """
        A group's offsets in the queues of a topic at a broker, each with the offset behind
        the queue's last message.  Queues in which the group has no offset are left out.
        """
        request = requestCommand(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(group))
        answer = self._brokers.ask(topic, brokerName, request, checkAnswer, self._deadline(timeout))
        return {
            queue: (place.consumerOffset, place.brokerOffset)
            for queue, place in decodeBody(ConsumeStats, answer.body).offsetTable.items()
            if queue.topic == topic
        }

    def searchByTime(self, queue: MessageQueue, when: float, timeout: float | None = None) -> int:
        """
        The offset of a message that was stored near a time: usually the first one at that
        time or later.
        """
        header = SearchOffsetRequestHeader(
            queue.topic, queue.queueId, int(when * 1000), queue.brokerName
        )
        answer = self._atMaster(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, timeout)
        return answer.decodeHeader(SearchOffsetResponseHeader).offset

    def earliestTime(self, queue: MessageQueue, timeout: float | None = None) -> float | None:
        """
        The store time of a queue's first message, or L{None} if the queue is empty.
        """
        header = GetEarliestMsgStoretimeRequestHeader(queue.topic, queue.queueId, queue.brokerName)
        answer = self._atMaster(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header, timeout)
        timestamp = answer.decodeHeader(GetEarliestMsgStoretimeResponseHeader).timestamp
        return None if timestamp < 0 else timestamp / 1000

    # --- messages --------------------------------------------------------

    def viewMessage(self, offsetMsgId: str, timeout: float | None = None) -> MessageExt:
        """
        A message by its offset message id.

        @raise MalformedField: if the id cannot be parsed.
        @raise RemoteSystemError: if the message does not exist.
        @raise MalformedRecord: if the message is damaged.
        """
        host, port, offset = decodeMessageId(offsetMsgId)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        request = requestCommand(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
        answer = self._brokers.askAt(address, request, checkAnswer, self._deadline(timeout))
        return readable(decodeRecord(answer.body, checkCrc=True))

    def queryMessage(
        self,
        topic: str,
        key: str,
        most: int = _MOST,
        *,
        begin: float = 0.0,
        end: float | None = None,
        unique: bool = False,
        timeout: float | None = None,
    ) -> list[MessageExt]:
        """
        The messages of a topic that have a key, the newest first.

        @param most: the most messages.
        @param begin: only messages stored at this time or later.
        @param end: only messages stored at this time or earlier.
        @param unique: whether the key is a client's unique id of a message.
        """
        header = QueryMessageRequestHeader(
            topic, key, most, int(begin * 1000), _EVER if end is None else int(end * 1000)
        )
        deadline = self._deadline(timeout)
        found: list[MessageExt] = []
        for name in self._routes.find(topic, deadline).brokers:
            request = requestCommand(RequestCode.QUERY_MESSAGE, header)
            request.extFields[_UNIQUE] = "true" if unique else "false"
            try:
                answer = self._brokers.ask(topic, name, request, checkAnswer, deadline, slaves=True)
            except QueryNotFound:
                continue
            found += decodeRecords(answer.body, brokerName=name)

        def has(message: MessageExt) -> bool:
            # Brokers search by the hash of topic and key, so other keys may match.
            own = [message.properties.get(PROPERTY_UNIQ_KEY)] if unique else message.keys
            return message.topic == topic and key in own

        wanted = filter(has, found)
        return sorted(wanted, key=lambda each: each.storeTimestamp, reverse=True)[:most]

    # --- inside ----------------------------------------------------------

    def _deadline(self, timeout: float | None, more: float = 0.0) -> Deadline:
        return Deadline((self.settings.timeout if timeout is None else timeout) + more)

    def _atMaster(
        self, queue: MessageQueue, code: int, header: Header, timeout: float | None
    ) -> RemotingCommand:
        return self._brokers.ask(
            queue.topic,
            queue.brokerName,
            requestCommand(code, header),
            checkAnswer,
            self._deadline(timeout),
        )


def checkAnswer(answer: RemotingCommand, address: str) -> RemotingCommand:
    """
    Return an answer that reports success.

    @raise ResponseError: if it reports an error.
    """
    if answer.code:
        raise responseError(answer.code, answer.remark, address)
    return answer
