# SPDX-License-Identifier: Apache-2.0
"""
A message, or a batch of messages, in the form in which it is sent: the steps of
C{DefaultMQProducerImpl.sendKernelImpl} that need no network.

    Message --> checked, named, compressed --> request --> answer --> SendResult
                take, takeBatch          request, encodeHead          resultOf

The header of an ordinary message differs from that of the last one to the same queue in a
few places only.  A template per queue has the rest::

    {"code":310,"extFields":{"a":"group","b":"topic", ... "f":"SYSFLAG","g":"BORN",
     "h":"FLAG","i":PROPERTIES, ...},"flag":0, ... "opaque":OPAQUE, ...}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import msgspec
import orjson
from msgspec import field

from txrocket.client.sansio.results import SendResult, SendStatus
from txrocket.client.sansio.topicroute import DEFAULT_TOPIC
from txrocket.errors import InvalidMessage, MessageTooLarge, responseError
from txrocket.message import (
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_MSG_TYPE,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_TAGS,
    PROPERTY_TRAN_MSG,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    Message,
)
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, rawRequest, requestCommand
from txrocket.protocol.compression import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE, deflate
from txrocket.protocol.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from txrocket.protocol.headers.fields import UNREADABLE
from txrocket.protocol.headertemplates import requestTemplate
from txrocket.protocol.names import RETRY_PREFIX, checkSendTopic
from txrocket.protocol.record import TRANSACTION_PREPARED_TYPE
from txrocket.protocol.record.batch import encodeBatch
from txrocket.protocol.record.fields import PROPERTIES_LIMIT, encodeProperties, joinProperties

__all__ = ["REPLY", "SEND_CODE", "SendRequest", "headTemplate", "withProperties"]

#: What the property MSG_TYPE of a reply says.
REPLY: Final = "reply"


_newTuple: Final = tuple.__new__

_STORED: Final = {each.value: each for each in SendStatus}

#: SEND_MESSAGE_V2 as a plain number: members of an enumeration are slow to compare and
#: to write.
SEND_CODE: Final = int(RequestCode.SEND_MESSAGE_V2)

# Length and header length of a frame, whose first byte says that the header is JSON: 0.
_PREFIX: Final = Struct(">2I").pack


class SendRequest:
    """
    A message, or a batch, that is ready to be sent.

    @ivar body: the request's: a message's, perhaps compressed, or a batch.
    @ivar properties: the request's, as one text.
    @ivar msgId: the id that this client gives it; several for a batch, divided by
        commas.
    @ivar born: the time of the send, in milliseconds.
    @ivar batch: whether the body holds several messages.
    @ivar reply: whether it is the reply to a message.
    @ivar ordinary: whether only the fields that a template leaves open differ from those
        of other requests to the same queue; not so for batches, replies and retries.
    @ivar reconsumeTimes: how often consumers have tried it, if it goes to a retry
        topic.
    @ivar maxReconsumeTimes: how often they may.
    """

    # On the class, because most messages change few of them.  See hotpath: send.
    body = b""
    properties = ""
    flag = 0
    sysFlag = 0
    msgId = ""
    born = 0
    ordinary = True
    batch = False
    reply = False
    reconsumeTimes = 0
    maxReconsumeTimes: int | None = None

    def __init__(self, topic: str) -> None:
        """
        @raise InvalidMessage: if the topic's name is not valid, or the topic is reserved.
        """
        checkSendTopic(topic)
        self.topic = topic

    def take(self, message: Message, msgId: str, compressOver: int, maxMessageSize: int) -> None:
        """
        Check a message, give it an id, and compress its body if that is long.

        @param msgId: for a message that brings no id of its own.
        @param compressOver: bodies of this many bytes, or more, are compressed.
        @raise InvalidMessage: if the message cannot be sent.
        """
        body, properties = message.body, message.properties
        if type(body) is not bytes or not 0 < len(body) <= maxMessageSize:
            _checkBody(body, maxMessageSize)
        if properties:
            self._takeProperties(properties, msgId)
        else:
            self.msgId = msgId
            self.properties = f"{PROPERTY_UNIQ_KEY}\x01{msgId}"
        if message.flag:
            self.flag = message.flag
        if len(body) >= compressOver:
            body = deflate(body)
            self.sysFlag |= COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE
        self.body = body

    def _takeProperties(self, properties: Mapping[str, str], msgId: str) -> None:
        if len(properties) == 1 and type(tags := properties.get(PROPERTY_TAGS)) is str:
            text = _joinedTags(tags)
        else:
            if PROPERTY_MSG_TYPE in properties:
                self.reply = properties[PROPERTY_MSG_TYPE] == REPLY
                self.ordinary = not self.reply
            if PROPERTY_TRAN_MSG in properties and properties[PROPERTY_TRAN_MSG].lower() == "true":
                self.sysFlag = TRANSACTION_PREPARED_TYPE
            if self.topic.startswith(RETRY_PREFIX):
                properties = self._consumed(properties)
            text = joinProperties(properties)
        if PROPERTY_UNIQ_KEY in properties:
            msgId = properties[PROPERTY_UNIQ_KEY]
        else:
            # Before the other properties, which need not be copied for it.
            separator = "\x02" if properties else ""
            text = f"{PROPERTY_UNIQ_KEY}\x01{msgId}{separator}{text}"
        if len(text) > PROPERTIES_LIMIT or not text.isascii():
            encodeProperties({**properties, PROPERTY_UNIQ_KEY: msgId})
        self.msgId = msgId
        self.properties = text

    def _consumed(self, properties: Mapping[str, str]) -> dict[str, str]:
        """
        Move to the request's fields those properties that a request to a retry topic has
        there.

        @return: the other properties.
        """
        others = dict(properties)
        try:
            self.reconsumeTimes = int(others.pop(PROPERTY_RECONSUME_TIME, "0"))
            if self.reconsumeTimes:
                self.ordinary = False
            if (most := others.pop(PROPERTY_MAX_RECONSUME_TIMES, None)) is not None:
                self.maxReconsumeTimes = int(most)
                self.ordinary = False
        except ValueError as error:
            raise InvalidMessage(f"how often a message was consumed: {error}") from None
        return others

    def takeBatch(
        self, messages: Sequence[Message], uniqueId: Callable[[], str], maxMessageSize: int
    ) -> None:
        """
        Check the messages of a batch, give each an id, and encode them as one body.

        @param uniqueId: makes an id.
        @raise InvalidMessage: if a message cannot be sent, or not in this batch.
        """
        for each in messages:
            _checkBody(each.body, maxMessageSize)
        named = [
            each
            if PROPERTY_UNIQ_KEY in each.properties
            else withProperties(each, {PROPERTY_UNIQ_KEY: uniqueId()})
            for each in messages
        ]
        self.batch, self.ordinary = True, False
        self.body = encodeBatch(named)
        self.msgId = ",".join(each.properties[PROPERTY_UNIQ_KEY] for each in named)
        if not messages[0].waitStoreMsgOK:
            self.properties = f"{PROPERTY_WAIT}\x01false"

    def copy(self, other: SendRequest) -> None:
        """
        Send what another request sends.
        """
        self.__dict__.update(other.__dict__)

    def request(
        self, group: str, queue: MessageQueue, queues: int, born: int, *, oneway: bool = False
    ) -> RemotingCommand:
        """
        The request that sends it to a queue.

        @param group: the producer's.
        @param queues: how many queues the topic gets if the broker creates it.
        @param born: the time of the send, in milliseconds.
        """
        if self.ordinary and not self.batch:
            properties = orjson.dumps(self.properties)
            fields = _fieldsTemplate(group, self.topic, queues, queue)
            fields %= self.sysFlag, born, self.flag, properties
            return rawRequest(SEND_CODE, fields, self.body, oneway=oneway)
        header = self._header(group, queue, queues, born)
        code = RequestCode.SEND_MESSAGE_V2
        if self.batch:
            code = RequestCode.SEND_BATCH_MESSAGE
        elif self.reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        return requestCommand(code, header, self.body, oneway=oneway)

    def encodeHead(self, template: bytes, opaque: int, limit: int) -> bytes | None:
        """
        The frame of that request up to its body.

        @param template: the queue's, as L{headTemplate} gives it.
        @param opaque: the request's number.
        @param limit: how long the whole frame may be.
        @return: L{None} if the template does not fit this request: see C{ordinary}.
        """
        if not self.ordinary:
            return None
        header = template % (
            self.sysFlag,
            self.born,
            self.flag,
            orjson.dumps(self.properties),
            opaque,
        )
        size = len(header)
        length = 4 + size + len(self.body)
        return None if length + 4 > limit else _PREFIX(length, size) + header

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
        The answer to that request, decoded.

        @param address: the broker's.
        @raise ResponseError: if the broker has not stored the message.
        @raise ProtocolError: if the answer cannot be decoded.
        """
        status = _STORED.get(response.code)
        if status is None:
            raise responseError(response.code, response.remark, address)
        try:
            # The answers that carry the traffic; see hotpath: send.
            header = _decodeStored(response.raw)
        except UNREADABLE:
            header = response.decodeHeader(_Stored)
        if queue.queueId != header.queueId:
            queue = MessageQueue(queue.topic, queue.brokerName, header.queueId)
        # To call SendResult takes twice as long as to make its tuple.
        return _newTuple(
            SendResult,
            (
                status,
                self.msgId,
                header.msgId,
                queue,
                header.queueOffset,
                header.transactionId,
                header.regionId,
                header.traceOn != "false",
            ),
        )


