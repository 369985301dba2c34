# SPDX-License-Identifier: Apache-2.0
"""
One declaration for every header that RocketMQ 4.9.7's name server, broker and
client serve, under the names of the Java classes, with the wire's field names
and types; and L{HEADERS}, which says which code carries which.

A field without a default must be there, as Java's C{@CFNotNull} has it.  Where
Java marks a field so but gives it a value of its own (a primitive C{boolean}),
that value is the default here, because peers leave such fields out.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from msgspec import field

from txrocket.model import Int32, Int64
from txrocket.protocol.codes import RequestCode as Code
from txrocket.protocol.fields import Header

# --- sending -------------------------------------------------------------


class SendMessageRequestHeader(Header):
    """
    SEND_MESSAGE and SEND_REPLY_MESSAGE; the body is the message's.

    @ivar defaultTopic: the topic whose settings an unknown topic inherits.
    @ivar properties: the message's, C{name \\x01 value \\x02} again and again.
    @ivar batch: whether the body holds several messages in the client's form.
    @ivar bname: the broker's name, as newer clients add it to many requests.
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
    Where a message went.

    @ivar msgId: the broker's address and the offset in its log, in hexadecimal;
        for a batch, several separated by commas.
    """

    msgId: str
    queueId: Int32
    queueOffset: Int64
    transactionId: str | None = None


class ConsumerSendMsgBackRequestHeader(Header):
    """
    CONSUMER_SEND_MSG_BACK: a message that a consumer could not handle.

    @ivar offset: the message's in the broker's log.
    @ivar delayLevel: when to try again; 0 leaves it to the broker, -1 makes it
        a dead letter at once.
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
    PUSH_REPLY_MESSAGE_TO_CLIENT: the broker hands a reply to who asked.
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


# --- pulling and looking up ----------------------------------------------


class PullMessageRequestHeader(Header):
    """
    PULL_MESSAGE.

    @ivar sysFlag: bit 0, commit C{commitOffset}; 1, may be held until a message
        comes; 2, C{subscription} is meant; 3, filter class; 4, lite pull.
    @ivar subVersion: the subscription's, a time in milliseconds.
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
    Where a queue stands; the body is records as they are in the log.
    """

    suggestWhichBrokerId: Int64
    nextBeginOffset: Int64
    minOffset: Int64
    maxOffset: Int64


class QueryMessageRequestHeader(Header):
    """
    QUERY_MESSAGE: by key, within store times.
    """

    topic: str
    key: str
    maxNum: Int32
    beginTimestamp: Int64
    endTimestamp: Int64


class QueryMessageResponseHeader(Header):
    """
    How far the index reaches.
    """

    indexLastUpdateTimestamp: Int64
    indexLastUpdatePhyoffset: Int64


class ViewMessageRequestHeader(Header):
    """
    VIEW_MESSAGE_BY_ID: by the offset in the broker's log.
    """

    offset: Int64


class QueryConsumeQueueRequestHeader(Header):
    """
    QUERY_CONSUME_QUEUE: a stretch of a consume queue.
    """

    topic: str | None = None
    queueId: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumerGroup: str | None = None


# --- offsets -------------------------------------------------------------


class QueryConsumerOffsetRequestHeader(Header):
    """
    QUERY_CONSUMER_OFFSET.
    """

    consumerGroup: str
    topic: str
    queueId: Int32
    bname: str | None = None


class QueryConsumerOffsetResponseHeader(Header):
    """
    A group's offset.
    """

    offset: Int64


class UpdateConsumerOffsetRequestHeader(Header):
    """
    UPDATE_CONSUMER_OFFSET.
    """

    consumerGroup: str
    topic: str
    queueId: Int32
    commitOffset: Int64
    bname: str | None = None


class SearchOffsetRequestHeader(Header):
    """
    SEARCH_OFFSET_BY_TIMESTAMP.
    """

    topic: str
    queueId: Int32
    timestamp: Int64
    bname: str | None = None


class SearchOffsetResponseHeader(Header):
    """
    The offset found.
    """

    offset: Int64


class GetMaxOffsetRequestHeader(Header):
    """
    GET_MAX_OFFSET.
    """

    topic: str
    queueId: Int32
    bname: str | None = None


