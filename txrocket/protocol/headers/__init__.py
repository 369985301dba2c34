# SPDX-License-Identifier: Apache-2.0
"""
One class for every header that RocketMQ 4.9.7's name server, broker and client
serve; and L{HEADERS}, the table from request code to header classes::

    HEADERS[code]  ->  Headers(class of the request, class of the response)

A class has the name of its Java class, and its attributes have the wire's field names
and types.  A field without a default is required, as Java's C{@CFNotNull} has it.
Some Java fields are marked so but are primitive C{boolean}s with a value of their own;
here that value is the default, because peers omit such fields.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txrocket.protocol.codes import RequestCode as Code
from txrocket.protocol.headers.admin import (
    CloneGroupOffsetRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    CreateAccessConfigRequestHeader,
    CreateTopicRequestHeader,
    DeleteAccessConfigRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetBrokerAclConfigResponseHeader,
    GetBrokerConfigResponseHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ResetOffsetRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from txrocket.protocol.headers.clients import (
    GetConsumerListByGroupRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    NotifyConsumerIdsChangedRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.protocol.headers.fields import Header
from txrocket.protocol.headers.messages import (
    CheckTransactionStateRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ReplyMessageRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    ViewMessageRequestHeader,
)
from txrocket.protocol.headers.nameserver import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

__all__ = [
    "HEADERS",
    "AddWritePermOfBrokerRequestHeader",
    "AddWritePermOfBrokerResponseHeader",
    "CheckTransactionStateRequestHeader",
    "CloneGroupOffsetRequestHeader",
    "ConsumeMessageDirectlyResultRequestHeader",
    "ConsumerSendMsgBackRequestHeader",
    "CreateAccessConfigRequestHeader",
    "CreateTopicRequestHeader",
    "DeleteAccessConfigRequestHeader",
    "DeleteKVConfigRequestHeader",
    "DeleteSubscriptionGroupRequestHeader",
    "DeleteTopicFromNamesrvRequestHeader",
    "DeleteTopicRequestHeader",
    "EndTransactionRequestHeader",
    "GetBrokerAclConfigResponseHeader",
    "GetBrokerConfigResponseHeader",
    "GetConsumeStatsInBrokerHeader",
    "GetConsumeStatsRequestHeader",
    "GetConsumerConnectionListRequestHeader",
    "GetConsumerListByGroupRequestHeader",
    "GetConsumerRunningInfoRequestHeader",
    "GetConsumerStatusRequestHeader",
    "GetEarliestMsgStoretimeRequestHeader",
    "GetEarliestMsgStoretimeResponseHeader",
    "GetKVConfigRequestHeader",
    "GetKVConfigResponseHeader",
    "GetKVListByNamespaceRequestHeader",
    "GetMaxOffsetRequestHeader",
    "GetMaxOffsetResponseHeader",
    "GetMinOffsetRequestHeader",
    "GetMinOffsetResponseHeader",
    "GetProducerConnectionListRequestHeader",
    "GetRouteInfoRequestHeader",
    "GetTopicStatsInfoRequestHeader",
    "GetTopicsByClusterRequestHeader",
    "Headers",
    "NotifyConsumerIdsChangedRequestHeader",
    "PullMessageRequestHeader",
    "PullMessageResponseHeader",
    "PutKVConfigRequestHeader",
    "QueryConsumeQueueRequestHeader",
    "QueryConsumeTimeSpanRequestHeader",
    "QueryConsumerOffsetRequestHeader",
    "QueryConsumerOffsetResponseHeader",
    "QueryCorrectionOffsetHeader",
    "QueryDataVersionRequestHeader",
    "QueryDataVersionResponseHeader",
    "QueryMessageRequestHeader",
    "QueryMessageResponseHeader",
    "QueryTopicConsumeByWhoRequestHeader",
    "RegisterBrokerRequestHeader",
    "RegisterBrokerResponseHeader",
    "ReplyMessageRequestHeader",
    "ResetOffsetRequestHeader",
    "ResumeCheckHalfMessageRequestHeader",
    "SearchOffsetRequestHeader",
    "SearchOffsetResponseHeader",
    "SendMessageRequestHeader",
    "SendMessageRequestHeaderV2",
    "SendMessageResponseHeader",
    "UnRegisterBrokerRequestHeader",
    "UnregisterClientRequestHeader",
    "UpdateConsumerOffsetRequestHeader",
    "UpdateGlobalWhiteAddrsConfigRequestHeader",
    "ViewBrokerStatsDataRequestHeader",
    "ViewMessageRequestHeader",
    "WipeWritePermOfBrokerRequestHeader",
    "WipeWritePermOfBrokerResponseHeader",
]


class Headers(NamedTuple):
    """
    The header classes of a request code; L{None} if a header has no fields.
    """

    request: type[Header] | None = None
    response: type[Header] | None = None


_SEND = Headers(SendMessageRequestHeader, SendMessageResponseHeader)
_SEND_V2 = Headers(SendMessageRequestHeaderV2, SendMessageResponseHeader)
_NONE = Headers()

#: The headers of every code that the name server, the broker or the client of 4.9.7
#: serves.
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
