# SPDX-License-Identifier: Apache-2.0
"""
END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE; Java's C{EndTransactionProcessor}, and
a part of its C{AdminBrokerProcessor}::

    COMMIT     the message is appended to its real topic, or parked if it is delayed
               (L{Reroutes}); then the op of the half is appended
    ROLLBACK   the op is appended
    unknown    nothing, and no response

A request names the half by its offsets in the log and in its queue, and by its producer
group.  As in Java, the broker does not check whether the half was decided before: a producer
that commits twice causes two messages.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.delivery.reroute import Reroutes, encodeSplit, realDestination
from txrocket.broker.replication.durability import LATE, Durability
from txrocket.broker.transaction.halfmessages import CHECK_MAX_TOPIC, HalfMessages
from txrocket.broker.transaction.opmessages import HALF_TOPIC
from txrocket.errors import (
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
from txrocket.store.messagestore import MessageStore

__all__ = ["EndTransactionProcessor"]

# Properties of a half that a parked message does not need.
_OF_HALVES = (PROPERTY_TRAN_MSG, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QID)


class EndTransactionProcessor:
    """
    Serves producers that end transactions, and administrators that have one checked
    again.
    """

    _log = Logger()

    def __init__(
        self,
        store: MessageStore,
        durability: Durability,
        halfMessages: HalfMessages,
        reroutes: Reroutes,
        delivered: Callable[[str, int, int], None],
    ) -> None:
        """
        @param delivered: called with the topic, number and size of committed messages.
        """
        self._store = store
        self._durability = durability
        self._halfMessages = halfMessages
        self._reroutes = reroutes
        self._delivered = delivered

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
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
            end = self._halfMessages.decided(half)
        except (ResponseError, InvalidMessage, StoreError) as error:
            return self._refused(error, header, peer)
        if request.flag & ONEWAY_FLAG:
            # If the op is lost, the broker checks the half again.
            return None
        stored = self._durability.stored(end)
        stored.addCallbacks(
            lambda none: responseCommand(), self._notStored, errbackArgs=(header, peer)
        )
        answer: Deferred[RemotingCommand] = stored  # type: ignore[assignment]
        return answer

    def resume(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        RESUME_CHECK_HALF_MESSAGE: check a half that was given up from the beginning.

        @raise RemoteSystemError: if the half does not exist, as Java answers.
        """
        msgId = request.decodeHeader(ResumeCheckHalfMessageRequestHeader).msgId or ""
        try:
            half = self._halfMessages.find(decodeMessageId(msgId)[2], HALF_TOPIC, CHECK_MAX_TOPIC)
            _, end = self._halfMessages.again(half, 0)
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
        @raise RemoteSystemError: if the half does not exist.
        """
        half = self._halfMessages.find(header.commitLogOffset, HALF_TOPIC)
        if half.properties.get(PROPERTY_PGROUP) != header.producerGroup:
            raise RemoteSystemError(f"the half is not of the group {header.producerGroup}")
        if half.queueOffset != header.tranStateTableOffset:
            raise RemoteSystemError(
                f"the half is not at {header.tranStateTableOffset} in its queue, but at"
                f" {half.queueOffset}"
            )
        return half

    def _commit(self, half: MessageExt) -> None:
        topic, queueId = realDestination(half)
        properties = {
            name: value for name, value in half.properties.items() if name not in _OF_HALVES
        }
        place = self._reroutes.place(topic, queueId, properties)
        # As Java: a message that is not parked keeps the properties of the half.
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
        # As Java: if disk or slave is only slow, the message is in the log.
        if failure.check(*LATE):
            return responseCommand()
        failure.trap(StoreError)
        error = failure.value
        assert isinstance(error, StoreError)
        return self._refused(error, header, peer)

    def _refused(
        self, error: Exception, header: EndTransactionRequestHeader, peer: RemotingProtocol
    ) -> RemotingCommand:
        """
        Log an error and respond with it.  Producers send oneway, so only the log has it.
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
