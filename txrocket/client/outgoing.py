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
from functools import lru_cache
from typing import Final

import orjson
from msgspec import field

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
from txrocket.protocol.command import RemotingCommand, rawRequest, requestCommand, requestTemplate
from txrocket.protocol.compression import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE, deflate
from txrocket.protocol.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from txrocket.protocol.names import RETRY_PREFIX, checkSendTopic
from txrocket.protocol.parts import PROPERTIES_LIMIT, encodeProperties, joinProperties
from txrocket.protocol.record import TRANSACTION_PREPARED_TYPE

__all__ = ["REPLY", "Outgoing", "Stored", "sendTemplate", "withProperties"]

#: What the property MSG_TYPE of a reply says.
REPLY: Final = "reply"


_STORED: Final = {each.value: each for each in SendStatus}

# A plain number: members of an enumeration are slow to compare and to write.
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)


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

    # On the class, because most messages change few of them: to set all of them for
    # each message would take as long as to give it an id.
    body = b""
    properties = ""
    flag = 0
    sysFlag = 0
    msgId = ""
    batch = False
    reply = False
    reconsumeTimes = 0
    maxReconsumeTimes: int | None = None

    def __init__(self, topic: str) -> None:
        """
        @raise InvalidMessage: if nothing can be sent to that topic.
        """
        checkSendTopic(topic)
        self.topic = topic

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
            if PROPERTY_MSG_TYPE in properties:
                self.reply = properties[PROPERTY_MSG_TYPE] == REPLY
            if PROPERTY_TRAN_MSG in properties and properties[PROPERTY_TRAN_MSG].lower() == "true":
                self.sysFlag = TRANSACTION_PREPARED_TYPE
            if self.topic.startswith(RETRY_PREFIX):
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
        asked = self.reconsumeTimes or self.maxReconsumeTimes is not None
        if not (self.batch or self.reply or asked):
            properties = orjson.dumps(self.properties)
            fields = _template(group, self.topic, queues, queue)
            fields %= self.sysFlag, born, self.flag, properties
            return rawRequest(_SEND, fields, self.body, oneway=oneway)
        header = self._header(group, queue, queues, born)
        code = RequestCode.SEND_MESSAGE_V2
        if self.batch:
            code = RequestCode.SEND_BATCH_MESSAGE
        elif self.reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        return requestCommand(code, header, self.body, oneway=oneway)

    def _header(
        self, group: str, queue: MessageQueue, queues: int, born: int
    ) -> SendMessageRequestHeaderV2:
        return SendMessageRequestHeaderV2(
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
        header = response.decodeHeader(Stored)
        if queue.queueId != header.queueId:
            queue = MessageQueue(queue.topic, queue.brokerName, header.queueId)
        return SendResult(
            status,
            self.msgId,
            header.msgId,
            queue,
            header.queueOffset,
            header.transactionId,
            header.regionId,
            header.traceOn != "false",
        )


class Stored(SendMessageResponseHeader):
    """
    The header of the answer to a send, with what Java reads beside it, so that all is
    read in one go.
    """

    regionId: str | None = field(name="MSG_REGION", default=None)
    traceOn: str | None = field(name="TRACE_ON", default=None)


# Each queue of each topic has one.  Most sends differ in four fields only, and to fill
# them in takes a sixth of making a header, its map and the JSON of that.
@lru_cache(4096)
def _template(group: str, topic: str, queues: int, queue: MessageQueue) -> bytes:
    """
    The fields of a send, as JSON, in which sysFlag, born timestamp, flag and properties
    are to be filled in.
    """
    return _leaving(group, topic, queues, queue, f=b'"%d"', g=b'"%d"', h=b'"%d"', i=b"%b")


def sendTemplate(group: str, topic: str, queues: int, queue: MessageQueue) -> bytes:
    """
    The header of a message's request, as JSON, in which born timestamp, flag, unique id,
    all other properties and the number of the request are to be filled in.  The properties
    are as JSON has them, each with the separator before it.
    """
    properties = orjson.dumps(f"{PROPERTY_UNIQ_KEY}\x01")[:-1] + b'%b%b"'
    fields = _leaving(group, topic, queues, queue, g=b'"%d"', h=b'"%d"', i=properties)
    return requestTemplate(_SEND, fields)


def _leaving(
    group: str, topic: str, queues: int, queue: MessageQueue, **placeholders: bytes
) -> bytes:
    """
    The fields of a send, as JSON, in which some are to be filled in.
    """
    header = Outgoing(topic)._header(group, queue, queues, 0)
    # Their names are letters, in the order of the header.
    members = [
        b'"%b":%b' % (name.encode(), placeholders.get(name) or _literally(text))
        for name, text in sorted(header.toFields().items())
    ]
    return b"{%b}" % b",".join(members)


def _literally(text: str) -> bytes:
    return orjson.dumps(text).replace(b"%", b"%%")


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
