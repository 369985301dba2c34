# SPDX-License-Identifier: Apache-2.0
"""
The blocking client itself.

What is asked of a broker, and what happens if that fails::

    route --> broker --> request --> answer --> result
      ^                     |           |
      |   no answer: asked for again    |  an error that may pass
      +---------------------+-----------+
          another broker, if there is one; the same after a pause

An error that another attempt would not cure ends it at once, and so does the end of
the call's time.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final

from txrocket.blocking.brokers import Brokers
from txrocket.blocking.deadline import Deadline
from txrocket.blocking.links import Links
from txrocket.blocking.pulling import Puller, asking
from txrocket.blocking.routes import Routes
from txrocket.blocking.sending import Sender, Sending, uniqueIds
from txrocket.blocking.settings import Settings
from txrocket.client.pulled import readable
from txrocket.client.queues import Selector
from txrocket.client.results import PullData, PullResult, SendResult
from txrocket.client.topicroute import DEFAULT_TOPIC
from txrocket.errors import (
    ConnectFailed,
    InvalidMessage,
    MessageTooLarge,
    QueryNotFound,
    SendFailed,
    responseError,
)
from txrocket.filters.expressions import buildSubscription
from txrocket.filters.tags import EVERYTHING, TAG
from txrocket.message import PROPERTY_UNIQ_KEY, Message, MessageExt
from txrocket.model import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    MessageQueue,
    TopicRouteData,
)
from txrocket.protocol.batch import splitBatch
from txrocket.protocol.bodies import ConsumerData, ConsumeStats, HeartbeatData, TopicStatsTable
from txrocket.protocol.bodycodec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.fields import Header
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
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.names import checkGroupName, checkTopicName
from txrocket.protocol.record import decodeRecord, decodeRecords

__all__ = ["Client"]

# How many messages a broker gives at once by default, if they are in memory
# (maxTransferCountOnMessageInMemory).
_MOST: Final = 32

# Says of a key that it is a unique id.
_UNIQUE: Final = "_UNIQUE_KEY_QUERY"

# Java's Long.MAX_VALUE.
_EVER: Final = 2**63 - 1


class Client:
    """
    Sends, pulls and asks.  It belongs to one thread: whoever has several makes one
    for each.  It can be pickled, without its connections, and used on both sides of
    a fork: each process makes its own connections.

    Times are in seconds, points in time in seconds since 1970.  C{timeout} is a
    call's own time limit in place of that of the settings.  All calls raise
    L{RemotingError<txrocket.errors.RemotingError>} if nobody answers,
    L{ResponseError<txrocket.errors.ResponseError>} if a server refuses, and
    L{ProtocolError<txrocket.errors.ProtocolError>} if an answer cannot be understood.

    @ivar settings: what it was told.
    """

    def __init__(self, settings: Settings | str | Sequence[str] | None = None) -> None:
        """
        @param settings: all of them, or only the name servers.
        @raise ConfigError: if there is no name server, or a setting is wrong.
        """
        if not isinstance(settings, Settings):
            settings = Settings(settings)
        self.settings = settings
        self._links = Links(settings.tls, settings.frameMaxLength, settings.credentials)
        self._routes = Routes(
            self._links, settings.nameServers, random.randrange(len(settings.nameServers))
        )
        self._brokers = Brokers(self._links, self._routes, settings.retries)
        self._sender = Sender(self._links, self._routes, settings)
        self._puller = Puller(self._brokers)
        self._ids = uniqueIds()
        self._process = os.getpid()

    def __reduce__(self) -> tuple[type[Client], tuple[Settings]]:
        return type(self), (self.settings,)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """
        Close all connections.  A call after that makes new ones.
        """
        self._links.close()

    # --- topics ----------------------------------------------------------

    def route(self, topic: str, timeout: float | None = None) -> TopicRouteData:
        """
        Where a topic lives, as a name server says now, or said last if none answers or
        has it.

        @raise TopicNotExist: if it does not.
        """
        return self._routes.refresh(topic, self._deadline(timeout)).data

    def queues(self, topic: str, timeout: float | None = None) -> tuple[MessageQueue, ...]:
        """
        The queues of a topic that can be pulled from, as a name server says now, or
        said last if none answers or has it.

        @raise TopicNotExist: if it does not exist.
        """
        return self._routes.refresh(topic, self._deadline(timeout)).readQueues

    def topics(self, timeout: float | None = None) -> frozenset[str]:
        """
        The names of all topics, those of RocketMQ itself among them.
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
        Make a topic, or change it, at all brokers.

        @param queues: how many queues it has at each broker.
        @param cluster: only at the brokers of this one.
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
            self._brokers.askAt(address, request, _answered, deadline)
        self._routes.forget(topic)

    # --- sending ---------------------------------------------------------

    def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        *,
        selector: Selector | None = None,
        key: Any = None,
        born: float | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """
        Send a message.

        @param queue: the one to send it to.
        @param selector: chooses the queue, in place of each in turn;
            L{byHash<txrocket.client.queues.byHash>} if only a key is given.
        @param key: what the selector goes by.
        @param born: when it was made, if that is not now.
        @raise InvalidMessage: if the message cannot be sent.
        @raise SendFailed: if it was not, or is not known to be.
        """
        settings = self.settings
        sending = Sending(message.topic, queue, selector, key)
        sending.take(message, self._uniqueId, settings.compressOver, settings.maxMessageSize)
        if born is not None:
            sending.born = int(born * 1000)
        return self._sender.send(sending, message, self._deadline(timeout))

    def sendBatch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        *,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """
        Send many messages of one topic, as few requests as their sizes allow, one
        after the other.  All are checked before the first is sent.

        @param timeout: of each request.
        @return: a result for each request.
        @raise InvalidMessage: if a message cannot be sent; then none was.
        @raise SendFailed: if a request failed; those before it did not, and their results
            are in the error's C{sent}.
        """
        most = self.settings.maxMessageSize
        batches = []
        for each in splitBatch(messages, most):
            batch = Sending(each[0].topic, queue)
            batch.takeBatch(each, self._uniqueId, most)
            batches.append(batch)
        if not batches:
            raise InvalidMessage("a batch has at least one message")
        if len({each.topic for each in batches}) > 1:
            raise InvalidMessage("the messages of a batch have one topic")
        results: list[SendResult] = []
        for batch in batches:
            try:
                results.append(self._sender.send(batch, None, self._deadline(timeout)))
            except SendFailed as error:
                error.sent = tuple(results)
                raise
        return results

    def sendData(
        self,
        topic: str,
        data: bytes,
        queue: MessageQueue | None = None,
        *,
        timeout: float | None = None,
    ) -> SendResult:
        """
        Send a batch that is encoded already, for who sends many: items of
        L{encodeItem<txrocket.protocol.batch.encodeItem>}, one after the other, each with
        an id among its properties.

        @return: a result without ids of this client's.
        @raise InvalidMessage: if nothing can be sent to that topic, or it is too large.
        @raise SendFailed: if it was not sent, or is not known to be.
        """
        if len(data) > self.settings.maxMessageSize:
            raise MessageTooLarge(len(data), self.settings.maxMessageSize)
        batch = Sending(topic, queue)
        batch.batch = True
        batch.body = data
        return self._sender.send(batch, None, self._deadline(timeout))

    # --- pulling ---------------------------------------------------------

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        most: int = _MOST,
        expression: str = EVERYTHING,
        wait: float = 0.0,
        *,
        expressionType: str = TAG,
        group: str | None = None,
        timeout: float | None = None,
    ) -> PullResult:
        """
        Pull messages.

        @param offset: where to begin.
        @param most: how many messages at most; the broker may give fewer.
        @param expression: which messages: tags, as C{a || b}, or SQL92.
        @param wait: how long the broker may wait for a message if there is none.
        @param group: in whose name, in place of the settings'.
        @param timeout: beside what the broker waits.
        @return: messages whose bodies are not compressed.  Damaged ones are passed over:
            the result tells what is wrong with each.  If the library for one is not
            installed, only those before it are given.
        @raise MalformedRecord: if the broker's answer does not lead on.
        @raise UnsupportedCompression: if the library for the first is not installed.
        @raise SubscriptionParseFailed: if the expression is none.
        """
        group = self.settings.consumerGroup if group is None else group
        header = asking(group, queue, offset, most, expression, expressionType, wait)
        return self._puller.pull(queue, header, self._deadline(timeout, wait))

    @property
    def unreadable(self) -> int:
        """
        How many messages L{pull} has passed over because they cannot be read.
        """
        return self._puller.unreadable

    def pullData(
        self,
        queue: MessageQueue,
        offset: int,
        most: int = _MOST,
        expression: str = EVERYTHING,
        *,
        expressionType: str = TAG,
        group: str | None = None,
        master: bool = False,
        timeout: float | None = None,
    ) -> PullData:
        """
        Pull messages and leave them as the broker has them, for who reads many at once.
        Those whose tags have the hash of a wanted one are among them, and compressed
        bodies are compressed.

        @param master: whether only the master will do, and no slave.
        @raise SubscriptionParseFailed: if the expression is none.
        """
        group = self.settings.consumerGroup if group is None else group
        header = asking(group, queue, offset, most, expression, expressionType)
        return self._puller.pullData(queue, header, self._deadline(timeout), master=master)

    def pullAhead(
        self,
        queue: MessageQueue,
        offsets: Iterable[int],
        most: int = _MOST,
        *,
        group: str | None = None,
        timeout: float | None = None,
    ) -> list[PullData]:
        """
        Pull messages from several offsets at once, for who knows where the next pulls
        will begin: it costs the broker, and this client, half of one pull after the
        other.  Nothing is tried again.

        @param offsets: where to begin, each.
        """
        group = self.settings.consumerGroup if group is None else group
        headers = [asking(group, queue, each, most, EVERYTHING, TAG) for each in offsets]
        return self._puller.pullAhead(queue, headers, self._deadline(timeout))

    # --- offsets ---------------------------------------------------------

    def offset(self, group: str, queue: MessageQueue, timeout: float | None = None) -> int | None:
        """
        A group's offset in a queue, or L{None} if it has none there.
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
                _answered,
                self._deadline(timeout),
                slaves=True,
            )
        except QueryNotFound:
            return None
        return answer.decodeHeader(QueryConsumerOffsetResponseHeader).offset

    def commit(
        self, group: str, queue: MessageQueue, offset: int, timeout: float | None = None
    ) -> None:
        """
        Have a group's offset in a queue kept: of the next message that it wants.

        @raise InvalidMessage: if the group's name is none.
        """
        checkGroupName(group)
        header = UpdateConsumerOffsetRequestHeader(
            group, queue.topic, queue.queueId, offset, queue.brokerName
        )
        self._atMaster(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout)

    def minOffset(self, queue: MessageQueue, timeout: float | None = None) -> int:
        """
        The offset of a queue's first message.
        """
        header = GetMinOffsetRequestHeader(queue.topic, queue.queueId, queue.brokerName)
        answer = self._atMaster(queue, RequestCode.GET_MIN_OFFSET, header, timeout)
        return answer.decodeHeader(GetMinOffsetResponseHeader).offset

    def maxOffset(self, queue: MessageQueue, timeout: float | None = None) -> int:
        """
        The offset that a queue's next message will have.
        """
        header = GetMaxOffsetRequestHeader(queue.topic, queue.queueId, queue.brokerName)
        answer = self._atMaster(queue, RequestCode.GET_MAX_OFFSET, header, timeout)
        return answer.decodeHeader(GetMaxOffsetResponseHeader).offset

    def bounds(
        self, topic: str, brokerName: str, timeout: float | None = None
    ) -> dict[MessageQueue, tuple[int, int]]:
        """
        The offset of the first message, and the one that the next message will have, of
        all queues of a topic at a broker, in one request.
        """
        request = requestCommand(
            RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic)
        )
        answer = self._brokers.ask(topic, brokerName, request, _answered, self._deadline(timeout))
        table = decodeBody(TopicStatsTable, answer.body).offsetTable
        return {queue: (ends.minOffset, ends.maxOffset) for queue, ends in table.items()}

    def progress(
        self, group: str, topic: str, brokerName: str, timeout: float | None = None
    ) -> dict[MessageQueue, tuple[int, int]]:
        """
        How far a group has come in the queues of a topic at a broker: its offset, and the
        one that the next message will have.  L{offset} says 0 where there is none; here
        such queues are missing.
        """
        request = requestCommand(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(group))
        answer = self._brokers.ask(topic, brokerName, request, _answered, self._deadline(timeout))
        return {
            queue: (place.consumerOffset, place.brokerOffset)
            for queue, place in decodeBody(ConsumeStats, answer.body).offsetTable.items()
            if queue.topic == topic
        }

    def searchByTime(self, queue: MessageQueue, when: float, timeout: float | None = None) -> int:
        """
        The offset of the first message that was stored at a time or after it, or
        near that.
        """
        header = SearchOffsetRequestHeader(
            queue.topic, queue.queueId, int(when * 1000), queue.brokerName
        )
        answer = self._atMaster(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, timeout)
        return answer.decodeHeader(SearchOffsetResponseHeader).offset

    def earliestTime(self, queue: MessageQueue, timeout: float | None = None) -> float | None:
        """
        When a queue's first message was stored, or L{None} if there is none.
        """
        header = GetEarliestMsgStoretimeRequestHeader(queue.topic, queue.queueId, queue.brokerName)
        answer = self._atMaster(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header, timeout)
        timestamp = answer.decodeHeader(GetEarliestMsgStoretimeResponseHeader).timestamp
        return None if timestamp < 0 else timestamp / 1000

    def heartbeat(
        self,
        group: str,
        topics: Iterable[str],
        expression: str = EVERYTHING,
        *,
        expressionType: str = TAG,
        timeout: float | None = None,
    ) -> None:
        """
        Have the brokers of some topics know a group, as long as this client keeps its
        connections and says so every two minutes: tools show where it is, and who.

        @raise SubscriptionParseFailed: if the expression is none.
        """
        checkGroupName(group)
        deadline = self._deadline(timeout)
        topics = sorted(set(topics))
        wanted = [buildSubscription(each, expression, expressionType) for each in topics]
        data = ConsumerData(
            group,
            ConsumeType.CONSUME_ACTIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            frozenset(wanted),
        )
        body = encodeBody(HeartbeatData(self._clientId(), consumerDataSet=frozenset([data])))
        masters = {
            addresses[MASTER_ID]
            for topic in topics
            for addresses in self._routes.find(topic, deadline).brokers.values()
            if MASTER_ID in addresses
        }
        for address in sorted(masters):
            request = requestCommand(RequestCode.HEART_BEAT, None, body)
            self._brokers.askAt(address, request, _answered, deadline)

    # --- looking messages up ---------------------------------------------

    def viewMessage(self, offsetMsgId: str, timeout: float | None = None) -> MessageExt:
        """
        A message by the id that its broker gave it.

        @raise MalformedField: if it is no such id.
        @raise RemoteSystemError: if the broker has no such message.
        @raise MalformedRecord: if it is damaged.
        """
        host, port, offset = decodeMessageId(offsetMsgId)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        request = requestCommand(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
        answer = self._brokers.askAt(address, request, _answered, self._deadline(timeout))
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

        @param most: how many at most.
        @param begin: only those stored at this time or later.
        @param end: only those stored at this time or earlier.
        @param unique: whether the key is the id that a client gave a message.
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
                answer = self._brokers.ask(topic, name, request, _answered, deadline, slaves=True)
            except QueryNotFound:
                continue
            found += decodeRecords(answer.body, brokerName=name)

        def has(message: MessageExt) -> bool:
            # Brokers look for the hash of topic and key.
            own = [message.properties.get(PROPERTY_UNIQ_KEY)] if unique else message.keys
            return message.topic == topic and key in own

        wanted = filter(has, found)
        return sorted(wanted, key=lambda each: each.storeTimestamp, reverse=True)[:most]

    # --- inside ----------------------------------------------------------

    def _deadline(self, timeout: float | None, more: float = 0.0) -> Deadline:
        return Deadline((self.settings.timeout if timeout is None else timeout) + more)

    def _uniqueId(self) -> str:
        if self._process != os.getpid():
            # Two processes must not give one id.
            self._ids = uniqueIds()
            self._process = os.getpid()
        return self._ids()

    def _clientId(self) -> str:
        return f"{socket.gethostname()}@{os.getpid()}"

    def _atMaster(
        self, queue: MessageQueue, code: int, header: Header, timeout: float | None
    ) -> RemotingCommand:
        return self._brokers.ask(
            queue.topic,
            queue.brokerName,
            requestCommand(code, header),
            _answered,
            self._deadline(timeout),
        )


def _answered(answer: RemotingCommand, address: str) -> RemotingCommand:
    if answer.code:
        raise responseError(answer.code, answer.remark, address)
    return answer
