# SPDX-License-Identifier: Apache-2.0
"""
The job that reports dead letters: the messages of C{%DLQ%} topics by group, original topic
and reason.

A broker stores the origin of a dead letter (C{RETRY_TOPIC}, C{ORIGIN_MESSAGE_ID}) and the
number of tries (C{reconsumeTimes}), but not the error.  If the consumers write traces, the
traces have the status of the last try.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.jobs.traces import consumeResults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PATTERN", "deadLetters"]

#: The topics, as a value of C{subscribePattern}.
PATTERN: Final = "%DLQ%.*"

# The characters of a body that a report shows.
_SHOWN: Final = 200


def deadLetters(table: DataFrame, samples: int = 3, traces: DataFrame | None = None) -> DataFrame:
    """
    Make a report.

    @param table: messages of C{%DLQ%} topics, with C{topic}, C{properties},
        C{reconsumeTimes}, C{storeTimestamp}, C{msgId}, C{keys} and C{body}.
    @param samples: the number of newest messages shown of each kind.
    @param traces: the messages of the trace topic; L{None} without traces.
    @return: C{group}, C{originTopic}, C{reason}, C{count}, the times of the first and the
        last dead letter (C{first}, C{last}), and C{samples}.
    """
    from pyspark.sql import functions as f

    text = f.col("body").cast("string")
    sample = f.struct(
        # First, because samples are sorted by it.
        f.col("storeTimestamp").alias("givenUp"),
        "msgId",
        f.col("properties")["ORIGIN_MESSAGE_ID"].alias("originMsgId"),
        "keys",
        f.when(f.length(text) <= _SHOWN, text)
        .otherwise(f.concat(f.substring(text, 1, _SHOWN), f.lit("...")))
        .alias("body"),
    )
    times = f.col("reconsumeTimes")
    # The count includes the last try.
    tried = (
        f.when(times > 1, f.format_string("tried %d times", times))
        .when(times == 1, "tried once")
        .otherwise("never tried")
    )
    found = table.withColumn("group", f.regexp_replace("topic", "^%DLQ%", ""))
    reason = tried
    if traces is not None:
        found = found.join(consumeResults(traces), ["msgId", "group"], "left")
        reason = f.concat_ws(", ", "status", tried)
    return (
        found.select(
            "group",
            f.coalesce(f.col("properties")["RETRY_TOPIC"], f.lit("unknown")).alias("originTopic"),
            reason.alias("reason"),
            "storeTimestamp",
            sample.alias("sample"),
        )
        .groupBy("group", "originTopic", "reason")
        .agg(
            f.count("*").alias("count"),
            f.min("storeTimestamp").alias("first"),
            f.max("storeTimestamp").alias("last"),
            f.slice(f.sort_array(f.collect_list("sample"), asc=False), 1, samples).alias("samples"),
        )
        .orderBy(f.desc("count"), "group", "originTopic", "reason")
    )
