# SPDX-License-Identifier: Apache-2.0
"""
The job that measures topics::

    traffic    messages and bytes, by topic, tag and minute
    latency    from sending to a listener's call, by topic, group and minute, as percentiles:
               from the traces that clients write
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.jobs.traces import deliverTimes, sendTimes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PERCENTILES", "TRAFFIC_COLUMNS", "latency", "traffic"]

#: The schema that L{traffic} needs.
TRAFFIC_COLUMNS: Final = (
    "topic STRING, tags STRING, storeTimestamp TIMESTAMP, bornTimestamp TIMESTAMP, body BINARY"
)

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def traffic(table: DataFrame, every: str = "1 minute", when: str = "storeTimestamp") -> DataFrame:
    """
    The messages and bytes of each topic and tag over time.

    @param table: messages.
    @param every: the length of an interval.
    @param when: the column with a message's time.
    @return: C{topic}, C{tag}, C{time}, C{messages} and C{bytes}, in this order.
    """
    from pyspark.sql import functions as f

    return (
        table.groupBy(
            "topic",
            f.coalesce("tags", f.lit("")).alias("tag"),
            f.window(when, every).start.alias("time"),
        )
        .agg(f.count("*").alias("messages"), f.sum(f.length("body")).alias("bytes"))
        .orderBy("topic", "tag", "time")
    )


def latency(traces: DataFrame, every: str = "1 minute") -> DataFrame:
    """
    The time from the send of a message to the first call of a listener with it, in
    milliseconds.

    @param traces: the messages of the trace topic.
    @param every: the length of an interval of send times.
    @return: C{topic}, C{group}, C{time}, C{messages}, L{PERCENTILES} and C{max}.
    """
    from pyspark.sql import functions as f

    taken = f.col("delivered") - f.col("sent")
    return (
        sendTimes(traces)
        .join(deliverTimes(traces), "msgId")
        .withColumn("taken", f.greatest(taken, f.lit(0)))
        .groupBy("topic", "group", f.window(f.timestamp_millis("sent"), every).start.alias("time"))
        .agg(
            f.count("*").alias("messages"),
            *[f.percentile("taken", f.lit(each)).alias(name) for name, each in PERCENTILES.items()],
            f.max("taken").alias("max"),
        )
        .orderBy("topic", "group", "time")
    )
