# SPDX-License-Identifier: Apache-2.0
"""
What nobody could deal with: the messages of C{%DLQ%} topics, by the group that gave them
up, the topic that they came from, and why.

RocketMQ does not write down what went wrong.  What can be told is how often a message was
tried: its C{reconsumeTimes}; a message that was not tried again at all was given up by its
consumer at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PATTERN", "deadLetters"]

#: The topics, as C{subscribePattern} has them.
PATTERN: Final = "%DLQ%.*"

# How much of a body is shown.
_SHOWN: Final = 200


def deadLetters(table: DataFrame, samples: int = 3) -> DataFrame:
    """
    A report.

    @param table: messages of such topics, with C{topic}, C{properties}, C{reconsumeTimes},
        C{storeTimestamp}, C{msgId}, C{keys} and C{body}.
    @param samples: how many messages are shown of each kind, the newest.
    @return: C{group}, C{originTopic}, C{reason}, how many (C{count}), when the first and
        the last was given up (C{first}, C{last}), and C{samples}.
    """
    from pyspark.sql import functions as f

    text = f.col("body").cast("string")
    sample = f.struct(
        # For the newest first.
        f.col("storeTimestamp").alias("givenUp"),
        "msgId",
        "keys",
        f.when(f.length(text) <= _SHOWN, text)
        .otherwise(f.concat(f.substring(text, 1, _SHOWN), f.lit("...")))
        .alias("body"),
    )
    times = f.col("reconsumeTimes")
    return (
        table.select(
            f.regexp_replace("topic", "^%DLQ%", "").alias("group"),
            f.coalesce(f.col("properties")["RETRY_TOPIC"], f.lit("unknown")).alias("originTopic"),
            f.when(times > 0, f.format_string("tried %d times again", times))
            .otherwise("given up at once")
            .alias("reason"),
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
