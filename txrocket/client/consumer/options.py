# SPDX-License-Identifier: Apache-2.0
"""
The settings of consumers as values, which each part of a consumer is given; the fields of
Java's C{DefaultMQPushConsumer} and C{DefaultLitePullConsumer}.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.allocate import Assign, averagely
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.offsetstore import MemoryOffsets, OffsetStore, RemoteOffsets
from txrocket.client.consumer.push.consumehooks import IConsumeMessageHook
from txrocket.client.consumer.push.processqueue import Room
from txrocket.client.consumer.startoffset import StartOffset
from txrocket.model import ConsumeFromWhere, MessageModel

__all__ = ["ConsumerOptions", "PrefetchOptions", "PushOptions"]

# With CONSUME_FROM_TIMESTAMP and no timestamp, how many seconds ago a group begins.
_HALF_AN_HOUR = 1800.0


@attrs.frozen(kw_only=True)
class ConsumerOptions:
    """
    Which queues a consumer has, and where it begins in them.

    @ivar consumeFromWhere: where a group begins in a queue that it has no offset in.
    @ivar consumeTimestamp: for CONSUME_FROM_TIMESTAMP, in seconds since 1970; half an hour
        ago if L{None}.
    @ivar strategy: divides the queues among the members.
    @ivar offsets: the offset store.  By default a clustering group's offsets are at the
        brokers, and those of a broadcasting consumer are in memory.
    """

    messageModel: MessageModel = MessageModel.CLUSTERING
    consumeFromWhere: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consumeTimestamp: float | None = None
    strategy: Assign = averagely
    offsets: OffsetStore | None = None

    @property
    def broadcast(self) -> bool:
        """
        Whether each member consumes all queues.
        """
        return self.messageModel is MessageModel.BROADCASTING

    def offsetStore(self, calls: GroupCalls) -> OffsetStore:
        """
        The offset store that is set, or the default one.
        """
        if self.offsets is not None:
            return self.offsets
        return MemoryOffsets() if self.broadcast else RemoteOffsets(calls)

    def startOffset(
        self, cluster: Cluster, group: str, calls: GroupCalls, offsets: OffsetStore
    ) -> StartOffset:
        """
        Finds where the consumer begins in a queue.
        """
        timestamp = self.consumeTimestamp
        if timestamp is None:
            timestamp = cluster.wall() - _HALF_AN_HOUR
        return StartOffset(group, calls, offsets, self.consumeFromWhere, timestamp)


@attrs.frozen(kw_only=True)
class PrefetchOptions(ConsumerOptions):
    """
    How a consumer pulls ahead of its reader.

    @ivar room: how much of each queue may be held.
    @ivar pullBatch: how many messages to pull at a time.
    """

    room: Room = attrs.field(factory=Room)
    pullBatch: int = 32


def _times(times: int | None) -> int | None:
    # Java's -1 says that nothing is set.
    return None if times == -1 else times


@attrs.frozen(kw_only=True)
class PushOptions(PrefetchOptions):
    """
    How a push consumer pulls, and calls its listener.

    @ivar orderly: whether the messages of each queue are consumed in order.
    @ivar blocking: whether the listener blocks, and is called in a thread.
    @ivar batch: gives the listener lists of at most this many messages; 0 gives it single
        messages.
    @ivar concurrency: how many calls of the listener may run at a time.
    @ivar pullInterval: how many seconds to wait between pulls.
    @ivar consumeTimeout: after how many seconds a message that the listener has not
        finished is sent back.  Not in order.
    @ivar maxReconsumeTimes: how often a message is tried again: 16 times, or for ever in
        order, if L{None}.
    @ivar suspend: how many seconds a queue is held up by a message that the listener did
        not consume.  In order only.
    @ivar hooks: look at every call of the listener.
    """

    orderly: bool = False
    blocking: bool = False
    batch: int = 0
    concurrency: int = 20
    pullInterval: float = 0.0
    consumeTimeout: float = 900.0
    maxReconsumeTimes: int | None = attrs.field(default=None, converter=_times)
    suspend: float = 1.0
    hooks: Sequence[IConsumeMessageHook] = ()
