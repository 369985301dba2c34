# SPDX-License-Identifier: Apache-2.0
"""
The blocking client: it sends and pulls messages and commits offsets.

L{Lookups<txrocket.blocking.lookups.Lookups>}, its base, has the calls that only ask::

    Lookups   topics, offsets, messages by id or key      BrokerCalls
       ^
    Client    send, sendBatch, sendData                   Sender
              pull, pullData, pullAhead                   BlockingPuller
              commit, heartbeat                           BrokerCalls
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final

from txrocket.blocking.lookups import Lookups, checkAnswer
from txrocket.blocking.puller import BlockingPuller, pullRequestHeader
from txrocket.blocking.sender import BlockingSend, Sender, uniqueIds
from txrocket.blocking.settings import Settings
from txrocket.client.sansio.queueselector import Selector
from txrocket.client.sansio.results import PullData, PullResult, SendResult
from txrocket.errors import (
    InvalidMessage,
    MessageTooLarge,
    SendFailed,
)
from txrocket.filters.expressions import buildSubscription
from txrocket.filters.tags import EVERYTHING, TAG
from txrocket.message import Message
from txrocket.model import (
    MASTER_ID,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    MessageQueue,
)
from txrocket.protocol.bodies import ConsumerData, HeartbeatData
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import (
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.protocol.names import checkGroupName
from txrocket.protocol.record.batch import splitBatch

__all__ = ["Client"]

# The most messages that a broker gives by default, if they are in memory
# (maxTransferCountOnMessageInMemory).
_MOST: Final = 32

# Says of a key that it is a unique id.
_UNIQUE: Final = "_UNIQUE_KEY_QUERY"

# Java's Long.MAX_VALUE.
_EVER: Final = 2**63 - 1


class Client(Lookups):
    """
    A client without a reactor.  It serves one thread at a time, so each thread needs its
    own.  It can be pickled, without its connections, and used on both sides of a fork:
    each process opens its own connections.

    Durations are in seconds, times in seconds since 1970.  C{timeout} is the time limit of
    a call in place of the one of the settings.  All calls raise
    L{RemotingError<txrocket.errors.RemotingError>} if no server answers,
    L{ResponseError<txrocket.errors.ResponseError>} if a server refuses, and
    L{ProtocolError<txrocket.errors.ProtocolError>} if an answer cannot be parsed.

    @ivar settings: its settings.
    """

    def __init__(self, settings: Settings | str | Sequence[str] | None = None) -> None:
        """
        @param settings: the settings, or only the name servers.
        @raise ConfigError: if no name server is set, or a setting is not valid.
        """
        super().__init__(settings if isinstance(settings, Settings) else Settings(settings))
        self._sender = Sender(self._connections, self._routes, self.settings)
        self._puller = BlockingPuller(self._brokers)
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

        @param queue: the queue to send it to; by default each queue in turn.
        @param selector: chooses the queue;
            L{byHash<txrocket.client.sansio.queueselector.byHash>} if only a key is given.
        @param key: the argument of the selector.
        @param born: the born time of the message; by default now.
        @raise InvalidMessage: if the message is not valid.
        @raise SendFailed: if the send failed, or its outcome is unknown.
        """
        settings = self.settings
        sending = BlockingSend(message.topic, queue, selector, key)
        sending.take(message, self._uniqueId(), settings.compressOver, settings.maxMessageSize)
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
        Send many messages of one topic, in as few requests as their sizes allow, one after
        the other.  All messages are checked before the first request.

        @param timeout: the time limit of each request.
        @return: a result for each request.
        @raise InvalidMessage: if a message is not valid; then no message was sent.
        @raise SendFailed: if a request failed.  The results of the requests before it are
            in the error's C{sent}.
        """
        most = self.settings.maxMessageSize
        batches = []
        for each in splitBatch(messages, most):
            batch = BlockingSend(each[0].topic, queue)
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
        Send a batch that the caller has encoded: items of
        L{encodeItem<txrocket.protocol.record.batch.encodeItem>}, one behind the other, each with
        an id among its properties.

        @return: a result without unique ids.
        @raise InvalidMessage: if the topic is not valid, or the batch is too large.
        @raise SendFailed: if the send failed, or its outcome is unknown.
        """
        if len(data) > self.settings.maxMessageSize:
            raise MessageTooLarge(len(data), self.settings.maxMessageSize)
        batch = BlockingSend(topic, queue)
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

        @param offset: the offset of the first message.
        @param most: the most messages; the broker may give fewer.
        @param expression: a filter: tags, as C{a || b}, or SQL92.
        @param wait: the seconds that the broker may wait for a message if there is none.
        @param group: the consumer group in place of the one of the settings.
        @param timeout: the time limit without the broker's wait.
        @return: messages with decompressed bodies.  Damaged messages are skipped, and the
            result has the fault of each.  If the library of a compression is not
            installed, the result ends before that message.
        @raise MalformedRecord: if the answer's next offset is not behind this one.
        @raise UnsupportedCompression: if the library for the first message is not
            installed.
        @raise SubscriptionParseFailed: if the expression cannot be parsed.
        """
        group = self.settings.consumerGroup if group is None else group
        header = pullRequestHeader(group, queue, offset, most, expression, expressionType, wait)
        return self._puller.pull(queue, header, self._deadline(timeout, wait))

    @property
    def unreadable(self) -> int:
        """
        The number of messages that L{pull} has skipped because they cannot be read.
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
        Pull messages without decoding them, so that the caller can decode many at once.
        Messages with another tag of the same hash are among them, and bodies may be
        compressed.

        @param master: whether only the master may answer, and no slave.
        @raise SubscriptionParseFailed: if the expression cannot be parsed.
        """
        group = self.settings.consumerGroup if group is None else group
        header = pullRequestHeader(group, queue, offset, most, expression, expressionType)
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
        Pull messages from several offsets at once, without retries.  If the caller knows
        the next offsets, this saves waiting for each answer.

        @param offsets: the offset of the first message of each pull.
        """
        group = self.settings.consumerGroup if group is None else group
        headers = [pullRequestHeader(group, queue, each, most, EVERYTHING, TAG) for each in offsets]
        return self._puller.pullAhead(queue, headers, self._deadline(timeout))

    # --- consumer groups -------------------------------------------------

    def commit(
        self, group: str, queue: MessageQueue, offset: int, timeout: float | None = None
    ) -> None:
        """
        Commit a group's offset in a queue: the offset of the next message to consume.

        @raise InvalidMessage: if the group name is not valid.
        """
        checkGroupName(group)
        header = UpdateConsumerOffsetRequestHeader(
            group, queue.topic, queue.queueId, offset, queue.brokerName
        )
        self._atMaster(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout)

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
        Register a consumer group with the brokers of some topics, so that tools show it.
        A broker drops the group if the connection closes, or after two minutes without a
        heartbeat.

        @raise SubscriptionParseFailed: if the expression cannot be parsed.
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
            self._brokers.askAt(address, request, checkAnswer, deadline)

    # --- inside ----------------------------------------------------------

    def _uniqueId(self) -> str:
        if self._process != os.getpid():
            # A forked process must not generate the ids of its parent.
            self._ids = uniqueIds()
            self._process = os.getpid()
        return self._ids()

    def _clientId(self) -> str:
        return f"{socket.gethostname()}@{os.getpid()}"
