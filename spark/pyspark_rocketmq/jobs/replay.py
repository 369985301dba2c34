# SPDX-License-Identifier: Apache-2.0
"""
Parquet into a topic, at a rate: an archive, or any table that has the sink's columns.

The messages of a queue keep their order.  Their ids are new ones, for consumers that leave
out what they have seen are to see these; but a replay that is run again under the same name
gives the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.messages import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["replay"]

# What says where a message was, if the table knows.
_PLACE: Final = ("topic", "brokerName", "queueId")
_ORDER: Final = ("storeTimestamp", *_PLACE, "queueOffset")


def replay(
    table: DataFrame,
    options: Mapping[str, str],
    *,
    rate: int | None = None,
    tasks: int = 1,
    name: str | None = None,
) -> None:
    """
    Send a table's rows.

    @param options: the sink's: C{nameServers}, and C{topic} unless messages are to go to
        the topics that they came from.
    @param rate: how many a second, of all tasks together.
    @param tasks: how many send at a time.  With one, all messages are sent in the order
        in which they were stored; with more, those of each queue.
    @param name: of the replay, for its ids.
    """
    there = set(table.columns)
    place = [each for each in _PLACE if each in there]
    order = [each for each in _ORDER if each in there]
    # By hashes and then by what no two messages share: the same each time.
    divided = table.repartition(tasks, *place) if place else table.repartition(tasks)
    if order:
        divided = divided.sortWithinPartitions(*order)
    # Where a message was says nothing about where it is to go, but for the topic.
    kept = [each for each in COLUMNS if each in there - {"queueId", "brokerName"}]
    given = dict(options)
    if rate is not None:
        given["maxRowsPerSecond"] = str(max(1, rate // tasks))
    if name is not None:
        given["jobId"] = name
    divided.select(*kept).write.format("rocketmq").options(**given).mode("append").save()
