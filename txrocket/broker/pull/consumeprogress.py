# SPDX-License-Identifier: Apache-2.0
"""
The offsets of queues, the progress of groups in them, and the offsets of a time.

A broker may have ten thousand queues, and each is read from the disk.  So a method that may
take long is a generator: it yields after each queue, so that other work has its turn, and
returns its result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.parts import Tables
from txrocket.broker.stats import Stats
from txrocket.errors import RemoteSystemError, TopicNotExist
from txrocket.model import MessageQueue, TopicConfig
from txrocket.protocol.bodies import (
    ConsumeStats,
    OffsetWrapper,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from txrocket.protocol.fastjson import Gradual
from txrocket.store.messagestore import MessageStore

__all__ = ["ConsumeProgress"]


class ConsumeProgress:
    """
    Looks up queues, groups and times.
    """

    def __init__(
        self,
        brokerName: str,
        store: MessageStore,
        tables: Tables,
        consumers: Consumers,
        stats: Stats,
    ) -> None:
        self._brokerName = brokerName
        self._store = store
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._consumers = consumers
        self._stats = stats

    def ends(self, topic: str) -> Gradual[TopicStatsTable]:
        """
        The first and last offsets of a topic's queues.

        @raise TopicNotExist: if the topic does not exist.
        """
        config, store = self._topic(topic), self._store
        table: dict[MessageQueue, TopicOffset] = {}
        for queueId in range(config.writeQueueNums):
            end = store.maxOffset(topic, queueId)
            last = self._time(topic, queueId, end - 1) if end else 0
            table[self._queue(topic, queueId)] = TopicOffset(
                store.minOffset(topic, queueId), end, last
            )
            yield
        return TopicStatsTable(table)

    def ofGroup(self, group: str, topic: str | None) -> Gradual[ConsumeStats]:
        """
        The progress of a group in a topic, or in all in which it has offsets.
        """
        topics = [topic] if topic else sorted(self._offsets.topicsOf(group))
        table: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        for config in self._consumed(group, topics):
            yield from self._places(group, config.topicName, config.readQueueNums, table)
            rate += self._stats.consumeTps(group, config.topicName)
        return ConsumeStats(table, rate)

    def ofGroups(
        self,
        groups: Iterable[str],
        ordered: bool,
        tell: Callable[[str, ConsumeStats], Gradual[None]],
    ) -> Gradual[None]:
        """
        The progress of groups in each topic in which they have offsets.

        @param ordered: whether to look at ordered topics only.
        @param tell: called for each pair of a group and a topic.
        """
        topics = self._offsets.topicsByGroup()
        # To look through the offsets of 20,000 groups takes a turn.
        yield
        for group in groups:
            yield
            for config in self._consumed(group, sorted(topics.get(group, ()))):
                if config.order or not ordered:
                    table: dict[MessageQueue, OffsetWrapper] = {}
                    yield from self._places(group, config.topicName, config.writeQueueNums, table)
                    rate = self._stats.consumeTps(group, config.topicName)
                    yield from tell(group, ConsumeStats(table, rate))

    def times(self, group: str, topic: str, now: int) -> Gradual[tuple[QueueTimeSpan, ...]]:
        """
        When the first, the last, and the last consumed messages of a topic's queues
        were stored, and for how long the first one not consumed has waited.

        @raise TopicNotExist: if the topic does not exist.
        """
        config = self._topic(topic)
        spans = []
        for queueId in range(config.writeQueueNums):
            end = self._store.maxOffset(topic, queueId)
            first = self._time(topic, queueId, self._store.minOffset(topic, queueId))
            consumed = self._offsets.query(group, topic, queueId)
            waiting = self._time(topic, queueId, consumed) if consumed >= 0 else first
            last = self._time(topic, queueId, end - 1)
            at = self._time(topic, queueId, consumed - 1) if consumed > 0 else first
            spans.append(
                QueueTimeSpan(
                    self._queue(topic, queueId),
                    first,
                    last,
                    at,
                    now - waiting if max(consumed, 0) < end else 0,
                    _text(first),
                    _text(last),
                    _text(at),
                )
            )
            yield
        return tuple(spans)

    def offsetsAt(
        self, group: str, topic: str, timestamp: int, force: bool
    ) -> Gradual[dict[MessageQueue, int]]:
        """
        The offsets at which a group finds the messages since a time.

        @param timestamp: in milliseconds; -1 for the end of each queue.
        @param force: whether the group may go forward too, and not only back.
        @raise RemoteSystemError: as Java answers, if the topic does not exist, or the group
            has no offset in one of its queues.
        """
        config = self._topics.get(topic)
        if config is None:
            raise RemoteSystemError(f"there is no topic {topic} at this broker")
        table: dict[MessageQueue, int] = {}
        for queueId in range(config.writeQueueNums):
            consumed = self._offsets.query(group, topic, queueId)
            if consumed == -1:
                raise RemoteSystemError(
                    f"the group {group} has no offset in queue {queueId} of {topic}"
                )
            if timestamp == -1:
                offset = self._store.maxOffset(topic, queueId)
            else:
                offset = self._store.offsetByTime(topic, queueId, timestamp)
            table[self._queue(topic, queueId)] = offset if force else min(offset, consumed)
            yield
        return table

    # --- inside ------------------------------------------------------------

    def _topic(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotExist(f"there is no topic {topic} at this broker")
        return config

    def _queue(self, topic: str, queueId: int) -> MessageQueue:
        return MessageQueue(topic, self._brokerName, queueId)

    def _time(self, topic: str, queueId: int, offset: int) -> int:
        # As Java has it: no time is -1.
        found = self._store.storeTimestamp(topic, queueId, offset)
        return -1 if found is None else found

    def _consumed(self, group: str, topics: Iterable[str]) -> Iterable[TopicConfig]:
        """
        The topics that exist and that the group subscribes to, if it is connected.
        """
        online = self._consumers.get(group)
        for topic in topics:
            config = self._topics.get(topic)
            if config is not None and (
                online is None or not online.subscriptions or topic in online.subscriptions
            ):
                yield config

    def _places(
        self, group: str, topic: str, queues: int, table: dict[MessageQueue, OffsetWrapper]
    ) -> Gradual[None]:
        for queueId in range(queues):
            consumed = max(self._offsets.query(group, topic, queueId), 0)
            last = self._time(topic, queueId, consumed - 1) if consumed else 0
            table[self._queue(topic, queueId)] = OffsetWrapper(
                self._store.maxOffset(topic, queueId), consumed, max(last, 0)
            )
            yield


def _text(timestamp: int) -> str:
    seconds, milliseconds = divmod(timestamp, 1000)
    return time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(seconds)) + f":{milliseconds:03d}"