class GetMaxOffsetResponseHeader(Header):
    """
    One past a queue's last message.
    """

    offset: Int64


class GetMinOffsetRequestHeader(Header):
    """
    GET_MIN_OFFSET.
    """

    topic: str
    queueId: Int32
    bname: str | None = None


class GetMinOffsetResponseHeader(Header):
    """
    A queue's first message.
    """

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(Header):
    """
    GET_EARLIEST_MSG_STORETIME.
    """

    topic: str
    queueId: Int32
    bname: str | None = None


class GetEarliestMsgStoretimeResponseHeader(Header):
    """
    When a queue's first message was stored.
    """

    timestamp: Int64


class ResetOffsetRequestHeader(Header):
    """
    INVOKE_BROKER_TO_RESET_OFFSET and, passed on to the consumers,
    RESET_CONSUMER_CLIENT_OFFSET.
    """

    topic: str
    group: str
    timestamp: Int64
    isForce: bool = False


class CloneGroupOffsetRequestHeader(Header):
    """
    CLONE_GROUP_OFFSET.
    """

    srcGroup: str
    destGroup: str
    topic: str | None = None
    offline: bool = False


class QueryCorrectionOffsetHeader(Header):
    """
    QUERY_CORRECTION_OFFSET.
    """

    compareGroup: str
    topic: str
    filterGroups: str | None = None


# --- clients and groups --------------------------------------------------


class UnregisterClientRequestHeader(Header):
    """
    UNREGISTER_CLIENT.
    """

    clientID: str
    producerGroup: str | None = None
    consumerGroup: str | None = None


class GetConsumerListByGroupRequestHeader(Header):
    """
    GET_CONSUMER_LIST_BY_GROUP.
    """

    consumerGroup: str


class NotifyConsumerIdsChangedRequestHeader(Header):
    """
    NOTIFY_CONSUMER_IDS_CHANGED: the broker tells a group's members to rebalance.
    """

    consumerGroup: str


class GetConsumerRunningInfoRequestHeader(Header):
    """
    GET_CONSUMER_RUNNING_INFO, to a broker and passed on to the consumer.
    """

    consumerGroup: str
    clientId: str
    jstackEnable: bool = False


class GetConsumerStatusRequestHeader(Header):
    """
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS and, passed on to the consumers,
    GET_CONSUMER_STATUS_FROM_CLIENT.
    """

    topic: str
    group: str
    clientAddr: str | None = None


class ConsumeMessageDirectlyResultRequestHeader(Header):
    """
    CONSUME_MESSAGE_DIRECTLY, to a broker and, with the record as its body,
    passed on to the consumer.
    """

    consumerGroup: str
    clientId: str | None = None
    msgId: str | None = None
    brokerName: str | None = None


class GetConsumerConnectionListRequestHeader(Header):
    """
    GET_CONSUMER_CONNECTION_LIST.
    """

    consumerGroup: str


class GetProducerConnectionListRequestHeader(Header):
    """
    GET_PRODUCER_CONNECTION_LIST.
    """

    producerGroup: str


class DeleteSubscriptionGroupRequestHeader(Header):
    """
    DELETE_SUBSCRIPTIONGROUP.
    """

    groupName: str
    removeOffset: bool = False


class GetConsumeStatsRequestHeader(Header):
    """
    GET_CONSUME_STATS.
    """

    consumerGroup: str
    topic: str | None = None


class GetConsumeStatsInBrokerHeader(Header):
    """
    GET_BROKER_CONSUME_STATS.
    """

    isOrder: bool = False


class QueryTopicConsumeByWhoRequestHeader(Header):
    """
    QUERY_TOPIC_CONSUME_BY_WHO.
    """

    topic: str


class QueryConsumeTimeSpanRequestHeader(Header):
    """
    QUERY_CONSUME_TIME_SPAN.
    """

    topic: str
    group: str


# --- transactions --------------------------------------------------------


