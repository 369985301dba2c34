# SPDX-License-Identifier: Apache-2.0
"""
END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE; Java's C{EndTransactionProcessor}, and
a part of its C{AdminBrokerProcessor}::

    COMMIT     the half's message goes to its topic, or first where it is late
               (L{Detours}); then the op says that the half is dealt with
    ROLLBACK   the op
    unknown    nothing, and no answer

Which half is meant is said by its place in the log and in its queue, and its
producers' group must be right, too.  As in Java it is not asked whether the half was
decided before: who commits twice has two messages delivered.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.decisions import HALF_TOPIC
from txrocket.broker.detours import Detours, encodeSplit, realPlace
from txrocket.broker.transactions import CHECK_MAX_TOPIC, Transactions
from txrocket.errors import (
    FlushDiskTimeout,
    InvalidMessage,
    MalformedField,
    MessageIllegal,
    RemoteSystemError,
    ResponseError,
    ServiceNotAvailable,
    StoreError,
)
from txrocket.message import (
    PROPERTY_PGROUP,
    PROPERTY_REAL_QID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRAN_MSG,
    MessageExt,
)
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import ONEWAY_FLAG, RemotingCommand, responseCommand
from txrocket.protocol.headers import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messages import MessageStore

__all__ = ["TransactionProcessor"]

# Properties of a half that its message does not need while it is late.
_OF_HALVES = (PROPERTY_TRAN_MSG, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QID)


class TransactionProcessor:
    """
    Serves producers that end transactions, and administrators that have one checked
    again.
    """

    _log = Logger()

    def __init__(
        self,
        store: MessageStore,
        transactions: Transactions,
        detours: Detours,
        delivered: Callable[[str, int, int], None],
    ) -> None:
        """
        @param delivered: told the topic, number and size of what was committed.
        """
        self._store = store
        self._transactions = transactions
        self._detours = detours
        self._delivered = delivered

    def codes(self) -> dict[int, Process]:
        """
        What serves which code.
        """
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        END_TRANSACTION.
        """
        header = request.decodeHeader(EndTransactionRequestHeader)
        if header.commitOrRollback == TRANSACTION_NOT_TYPE:
            return None
        try:
            half = self._find(header)
            if header.commitOrRollback == TRANSACTION_COMMIT_TYPE:
                self._commit(half)
            end = self._transactions.decided(half)
        except (ResponseError, InvalidMessage, StoreError) as error:
            return self._refused(error, header, peer)
        if request.flag & ONEWAY_FLAG:
            # If it is lost, the producer will be asked.
            return None
        stored = self._store.stored(end)
        stored.addCallbacks(
            lambda none: responseCommand(), self._notStored, errbackArgs=(header, peer)
        )
        answer: Deferred[RemotingCommand] = stored  # type: ignore[assignment]
        return answer

    def resume(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        RESUME_CHECK_HALF_MESSAGE: have a half that was given up checked as if it never
        had been.

        @raise RemoteSystemError: if there is no such half, as Java answers.
        """
        msgId = request.decodeHeader(ResumeCheckHalfMessageRequestHeader).msgId or ""
        try:
            half = self._transactions.find(decodeMessageId(msgId)[2], HALF_TOPIC, CHECK_MAX_TOPIC)
            _, end = self._transactions.again(half, 0)
        except (MalformedField, InvalidMessage, StoreError) as error:
            raise RemoteSystemError(f"{msgId} is not checked again: {error}") from None
        self._log.warn(
            "{address} has half of a transaction checked again, {id}",
            address=peer.address,
            id=msgId,
        )
        return self._store.stored(end).addCallback(lambda none: responseCommand())

    def _find(self, header: EndTransactionRequestHeader) -> MessageExt:
        """
        @raise RemoteSystemError: if there is no such half.
        """
        half = self._transactions.find(header.commitLogOffset, HALF_TOPIC)
        if half.properties.get(PROPERTY_PGROUP) != header.producerGroup:
            raise RemoteSystemError(f"the half is not of the group {header.producerGroup}")
        if half.queueOffset != header.tranStateTableOffset:
            raise RemoteSystemError(
                f"the half is not at {header.tranStateTableOffset} in its queue, but at"
                f" {half.queueOffset}"
            )
        return half

    def _commit(self, half: MessageExt) -> None:
        topic, queueId = realPlace(half)
        properties = {
            name: value for name, value in half.properties.items() if name not in _OF_HALVES
        }
        place = self._detours.place(topic, queueId, properties)
        # As Java, which leaves those of the half to what goes to its topic at once.
        late = place.topic != topic
        appended = self._store.put(
            place.topic,
            place.queueId,
            half.body,
            encodeSplit(place.properties) if late else half.propertiesData,
            half.bornTimestamp,
            half.bornHostData,
            half.flag,
            half.sysFlag & ~TRANSACTION_ROLLBACK_TYPE | TRANSACTION_COMMIT_TYPE,
            half.reconsumeTimes,
            half.commitLogOffset,
        )
        self._delivered(place.topic, 1, appended.sizes[0])

    def _notStored(
        self, failure: Failure, header: EndTransactionRequestHeader, peer: RemotingProtocol
    ) -> RemotingCommand:
        # As Java: a disk that is slow has the message all the same.
        if failure.check(FlushDiskTimeout):
            return responseCommand()
        failure.trap(StoreError)
        error = failure.value
        assert isinstance(error, StoreError)
        return self._refused(error, header, peer)

    def _refused(
        self, error: Exception, header: EndTransactionRequestHeader, peer: RemotingProtocol
    ) -> RemotingCommand:
        """
        What is answered, and said here: producers want no answer.
        """
        if isinstance(error, StoreError):
            error = ServiceNotAvailable(f"the store takes no messages now: {error}")
        elif isinstance(error, InvalidMessage):
            error = MessageIllegal(str(error))
        assert isinstance(error, ResponseError)
        self._log.warn(
            "{address} cannot end transaction {id}: {remark}",
            address=peer.address,
            id=header.msgId,
            remark=error.remark,
        )
        return responseCommand(error.code, error.remark)
