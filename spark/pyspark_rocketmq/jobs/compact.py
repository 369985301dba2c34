# SPDX-License-Identifier: Apache-2.0
"""
The job that keeps the latest message of each key, like a compacted topic of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FIRST_KEY", "compact"]

#: The default expression for the key of a message: the first of its keys.
FIRST_KEY: Final = "split(keys, ' ')[0]"


def compact(table: DataFrame, key: str = FIRST_KEY) -> DataFrame:
    """
    The latest message of each key in each topic.  Messages without a key are left out.

    @param table: messages, with C{topic}, C{storeTimestamp}, C{brokerName}, C{queueId} and
        C{queueOffset} among its columns.
    @param key: an expression of Spark's SQL.
    @return: the same columns, and C{key}.
    """
    from pyspark.sql import functions as f

    columns = [each for each in table.columns if each != "topic"]
    # In one millisecond the later message of a queue has the higher offset.  Between queues
    # the order is unknown; broker and queue make the choice the same each time.
    order = f.struct("storeTimestamp", "queueOffset", "brokerName", "queueId")
    latest = (
        table.withColumn("key", f.expr(key))
        .where("key is not null and key != ''")
        .groupBy("topic", "key")
        .agg(f.max_by(f.struct(*columns), order).alias("latest"))
    )
    return latest.select("topic", "key", *[f.col(f"latest.{each}") for each in columns])
