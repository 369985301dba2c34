# SPDX-License-Identifier: Apache-2.0
"""
The rows in a second of Spark's source, sink and store reader, beside Spark's own Parquet:
the same rows, in the same session, with different bodies of 1 KiB::

    Parquet --> noop      the measure
    broker  --> noop      our broker, in a process of its own
    files   --> noop      the files of that broker, without it
    Parquet --> broker

Rows in a second depend on the machine; the ratios to the Parquet of the same round do so
less.  Without Spark it prints a line that says so.
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

#: The packages that must be installed.
NEEDED = ("pyspark", "pyarrow", "numpy")

TOPIC = "Bench"
NARROW = "topic STRING, queueId INT, queueOffset BIGINT, storeTimestamp TIMESTAMP"


@attrs.frozen
class Size:
    """
    The amounts of work.

    @ivar rows: the rows of the topic.
    @ivar rounds: the measured rounds.
    @ivar warming: the rounds before them.
    """

    rows: int = 200_000
    rounds: int = 7
    # Java compiles hot code, and Spark's own reader has more of it.
    warming: int = 6


class Measures:
    """
    What is measured.
    """

    def __init__(self, spark: Any, nameServers: str, store: str, table: str) -> None:
        """
        @param store: the broker's folder.
        @param table: the folder for Parquet.
        """
        self._spark = spark
        self._nameServers = nameServers
        self._store = store
        self._table = table
        self._broker(None).write.parquet(table)

    def all(self) -> list[dict[str, Callable[[], None]]]:
        """
        Groups of measurements by name.  The others of a group are compared with its first.
        Writing comes last, because it adds to the broker's files.
        """
        columns = [each.split()[0] for each in NARROW.split(", ")]
        return [
            {
                "a  read Parquet": lambda: _read(self._parquet()),
                "b  read from the broker": lambda: _read(self._broker(None)),
                "c  read the broker's files": lambda: _read(self._files(None)),
            },
            {
                "a' read Parquet, four columns": lambda: _read(self._parquet().select(*columns)),
                "b' read from the broker, four columns": lambda: _read(self._broker(NARROW)),
                "c' read the broker's files, four columns": lambda: _read(self._files(NARROW)),
            },
            {
                "a  read Parquet again": lambda: _read(self._parquet()),
                "d  write to the broker": self._write,
            },
        ]

    def _parquet(self) -> Any:
        return self._spark.read.parquet(self._table)

    def _broker(self, schema: str | None) -> Any:
        reader = self._spark.read.format("rocketmq").option("nameServers", self._nameServers)
        reader = reader.option("subscribe", TOPIC)
        return (reader.schema(schema) if schema else reader).load()

    def _files(self, schema: str | None) -> Any:
        reader = self._spark.read.format("rocketmq-store").option("subscribe", TOPIC)
        return (reader.schema(schema) if schema else reader).load(self._store)

    def _write(self) -> None:
        writer = self._parquet().select("body", "tags", "keys").write.format("rocketmq")
        writer = writer.option("nameServers", self._nameServers).option("topic", "Copy")
        writer.mode("append").save()


def _read(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _fill(nameServers: list[str], rows: int) -> None:
    with Client(Settings(nameServers, timeout=60.0)) as client:
        client.createTopic(TOPIC, 4)
        queues = client.queues(TOPIC)
        for queue in queues:
            numbers = range(rows // len(queues))
            client.sendBatch(
                [
                    Message(TOPIC, os.urandom(512).hex().encode(), f"tag{n % 7}", f"order-{n}")
                    for n in numbers
                ],
                queue,
            )


def _session() -> Any:
    from pyspark_rocketmq import sparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.log.level": "OFF",
    }
    return sparkSession("bench", "local[2]", settings)


def _times(group: dict[str, Callable[[], None]], size: Size) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {each: [] for each in group}
    for _ in range(size.warming + size.rounds):
        for name, measure in group.items():
            began = time.perf_counter()
            measure()
            times[name].append(time.perf_counter() - began)
    return {name: taken[size.warming :] for name, taken in times.items()}


def _tell(times: dict[str, list[float]], size: Size) -> None:
    aims = {"b ": "0.3", "c ": "0.7"}
    base, *_ = times.values()
    for name, taken in times.items():
        ratio = statistics.median(parquet / own for parquet, own in zip(base, taken, strict=True))
        rate = size.rows / statistics.median(taken)
        print(f"{name:40} {rate:10,.0f} {ratio:6.2f} {aims.get(name[:2], ''):>4}".rstrip())


def main(size: Size | None = None, spark: Any = None) -> None:
    """
    Measure, and print a line for each.

    @param spark: the session to use; L{None} for a new one.
    """
    size = size or Size()
    if missing := [each for each in NEEDED if importlib.util.find_spec(each) is None]:
        print(f"spark: {', '.join(missing)} not installed; make test-spark installs it")
        return
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        root = os.path.abspath(folder)
        # Files of RocketMQ's default size, because each file is at least one task.
        settings = {"mappedFileSizeCommitLog": 1 << 30}
        with ChildCluster(folder=f"{root}/cluster", settings=settings, timeout=120.0) as cluster:
            _fill(cluster.nameServers, size.rows)
            session = spark or _session()
            try:
                names = ";".join(cluster.nameServers)
                store = f"{root}/cluster/broker-0/store"
                heading = f"spark, {size.rows:,} rows of 1 KiB, median of {size.rounds}"
                print(f"{heading:44} rows/s  ratio  aim", flush=True)
                for group in Measures(session, names, store, f"{root}/table").all():
                    _tell(_times(group, size), size)
            finally:
                if spark is None:
                    session.stop()


if __name__ == "__main__":
    main()
