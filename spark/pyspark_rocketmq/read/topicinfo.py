# SPDX-License-Identifier: Apache-2.0
"""
The queues of the chosen topics: which exist, where they begin and end, and which message
was the first at a time.

If a server does not answer, the request is repeated until its timeout, because servers are
restarted while streams run.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

from pyspark_rocketmq.options import TopicChoice
from pyspark_rocketmq.read.offsetbytime import firstAt
from pyspark_rocketmq.read.offsets import EARLIEST, LATEST, DataLost, Offsets, Position
from txrocket.blocking import Client, Settings
from txrocket.blocking.deadline import Deadline
from txrocket.client.sansio.topicroute import readQueues
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

__all__ = ["Bounds", "TopicInfo", "clientFor", "retry"]

#: By queue, its first message's offset, and the next one's.
Bounds = dict[MessageQueue, tuple[int, int]]

_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)

# Errors that may be over soon.
_PASSING = (RemotingError, SystemBusy, ServiceNotAvailable)

# The pause between attempts grows up to this attempt, after which it is a second.
_SLOWEST = 5

# RocketMQ's own topics.  Topics of groups, whose names begin with %, are not among them.
_OWN = NOT_SENT_TO | {"TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}


# Spark reuses a worker for many tasks, and the connections outlive a task.  The client
# checks that they are alive, and opens new ones in a forked process.
@lru_cache(8)
def clientFor(settings: Settings) -> Client:
    """
    The client of this process for some settings.
    """
    return Client(settings)


def retry(seconds: float, call: Callable[[float], _Result]) -> _Result:
    """
    Repeat a call while it fails for a reason that may be over soon.

    @param seconds: the time for all attempts.
    @param call: called with the seconds that are left.
    @raise RocketError: the error of the last attempt.
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
            _log.info("Retrying after attempt %d: %s", attempts, error)


class TopicInfo:
    """
    Asks name servers and brokers about the chosen topics.
    """

    def __init__(self, client: Client, choice: TopicChoice) -> None:
        """
        @param choice: the topics.
        """
        self._client = client
        self._choice = choice
        self._timeout = client.settings.timeout

    def queues(self, *, strict: bool = True) -> dict[str, tuple[MessageQueue, ...]]:
        """
        The queues that exist now, by topic.

        @param strict: whether it is an error if a topic or queue that the options name
            does not exist.
        @raise TopicNotExist: if a topic does not exist.
        @raise ConfigError: if a queue does not exist.
        """
        found = {}
        for topic in self._topics():
            try:
                found[topic] = self._queuesOf(topic)
            except TopicNotExist as error:
                if strict and self._choice.pattern is None:
                    raise TopicNotExist(f"topic {topic} does not exist: {error}") from None
        named = self._choice.queues
        if named is None:
            return found
        there = {each for queues in found.values() for each in queues}
        if strict and (missing := [each for each in named if each not in there]):
            texts = ", ".join(f"{e.topic}/{e.brokerName}/{e.queueId}" for e in missing)
            raise ConfigError(f"option assign: queue {texts} does not exist")
        return {
            topic: tuple(each for each in queues if each in named)
            for topic, queues in found.items()
        }

    def _topics(self) -> list[str]:
        choice = self._choice
        if choice.pattern is None:
            return list(choice.topics)
        every = retry(self._timeout, lambda left: self._client.topics(timeout=left))
        ofGroups = choice.pattern.startswith("%")
        return sorted(
            each
            for each in every - _OWN
            if each.startswith("%") == ofGroups and choice.matches(each)
        )

    def _queuesOf(self, topic: str) -> tuple[MessageQueue, ...]:
        """
        The queues of a topic at the brokers that have a master now.
        """
        route = retry(self._timeout, lambda left: self._client.route(topic, timeout=left))
        masters = {each.brokerName for each in route.brokerDatas if MASTER_ID in each.brokerAddrs}
        return tuple(each for each in readQueues(topic, route) if each.brokerName in masters)

    def bounds(self, queues: Iterable[MessageQueue]) -> Bounds:
        """
        The offsets at which queues begin and end.
        """
        wanted: dict[tuple[str, str], list[MessageQueue]] = defaultdict(list)
        for each in queues:
            wanted[each.topic, each.brokerName].append(each)
        found: Bounds = {}
        for (topic, brokerName), own in wanted.items():
            told = retry(
                self._timeout,
                lambda left, topic=topic, name=brokerName: self._client.bounds(  # type: ignore[misc]
                    topic, name, timeout=left
                ),
            )
            # A broker may leave out a queue that never had a message.
            found |= {each: told.get(each, (0, 0)) for each in own}
        return found

    def resolve(self, position: Position, bounds: Bounds, *, strict: bool) -> Offsets:
        """
        The offset of a position in each queue.

        @param strict: whether an offset outside of its queue is an error; else it becomes
            the nearest offset inside.
        @raise ConfigError: if the position has no value for a queue.
        @raise DataLost: if an offset is outside of its queue.
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

        @param when: the time in milliseconds.
        """
        if low >= high:
            return high
        near = retry(
            self._timeout,
            lambda left: self._client.searchByTime(queue, when / 1000, timeout=left),
        )
        return firstAt(when, low, high, near, lambda offset: self._timeAt(queue, offset))

    def _timeAt(self, queue: MessageQueue, offset: int) -> int | None:
        pulled = retry(
            self._timeout, lambda left: self._client.pullData(queue, offset, 1, timeout=left)
        )
        return storeTimestampAt(pulled.data) if pulled.data else None