class _Stored(SendMessageResponseHeader):
    """
    The header of the answer to a send, with the two properties that Java reads beside it,
    so that one pass decodes all.
    """

    regionId: str | None = field(name="MSG_REGION", default=None)
    traceOn: str | None = field(name="TRACE_ON", default=None)


_decodeStored: Final = msgspec.json.Decoder(_Stored, strict=False).decode


# Each queue of each topic has one.
@lru_cache(4096)
def _fieldsTemplate(group: str, topic: str, queues: int, queue: MessageQueue) -> bytes:
    """
    The fields of a send, as JSON, in which sysFlag, born timestamp, flag and properties
    are to be filled in.
    """
    return _leaving(group, topic, queues, queue, f=b'"%d"', g=b'"%d"', h=b'"%d"', i=b"%b")


@lru_cache(4096)
def headTemplate(group: str, topic: str, queues: int, queue: MessageQueue) -> bytes:
    """
    The whole header of a send, for L{SendRequest.encodeHead}: the same, and the request's
    number.
    """
    return requestTemplate(SEND_CODE, _fieldsTemplate(group, topic, queues, queue))


def _leaving(
    group: str, topic: str, queues: int, queue: MessageQueue, **placeholders: bytes
) -> bytes:
    """
    The fields of a send, as JSON, with placeholders for some.
    """
    header = SendRequest(topic)._header(group, queue, queues, 0)
    # Their names are letters, in the order of the header.
    members = [
        b'"%b":%b' % (name.encode(), placeholders.get(name) or _literally(text))
        for name, text in sorted(header.toFields().items())
    ]
    return b"{%b}" % b",".join(members)


# There are few tags, and most messages have no other property.
@lru_cache(1024)
def _joinedTags(tags: str) -> str:
    return joinProperties({PROPERTY_TAGS: tags})


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
