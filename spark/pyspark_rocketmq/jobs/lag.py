# SPDX-License-Identifier: Apache-2.0
"""
How far groups are behind, as brokers know it at a moment.  Brokers keep no past, so
whoever wants to see it over time takes samples.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_rocketmq.cluster import Cluster, patiently
from pyspark_rocketmq.options import Chosen
from txrocket.blocking import Client
from txrocket.errors import TopicNotExist

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Lag", "groupsOf", "lagOf", "table"]

_RETRY: Final = "%RETRY%"

_SCHEMA: Final = (
    "at BIGINT, `group` STRING, topic STRING, brokerName STRING, queueId INT,"
    " end BIGINT, offset BIGINT, lag BIGINT"
)


class Lag(NamedTuple):
    """
    How far a group is behind in a queue.

    @ivar at: when, in milliseconds.
    @ivar end: the offset that the queue's next message will have.
    @ivar offset: of the next message that the group wants.
    """

    at: int
    group: str
    topic: str
    brokerName: str
    queueId: int
    end: int
    offset: int
    lag: int


def groupsOf(client: Client) -> list[str]:
    """
    The groups that there are: those that have a retry topic.
    """
    topics = patiently(client.settings.timeout, lambda left: client.topics(timeout=left))
    return sorted(each.removeprefix(_RETRY) for each in topics if each.startswith(_RETRY))


def lagOf(
    client: Client, groups: Iterable[str], topics: Iterable[str], now: int | None = None
) -> Iterator[Lag]:
    """
    How far groups are behind in the queues of some topics where they have an offset.

    @param now: the time in milliseconds, if it is not to be looked at.
    """
    at = int(time.time() * 1000) if now is None else now
    named = list(groups)
    for topic in topics:
        cluster = Cluster(client, Chosen((topic,)))
        try:
            queues = cluster.queues()[topic]
        except TopicNotExist:
            continue
        for name in sorted({each.brokerName for each in queues}):
            for group in named:
                places = patiently(
                    client.settings.timeout,
                    lambda left, group=group, topic=topic, name=name: client.progress(  # type: ignore[misc]
                        group, topic, name, timeout=left
                    ),
                )
                for queue, (offset, end) in sorted(places.items()):
                    lag = max(0, end - offset)
                    yield Lag(at, group, topic, name, queue.queueId, end, offset, lag)


def table(spark: SparkSession, found: Iterable[Lag]) -> DataFrame:
    """
    Samples as a table, with the time as C{time}.
    """
    rows = [tuple(each) for each in found]
    frame = spark.createDataFrame(rows, _SCHEMA)
    return frame.selectExpr(
        "timestamp_millis(at) as time", *[f"`{each}`" for each in frame.columns if each != "at"]
    )