class EndTransactionRequestHeader(Header):
    """
    END_TRANSACTION.

    @ivar commitOrRollback: the transaction bits of a message's sysFlag: 0 for
        unknown, 8 to commit, 12 to roll back.
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
    CHECK_TRANSACTION_STATE: the broker asks a producer; the body is the half
    message's record.
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


# --- topics --------------------------------------------------------------


class CreateTopicRequestHeader(Header):
    """
    UPDATE_AND_CREATE_TOPIC.

    @ivar perm: 4 to read, 2 to write, 1 to inherit.
    """

    topic: str
    defaultTopic: str
    readQueueNums: Int32
    writeQueueNums: Int32
    perm: Int32
    topicFilterType: Literal["SINGLE_TAG", "MULTI_TAG"]
    topicSysFlag: Int32 | None = None
    order: bool = False


class DeleteTopicRequestHeader(Header):
    """
    DELETE_TOPIC_IN_BROKER.
    """

    topic: str


class GetTopicStatsInfoRequestHeader(Header):
    """
    GET_TOPIC_STATS_INFO.
    """

    topic: str


# --- the broker itself ---------------------------------------------------


class GetBrokerConfigResponseHeader(Header):
    """
    The version of the configuration in the body, as JSON.
    """

    version: str


class ViewBrokerStatsDataRequestHeader(Header):
    """
    VIEW_BROKER_STATS_DATA.
    """

    statsName: str
    statsKey: str


class CreateAccessConfigRequestHeader(Header):
    """
    UPDATE_AND_CREATE_ACL_CONFIG.

    @ivar topicPerms: C{topic=perm}, separated by commas.
    @ivar groupPerms: C{group=perm}, separated by commas.
    """

    accessKey: str
    secretKey: str | None = None
    whiteRemoteAddress: str | None = None
    admin: bool = False
    defaultTopicPerm: str | None = None
    defaultGroupPerm: str | None = None
    topicPerms: str | None = None
    groupPerms: str | None = None


class DeleteAccessConfigRequestHeader(Header):
    """
    DELETE_ACL_CONFIG.
    """

    accessKey: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(Header):
    """
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG.
    """

    globalWhiteAddrs: str
    aclFileFullPath: str | None = None


class GetBrokerAclConfigResponseHeader(Header):
    """
    The versions of a broker's ACL files, as JSON.
    """

    version: str
    brokerName: str
    brokerAddr: str
    clusterName: str
    allAclFileVersion: str | None = None


# --- the name server -----------------------------------------------------


class PutKVConfigRequestHeader(Header):
    """
    PUT_KV_CONFIG.
    """

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header):
    """
    GET_KV_CONFIG.
    """

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header):
    """
    The value, where there is one.
    """

    value: str | None = None


class DeleteKVConfigRequestHeader(Header):
    """
    DELETE_KV_CONFIG.
    """

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header):
    """
    GET_KVLIST_BY_NAMESPACE.
    """

    namespace: str


class RegisterBrokerRequestHeader(Header):
    """
    REGISTER_BROKER.

    @ivar compressed: whether the body is in the deflated form.
    @ivar bodyCrc32: the body's CRC, without its highest bit; 0 is not checked.
    """

    brokerName: str
    brokerAddr: str
    clusterName: str
    haServerAddr: str
    brokerId: Int64
    compressed: bool = False
    bodyCrc32: Int32 | None = 0


class RegisterBrokerResponseHeader(Header):
    """
    Where a slave finds its master.
    """

    haServerAddr: str | None = None
    masterAddr: str | None = None


class UnRegisterBrokerRequestHeader(Header):
    """
    UNREGISTER_BROKER.
    """

    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: Int64


class QueryDataVersionRequestHeader(Header):
    """
    QUERY_DATA_VERSION.
    """

    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: Int64


class QueryDataVersionResponseHeader(Header):
    """
    Whether the broker's topics differ from what the name server knows.
    """

    changed: bool


class GetRouteInfoRequestHeader(Header):
    """
    GET_ROUTEINFO_BY_TOPIC.

    @ivar acceptStandardJsonOnly: that map keys in the body must be quoted.
    """

    topic: str
    acceptStandardJsonOnly: bool | None = None


class WipeWritePermOfBrokerRequestHeader(Header):
    """
    WIPE_WRITE_PERM_OF_BROKER.
    """

    brokerName: str


class WipeWritePermOfBrokerResponseHeader(Header):
    """
    How many topics were changed.
    """

    wipeTopicCount: Int32


class AddWritePermOfBrokerRequestHeader(Header):
    """
    ADD_WRITE_PERM_OF_BROKER.
    """

    brokerName: str


class AddWritePermOfBrokerResponseHeader(Header):
    """
    How many topics were changed.
    """

    addTopicCount: Int32


class DeleteTopicFromNamesrvRequestHeader(Header):
    """
    DELETE_TOPIC_IN_NAMESRV.
    """

    topic: str
    clusterName: str | None = None


class GetTopicsByClusterRequestHeader(Header):
    """
    GET_TOPICS_BY_CLUSTER.
    """

    cluster: str


# --- which code carries which --------------------------------------------


class Headers(NamedTuple):
    """
    The headers of a request code; L{None} where there are no fields.
    """

    request: type[Header] | None = None
    response: type[Header] | None = None


_SEND = Headers(SendMessageRequestHeader, SendMessageResponseHeader)
_SEND_V2 = Headers(SendMessageRequestHeaderV2, SendMessageResponseHeader)
_NONE = Headers()

#: Every code that the name server, the broker or the client of 4.9.7 serves, and
#: its headers.
HEADERS: Final[dict[int, Headers]] = {
    Code.SEND_MESSAGE: _SEND,
    Code.SEND_MESSAGE_V2: _SEND_V2,
    Code.SEND_BATCH_MESSAGE: _SEND_V2,
    Code.SEND_REPLY_MESSAGE: _SEND,
    Code.SEND_REPLY_MESSAGE_V2: _SEND_V2,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT: Headers(ReplyMessageRequestHeader),
    Code.CONSUMER_SEND_MSG_BACK: Headers(ConsumerSendMsgBackRequestHeader),
    Code.PULL_MESSAGE: Headers(PullMessageRequestHeader, PullMessageResponseHeader),
    Code.QUERY_MESSAGE: Headers(QueryMessageRequestHeader, QueryMessageResponseHeader),
    Code.VIEW_MESSAGE_BY_ID: Headers(ViewMessageRequestHeader),
    Code.QUERY_CONSUME_QUEUE: Headers(QueryConsumeQueueRequestHeader),
    Code.QUERY_CONSUMER_OFFSET: Headers(
        QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader
    ),
    Code.UPDATE_CONSUMER_OFFSET: Headers(UpdateConsumerOffsetRequestHeader),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: Headers(SearchOffsetRequestHeader, SearchOffsetResponseHeader),
    Code.GET_MAX_OFFSET: Headers(GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader),
    Code.GET_MIN_OFFSET: Headers(GetMinOffsetRequestHeader, GetMinOffsetResponseHeader),
    Code.GET_EARLIEST_MSG_STORETIME: Headers(
        GetEarliestMsgStoretimeRequestHeader, GetEarliestMsgStoretimeResponseHeader
    ),
    Code.GET_ALL_CONSUMER_OFFSET: _NONE,
    Code.GET_ALL_DELAY_OFFSET: _NONE,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: Headers(ResetOffsetRequestHeader),
    Code.RESET_CONSUMER_CLIENT_OFFSET: Headers(ResetOffsetRequestHeader),
    Code.CLONE_GROUP_OFFSET: Headers(CloneGroupOffsetRequestHeader),
    Code.QUERY_CORRECTION_OFFSET: Headers(QueryCorrectionOffsetHeader),
    Code.HEART_BEAT: _NONE,
    Code.UNREGISTER_CLIENT: Headers(UnregisterClientRequestHeader),
    Code.CHECK_CLIENT_CONFIG: _NONE,
    Code.LOCK_BATCH_MQ: _NONE,
    Code.UNLOCK_BATCH_MQ: _NONE,
    Code.GET_CONSUMER_LIST_BY_GROUP: Headers(GetConsumerListByGroupRequestHeader),
    Code.NOTIFY_CONSUMER_IDS_CHANGED: Headers(NotifyConsumerIdsChangedRequestHeader),
    Code.GET_CONSUMER_RUNNING_INFO: Headers(GetConsumerRunningInfoRequestHeader),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Headers(GetConsumerStatusRequestHeader),
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: Headers(GetConsumerStatusRequestHeader),
    Code.CONSUME_MESSAGE_DIRECTLY: Headers(ConsumeMessageDirectlyResultRequestHeader),
    Code.GET_CONSUMER_CONNECTION_LIST: Headers(GetConsumerConnectionListRequestHeader),
    Code.GET_PRODUCER_CONNECTION_LIST: Headers(GetProducerConnectionListRequestHeader),
    Code.GET_ALL_PRODUCER_INFO: _NONE,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _NONE,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _NONE,
    Code.DELETE_SUBSCRIPTIONGROUP: Headers(DeleteSubscriptionGroupRequestHeader),
    Code.GET_CONSUME_STATS: Headers(GetConsumeStatsRequestHeader),
    Code.GET_BROKER_CONSUME_STATS: Headers(GetConsumeStatsInBrokerHeader),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: Headers(QueryTopicConsumeByWhoRequestHeader),
    Code.QUERY_CONSUME_TIME_SPAN: Headers(QueryConsumeTimeSpanRequestHeader),
    Code.END_TRANSACTION: Headers(EndTransactionRequestHeader),
    Code.CHECK_TRANSACTION_STATE: Headers(CheckTransactionStateRequestHeader),
    Code.RESUME_CHECK_HALF_MESSAGE: Headers(ResumeCheckHalfMessageRequestHeader),
    Code.UPDATE_AND_CREATE_TOPIC: Headers(CreateTopicRequestHeader),
    Code.DELETE_TOPIC_IN_BROKER: Headers(DeleteTopicRequestHeader),
    Code.GET_ALL_TOPIC_CONFIG: _NONE,
    Code.GET_TOPIC_STATS_INFO: Headers(GetTopicStatsInfoRequestHeader),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _NONE,
    Code.UPDATE_BROKER_CONFIG: _NONE,
    Code.GET_BROKER_CONFIG: Headers(None, GetBrokerConfigResponseHeader),
    Code.GET_BROKER_RUNTIME_INFO: _NONE,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _NONE,
    Code.DELETE_EXPIRED_COMMITLOG: _NONE,
    Code.CLEAN_UNUSED_TOPIC: _NONE,
    Code.VIEW_BROKER_STATS_DATA: Headers(ViewBrokerStatsDataRequestHeader),
    Code.UPDATE_AND_CREATE_ACL_CONFIG: Headers(CreateAccessConfigRequestHeader),
    Code.DELETE_ACL_CONFIG: Headers(DeleteAccessConfigRequestHeader),
    Code.GET_BROKER_CLUSTER_ACL_INFO: Headers(None, GetBrokerAclConfigResponseHeader),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Headers(UpdateGlobalWhiteAddrsConfigRequestHeader),
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: _NONE,
    Code.PUT_KV_CONFIG: Headers(PutKVConfigRequestHeader),
    Code.GET_KV_CONFIG: Headers(GetKVConfigRequestHeader, GetKVConfigResponseHeader),
    Code.DELETE_KV_CONFIG: Headers(DeleteKVConfigRequestHeader),
    Code.GET_KVLIST_BY_NAMESPACE: Headers(GetKVListByNamespaceRequestHeader),
    Code.REGISTER_BROKER: Headers(RegisterBrokerRequestHeader, RegisterBrokerResponseHeader),
    Code.UNREGISTER_BROKER: Headers(UnRegisterBrokerRequestHeader),
    Code.QUERY_DATA_VERSION: Headers(QueryDataVersionRequestHeader, QueryDataVersionResponseHeader),
    Code.GET_ROUTEINFO_BY_TOPIC: Headers(GetRouteInfoRequestHeader),
    Code.GET_BROKER_CLUSTER_INFO: _NONE,
    Code.WIPE_WRITE_PERM_OF_BROKER: Headers(
        WipeWritePermOfBrokerRequestHeader, WipeWritePermOfBrokerResponseHeader
    ),
    Code.ADD_WRITE_PERM_OF_BROKER: Headers(
        AddWritePermOfBrokerRequestHeader, AddWritePermOfBrokerResponseHeader
    ),
    Code.DELETE_TOPIC_IN_NAMESRV: Headers(DeleteTopicFromNamesrvRequestHeader),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _NONE,
    Code.GET_TOPICS_BY_CLUSTER: Headers(GetTopicsByClusterRequestHeader),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _NONE,
    Code.GET_UNIT_TOPIC_LIST: _NONE,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: _NONE,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _NONE,
    Code.UPDATE_NAMESRV_CONFIG: _NONE,
    Code.GET_NAMESRV_CONFIG: _NONE,
}
