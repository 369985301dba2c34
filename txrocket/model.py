# SPDX-License-Identifier: Apache-2.0
"""
The values that every layer shares: name server, broker, store and clients hold
them, and the wire and the files carry them.

Each class is named after RocketMQ's, each attribute after the member of its
JSON form, so that there is no mapping layer: what L{txrocket.protocol.bodies}
reads and writes is the value itself.  All are frozen; change one with
C{msgspec.structs.replace}.

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

A Java List is a tuple here, a Set a frozenset and a Map a dict.  Numbers have
Java's defaults, but a time is never "now": it is 0 until somebody sets it.
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

#: The broker id of a master; slaves have greater ones.
MASTER_ID = 0

#: Bits of C{perm}.
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1


# Members stand in Java's order: clients in C++ and Go send an enum's ordinal.


class ConsumeType(enum.Enum):
    """
    Who moves the messages: the consumer asks, or a listener is fed.
    """

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class MessageModel(enum.Enum):
    """
    Whether each consumer of a group gets every message, or the group shares them.
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
    How many tags a message of the topic may bear; only one is ever used.
    """

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


# cache_hash: queues are the keys of nearly every table of a client.
class MessageQueue(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """
    One queue of a topic at a broker.  Queues sort as in Java, by topic, broker
    name and queue id; clients that share a topic must agree on this order.

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
    @ivar readQueueNums: how many queues consumers see.
    @ivar writeQueueNums: how many queues producers see.
    @ivar perm: L{PERM_READ}, L{PERM_WRITE} and L{PERM_INHERIT} together.
    @ivar topicFilterType: always SINGLE_TAG.
    @ivar topicSysFlag: 1 for a unit topic, 2 for one with unit subscribers.
    @ivar order: whether the topic is an ordered one.
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
    The age of a table: two tables with equal versions are the same.

    @ivar timestamp: when the table was last changed, in milliseconds.
    @ivar counter: how often it was changed.
    """

    timestamp: Int64 = 0
    counter: Int64 = 0


# cache_hash: brokers find the compiled expression of every pull by it.
class SubscriptionData(msgspec.Struct, frozen=True, cache_hash=True):
    """
    What a group wants of a topic.

    @ivar topic: the topic's name.
    @ivar subString: the expression: tags, or SQL92; C{*} is everything.
    @ivar classFilterMode: whether a filter class is used; no longer in use.
    @ivar tagsSet: the tags of a tag expression; empty for everything.
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
    @ivar consumeBroadcastEnable: whether it may broadcast.
    @ivar retryQueueNums: the queues of its retry topic.
    @ivar retryMaxTimes: how often a message is retried before it is dead.
    @ivar brokerId: the broker to pull from.
    @ivar whichBrokerWhenConsumeSlowly: the broker to pull from when far behind.
    @ivar notifyConsumerIdsChangedEnable: whether its consumers are told when
        one comes or goes.
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
    A topic's queues at one broker, as a route tells of them.

    @ivar brokerName: the broker's name.
    @ivar readQueueNums: how many queues consumers see.
    @ivar writeQueueNums: how many queues producers see.
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
    Where a topic lives.

    @ivar orderTopicConf: C{broker:queues;...} where the name server has an
        order configured for the topic.
    @ivar queueDatas: its queues, per broker name.
    @ivar brokerDatas: the brokers of those names.
    @ivar filterServerTable: broker address to its filter servers; no longer in use.
    """

    orderTopicConf: str | None = None
    queueDatas: tuple[QueueData, ...] = ()
    brokerDatas: tuple[BrokerData, ...] = ()
    filterServerTable: dict[str, tuple[str, ...]] = {}


class PlainAccessConfig(msgspec.Struct, frozen=True):
    """
    An account and what it may do.  A list that is None is not configured at
    all, which is not the same as an empty one.

    @ivar accessKey: the account's name.
    @ivar secretKey: the key that it signs with.
    @ivar whiteRemoteAddress: the addresses that need no signature.
    @ivar admin: whether it may do everything.
    @ivar defaultTopicPerm: C{DENY}, C{PUB}, C{SUB} or C{PUB|SUB} for topics not listed.
    @ivar defaultGroupPerm: the same for groups.
    @ivar topicPerms: C{topic=PERM} each.
    @ivar groupPerms: C{group=PERM} each.
    """

    accessKey: str | None = None
    secretKey: str | None = None
    whiteRemoteAddress: str | None = None
    admin: bool = False
    defaultTopicPerm: str | None = None
    defaultGroupPerm: str | None = None
    topicPerms: tuple[str, ...] | None = None
    groupPerms: tuple[str, ...] | None = None
