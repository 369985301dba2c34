# SPDX-License-Identifier: Apache-2.0
"""
Topics with Spark: as a table, as a stream, and rows as messages.

    python examples/spark_topics.py [NAME_SERVERS]

It needs Spark: pip install 'txrocket[spark]'.
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark_rocketmq import sparkSession


def orders(spark: SparkSession, nameServers: str) -> DataFrame:
    """
    A topic as a table.
    """
    return (
        spark.read.format("rocketmq")
        .option("nameServers", nameServers)
        .option("subscribe", "Orders")
        .load()
    )


def byTag(spark: SparkSession, nameServers: str) -> DataFrame:
    """
    A topic as a table of two columns; bodies are not even read.
    """
    table = (
        spark.read.format("rocketmq")
        .option("nameServers", nameServers)
        .option("subscribe", "Orders")
        .schema("tags STRING, storeTimestamp TIMESTAMP")
        .load()
    )
    return table.groupBy("tags").count()


def send(table: DataFrame, nameServers: str) -> None:
    """
    Rows as messages.
    """
    (
        table.selectExpr("cast(body as string) as body", "'copied' as tags", "keys")
        .write.format("rocketmq")
        .option("nameServers", nameServers)
        .option("topic", "Copies")
        .mode("append")
        .save()
    )


def archive(spark: SparkSession, nameServers: str, folder: str) -> StreamingQuery:
    """
    A topic as a stream, into Parquet: all messages that exist now, and in the next run all
    messages since then.
    """
    stream = (
        spark.readStream.format("rocketmq")
        .option("nameServers", nameServers)
        .option("subscribe", "Orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100000")
        .load()
    )
    return (
        stream.writeStream.format("parquet")
        .option("path", f"{folder}/orders")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def main(nameServers: str) -> None:
    """
    Run all of them.
    """
    spark = sparkSession("topics", "local[2]")
    table = orders(spark, nameServers)
    print(f"{table.count()} orders")
    byTag(spark, nameServers).show()
    send(table, nameServers)
    with tempfile.TemporaryDirectory() as folder:
        archive(spark, nameServers, folder).awaitTermination()
        print(f"{spark.read.parquet(f'{folder}/orders').count()} archived")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["127.0.0.1:9876"]))
