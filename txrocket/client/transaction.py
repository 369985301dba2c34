# SPDX-License-Identifier: Apache-2.0
"""
Messages in transactions; Java's C{TransactionMQProducer}.

    half message --> broker: kept, and shown to nobody
         |
    local transaction --> COMMIT, ROLLBACK: the broker is told
                      --> UNKNOWN, or nothing was heard: the broker asks, again and
                          again, and CHECK answers

    async def execute(message): ...          # moves the money
    async def check(message): ...            # was it moved?

    producer = TransactionProducer(cluster, "transfers", check)
    result = await producer.sendInTransaction(Message("Transfers", b"..."), execute)
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.logger import Logger

from txrocket.client.cluster import Cluster
from txrocket.client.producer import Producer
from txrocket.client.results import SendResult, SendStatus
from txrocket.errors import RocketError
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
    What became of a local transaction.
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
    # Who returns nothing has not said.
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

    def __init__(self, cluster: Cluster, group: str, check: Execute, **options: Any) -> None:
        """
        @param group: what brokers know the producers by that can answer for each
            other's transactions.
        @param check: told of a half message whose transaction the broker has not
            heard of; says what became of it.
        @param options: as L{Producer}'s.
        """
        super().__init__(cluster, group, **options)
        self._check = check

    @inlineCallbacks
    def sendInTransaction(
        self, message: Message, execute: Execute, timeout: float | None = None
    ) -> Any:
        """
        Send a half message, do the local transaction, and tell the broker of it.

        @param execute: does the local transaction, once the broker has the half
            message.  If it raises, the message is rolled back and the error is the
            Deferred's.
        @return: a Deferred of a L{TransactionSendResult}; it fails as
            L{Producer.send}'s does if the half message was not sent.
        """
        properties = {
            PROPERTY_UNIQ_KEY: self.cluster.uniqueId(),
            **message.properties,
            PROPERTY_TRAN_MSG: "true",
            PROPERTY_PGROUP: self.group,
        }
        # A delay cannot begin before it is known whether there is a message.
        properties.pop(PROPERTY_DELAY, None)
        half = Message(message.topic, message.body, flag=message.flag, properties=properties)
        result: SendResult = yield self.send(half, timeout=timeout)
        state, error = LocalTransactionState.ROLLBACK_MESSAGE, None
        if result.sendStatus is SendStatus.SEND_OK:
            try:
                state = yield _call(execute, half)
            except Exception as raised:
                error = raised
        yield self._end(result, state, error)
        if error is not None:
            raise error
        return TransactionSendResult(result, state)

    @inlineCallbacks
    def _end(
        self, result: SendResult, state: LocalTransactionState, error: Exception | None
    ) -> Any:
        offset = decodeMessageId(result.offsetMsgId)[2]
        queue = result.messageQueue
        header = EndTransactionRequestHeader(
            self.group,
            result.queueOffset,
            offset,
            state.value,
            result.msgId,
            transactionId=result.transactionId,
            bname=queue.brokerName,
        )
        address = self.cluster.routes.address(queue.brokerName)
        remark = None if error is None else f"the local transaction failed: {error}"
        try:
            if address is None:
                raise RocketError(f"no master of broker {queue.brokerName} is known")
            yield self._tell(address, header, remark)
        except RocketError as unsent:
            # Not lost: the broker will ask.
            self._log.warn(
                "Broker {name} was not told that {msgId} is {state}, and will ask: {error}",
                name=queue.brokerName,
                msgId=result.msgId,
                state=state.name,
                error=unsent,
            )

    def _tell(
        self, address: str, header: EndTransactionRequestHeader, remark: str | None
    ) -> Deferred[None]:
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
    ) -> Any:
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
        yield self._tell(address, end, None)
