# SPDX-License-Identifier: Apache-2.0
"""
Bodies of requests about offsets: the ends of queues, the offsets of groups, resets and
entries of consume queues.
"""

from __future__ import annotations

import msgspec

from txrocket.model import Int32, Int64, MessageQueue, SubscriptionData

__all__ = [
    "ConsumeByWho",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumerOffsetSerializeWrapper",
    "DelayOffsetSerializeWrapper",
    "GetConsumerStatusBody",
    "MessageQueueForC",
    "OffsetMovedEvent",
    "OffsetWrapper",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueryCorrectionOffsetBody",
    "QueueTimeSpan",
    "ResetOffsetBody",
    "ResetOffsetBodyForC",
    "RollbackStats",
    "TopicOffset",
    "TopicStatsTable",
]


class ConsumerOffsetSerializeWrapper(msgspec.Struct, frozen=True):
    """
    The committed offsets of a broker.  A broker with light message queues adds
    C{lmqOffsetTable}, which readers ignore, in Java too.

    @ivar offsetTable: C{topic@group} to queue id to offset.
    """

    offsetTable: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetSerializeWrapper(msgspec.Struct, frozen=True):
    """
    How far a broker has delivered delayed messages.

    @ivar offsetTable: delay level to offset.
    """

    offsetTable: dict[Int32, Int64] = {}


class TopicOffset(msgspec.Struct, frozen=True):
    """
    The bounds of a queue.

    @ivar minOffset: the first message's offset.
    @ivar maxOffset: the offset of the next message to be appended.
    @ivar lastUpdateTimestamp: when the last message was stored.
    """

    minOffset: Int64 = 0
    maxOffset: Int64 = 0
    lastUpdateTimestamp: Int64 = 0


class TopicStatsTable(msgspec.Struct, frozen=True):
    """
    The bounds of a topic's queues.

    @ivar offsetTable: queue to its bounds.
    """

    offsetTable: dict[MessageQueue, TopicOffset] = {}


class OffsetWrapper(msgspec.Struct, frozen=True):
    """
    A group's progress in a queue.

    @ivar brokerOffset: the queue's end.
    @ivar consumerOffset: the committed offset.
    @ivar lastTimestamp: when the message before that offset was stored.
    """

    brokerOffset: Int64 = 0
    consumerOffset: Int64 = 0
    lastTimestamp: Int64 = 0


class ConsumeStats(msgspec.Struct, frozen=True):
    """
    A group's progress in all its queues at a broker.

    @ivar offsetTable: queue to progress.
    @ivar consumeTps: consumed messages per second.
    """

    offsetTable: dict[MessageQueue, OffsetWrapper] = {}
    consumeTps: float = 0.0


class ConsumeStatsList(msgspec.Struct, frozen=True):
    """
    The progress of all groups at a broker.

    @ivar consumeStatsList: one map per group, from its name to its progress in each
        topic.
    @ivar brokerAddr: the broker's address.
    @ivar totalDiff: the number of messages that the groups have yet to consume, in sum.
    """

    consumeStatsList: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    brokerAddr: str | None = None
    totalDiff: Int64 = 0


class RollbackStats(msgspec.Struct, frozen=True):
    """
    The effect of an offset reset on one queue.

    @ivar brokerName: the broker's name.
    @ivar queueId: the queue's number.
    @ivar brokerOffset: the queue's end.
    @ivar consumerOffset: the committed offset.
    @ivar timestampOffset: the offset at the requested time.
    @ivar rollbackOffset: the offset that was set.
    """

    brokerName: str | None = None
    queueId: Int64 = 0
    brokerOffset: Int64 = 0
    consumerOffset: Int64 = 0
    timestampOffset: Int64 = 0
    rollbackOffset: Int64 = 0


class ResetOffsetBody(msgspec.Struct, frozen=True):
    """
    The offsets from which a group continues.

    @ivar offsetTable: queue to offset.
    """

    offsetTable: dict[MessageQueue, Int64] = {}


class MessageQueueForC(msgspec.Struct, frozen=True):
    """
    A queue and the offset from which a group continues in it.

    @ivar topic: the topic's name.
    @ivar brokerName: the broker's name.
    @ivar queueId: the queue's number.
    @ivar offset: the offset.
    """

    topic: str
    brokerName: str
    queueId: Int32 = 0
    offset: Int64 = 0


class ResetOffsetBodyForC(msgspec.Struct, frozen=True):
    """
    L{ResetOffsetBody} for C++ clients, which cannot parse objects as map keys.

    @ivar offsetTable: the queues; a list, in spite of its name.
    """

    offsetTable: tuple[MessageQueueForC, ...] = ()


