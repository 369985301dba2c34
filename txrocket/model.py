# SPDX-License-Identifier: Apache-2.0
"""
The values that every layer shares: name server, broker, store and clients hold them,
and bodies and files contain them.

Each class has the name of RocketMQ's class, and each attribute has the name of the JSON
member.  So L{txrocket.protocol.bodies} encodes and decodes these values directly.  All
are frozen; C{msgspec.structs.replace} makes a changed copy.

========================== ==================================================
value                      Java's class
========================== ==================================================
MessageQueue               org.apache.rocketmq.common.message.MessageQueue
TopicConfig                org.apache.rocketmq.common.TopicConfig
DataVersion                org.apache.rocketmq.common.DataVersion
SubscriptionData           ...common.protocol.heartbeat.SubscriptionData
SubscriptionGroupConfig    ...common.subscription.SubscriptionGroupConfig
QueueData, BrokerData,     ...common.protocol.route
TopicRouteData
PlainAccessConfig          org.apache.rocketmq.common.PlainAccessConfig
========================== ==================================================

A Java List is a tuple here, a Set a frozenset and a Map a dict.  Numbers have Java's
defaults, except times: their default is 0 instead of the current time.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

__all__ = [
    "MASTER_ID",
    "PERM_INHERIT",
    "PERM_READ",
    "PERM_WRITE",
    "BrokerData",
    "ConsumeFromWhere",
    "ConsumeType",
    "DataVersion",
    "Int32",
    "Int64",
    "MessageModel",
    "MessageQueue",
    "PlainAccessConfig",
    "QueueData",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "TopicConfig",
    "TopicFilterType",
    "TopicRouteData",
]

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

#: The broker id of a master; slaves have greater ids.
MASTER_ID = 0

#: Bits of C{perm}.
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1


# The members have Java's order, because C++ and Go clients send an enum's ordinal.


class ConsumeType(enum.Enum):
    """
    Whether the application pulls messages or a listener gets them.
    """

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class MessageModel(enum.Enum):
    """
    Whether each consumer of a group gets every message, or the consumers share them.
    """

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(enum.Enum):
    """
    Where a group without a committed offset starts.
    """

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class TopicFilterType(enum.Enum):
    """
    Whether a message of the topic may have several tags.  RocketMQ uses SINGLE_TAG only.
    """

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


# cache_hash, because queues are the keys of most tables of a client.
class MessageQueue(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """
    One queue of a topic at a broker.  Queues are ordered as in Java, by topic, broker
    name and queue id; all members of a group must agree on this order.

    @ivar topic: the topic's name.
    @ivar brokerName: the name that a master and its slaves share.
    @ivar queueId: the queue's number, from 0.
    """

    topic: str
    brokerName: str
    queueId: Int32 = 0


class TopicConfig(msgspec.Struct, frozen=True):
    """
    A topic at one broker.

    @ivar topicName: the topic's name.
    @ivar readQueueNums: the number of queues for consumers.
    @ivar writeQueueNums: the number of queues for producers.
    @ivar perm: the sum of L{PERM_READ}, L{PERM_WRITE} and L{PERM_INHERIT}.
    @ivar topicFilterType: always SINGLE_TAG.
    @ivar topicSysFlag: 1 for a unit topic, 2 for one with unit subscribers.
    @ivar order: whether the topic is ordered.
    """

    topicName: str
    readQueueNums: Int32 = 16
    writeQueueNums: Int32 = 16
    perm: Int32 = PERM_READ | PERM_WRITE
    topicFilterType: TopicFilterType = TopicFilterType.SINGLE_TAG
    topicSysFlag: Int32 = 0
    order: bool = False


class DataVersion(msgspec.Struct, frozen=True):
    """
    The version of a table: two copies with equal versions have the same content.

    @ivar timestamp: when the table was last changed, in milliseconds.
    @ivar counter: the number of changes.
    """

    timestamp: Int64 = 0
    counter: Int64 = 0


# cache_hash, because a broker looks up the compiled expression of each pull by it.
class SubscriptionData(msgspec.Struct, frozen=True, cache_hash=True):
    """
    A group's subscription to a topic.

    @ivar topic: the topic's name.
    @ivar subString: the filter expression, of tags or SQL92; C{*} matches all messages.
    @ivar classFilterMode: whether a filter class is used; no longer in use.
    @ivar tagsSet: the tags of a tag expression; empty for C{*}.
    @ivar codeSet: Java's hash codes of those tags.
    @ivar subVersion: when the subscription was made, in milliseconds.
    @ivar expressionType: C{TAG} or C{SQL92}.
    """

    topic: str
    subString: str = "*"
    classFilterMode: bool = False
    tagsSet: frozenset[str] = frozenset()
    codeSet: frozenset[Int32] = frozenset()
    subVersion: Int64 = 0
    expressionType: str = "TAG"


class SubscriptionGroupConfig(msgspec.Struct, frozen=True):
    """
    A consumer group at one broker.

    @ivar groupName: the group's name.
    @ivar consumeEnable: whether the group may pull at all.
    @ivar consumeFromMinEnable: whether it may start at the oldest message.
    @ivar consumeBroadcastEnable: whether it may use the broadcasting model.
    @ivar retryQueueNums: the number of queues of its retry topic.
    @ivar retryMaxTimes: the number of retries before a message becomes a dead letter.
    @ivar brokerId: the id of the broker to pull from.
    @ivar whichBrokerWhenConsumeSlowly: the id of the broker to pull from when the group
        is far behind.
    @ivar notifyConsumerIdsChangedEnable: whether the broker notifies its consumers when
        one joins or leaves.
    """

    groupName: str
    consumeEnable: bool = True
    consumeFromMinEnable: bool = True
    consumeBroadcastEnable: bool = True
    retryQueueNums: Int32 = 1
    retryMaxTimes: Int32 = 16
    brokerId: Int64 = MASTER_ID
    whichBrokerWhenConsumeSlowly: Int64 = 1
    notifyConsumerIdsChangedEnable: bool = True


class QueueData(msgspec.Struct, frozen=True):
    """
    A topic's queues at one broker, as part of a route.

    @ivar brokerName: the broker's name.
    @ivar readQueueNums: the number of queues for consumers.
    @ivar writeQueueNums: the number of queues for producers.
    @ivar perm: as in L{TopicConfig}.
    @ivar topicSysFlag: as in L{TopicConfig}.
    """

    brokerName: str
    readQueueNums: Int32 = 0
    writeQueueNums: Int32 = 0
    perm: Int32 = 0
    topicSysFlag: Int32 = 0


class BrokerData(msgspec.Struct, frozen=True):
    """
    A master and its slaves.

    @ivar cluster: the cluster's name.
    @ivar brokerName: the name that they share.
    @ivar brokerAddrs: broker id to C{host:port}; L{MASTER_ID} is the master.
    """

    cluster: str
    brokerName: str
    brokerAddrs: dict[Int64, str] = {}


class TopicRouteData(msgspec.Struct, frozen=True):
    """
    The route of a topic: its queues and their brokers.

    @ivar orderTopicConf: C{broker:queues;...}, if the topic is configured as ordered in
        the name server.
    @ivar queueDatas: its queues, one entry per broker name.
    @ivar brokerDatas: the addresses of those brokers.
    @ivar filterServerTable: broker address to its filter servers; no longer in use.
    """

    orderTopicConf: str | None = None
    queueDatas: tuple[QueueData, ...] = ()
    brokerDatas: tuple[BrokerData, ...] = ()
    filterServerTable: dict[str, tuple[str, ...]] = {}


class PlainAccessConfig(msgspec.Struct, frozen=True):
    """
    An ACL account and its permissions.  A list that is None is not configured, which
    differs from an empty list.

    @ivar accessKey: the account's name.
    @ivar secretKey: the key that signs its requests.
    @ivar whiteRemoteAddress: the addresses that need no signature.
    @ivar admin: whether the account may make all requests.
    @ivar defaultTopicPerm: C{DENY}, C{PUB}, C{SUB} or C{PUB|SUB} for topics not listed.
    @ivar defaultGroupPerm: the same for groups.
    @ivar topicPerms: a list of C{topic=PERM}.
    @ivar groupPerms: a list of C{group=PERM}.
    """

    accessKey: str | None = None
    secretKey: str | None = None
    whiteRemoteAddress: str | None = None
    admin: bool = False
    defaultTopicPerm: str | None = None
    defaultGroupPerm: str | None = None
    topicPerms: tuple[str, ...] | None = None
    groupPerms: tuple[str, ...] | None = None
