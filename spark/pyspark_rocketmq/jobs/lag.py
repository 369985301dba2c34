# SPDX-License-Identifier: Apache-2.0
"""
The lag of consumer groups at a moment.  Brokers have no history of it, so a job takes
samples to show it over time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_rocketmq.options import TopicChoice
from pyspark_rocketmq.read.topicinfo import TopicInfo, retry
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
    The lag of a group in a queue.

    @ivar at: the time of the sample in milliseconds.
    @ivar end: the offset behind the queue's last message.
    @ivar offset: the group's committed offset.
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
    The groups of a cluster, found by their retry topics.
    """
    topics = retry(client.settings.timeout, lambda left: client.topics(timeout=left))
    return sorted(each.removeprefix(_RETRY) for each in topics if each.startswith(_RETRY))


def lagOf(
    client: Client, groups: Iterable[str], topics: Iterable[str], now: int | None = None
) -> Iterator[Lag]:
    """
    The lag of groups in those queues of some topics in which they have an offset.

    @param now: the time of the sample in milliseconds; L{None} for the current time.
    """
    at = int(time.time() * 1000) if now is None else now
    named = list(groups)
    for topic in topics:
        info = TopicInfo(client, TopicChoice((topic,)))
        try:
            queues = info.queues()[topic]
        except TopicNotExist:
            continue
        for name in sorted({each.brokerName for each in queues}):
            for group in named:
                places = retry(
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
