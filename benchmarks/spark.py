# SPDX-License-Identifier: Apache-2.0
"""
What source, sink and store reader of Spark do in a second, beside Spark's own Parquet: the
same rows, in the same session, all columns read, with bodies of 1 KiB::

    Parquet --> noop      the measure
    broker  --> noop      our broker, in a process of its own
    files   --> noop      the same broker's, without it
    Parquet --> broker

Rows a second depend on the machine; the ratios do so less.  Without Spark there is a line
that says so.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import attrs

from txrocket.blocking import Client, Settings
from txrocket.message import Message
from txrocket.testing import ChildCluster

__all__ = ["Size", "main"]

NEEDED = ("pyspark", "pyarrow", "numpy")
BODY = bytes(range(256)) * 4
TOPIC = "Bench"


@attrs.frozen
class Size:
    """
    How much is measured.

    @ivar rows: of the topic.
    @ivar rounds: how often everything is done; the first one warms up.
    """

    rows: int = 400_000
    rounds: int = 4


def _session() -> Any:
    from pyspark_rocketmq import sparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    return sparkSession(
        "bench",
        "local[2]",
        {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "1g",
            "spark.log.level": "OFF",
        },
    )


def _fill(nameServers: list[str], rows: int) -> None:
    with Client(Settings(nameServers, timeout=60.0)) as client:
        client.createTopic(TOPIC, 4)
        queues = client.queues(TOPIC)
        for queue in queues:
            client.sendBatch(
                [
                    Message(TOPIC, BODY, f"tag{number % 7}", f"order-{number}")
                    for number in range(rows // len(queues))
                ],
                queue,
            )


def _measures(spark: Any, nameServers: str, store: str, table: str) -> dict[str, Callable[[], int]]:
    """
    What is measured; each gives the number of its rows.
    """

    def source() -> Any:
        return spark.read.format("rocketmq").options(nameServers=nameServers, subscribe=TOPIC)

    def files() -> Any:
        return spark.read.format("rocketmq-store").option("subscribe", TOPIC).load(store)

    def read(frame: Any) -> int:
        frame.write.format("noop").mode("overwrite").save()
        return 0

    def write() -> int:
        frame = spark.read.parquet(table).select("body", "tags", "keys")
        frame.write.format("rocketmq").options(nameServers=nameServers, topic="Copy").mode(
            "append"
        ).save()
        return 0

    narrow = "topic STRING, queueId INT, queueOffset BIGINT, storeTimestamp TIMESTAMP"
    source().load().write.parquet(table)
    columns = [each.split()[0] for each in narrow.split(", ")]
    return {
        "a  read Parquet": lambda: read(spark.read.parquet(table)),
        "b  read from the broker": lambda: read(source().load()),
        "c  read its files": lambda: read(files()),
        "d  write to the broker": write,
        "a' read Parquet, four columns": lambda: read(spark.read.parquet(table).select(*columns)),
        "b' read from the broker, four columns": lambda: read(source().schema(narrow).load()),
        "c' read its files, four columns": lambda: read(files_(spark, store, narrow)),
    }


def files_(spark: Any, store: str, schema: str) -> Any:
    return (
        spark.read.format("rocketmq-store").option("subscribe", TOPIC).schema(schema).load(store)
    )


def main(size: Size | None = None) -> None:
    """
    Measure, and print a line for each.
    """
    size = size or Size()
    if missing := [each for each in NEEDED if importlib.util.find_spec(each) is None]:
        print(f"spark: {', '.join(missing)} is not installed: make test-spark installs it")
        return
    print(f"spark, {size.rows:,} rows of 1 KiB, median of {size.rounds - 1}")
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        folder = os.path.abspath(folder)
        with ChildCluster(folder=f"{folder}/cluster", timeout=120.0) as cluster:
            _fill(cluster.nameServers, size.rows)
            spark = _session()
            measures = _measures(
                spark,
                ";".join(cluster.nameServers),
                f"{folder}/cluster/broker-0/store",
                f"{folder}/table",
            )
            times: dict[str, list[float]] = {each: [] for each in measures}
            for _ in range(size.rounds):
                for name, measure in measures.items():
                    began = time.perf_counter()
                    measure()
                    times[name].append(time.perf_counter() - began)
            spark.stop()
    for name, taken in times.items():
        print(name, [f"{size.rows / each:,.0f}" for each in taken], statistics.median(taken[1:]))


if __name__ == "__main__":
    main()
