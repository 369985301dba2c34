# SPDX-License-Identifier: Apache-2.0
"""
One class for every body of RocketMQ 4.9.7 that is not a message; and L{BODIES}, the
table from request code to body classes::

    BODIES[code]  ->  (class of the request's body, class of the response's)

A class has the name of its Java class, and its attributes have the wire's member
names.  The classes only hold values; L{txrocket.protocol.bodies.codec} encodes and
decodes them.  Values that other layers hold too are in L{txrocket.model}.  Three kinds
of body are not JSON:

    - records (pull, view, query, check transaction): L{txrocket.protocol.record};
    - settings, C{key=value} lines: L{txrocket.protocol.configtext};
    - a broker's registration if its header says C{compressed=true}:
      L{txrocket.protocol.bodies.registerbroker}.
"""

from __future__ import annotations

from txrocket.model import DataVersion, SubscriptionGroupConfig, TopicRouteData
from txrocket.protocol.bodies.admin import (
    AclConfig,
    BrokerStatsData,
    BrokerStatsItem,
    ClusterAclVersionInfo,
    GetBrokerClusterAclConfigResponseBody,
    GroupList,
    SubscriptionGroupWrapper,
)
from txrocket.protocol.bodies.clients import (
    CheckClientRequestBody,
    Connection,
    ConsumerConnection,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerData,
    ProducerInfo,
    ProducerTableInfo,
    UnlockBatchRequestBody,
)
from txrocket.protocol.bodies.nameserver import (
    ClusterInfo,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicList,
)
from txrocket.protocol.bodies.offsets import (
    ConsumeByWho,
    ConsumeQueueData,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    MessageQueueForC,
    OffsetMovedEvent,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    RollbackStats,
    TopicOffset,
    TopicStatsTable,
)
from txrocket.protocol.bodies.runninginfo import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from txrocket.protocol.configtext import ConfigText

__all__ = [
    "BODIES",
    "AclConfig",
    "BrokerStatsData",
    "BrokerStatsItem",
    "CMResult",
    "CheckClientRequestBody",
    "ClusterAclVersionInfo",
    "ClusterInfo",
    "Connection",
    "ConsumeByWho",
    "ConsumeMessageDirectlyResult",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumeStatus",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerOffsetSerializeWrapper",
    "ConsumerRunningInfo",
    "DelayOffsetSerializeWrapper",
    "GetBrokerClusterAclConfigResponseBody",
    "GetConsumerListByGroupResponseBody",
    "GetConsumerStatusBody",
    "GroupList",
    "HeartbeatData",
    "KVTable",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "MessageQueueForC",
    "OffsetMovedEvent",
    "OffsetWrapper",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueryCorrectionOffsetBody",
    "QueueTimeSpan",
    "RegisterBrokerBody",
    "ResetOffsetBody",
    "ResetOffsetBodyForC",
    "RollbackStats",
    "SubscriptionGroupWrapper",
    "TopicConfigSerializeWrapper",
    "TopicList",
    "TopicOffset",
    "TopicStatsTable",
    "UnlockBatchRequestBody",
]

#: Request code to the classes of the request's and the response's body.  It has every
#: code of 4.9.7 for which at least one body is neither empty nor a message.
BODIES: dict[int, tuple[type | None, type | None]] = {
    21: (None, TopicConfigSerializeWrapper),  # GET_ALL_TOPIC_CONFIG
    25: (ConfigText, None),  # UPDATE_BROKER_CONFIG
    26: (None, ConfigText),  # GET_BROKER_CONFIG
    28: (None, KVTable),  # GET_BROKER_RUNTIME_INFO
    34: (HeartbeatData, None),  # HEART_BEAT
    38: (None, GetConsumerListByGroupResponseBody),  # GET_CONSUMER_LIST_BY_GROUP
    41: (LockBatchRequestBody, LockBatchResponseBody),  # LOCK_BATCH_MQ
    42: (UnlockBatchRequestBody, None),  # UNLOCK_BATCH_MQ
    43: (None, ConsumerOffsetSerializeWrapper),  # GET_ALL_CONSUMER_OFFSET
    45: (None, DelayOffsetSerializeWrapper),  # GET_ALL_DELAY_OFFSET
    46: (CheckClientRequestBody, None),  # CHECK_CLIENT_CONFIG
    54: (None, GetBrokerClusterAclConfigResponseBody),  # GET_BROKER_CLUSTER_ACL_CONFIG
    # REGISTER_BROKER.  If the header says compressed=true, the request is not JSON: see
    # decodeRegisterBroker.  A broker before V3_0_11 sends a TopicConfigSerializeWrapper
    # alone.
    103: (RegisterBrokerBody, KVTable),
    # GET_ROUTEINFO_BY_TOPIC.  Standard JSON for peers from V4_9_4 on.
    105: (None, TopicRouteData),
    106: (None, ClusterInfo),  # GET_BROKER_CLUSTER_INFO
    200: (SubscriptionGroupConfig, None),  # UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    201: (None, SubscriptionGroupWrapper),  # GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    202: (None, TopicStatsTable),  # GET_TOPIC_STATS_INFO
    203: (None, ConsumerConnection),  # GET_CONSUMER_CONNECTION_LIST
    204: (None, ProducerConnection),  # GET_PRODUCER_CONNECTION_LIST
    206: (None, TopicList),  # GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    208: (None, ConsumeStats),  # GET_CONSUME_STATS
    219: (None, KVTable),  # GET_KVLIST_BY_NAMESPACE
    # RESET_CONSUMER_CLIENT_OFFSET.  It is a ResetOffsetBodyForC if the tool that
    # requested the reset (not the consumer) announced the language CPP.
    220: (ResetOffsetBody, None),
    221: (None, GetConsumerStatusBody),  # GET_CONSUMER_STATUS_FROM_CLIENT
    222: (None, ResetOffsetBody),  # INVOKE_BROKER_TO_RESET_OFFSET
    223: (None, GetConsumerStatusBody),  # INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    224: (None, TopicList),  # GET_TOPICS_BY_CLUSTER
    300: (None, GroupList),  # QUERY_TOPIC_CONSUME_BY_WHO
    303: (None, QueryConsumeTimeSpanBody),  # QUERY_CONSUME_TIME_SPAN
    304: (None, TopicList),  # GET_SYSTEM_TOPIC_LIST_FROM_NS
    305: (None, TopicList),  # GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    307: (None, ConsumerRunningInfo),  # GET_CONSUMER_RUNNING_INFO
    308: (None, QueryCorrectionOffsetBody),  # QUERY_CORRECTION_OFFSET
    # CONSUME_MESSAGE_DIRECTLY.  From tool to broker the request has no body; from broker
    # to client its body is a record.
    309: (None, ConsumeMessageDirectlyResult),
    311: (None, TopicList),  # GET_UNIT_TOPIC_LIST
    312: (None, TopicList),  # GET_HAS_UNIT_SUB_TOPIC_LIST
    313: (None, TopicList),  # GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
    315: (None, BrokerStatsData),  # VIEW_BROKER_STATS_DATA
    317: (None, ConsumeStatsList),  # GET_BROKER_CONSUME_STATS
    318: (ConfigText, None),  # UPDATE_NAMESRV_CONFIG
    319: (None, ConfigText),  # GET_NAMESRV_CONFIG
    321: (None, QueryConsumeQueueResponseBody),  # QUERY_CONSUME_QUEUE
    322: (DataVersion, DataVersion),  # QUERY_DATA_VERSION
    328: (None, ProducerTableInfo),  # GET_ALL_PRODUCER_INFO
}
