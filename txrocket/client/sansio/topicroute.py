# SPDX-License-Identifier: Apache-2.0
"""
A topic's route, and what follows from it: which queues there are to send to and
to pull from (C{MQClientInstance.topicRouteData2TopicPublishInfo} and
C{...SubscribeInfo}), and where their brokers are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from txrocket.model import MASTER_ID, PERM_READ, PERM_WRITE, MessageQueue, QueueData, TopicRouteData
from txrocket.protocol.names import AUTO_CREATE_TOPIC

__all__ = ["DEFAULT_TOPIC", "Route", "limited", "readQueues", "writeQueues"]

#: The topic that one which does not exist yet inherits from.
DEFAULT_TOPIC: Final = AUTO_CREATE_TOPIC


def writeQueues(topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """
    The queues that a producer may send to, in the order of their brokers' names;
    for an ordered topic, those that its order names.
    """
    if route.orderTopicConf:
        return tuple(
            MessageQueue(topic, name, queueId)
            for name, count in _ordered(route.orderTopicConf)
            for queueId in range(count)
        )
    masters = {each.brokerName for each in route.brokerDatas if MASTER_ID in each.brokerAddrs}
    return tuple(
        MessageQueue(topic, data.brokerName, queueId)
        for data in sorted(route.queueDatas, key=lambda each: each.brokerName)
        if data.perm & PERM_WRITE and data.brokerName in masters
        for queueId in range(data.writeQueueNums)
    )


def readQueues(topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """
    The queues that a consumer may pull from, sorted.
    """
    return tuple(
        sorted(
            MessageQueue(topic, data.brokerName, queueId)
            for data in route.queueDatas
            if data.perm & PERM_READ
            for queueId in range(data.readQueueNums)
        )
    )


def limited(route: TopicRouteData, queues: int) -> TopicRouteData:
    """
    The route that a topic which does not exist yet will have once something is
    sent to it.

    @param route: that of L{DEFAULT_TOPIC}.
    @param queues: how many queues the sender wants at each broker.
    """

    def at(data: QueueData) -> QueueData:
        count = min(queues, data.readQueueNums)
        return replace(data, readQueueNums=count, writeQueueNums=count)

    return replace(route, queueDatas=tuple(map(at, route.queueDatas)))


def _ordered(configured: str) -> Iterable[tuple[str, int]]:
    for each in configured.split(";"):
        name, _, count = each.partition(":")
        if name and count.isdecimal():
            yield name, int(count)


class Route:
    """
    A topic's route, and what follows from it, reckoned once.

    @ivar inherited: whether it is that of the topic which this one would inherit
        from: it does not exist yet.
    @ivar brokers: the addresses of its brokers, by name and id.
    """

    def __init__(self, topic: str, data: TopicRouteData, *, inherited: bool) -> None:
        self.topic = topic
        self.data = data
        self.inherited = inherited
        self.writeQueues = writeQueues(topic, data)
        self.readQueues = readQueues(topic, data)
        self.brokers = {each.brokerName: each.brokerAddrs for each in data.brokerDatas}
