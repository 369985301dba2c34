# SPDX-License-Identifier: Apache-2.0
"""
Parquet into a topic, at a rate: an archive, or any table that has the sink's columns.

The messages of a queue keep their order.  Their ids are new ones, for consumers that leave
out what they have seen are to see these; but a replay that is run again under the same name
gives the same ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.cluster import Cluster, clientFor
from pyspark_rocketmq.messages import COLUMNS
from pyspark_rocketmq.options import Chosen, SinkOptions
from txrocket.errors import RocketError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["replay"]

# What says where a message was, if the table knows.
_PLACE: Final = ("topic", "brokerName", "queueId")
_ORDER: Final = ("storeTimestamp", *_PLACE, "queueOffset")

# In seconds: how often it is looked how far a replay is.
_LOOK: Final = 2.0


def replay(
    table: DataFrame,
    options: Mapping[str, str],
    *,
    rate: int | None = None,
    tasks: int = 1,
    name: str | None = None,
    told: Callable[[int], None] | None = None,
    look: float = _LOOK,
) -> None:
    """
    Send a table's rows.

    @param options: the sink's: C{nameServers}, and C{topic} unless messages are to go to
        the topics that they came from.
    @param rate: how many a second, of all tasks together.  There are no more tasks than
        that.
    @param tasks: how many send at a time.  With one, all messages are sent in the order
        in which they were stored; with more, those of each queue.
    @param name: of the replay, for its ids.
    @param told: is told now and then by how many messages the topics have grown, whoever
        sent them: tasks tell nothing before they are done.
    @param look: how many seconds apart that is.
    """
    tasks = tasks if rate is None else min(tasks, rate)
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
        given["maxRowsPerSecond"] = str(rate // tasks)
    if name is not None:
        given["jobId"] = name
    writer = divided.select(*kept).write.format("rocketmq").options(**given).mode("append")
    if told is None:
        writer.save()
        return
    read = SinkOptions.read(given)
    topics = (
        [row[0] for row in table.select("topic").distinct().collect()]
        if read.topic is None
        else [read.topic]
    )
    with _watching(Cluster(clientFor(read.settings), Chosen(tuple(topics))), told, look):
        writer.save()


@contextmanager
def _watching(cluster: Cluster, told: Callable[[int], None], look: float) -> Iterator[None]:
    """
    Tell how topics grow, meanwhile.
    """

    def ends() -> int:
        queues = cluster.queues(strict=False).values()
        return sum(high for _, high in cluster.bounds(q for own in queues for q in own).values())

    def watch() -> None:
        while not over.wait(look):
            try:
                told(ends() - before)
            except RocketError:
                # The tasks will say so if it matters.
                continue

    over = threading.Event()
    before = ends()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
