# SPDX-License-Identifier: Apache-2.0
"""
The job that sends Parquet to a topic, at a rate: an archive, or any table with the sink's
columns.

The messages of a queue stay in order.  They get new ids, so that a consumer that ignores
duplicates does not ignore them.  If a replay runs again under the same name, it sends the
same ids.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.options import SinkOptions, TopicChoice
from pyspark_rocketmq.read.topicinfo import TopicInfo, clientFor
from pyspark_rocketmq.write.rowmessages import COLUMNS
from txrocket.errors import RocketError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["replay"]

# The columns with a message's queue and order, if the table has them.
_PLACE: Final = ("topic", "brokerName", "queueId")
_ORDER: Final = ("storeTimestamp", *_PLACE, "queueOffset")

# The seconds between two reports of progress.
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

    @param options: options of the sink: C{nameServers}, and C{topic} unless messages go
        back to their own topics.
    @param rate: messages in a second, of all tasks together, and the most tasks.
    @param tasks: the number of tasks that send at the same time.  One task sends all
        messages in store order; several keep only the order of each queue.
    @param name: the name of the replay, from which the ids are made.
    @param told: called with the number of messages by which the topics have grown, from
        any producer, because tasks report nothing before they end.
    @param look: the seconds between two such calls.
    """
    tasks = tasks if rate is None else min(tasks, rate)
    there = set(table.columns)
    place = [each for each in _PLACE if each in there]
    order = [each for each in _ORDER if each in there]
    # Repartition by hash and sort by a unique order, so that each run gives the same rows
    # to the same task.
    divided = table.repartition(tasks, *place) if place else table.repartition(tasks)
    if order:
        divided = divided.sortWithinPartitions(*order)
    # The old queue of a message does not decide its new one, so those columns are dropped.
    kept = [each for each in COLUMNS if each in there - {"queueId", "brokerName"}]
    sink = dict(options)
    if rate is not None:
        sink["maxRowsPerSecond"] = str(rate // tasks)
    if name is not None:
        sink["jobId"] = name
    writer = divided.select(*kept).write.format("rocketmq").options(**sink).mode("append")
    if told is None:
        writer.save()
        return
    read = SinkOptions.read(sink)
    topics = (
        [row[0] for row in table.select("topic").distinct().collect()]
        if read.topic is None
        else [read.topic]
    )
    with _watching(TopicInfo(clientFor(read.settings), TopicChoice(tuple(topics))), told, look):
        writer.save()


@contextmanager
def _watching(info: TopicInfo, told: Callable[[int], None], look: float) -> Iterator[None]:
    """
    Report in a thread how topics grow while the body of the C{with} statement runs.
    """

    def ends() -> int:
        queues = info.queues(strict=False).values()
        return sum(high for _, high in info.bounds(q for own in queues for q in own).values())

    def watch() -> None:
        while not over.wait(look):
            try:
                told(ends() - before)
            except RocketError:
                # If the error matters, the tasks fail with it.
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
