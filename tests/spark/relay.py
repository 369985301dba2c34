# SPDX-License-Identifier: Apache-2.0
"""
C{python -m tests.spark.relay}: a program with two streams, from a topic to a table and from
the topic to another one, for tests that kill it.

It is told on its command line, in JSON, where things are, and says C{started} when both
streams are, and C{working} when each has done something.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyspark_rocketmq import sparkSession

from tests.spark.running import settings


def main(told: dict[str, str]) -> None:
    """
    Run both streams: for ever, or until all that is there has been read.
    """
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = sparkSession("relay", "local[2]", settings())
    queries = []
    for form, more in (
        ("parquet", {"path": told["table"]}),
        ("rocketmq", {"nameServers": told["nameServers"], "topic": told["sink"]}),
    ):
        frame = (
            spark.readStream.format("rocketmq")
            .option("nameServers", told["nameServers"])
            .option("subscribe", told["source"])
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "150")
            # Several tasks, and several batches of columns and of messages in each.
            .option("minPartitions", "3")
            .option("pullBatchSize", "10")
            .option("arrowBatchRows", "20")
            .load()
            .select("body", "keys")
        )
        writer = frame.writeStream.format(form).options(**more)
        writer = writer.option("checkpointLocation", f"{told['checkpoints']}/{form}")
        if form == "rocketmq":
            writer = writer.option("sendBatchSize", "7")
        if told["once"]:
            writer = writer.trigger(availableNow=True)
        queries.append(writer.start())
    print("started", flush=True)
    while not told["once"] and not all(each.recentProgress for each in queries):
        time.sleep(0.05)
    print("working", flush=True)
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
