# SPDX-License-Identifier: Apache-2.0
"""
Bodies of requests about connected clients: heartbeats, the members of a group, queue
locks of orderly consumers, and the clients that a broker has connections with.
"""

from __future__ import annotations

import msgspec

from txrocket.model import (
    ConsumeFromWhere,
    ConsumeType,
    Int32,
    Int64,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)

__all__ = [
    "CheckClientRequestBody",
    "Connection",
    "ConsumerConnection",
    "ConsumerData",
    "GetConsumerListByGroupResponseBody",
    "HeartbeatData",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "UnlockBatchRequestBody",
]


class ProducerData(msgspec.Struct, frozen=True):
    """
    A producer group of a client.

    @ivar groupName: the group's name.
    """

    groupName: str


class ConsumerData(msgspec.Struct, frozen=True):
    """
    A consumer group of a client, with its subscriptions.

    @ivar groupName: the group's name.
    @ivar consumeType: pull or push.
    @ivar messageModel: broadcasting or clustering.
    @ivar consumeFromWhere: where a new group starts.
    @ivar subscriptionDataSet: its subscriptions, one per topic.
    @ivar unitMode: whether the client belongs to a unit.
    """

    groupName: str
    consumeType: ConsumeType | None = None
    messageModel: MessageModel | None = None
    consumeFromWhere: ConsumeFromWhere | None = None
    subscriptionDataSet: frozenset[SubscriptionData] = frozenset()
    unitMode: bool = False


class HeartbeatData(msgspec.Struct, frozen=True):
    """
    HEART_BEAT: all groups of a client.

    @ivar clientID: the client's id, C{ip@instance}.
    @ivar producerDataSet: its producer groups.
    @ivar consumerDataSet: its consumer groups.
    """

    clientID: str
    producerDataSet: frozenset[ProducerData] = frozenset()
    consumerDataSet: frozenset[ConsumerData] = frozenset()


class CheckClientRequestBody(msgspec.Struct, frozen=True):
    """
    CHECK_CLIENT_CONFIG: a subscription whose expression the broker checks.

    @ivar clientId: the client's id.
    @ivar group: the consumer group.
    @ivar subscriptionData: the subscription; a Java broker fails without one.
    """

    clientId: str | None = None
    group: str | None = None
    subscriptionData: SubscriptionData | None = None


class GetConsumerListByGroupResponseBody(msgspec.Struct, frozen=True):
    """
    The clients of a consumer group.

    @ivar consumerIdList: their ids.  All members allocate the queues by this list.
    """

    consumerIdList: tuple[str, ...] = ()


class LockBatchRequestBody(msgspec.Struct, frozen=True):
    """
    LOCK_BATCH_MQ: the queues that an orderly consumer wants to lock.

    @ivar consumerGroup: the consumer group.
    @ivar clientId: the client's id.
    @ivar mqSet: the queues, all of them of the receiving broker.
    """

    consumerGroup: str | None = None
    clientId: str | None = None
    mqSet: frozenset[MessageQueue] = frozenset()


class LockBatchResponseBody(msgspec.Struct, frozen=True):
    """
    The response to LOCK_BATCH_MQ.

    @ivar lockOKMQSet: the queues that are locked for the client.
    """

    lockOKMQSet: frozenset[MessageQueue] = frozenset()


class UnlockBatchRequestBody(msgspec.Struct, frozen=True):
    """
    UNLOCK_BATCH_MQ: the queues that an orderly consumer unlocks.

    @ivar consumerGroup: the consumer group.
    @ivar clientId: the client's id.
    @ivar mqSet: the queues.
    """

    consumerGroup: str | None = None
    clientId: str | None = None
    mqSet: frozenset[MessageQueue] = frozenset()


class Connection(msgspec.Struct, frozen=True):
    """
    A connected client.

    @ivar clientId: the client's id.
    @ivar clientAddr: its address, C{host:port}.
    @ivar language: the name of its language code.
    @ivar version: its version's ordinal.
    """

    clientId: str | None = None
    clientAddr: str | None = None
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(msgspec.Struct, frozen=True):
    """
    The consumers of a group.

    @ivar connectionSet: the clients.
    @ivar subscriptionTable: topic to the group's subscription.
    @ivar consumeType: as in L{ConsumerData}.
    @ivar messageModel: as in L{ConsumerData}.
    @ivar consumeFromWhere: as in L{ConsumerData}.
    """

    connectionSet: frozenset[Connection] = frozenset()
    subscriptionTable: dict[str, SubscriptionData] = {}
    consumeType: ConsumeType | None = None
    messageModel: MessageModel | None = None
    consumeFromWhere: ConsumeFromWhere | None = None


class ProducerConnection(msgspec.Struct, frozen=True):
    """
    The producers of a group.

    @ivar connectionSet: the clients.
    """

    connectionSet: frozenset[Connection] = frozenset()


class ProducerInfo(msgspec.Struct, frozen=True):
    """
    A connected producer.

    @ivar clientId: the client's id.
    @ivar remoteIP: its address, C{/host:port}.
    @ivar language: the name of its language code.
    @ivar version: its version's ordinal.
    @ivar lastUpdateTimestamp: the time of its last heartbeat, in milliseconds.
    """

    clientId: str | None = None
    remoteIP: str | None = None
    language: str | None = None
    version: Int32 = 0
    lastUpdateTimestamp: Int64 = 0


class ProducerTableInfo(msgspec.Struct, frozen=True):
    """
    All producers of a broker.

    @ivar data: producer group to its producers.
    """

    data: dict[str, tuple[ProducerInfo, ...]] = {}
