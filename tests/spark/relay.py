# SPDX-License-Identifier: Apache-2.0
"""
C{python -m tests.spark.relay}: a program with two streams, from a topic to a table and from
the topic to another one, for tests that kill it.

Its argument is JSON with addresses and folders.  It prints C{started} when both streams have
started, and C{working} when each has processed a batch.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyspark.sql.streaming import StreamingQuery
from pyspark_rocketmq import sparkSession

from tests.spark.running import settings


def main(told: dict[str, str]) -> None:
    """
    Run both streams: without end, or until all existing messages are read.
    """
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Nothing of what it does is meant to fail, so what does is to be read.
    spark = sparkSession("relay", "local[2]", {**settings(), "spark.log.level": "ERROR"})
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
    working = False
    while any(each.isActive for each in queries):
        if not working and all(each.recentProgress for each in queries):
            working = True
            print("working", flush=True)
        _check(queries)
        time.sleep(0.05)
    _check(queries)
    spark.stop()


def _check(queries: list[StreamingQuery]) -> None:
    """
    @raise Exception: what one of them has failed of.  The other would go on for ever.
    """
    for query in queries:
        if (failed := query.exception()) is not None:
            raise failed


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
