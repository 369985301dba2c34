# SPDX-License-Identifier: Apache-2.0
"""
What is asked of a cluster: which queues there are, where they begin and end, and which
message was the first at a time.

What gets no answer is asked again until its time is over: servers are restarted while
streams run.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

from pyspark_rocketmq.bytime import firstAt
from pyspark_rocketmq.offsets import EARLIEST, LATEST, DataLost, Offsets, Position
from pyspark_rocketmq.options import Chosen
from txrocket.blocking import Client, Settings
from txrocket.blocking.deadline import Deadline
from txrocket.client.topicroute import readQueues
from txrocket.errors import (
    ConfigError,
    RemotingError,
    SendFailed,
    ServiceNotAvailable,
    SystemBusy,
    TopicNotExist,
)
from txrocket.model import MASTER_ID, MessageQueue
from txrocket.protocol.names import NOT_SENT_TO
from txrocket.protocol.record import storeTimestampAt

__all__ = ["Bounds", "Cluster", "clientFor", "patiently"]

#: By queue, its first message's offset, and the next one's.
Bounds = dict[MessageQueue, tuple[int, int]]

_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)

# What may be over soon.
_PASSING = (RemotingError, SystemBusy, ServiceNotAvailable)

# Attempts are not further apart than after so many of them, which is a second.
_SLOWEST = 5

# Topics of RocketMQ's own.  Those whose names begin with % are of groups.
_OWN = NOT_SENT_TO | {"TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}


# Spark uses a worker for one task after the other, and connections outlive them.  The
# client looks whether they live, and makes new ones in a process that was forked.
@lru_cache(8)
def clientFor(settings: Settings) -> Client:
    """
    This process's client.
    """
    return Client(settings)


def patiently(seconds: float, call: Callable[[float], _Result]) -> _Result:
    """
    Ask until there is an answer, or the time is over.

    @param call: asks, with the seconds that are left.
    @raise RocketError: what the last attempt met with.
    """
    deadline = Deadline(seconds)
    attempts = 0
    while True:
        try:
            return call(deadline.left())
        except (*_PASSING, SendFailed) as error:
            cause = error.error if isinstance(error, SendFailed) else error
            attempts += 1
            if not isinstance(cause, _PASSING) or not deadline.pause(min(attempts, _SLOWEST)):
                raise
            _log.info("Asking again after attempt %d: %s", attempts, error)


class Cluster:
    """
    The brokers, as far as some topics go.
    """

    def __init__(self, client: Client, chosen: Chosen) -> None:
        """
        @param chosen: the topics.
        """
        self._client = client
        self._chosen = chosen
        self._timeout = client.settings.timeout

    def queues(self, *, strict: bool = True) -> dict[str, tuple[MessageQueue, ...]]:
        """
        The queues that there are now, by topic.

        @param strict: whether it is an error if a topic that was named does not exist,
            or a queue that was named.
        @raise TopicNotExist: naming the topic.
        @raise ConfigError: naming the queues.
        """
        found = {}
        for topic in self._topics():
            try:
                found[topic] = self._queuesOf(topic)
            except TopicNotExist as error:
                if strict and self._chosen.pattern is None:
                    raise TopicNotExist(f"topic {topic} does not exist: {error}") from None
        named = self._chosen.queues
        if named is None:
            return found
        there = {each for queues in found.values() for each in queues}
        if strict and (missing := [each for each in named if each not in there]):
            texts = ", ".join(f"{e.topic}/{e.brokerName}/{e.queueId}" for e in missing)
            raise ConfigError(f"option assign: there is no queue {texts}")
        return {
            topic: tuple(each for each in queues if each in named)
            for topic, queues in found.items()
        }

    def _topics(self) -> list[str]:
        chosen = self._chosen
        if chosen.pattern is None:
            return list(chosen.topics)
        every = patiently(self._timeout, lambda left: self._client.topics(timeout=left))
        ofGroups = chosen.pattern.startswith("%")
        return sorted(
            each
            for each in every - _OWN
            if each.startswith("%") == ofGroups and chosen.matches(each)
        )

    def _queuesOf(self, topic: str) -> tuple[MessageQueue, ...]:
        """
        The queues of a topic at the brokers that have a master now.
        """
        route = patiently(self._timeout, lambda left: self._client.route(topic, timeout=left))
        masters = {each.brokerName for each in route.brokerDatas if MASTER_ID in each.brokerAddrs}
        return tuple(each for each in readQueues(topic, route) if each.brokerName in masters)

    def bounds(self, queues: Iterable[MessageQueue]) -> Bounds:
        """
        Where queues begin and end.
        """
        wanted: dict[tuple[str, str], list[MessageQueue]] = defaultdict(list)
        for each in queues:
            wanted[each.topic, each.brokerName].append(each)
        found: Bounds = {}
        for (topic, brokerName), own in wanted.items():
            told = patiently(
                self._timeout,
                lambda left, topic=topic, name=brokerName: self._client.bounds(  # type: ignore[misc]
                    topic, name, timeout=left
                ),
            )
            # A queue in which nothing was ever stored may be missing.
            found |= {each: told.get(each, (0, 0)) for each in own}
        return found

    def resolve(self, position: Position, bounds: Bounds, *, strict: bool) -> Offsets:
        """
        Where a position is in each queue.

        @param strict: whether it is an error if that lies outside of the queue; else
            its nearest message counts.
        @raise ConfigError: if it does not say so for each queue.
        @raise DataLost: naming the queue.
        """
        position.check(bounds)
        offsets = {}
        for queue, (low, high) in bounds.items():
            value = position.of(queue)
            assert value is not None
            if position.byTime:
                offsets[queue] = self.firstAt(queue, value, low, high)
            elif value in (EARLIEST, LATEST):
                offsets[queue] = low if value == EARLIEST else high
            elif strict and not low <= value <= high:
                raise DataLost(
                    f"option {position.option}: queue {queue.queueId} of {queue.topic} at"
                    f" {queue.brokerName} has messages from {low} to {high}, not {value}"
                    " (failOnDataLoss=false takes what there is)"
                )
            else:
                offsets[queue] = min(max(value, low), high)
        return offsets

    def firstAt(self, queue: MessageQueue, when: int, low: int, high: int) -> int:
        """
        The offset of the first message of a queue that was stored at a time or later.

        @param when: in milliseconds.
        """
        if low >= high:
            return high
        near = patiently(
            self._timeout,
            lambda left: self._client.searchByTime(queue, when / 1000, timeout=left),
        )
        return firstAt(when, low, high, near, lambda offset: self._timeAt(queue, offset))

    def _timeAt(self, queue: MessageQueue, offset: int) -> int | None:
        pulled = patiently(
            self._timeout, lambda left: self._client.pullData(queue, offset, 1, timeout=left)
        )
        return storeTimestampAt(pulled.data) if pulled.data else None
