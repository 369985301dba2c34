# SPDX-License-Identifier: Apache-2.0
"""
Headers of the requests that RocketMQ's admin tool makes to a broker, some of which
the broker forwards to a consumer: topics, groups, consumption, settings and accounts.
"""

from __future__ import annotations

from typing import Literal

from txrocket.model import Int32, Int64
from txrocket.protocol.headers.fields import Header

__all__ = [
    "CloneGroupOffsetRequestHeader",
    "ConsumeMessageDirectlyResultRequestHeader",
    "CreateAccessConfigRequestHeader",
    "CreateTopicRequestHeader",
    "DeleteAccessConfigRequestHeader",
    "DeleteSubscriptionGroupRequestHeader",
    "DeleteTopicRequestHeader",
    "GetBrokerAclConfigResponseHeader",
    "GetBrokerConfigResponseHeader",
    "GetConsumeStatsInBrokerHeader",
    "GetConsumeStatsRequestHeader",
    "GetConsumerConnectionListRequestHeader",
    "GetConsumerRunningInfoRequestHeader",
    "GetConsumerStatusRequestHeader",
    "GetProducerConnectionListRequestHeader",
    "GetTopicStatsInfoRequestHeader",
    "QueryConsumeQueueRequestHeader",
    "QueryConsumeTimeSpanRequestHeader",
    "QueryCorrectionOffsetHeader",
    "QueryTopicConsumeByWhoRequestHeader",
    "ResetOffsetRequestHeader",
    "UpdateGlobalWhiteAddrsConfigRequestHeader",
    "ViewBrokerStatsDataRequestHeader",
]


class QueryConsumeQueueRequestHeader(Header):
    """
    QUERY_CONSUME_QUEUE: read consecutive entries of a consume queue.
    """

    topic: str | None = None
    queueId: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumerGroup: str | None = None


class ResetOffsetRequestHeader(Header):
    """
    INVOKE_BROKER_TO_RESET_OFFSET, and RESET_CONSUMER_CLIENT_OFFSET when the broker
    forwards it to the consumers.
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


class GetConsumerRunningInfoRequestHeader(Header):
    """
    GET_CONSUMER_RUNNING_INFO, which the broker forwards to the consumer.
    """

    consumerGroup: str
    clientId: str
    jstackEnable: bool = False


class GetConsumerStatusRequestHeader(Header):
    """
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS, and GET_CONSUMER_STATUS_FROM_CLIENT when the
    broker forwards it to the consumers.
    """

    topic: str
    group: str
    clientAddr: str | None = None


class ConsumeMessageDirectlyResultRequestHeader(Header):
    """
    CONSUME_MESSAGE_DIRECTLY, which the broker forwards to the consumer with the
    message's record as its body.
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


class CreateTopicRequestHeader(Header):
    """
    UPDATE_AND_CREATE_TOPIC.

    @ivar perm: a sum of 4 (read), 2 (write) and 1 (inherit).
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


class GetBrokerConfigResponseHeader(Header):
    """
    The response to GET_BROKER_CONFIG.

    @ivar version: the version of the settings in the body, as JSON.
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
    The response to GET_BROKER_CLUSTER_ACL_INFO: the versions of the broker's ACL files,
    as JSON.
    """

    version: str
    brokerName: str
    brokerAddr: str
    clusterName: str
    allAclFileVersion: str | None = None
