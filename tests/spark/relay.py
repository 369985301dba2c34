# SPDX-License-Identifier: Apache-2.0
"""
C{python -m tests.spark.relay}: a program with two streams, from a topic to a table and from
the topic to another one, for tests that kill it.

Its argument is JSON with addresses and folders.  It prints a line for each step::

    session     Spark runs
    started     both streams have started
    batch ...   a stream has processed one
    working     each has processed one
    finished    all existing messages are read

In between it writes to its log what the streams are doing.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyspark.sql.streaming import StreamingQuery
from pyspark_rocketmq import sparkSession

from tests.spark.running import settings

# The seconds between two lines of the log that say what streams are doing.
_STATUS = 30.0


def main(told: dict[str, str]) -> None:
    """
    Run both streams: without end, or until all existing messages are read.
    """
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Nothing of what it does is meant to fail, so what does is to be read.
    spark = sparkSession("relay", "local[2]", {**settings(), "spark.log.level": "ERROR"})
    print("session", flush=True)
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
    _watch(queries)
    print("finished", flush=True)
    spark.stop()


def _watch(queries: list[StreamingQuery]) -> None:
    """
    Say how the streams go on, until they end.

    @raise Exception: the error that one of them has failed of.
    """
    batches: dict[str, int] = {}
    working = False
    told = time.monotonic()
    while any(each.isActive for each in queries):
        for each in queries:
            last = each.lastProgress
            if last is not None and last["batchId"] != batches.get(each.id):
                batches[each.id] = last["batchId"]
                print(f"batch {last['batchId']} of {each.id}", flush=True)
        if not working and len(batches) == len(queries):
            working = True
            print("working", flush=True)
        if time.monotonic() - told >= _STATUS:
            told = time.monotonic()
            for each in queries:
                print(each.id, each.status, file=sys.stderr, flush=True)
        _check(queries)
        time.sleep(0.05)
    _check(queries)


def _check(queries: list[StreamingQuery]) -> None:
    """
    @raise Exception: what one of them has failed of.  The other would go on for ever.
    """
    for query in queries:
        if (failed := query.exception()) is not None:
            raise failed


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
