# SPDX-License-Identifier: Apache-2.0
"""
A message, or a batch of them, in the form in which it is sent: what
C{DefaultMQProducerImpl.sendKernelImpl} does between a message and a request, and
between the answer and a result.

    Message --> checked, named, compressed --> request --> answer --> SendResult
                take, takeBatch                request               resultOf
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from txrocket.client.results import SendResult, SendStatus
from txrocket.client.topicroute import DEFAULT_TOPIC
from txrocket.errors import InvalidMessage, MessageTooLarge, responseError
from txrocket.message import (
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_MSG_TYPE,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_TRAN_MSG,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    Message,
)
from txrocket.model import MessageQueue
from txrocket.protocol.batch import encodeBatch
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.compression import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE, deflate
from txrocket.protocol.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from txrocket.protocol.names import checkSendTopic
from txrocket.protocol.parts import PROPERTIES_LIMIT, encodeProperties, joinProperties
from txrocket.protocol.record import TRANSACTION_PREPARED_TYPE

__all__ = ["REPLY", "Outgoing", "withProperties"]

#: What the property MSG_TYPE of a reply says.
REPLY: Final = "reply"

_RETRY_PREFIX: Final = "%RETRY%"

_STORED: Final = {each.value: each for each in SendStatus}


class Outgoing:
    """
    What is sent.

    @ivar body: the request's: a message's, perhaps compressed, or a batch.
    @ivar properties: the request's, as one text.
    @ivar msgId: the id that this client gives it; several for a batch, divided by
        commas.
    @ivar batch: whether the body holds several messages.
    @ivar reply: whether it is the reply to a message.
    @ivar reconsumeTimes: how often consumers have tried it, if it goes to a retry
        topic.
    @ivar maxReconsumeTimes: how often they may.
    """

    __slots__ = (
        *("batch", "body", "flag", "maxReconsumeTimes", "msgId", "properties"),
        *("reconsumeTimes", "reply", "sysFlag", "topic"),
    )

    def __init__(self, topic: str) -> None:
        """
        @raise InvalidMessage: if nothing can be sent to that topic.
        """
        checkSendTopic(topic)
        self.topic = topic
        self.body = b""
        self.properties = ""
        self.flag = 0
        self.sysFlag = 0
        self.msgId = ""
        self.batch = False
        self.reply = False
        self.reconsumeTimes = 0
        self.maxReconsumeTimes: int | None = None

    def take(
        self, message: Message, uniqueId: Callable[[], str], compressOver: int, maxMessageSize: int
    ) -> None:
        """
        Be a message.

        @param uniqueId: makes an id for it.
        @param compressOver: bodies of so many bytes, or more, are compressed.
        @raise InvalidMessage: if it cannot be sent.
        """
        body, properties = message.body, message.properties
        _checkBody(body, maxMessageSize)
        if properties:
            if properties.get(PROPERTY_MSG_TYPE) == REPLY:
                self.reply = True
            if properties.get(PROPERTY_TRAN_MSG, "").lower() == "true":
                self.sysFlag = TRANSACTION_PREPARED_TYPE
            if self.topic.startswith(_RETRY_PREFIX):
                properties = self._consumed(properties)
        if PROPERTY_UNIQ_KEY in properties:
            self.msgId = properties[PROPERTY_UNIQ_KEY]
            text = joinProperties(properties)
        else:
            self.msgId = uniqueId()
            # A property of our own is put before the others without looking at them.
            text = f"{PROPERTY_UNIQ_KEY}\x01{self.msgId}"
            if properties:
                text = f"{text}\x02{joinProperties(properties)}"
        if len(text) > PROPERTIES_LIMIT or not text.isascii():
            encodeProperties({**properties, PROPERTY_UNIQ_KEY: self.msgId})
        self.properties = text
        self.flag = message.flag
        if len(body) >= compressOver:
            body = deflate(body)
            self.sysFlag |= COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE
        self.body = body

    def _consumed(self, properties: Mapping[str, str]) -> dict[str, str]:
        """
        Take out of the properties what a request to a retry topic has as fields.
        """
        others = dict(properties)
        try:
            self.reconsumeTimes = int(others.pop(PROPERTY_RECONSUME_TIME, "0"))
            if (most := others.pop(PROPERTY_MAX_RECONSUME_TIMES, None)) is not None:
                self.maxReconsumeTimes = int(most)
        except ValueError as error:
            raise InvalidMessage(f"how often a message was consumed: {error}") from None
        return others

    def takeBatch(
        self, messages: Sequence[Message], uniqueId: Callable[[], str], maxMessageSize: int
    ) -> None:
        """
        Be a batch of messages.

        @param uniqueId: makes an id for each.
        @raise InvalidMessage: if they cannot be sent, or not together.
        """
        for each in messages:
            _checkBody(each.body, maxMessageSize)
        named = [
            each
            if PROPERTY_UNIQ_KEY in each.properties
            else withProperties(each, {PROPERTY_UNIQ_KEY: uniqueId()})
            for each in messages
        ]
        self.batch = True
        self.body = encodeBatch(named)
        self.msgId = ",".join(each.properties[PROPERTY_UNIQ_KEY] for each in named)
        if not messages[0].waitStoreMsgOK:
            self.properties = f"{PROPERTY_WAIT}\x01false"

    def request(
        self, group: str, queue: MessageQueue, queues: int, born: int, *, oneway: bool = False
    ) -> RemotingCommand:
        """
        The request that brings it to a queue.

        @param group: the producer's.
        @param queues: how many queues the topic gets if it is not there yet.
        @param born: when it was sent, in milliseconds.
        """
        header = SendMessageRequestHeaderV2(
            group,
            self.topic,
            DEFAULT_TOPIC,
            queues,
            queue.queueId,
            self.sysFlag,
            born,
            self.flag,
            self.properties,
            self.reconsumeTimes,
            maxReconsumeTimes=self.maxReconsumeTimes,
            batch=self.batch,
            bname=queue.brokerName,
        )
        code = RequestCode.SEND_MESSAGE_V2
        if self.batch:
            code = RequestCode.SEND_BATCH_MESSAGE
        elif self.reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        return requestCommand(code, header, self.body, oneway=oneway)

    def resultOf(self, response: RemotingCommand, queue: MessageQueue, address: str) -> SendResult:
        """
        What the answer to that request tells.

        @param address: who answered.
        @raise ResponseError: if the broker has not taken it.
        @raise ProtocolError: if the answer cannot be understood.
        """
        status = _STORED.get(response.code)
        if status is None:
            raise responseError(response.code, response.remark, address)
        header = response.decodeHeader(SendMessageResponseHeader)
        if queue.queueId != header.queueId:
            queue = MessageQueue(queue.topic, queue.brokerName, header.queueId)
        fields = response.extFields
        return SendResult(
            status,
            self.msgId,
            header.msgId,
            queue,
            header.queueOffset,
            header.transactionId,
            fields.get("MSG_REGION"),
            fields.get("TRACE_ON") != "false",
        )


def _checkBody(body: object, maxMessageSize: int) -> None:
    if not isinstance(body, bytes):
        raise InvalidMessage(f"a message's body is bytes, not {type(body).__name__}")
    if not body:
        raise InvalidMessage("a message without a body cannot be sent")
    if len(body) > maxMessageSize:
        raise MessageTooLarge(len(body), maxMessageSize)


def withProperties(message: Message, properties: dict[str, str]) -> Message:
    """
    A message with further properties.
    """
    return Message(
        message.topic,
        message.body,
        flag=message.flag,
        properties={**message.properties, **properties},
    )
