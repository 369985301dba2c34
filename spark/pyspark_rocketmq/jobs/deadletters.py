# SPDX-License-Identifier: Apache-2.0
"""
What nobody could deal with: the messages of C{%DLQ%} topics, by the group that gave them
up, the topic that they came from, and why.

A broker writes down where such a message came from (C{RETRY_TOPIC}, C{ORIGIN_MESSAGE_ID})
and how often it was tried (C{reconsumeTimes}), but not what went wrong.  Of clients that
write traces, those say what came of the last try.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.jobs.traces import ended

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PATTERN", "deadLetters"]

#: The topics, as C{subscribePattern} has them.
PATTERN: Final = "%DLQ%.*"

# How much of a body is shown.
_SHOWN: Final = 200


def deadLetters(table: DataFrame, samples: int = 3, traces: DataFrame | None = None) -> DataFrame:
    """
    A report.

    @param table: messages of such topics, with C{topic}, C{properties}, C{reconsumeTimes},
        C{storeTimestamp}, C{msgId}, C{keys} and C{body}.
    @param samples: how many messages are shown of each kind, the newest.
    @param traces: the messages of the topic that clients write traces to, if there are.
    @return: C{group}, C{originTopic}, C{reason}, how many (C{count}), when the first and
        the last was given up (C{first}, C{last}), and C{samples}.
    """
    from pyspark.sql import functions as f

    text = f.col("body").cast("string")
    sample = f.struct(
        # For the newest first.
        f.col("storeTimestamp").alias("givenUp"),
        "msgId",
        f.col("properties")["ORIGIN_MESSAGE_ID"].alias("originMsgId"),
        "keys",
        f.when(f.length(text) <= _SHOWN, text)
        .otherwise(f.concat(f.substring(text, 1, _SHOWN), f.lit("...")))
        .alias("body"),
    )
    times = f.col("reconsumeTimes")
    # The last try is counted as well.
    tried = (
        f.when(times > 1, f.format_string("tried %d times", times))
        .when(times == 1, "tried once")
        .otherwise("never tried")
    )
    found = table.withColumn("group", f.regexp_replace("topic", "^%DLQ%", ""))
    reason = tried
    if traces is not None:
        found = found.join(ended(traces), ["msgId", "group"], "left")
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
