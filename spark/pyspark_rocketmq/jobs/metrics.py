# SPDX-License-Identifier: Apache-2.0
"""
What happens in topics, in numbers::

    traffic    messages and bytes, by topic, tag and minute
    latency    from sending to a listener's call, by topic, group and minute, as percentiles:
               from the traces that clients write
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.jobs.traces import given, sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PERCENTILES", "TRAFFIC_COLUMNS", "latency", "traffic"]

#: What L{traffic} needs of messages, as a schema.
TRAFFIC_COLUMNS: Final = (
    "topic STRING, tags STRING, storeTimestamp TIMESTAMP, bornTimestamp TIMESTAMP, body BINARY"
)

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def traffic(table: DataFrame, every: str = "1 minute", when: str = "storeTimestamp") -> DataFrame:
    """
    How much there was.

    @param table: messages.
    @param every: the length of an interval.
    @param when: which of a message's times counts.
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
    How long it took from sending a message to giving it to a listener, for the first
    time, in milliseconds.

    @param traces: the messages of the topic that clients write traces to.
    @param every: the length of an interval, by when messages were sent.
    @return: C{topic}, C{group}, C{time}, C{messages}, L{PERCENTILES} and C{max}.
    """
    from pyspark.sql import functions as f

    taken = f.col("given") - f.col("sent")
    return (
        sent(traces)
        .join(given(traces), "msgId")
        .withColumn("taken", f.greatest(taken, f.lit(0)))
        .groupBy("topic", "group", f.window(f.timestamp_millis("sent"), every).start.alias("time"))
        .agg(
            f.count("*").alias("messages"),
            *[f.percentile("taken", f.lit(each)).alias(name) for name, each in PERCENTILES.items()],
            f.max("taken").alias("max"),
        )
        .orderBy("topic", "group", "time")
    )
