# SPDX-License-Identifier: Apache-2.0
"""
Messages in transactions; Java's C{TransactionMQProducer}::

    half message --> broker: parked, and delivered to no consumer
         |
    local transaction --> COMMIT, ROLLBACK: the broker is told
                      --> UNKNOW, it raised, or nothing was heard: the broker asks,
                          again and again, and the check answers

    async def execute(message): ...          # moves the money
    async def check(message): ...            # was it moved?

    producer = TransactionProducer(cluster, "transfers", check)
    result = await producer.sendInTransaction(Message("Transfers", b"..."), execute)
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, fail, inlineCallbacks, maybeDeferred
from twisted.logger import Logger

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.puller import unknownBroker
from txrocket.client.producer.producer import Producer
from txrocket.client.sansio.results import SendResult, SendStatus
from txrocket.client.sansio.topicroute import DEFAULT_TOPIC
from txrocket.errors import RocketError, ServiceNotAvailable
from txrocket.message import (
    PROPERTY_DELAY,
    PROPERTY_PGROUP,
    PROPERTY_TRAN_MSG,
    PROPERTY_UNIQ_KEY,
    Message,
    MessageExt,
)
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)

__all__ = ["LocalTransactionState", "TransactionProducer", "TransactionSendResult"]


class LocalTransactionState(enum.Enum):
    """
    The state of a local transaction.
    """

    COMMIT_MESSAGE = TRANSACTION_COMMIT_TYPE
    ROLLBACK_MESSAGE = TRANSACTION_ROLLBACK_TYPE
    UNKNOW = TRANSACTION_NOT_TYPE


class TransactionSendResult(NamedTuple):
    """
    @ivar sendResult: where the half message went.
    @ivar localTransactionState: what the broker was told.
    """

    sendResult: SendResult
    localTransactionState: LocalTransactionState


#: Given a message; returns a L{LocalTransactionState}, or a Deferred or a coroutine
#: of one.
Execute = Callable[[Any], Any]


def _call(function: Execute, message: Any) -> Deferred[LocalTransactionState]:
    return maybeDeferred(function, message).addCallback(_state)


def _state(returned: Any) -> LocalTransactionState:
    # A function that returns nothing has not decided.
    if returned is None:
        return LocalTransactionState.UNKNOW
    if not isinstance(returned, LocalTransactionState):
        raise TypeError(f"a LocalTransactionState was expected, not {returned!r}")
    return returned


class TransactionProducer(Producer):
    """
    Sends messages that count only if something else succeeds.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        check: Execute,
        *,
        topics: Iterable[str] = (),
        **options: Any,
    ) -> None:
        """
        @param group: what brokers know the producers by that can answer for each
            other's transactions.
        @param check: told of a half message whose transaction the broker has not
            heard of; says what became of it.
        @param topics: the topics that the group sends to, so that their brokers can ask
            before this producer has sent something.  Brokers where topics come into
            being by themselves can ask anyway.
        @param options: as L{Producer}'s.
        """
        super().__init__(cluster, group, **options)
        self._check = check
        self._sender.topics |= dict.fromkeys((DEFAULT_TOPIC, *topics))

    def startService(self) -> None:
        """
        Begin, and have brokers know of it: they may have something to ask, of a producer
        that has ended.

        @raise ConfigError: if the cluster has a producer of this group already.
        """
        super().startService()
        for topic in self.topics():
            # If there is no route, or no answer, it is asked for again.
            found = self.cluster.routes.find(topic)
            found.addErrback(lambda failure: failure.trap(RocketError) and None)

    @inlineCallbacks
    def sendInTransaction(
        self, message: Message, execute: Execute, timeout: float | None = None
    ) -> Generator[Deferred[Any], Any, TransactionSendResult]:
        """
        Send a half message, do the local transaction, and tell the broker of it.

        @param execute: does the local transaction, once the broker has the half
            message; it is given that message, whose UNIQ_KEY is the transaction's id.
            If it raises, the error is the Deferred's, and whether the message counts
            is left to the check: the transaction may have taken place.
        @return: a Deferred of a L{TransactionSendResult}; it fails as
            L{Producer.send}'s does if the half message was not sent.
        """
        half = self._half(message)
        # A stop waits for the whole, and not only for the half message.
        self._inFlight.count += 1
        try:
            result = yield self.send(half, timeout=timeout)
            state, error = LocalTransactionState.ROLLBACK_MESSAGE, None
            if result.sendStatus is SendStatus.SEND_OK:
                try:
                    state = yield _call(execute, half)
                except Exception as raised:
                    state, error = LocalTransactionState.UNKNOW, raised
            yield self._end(half, result, state, error)
        finally:
            self._inFlight.over()
        if error is not None:
            raise error
        return TransactionSendResult(result, state)

    def _half(self, message: Message) -> Message:
        properties = {
            PROPERTY_UNIQ_KEY: self.cluster.uniqueId(),
            **message.properties,
            PROPERTY_TRAN_MSG: "true",
            PROPERTY_PGROUP: self.group,
        }
        # A delay cannot begin before it is known whether there is a message.
        properties.pop(PROPERTY_DELAY, None)
        return Message(message.topic, message.body, flag=message.flag, properties=properties)

    @inlineCallbacks
    def _end(
        self,
        half: Message,
        result: SendResult,
        state: LocalTransactionState,
        error: Exception | None,
    ) -> Generator[Deferred[Any], Any, None]:
        name = result.messageQueue.brokerName
        remark = None if error is None else f"the local transaction failed: {error}"
        try:
            header = EndTransactionRequestHeader(
                self.group,
                result.queueOffset,
                decodeMessageId(result.offsetMsgId)[2],
                state.value,
                result.msgId,
                transactionId=result.transactionId,
                bname=name,
            )
            address = self.cluster.routes.address(name)
            if self._trace is not None:
                self._trace.ended(half, result.msgId, address, state.name, result)
            if address is None:
                raise unknownBroker(name)
            yield self._tell(address, header, remark)
        except RocketError as unsent:
            # Not lost: the broker will ask.
            self._log.warn(
                "Broker {name} was not told that {msgId} is {state}, and will ask: {error}",
                name=name,
                msgId=result.msgId,
                state=state.name,
                error=unsent,
            )

    def _tell(
        self, address: str, header: EndTransactionRequestHeader, remark: str | None
    ) -> Deferred[None]:
        if self.cluster.producers.get(self.group) is not self:
            # To ask now would open connections that nobody closes any more.
            return fail(ServiceNotAvailable(f"producer {self.group} was stopped"))
        request = requestCommand(RequestCode.END_TRANSACTION, header, oneway=True)
        request.remark = remark
        return self.cluster.peers.oneway(address, request, self.cluster.timeout)

    def checkTransaction(
        self, header: CheckTransactionStateRequestHeader, message: MessageExt, address: str
    ) -> None:
        """
        A broker asks what became of a transaction.
        """
        self._answer(header, message, address).addErrback(
            lambda failure: self._log.failure(
                "Broker {address} asked about {msgId}, and will ask again",
                failure,
                address=address,
                msgId=message.msgId,
            )
        )

    @inlineCallbacks
    def _answer(
        self, header: CheckTransactionStateRequestHeader, message: MessageExt, address: str
    ) -> Generator[Deferred[Any], Any, None]:
        state = yield _call(self._check, message)
        end = EndTransactionRequestHeader(
            self.group,
            header.tranStateTableOffset,
            header.commitLogOffset,
            state.value,
            message.msgId,
            True,
            header.transactionId,
            header.bname,
        )
        if self._trace is not None:
            self._trace.ended(message, message.msgId, address, state.name)
        yield self._tell(address, end, None)
