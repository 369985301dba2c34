# SPDX-License-Identifier: Apache-2.0
"""
Headers of requests that carry, look up or settle messages: send, pull, query,
view, send back, reply and transactions.
"""

from __future__ import annotations

from msgspec import field

from txrocket.model import Int32, Int64
from txrocket.protocol.headers.fields import Header

__all__ = [
    "CheckTransactionStateRequestHeader",
    "ConsumerSendMsgBackRequestHeader",
    "EndTransactionRequestHeader",
    "PullMessageRequestHeader",
    "PullMessageResponseHeader",
    "QueryMessageRequestHeader",
    "QueryMessageResponseHeader",
    "ReplyMessageRequestHeader",
    "ResumeCheckHalfMessageRequestHeader",
    "SendMessageRequestHeader",
    "SendMessageRequestHeaderV2",
    "SendMessageResponseHeader",
    "ViewMessageRequestHeader",
]


class SendMessageRequestHeader(Header):
    """
    SEND_MESSAGE and SEND_REPLY_MESSAGE.  The request's body is the message's body.

    @ivar defaultTopic: the topic whose settings a topic inherits that does not exist
        yet.
    @ivar properties: the message's properties, each C{name \\x01 value \\x02}.
    @ivar batch: whether the body is a batch, several messages in the client's format.
    @ivar bname: the broker's name, which newer clients add to many requests.
    """

    producerGroup: str
    topic: str
    defaultTopic: str
    defaultTopicQueueNums: Int32
    queueId: Int32
    sysFlag: Int32
    bornTimestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsumeTimes: Int32 | None = None
    unitMode: bool = False
    batch: bool = False
    maxReconsumeTimes: Int32 | None = None
    bname: str | None = None


class SendMessageRequestHeaderV2(Header):
    """
    SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and SEND_REPLY_MESSAGE_V2: the fields of
    L{SendMessageRequestHeader} under names of one letter.
    """

    producerGroup: str = field(name="a")
    topic: str = field(name="b")
    defaultTopic: str = field(name="c")
    defaultTopicQueueNums: Int32 = field(name="d")
    queueId: Int32 = field(name="e")
    sysFlag: Int32 = field(name="f")
    bornTimestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsumeTimes: Int32 | None = field(name="j", default=None)
    unitMode: bool = field(name="k", default=False)
    maxReconsumeTimes: Int32 | None = field(name="l", default=None)
    batch: bool = field(name="m", default=False)
    bname: str | None = field(name="n", default=None)


class SendMessageResponseHeader(Header):
    """
    The response to all codes that send: where the broker stored the message.

    @ivar msgId: the broker's address and the offset in its commit log, in hexadecimal;
        for a batch, one per message, separated by commas.
    """

    msgId: str
    queueId: Int32
    queueOffset: Int64
    transactionId: str | None = None


class ConsumerSendMsgBackRequestHeader(Header):
    """
    CONSUMER_SEND_MSG_BACK: a consumer failed to consume a message.

    @ivar offset: the message's offset in the broker's commit log.
    @ivar delayLevel: the delay before the next delivery.  With 0 the broker chooses it;
        with -1 the message becomes a dead letter at once.
    """

    offset: Int64
    group: str
    delayLevel: Int32
    originMsgId: str | None = None
    originTopic: str | None = None
    unitMode: bool = False
    maxReconsumeTimes: Int32 | None = None
    bname: str | None = None


class ReplyMessageRequestHeader(Header):
    """
    PUSH_REPLY_MESSAGE_TO_CLIENT: the broker delivers a reply to the producer of the
    request.
    """

    producerGroup: str
    topic: str
    defaultTopic: str
    defaultTopicQueueNums: Int32
    queueId: Int32
    sysFlag: Int32
    bornTimestamp: Int64
    flag: Int32
    bornHost: str
    storeHost: str
    storeTimestamp: Int64
    properties: str | None = None
    reconsumeTimes: Int32 | None = None
    unitMode: bool = False


class PullMessageRequestHeader(Header):
    """
    PULL_MESSAGE.

    @ivar sysFlag: bit 0: commit C{commitOffset}; bit 1: the broker may hold the request
        until a message arrives; bit 2: C{subscription} is set; bit 3: filter class;
        bit 4: lite pull.
    @ivar subVersion: the version of the subscription, a time in milliseconds.
    """

    consumerGroup: str
    topic: str
    queueId: Int32
    queueOffset: Int64
    maxMsgNums: Int32
    sysFlag: Int32
    commitOffset: Int64
    suspendTimeoutMillis: Int64
    subVersion: Int64
    subscription: str | None = None
    expressionType: str | None = None
    bname: str | None = None


class PullMessageResponseHeader(Header):
    """
    The response to PULL_MESSAGE: the bounds of the queue and the next offset.  The body
    is records as they are in the commit log.
    """

    suggestWhichBrokerId: Int64
    nextBeginOffset: Int64
    minOffset: Int64
    maxOffset: Int64


class QueryMessageRequestHeader(Header):
    """
    QUERY_MESSAGE: find messages by key and store time.
    """

    topic: str
    key: str
    maxNum: Int32
    beginTimestamp: Int64
    endTimestamp: Int64


class QueryMessageResponseHeader(Header):
    """
    The response to QUERY_MESSAGE: how far the index reaches.
    """

    indexLastUpdateTimestamp: Int64
    indexLastUpdatePhyoffset: Int64


class ViewMessageRequestHeader(Header):
    """
    VIEW_MESSAGE_BY_ID: read one message by its offset in the commit log.
    """

    offset: Int64


class EndTransactionRequestHeader(Header):
    """
    END_TRANSACTION.

    @ivar commitOrRollback: the transaction bits of a message's sysFlag: 0 means
        unknown, 8 commit, 12 roll back.
    """

    producerGroup: str
    tranStateTableOffset: Int64
    commitLogOffset: Int64
    commitOrRollback: Int32
    msgId: str
    fromTransactionCheck: bool = False
    transactionId: str | None = None
    bname: str | None = None

    def __post_init__(self) -> None:
        if self.commitOrRollback not in (0, 8, 12):
            raise ValueError(f"commitOrRollback {self.commitOrRollback}: 0, 8 or 12 was expected")


class CheckTransactionStateRequestHeader(Header):
    """
    CHECK_TRANSACTION_STATE: the broker asks a producer for the state of a transaction.
    The body is the record of the half message.
    """

    tranStateTableOffset: Int64
    commitLogOffset: Int64
    msgId: str | None = None
    transactionId: str | None = None
    offsetMsgId: str | None = None
    bname: str | None = None


class ResumeCheckHalfMessageRequestHeader(Header):
    """
    RESUME_CHECK_HALF_MESSAGE.
    """

    msgId: str | None = None