class GetConsumerStatusBody(msgspec.Struct, frozen=True):
    """
    The offsets of a group's clients.  A client fills C{messageQueueTable}; a broker fills
    C{consumerTable} with the responses of all clients.

    @ivar messageQueueTable: queue to offset, of the responding client.
    @ivar consumerTable: client id to queue to offset.
    """

    messageQueueTable: dict[MessageQueue, Int64] = {}
    consumerTable: dict[str, dict[MessageQueue, Int64]] = {}


class QueryCorrectionOffsetBody(msgspec.Struct, frozen=True):
    """
    The smallest offset per queue of some groups, to correct another group's.

    @ivar correctionOffsets: queue id to offset.
    """

    correctionOffsets: dict[Int32, Int64] = {}


class QueueTimeSpan(msgspec.Struct, frozen=True):
    """
    The store times of a queue's messages.  Java computes the three texts from the times
    in the broker's time zone, and never parses them.

    @ivar messageQueue: the queue.
    @ivar minTimeStamp: when the oldest message was stored.
    @ivar maxTimeStamp: when the newest message was stored.
    @ivar consumeTimeStamp: when the last consumed message was stored.
    @ivar delayTime: how long the oldest unconsumed message has waited.
    @ivar minTimeStampStr: C{yyyy-MM-dd#HH:mm:ss:SSS} of minTimeStamp.
    @ivar maxTimeStampStr: the same of maxTimeStamp.
    @ivar consumeTimeStampStr: the same of consumeTimeStamp.
    """

    messageQueue: MessageQueue | None = None
    minTimeStamp: Int64 = 0
    maxTimeStamp: Int64 = 0
    consumeTimeStamp: Int64 = 0
    delayTime: Int64 = 0
    minTimeStampStr: str | None = None
    maxTimeStampStr: str | None = None
    consumeTimeStampStr: str | None = None


class QueryConsumeTimeSpanBody(msgspec.Struct, frozen=True):
    """
    The store times of a topic's queues.

    @ivar consumeTimeSpanSet: one entry per queue; a list, in spite of its name.
    """

    consumeTimeSpanSet: tuple[QueueTimeSpan, ...] = ()


class ConsumeQueueData(msgspec.Struct, frozen=True):
    """
    An entry of a consume queue.

    @ivar physicOffset: the message's offset in the commit log.
    @ivar physicSize: the size of its record.
    @ivar tagsCode: the hash code of its tag.
    @ivar extendDataJson: the entry's extension, as JSON text.
    @ivar bitMap: the extension's bits.
    @ivar eval: whether the message matches the group's filter.
    @ivar msg: why the filter could not be evaluated.
    """

    physicOffset: Int64 = 0
    physicSize: Int32 = 0
    tagsCode: Int64 = 0
    extendDataJson: str | None = None
    bitMap: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(msgspec.Struct, frozen=True):
    """
    The response to QUERY_CONSUME_QUEUE: consecutive entries of a consume queue.

    @ivar subscriptionData: the group's subscription, if the request names a group.
    @ivar filterData: the group's filter as JSON text; the text C{null} without a filter.
    @ivar queueData: the entries.
    @ivar maxQueueIndex: the queue's end.
    @ivar minQueueIndex: the queue's start.
    """

    subscriptionData: SubscriptionData | None = None
    filterData: str | None = None
    queueData: tuple[ConsumeQueueData, ...] | None = None
    maxQueueIndex: Int64 = 0
    minQueueIndex: Int64 = 0


class ConsumeByWho(msgspec.Struct, frozen=True):
    """
    Which groups have consumed a message.

    @ivar consumedGroup: the groups that have consumed it.
    @ivar notConsumedGroup: the groups that have not.
    @ivar topic: the message's topic.
    @ivar queueId: its queue.
    @ivar offset: its offset in the queue.
    """

    consumedGroup: frozenset[str] = frozenset()
    notConsumedGroup: frozenset[str] = frozenset()
    topic: str | None = None
    queueId: Int32 = 0
    offset: Int64 = 0


class OffsetMovedEvent(msgspec.Struct, frozen=True):
    """
    The body of a message in the topic OFFSET_MOVED_EVENT: a group pulled from an offset
    outside the queue.

    @ivar consumerGroup: the consumer group.
    @ivar messageQueue: the queue.
    @ivar offsetRequest: the requested offset.
    @ivar offsetNew: the offset from which the group continues.
    """

    consumerGroup: str | None = None
    messageQueue: MessageQueue | None = None
    offsetRequest: Int64 = 0
    offsetNew: Int64 = 0
