# SPDX-License-Identifier: Apache-2.0
"""
The job that archives topics as Parquet.  A later run continues the archive::

    folder/messages/topic=Orders/day=2026-11-16/part-....parquet
    folder/checkpoint/

Every message is in it once, even if the job was stopped or killed.  The checkpoint has the
offsets, and the table's own log lists its files.  Read the archive with Spark or another
program that reads this log, because the folder may have files of a killed run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["archive", "archived"]

#: Called for each micro-batch with its number, its messages, the messages in a second, and
#: the messages that are left.
Told = Callable[[int, int, float, int], None]

_MESSAGES: Final = "messages"
_CHECKPOINT: Final = "checkpoint"

# The seconds between two looks at the query's progress.
_LOOK: Final = 0.2


def archive(
    spark: SparkSession,
    options: Mapping[str, str],
    folder: str,
    *,
    every: str | None = None,
    told: Told | None = None,
) -> int:
    """
    Archive all messages, or the ones since the last run.

    @param options: options of the source: C{nameServers}, C{subscribe} and so on.  A new
        archive begins with the earliest message by default.
    @param folder: the folder of the archive, which is made if it does not exist.
    @param every: the time between batches, such as C{1 minute}, of a run without end;
        L{None} ends the run with the messages that exist now.
    @param told: called for each batch.
    @return: the number of messages archived.
    """
    stream = (
        spark.readStream.format("rocketmq")
        .options(**{"startingOffsets": "earliest", **options})
        .load()
        .selectExpr("*", "to_date(storeTimestamp) as day")
    )
    writer = (
        stream.writeStream.format("parquet")
        .partitionBy("topic", "day")
        .option("path", f"{folder}/{_MESSAGES}")
        .option("checkpointLocation", f"{folder}/{_CHECKPOINT}")
    )
    trigger = {"availableNow": True} if every is None else {"processingTime": every}
    query = writer.trigger(**trigger).start()
    try:
        return _watched(query, told)
    finally:
        query.stop()


def _watched(query: StreamingQuery, told: Told | None) -> int:
    seen = -1
    count = 0
    while True:
        ended = query.awaitTermination(_LOOK)
        for progress in query.recentProgress:
            if progress["batchId"] > seen and progress["numInputRows"]:
                seen = progress["batchId"]
                count += progress["numInputRows"]
                if told is not None:
                    told(seen, progress["numInputRows"], _rate(progress), _left(progress))
        if ended:
            return count


def archived(spark: SparkSession, folder: str) -> DataFrame:
    """
    An archive as a table: the source's columns, and the day.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    path = f"{folder}/{_MESSAGES}"
    # Spark guesses the type of a folder's name, but a topic named 007 is a text.
    fields = [
        StructField("topic", StringType()) if each.name == "topic" else each
        for each in spark.read.parquet(path).schema
    ]
    return spark.read.schema(StructType(fields)).parquet(path)


def _rate(progress: Any) -> float:
    seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
    return float(progress["numInputRows"] / seconds) if seconds else 0.0


def _left(progress: Any) -> int:
    """
    The number of messages behind a batch.
    """
    (source,) = progress["sources"]
    end, latest = _flat(source["endOffset"]), _flat(source["latestOffset"])
    return sum(max(0, offset - end.get(queue, offset)) for queue, offset in latest.items())


def _flat(text: Any) -> dict[tuple[str, str, str], int]:
    offsets = json.loads(text) if isinstance(text, str) else text
    return {
        (topic, broker, queue): offset
        for topic, brokers in ((offsets or {}).get("offsets") or {}).items()
        for broker, queues in brokers.items()
        for queue, offset in queues.items()
    }
