# SPDX-License-Identifier: Apache-2.0
"""
What brokers ask of clients; Java's C{ClientRemotingProcessor}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.client.consumer.runninginfo import threadStacks
from txrocket.client.members import ConsumerMember, ProducerMember
from txrocket.errors import InvalidMessage, RemoteSystemError
from txrocket.message import (
    PROPERTY_ARRIVE_TIME,
    PROPERTY_CORRELATION_ID,
    PROPERTY_PGROUP,
    MessageExt,
)
from txrocket.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.compression import inflated
from txrocket.protocol.headers import (
    CheckTransactionStateRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ReplyMessageRequestHeader,
    ResetOffsetRequestHeader,
)
from txrocket.protocol.record import decodeRecord
from txrocket.protocol.record.fields import encodeHost
from txrocket.remoting.addresses import NO_HOST, parseAddress
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["ClientRequests"]


class ClientRequests:
    """
    Serves brokers.

    @ivar replies: the Deferreds that wait for replies, by correlation id.
    """

    _log = Logger()

    def __init__(
        self,
        producers: Mapping[str, ProducerMember],
        consumers: Mapping[str, ConsumerMember],
        now: Callable[[], int],
    ) -> None:
        """
        @param producers: by group.
        @param consumers: by group.
        @param now: the time in milliseconds.
        """
        self._producers = producers
        self._consumers = consumers
        self._now = now
        self.replies: dict[str, Deferred[MessageExt]] = {}

    def codes(self) -> dict[int, Process]:
        """
        The request codes that are served.
        """
        return {
            RequestCode.CHECK_TRANSACTION_STATE: self.checkTransaction,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self.idsChanged,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self.resetOffsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.runningInfo,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consumeDirectly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.reply,
        }

    def checkTransaction(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        CHECK_TRANSACTION_STATE: the broker asks for the state of a transaction.  The answer
        is an END_TRANSACTION, when it is known.
        """
        header = request.decodeHeader(CheckTransactionStateRequestHeader)
        message = inflated(decodeRecord(request.body))
        group = message.properties.get(PROPERTY_PGROUP, "")
        producer = self._producers.get(group)
        if producer is None:
            self._log.warn(
                "Broker {address} asks about a transaction of producer group {group},"
                " of which there is none here",
                address=peer.address,
                group=group,
            )
        else:
            producer.checkTransaction(header, message, peer.address)
        return None

    def idsChanged(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        NOTIFY_CONSUMER_IDS_CHANGED: a member has come or gone.
        """
        header = request.decodeHeader(NotifyConsumerIdsChangedRequestHeader)
        consumer = self._consumers.get(header.consumerGroup)
        if consumer is not None:
            consumer.idsChanged()
        return None

    def resetOffsets(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        RESET_CONSUMER_CLIENT_OFFSET: go on elsewhere.
        """
        header = request.decodeHeader(ResetOffsetRequestHeader)
        body = decodeBody(ResetOffsetBody, request.body)
        self._log.info(
            "Broker {address} resets group {group} in topic {topic} to time {timestamp}",
            address=peer.address,
            group=header.group,
            topic=header.topic,
            timestamp=header.timestamp,
        )
        consumer = self._consumers.get(header.group)
        if consumer is not None:
            consumer.resetOffsets(header.topic, body.offsetTable)
        return None

    def status(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        GET_CONSUMER_STATUS_FROM_CLIENT: at which offsets is a consumer?  One that
        is not here has none.
        """
        header = request.decodeHeader(GetConsumerStatusRequestHeader)
        consumer = self._consumers.get(header.group)
        offsets = {} if consumer is None else dict(consumer.status(header.topic))
        return responseCommand(body=encodeBody(GetConsumerStatusBody(offsets)))

    def runningInfo(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        GET_CONSUMER_RUNNING_INFO.
        """
        header = request.decodeHeader(GetConsumerRunningInfoRequestHeader)
        info = self._consumer(header.consumerGroup).runningInfo()
        if header.jstackEnable:
            info = replace(info, jstack=threadStacks())
        return responseCommand(body=encodeBody(info))

    def consumeDirectly(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        CONSUME_MESSAGE_DIRECTLY: have one message consumed, now.
        """
        header = request.decodeHeader(ConsumeMessageDirectlyResultRequestHeader)
        message = inflated(decodeRecord(request.body))
        consumer = self._consumer(header.consumerGroup)

        def answer(result: ConsumeMessageDirectlyResult) -> RemotingCommand:
            return responseCommand(body=encodeBody(result))

        return consumer.consumeDirectly(message, header.brokerName or "").addCallback(answer)

    def reply(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        PUSH_REPLY_MESSAGE_TO_CLIENT: the reply to a message of ours.
        """
        header = request.decodeHeader(ReplyMessageRequestHeader)
        message = inflated(_replied(header, request.body, self._now()))
        waiting = self.replies.pop(message.properties.get(PROPERTY_CORRELATION_ID, ""), None)
        if waiting is None:
            self._log.info(
                "A reply came by {address} too late or unasked, and was dropped",
                address=peer.address,
            )
        else:
            waiting.callback(message)
        return responseCommand()

    def _consumer(self, group: str) -> ConsumerMember:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise RemoteSystemError(f"there is no consumer of group {group} in this client")
        return consumer


def _replied(header: ReplyMessageRequestHeader, body: bytes, now: int) -> MessageExt:
    properties = f"{header.properties or ''}\x02{PROPERTY_ARRIVE_TIME}\x01{now}"
    return MessageExt(
        topic=header.topic,
        body=body,
        flag=header.flag,
        propertiesData=properties.encode(),
        queueId=header.queueId,
        queueOffset=0,
        commitLogOffset=0,
        sysFlag=header.sysFlag,
        bornTimestamp=header.bornTimestamp,
        bornHostData=_host(header.bornHost),
        storeTimestamp=header.storeTimestamp,
        storeHostData=_host(header.storeHost),
        reconsumeTimes=header.reconsumeTimes or 0,
        preparedTransactionOffset=0,
        bodyCRC=0,
        storeSize=len(body),
    )


def _host(address: str) -> bytes:
    # Java writes /host:port, and a name before the slash if it has looked one up.
    try:
        return encodeHost(*parseAddress(address.rpartition("/")[2]))
    except (ValueError, InvalidMessage):
        return NO_HOST
