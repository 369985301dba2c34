# SPDX-License-Identifier: Apache-2.0
"""
Writing down what jobs found: metrics as tables and as a page, dead letters as text::

    folder/traffic     replaced each time
    folder/latency     replaced each time
    folder/lag         samples, added to those that are there
    folder/metrics.html
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark_rocketmq.cluster import clientFor
from pyspark_rocketmq.jobs import lag
from pyspark_rocketmq.jobs.metrics import PERCENTILES, TRACE_COLUMNS, latency, traffic
from pyspark_rocketmq.jobs.plot import Chart, page
from pyspark_rocketmq.options import SourceOptions
from txrocket.errors import TopicNotExist

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Metrics", "shown"]

_PAGE: Final = "metrics.html"

Line = list[tuple[float, float]]


class Metrics:
    """
    The metrics of a folder.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        """
        @param folder: one of this machine: the page is written as a file.
        """
        self._spark = spark
        self._folder = folder
        os.makedirs(folder, exist_ok=True)

    def writeTraffic(self, table: DataFrame, every: str, when: str) -> None:
        """
        Messages and bytes.
        """
        self._write(traffic(table, every, when), "traffic")

    def writeLatency(self, options: Mapping[str, str], every: str) -> None:
        """
        Delivery times.  Where no client writes traces there are none.

        @param options: the source's, with the topic of traces.
        """
        from pyspark_rocketmq.cluster import Cluster

        read = SourceOptions.read(options)
        try:
            Cluster(clientFor(read.settings), read.chosen).queues()
        except TopicNotExist:
            return
        traces = self._spark.read.format("rocketmq").options(**options).schema(TRACE_COLUMNS).load()
        self._write(latency(traces, every), "latency")

    def sampleLag(
        self, options: Mapping[str, str], topics: Sequence[str], groups: Sequence[str] | None
    ) -> None:
        """
        How far groups are behind, now.

        @param groups: all if it is L{None}.
        """
        settings = SourceOptions.read({**options, "subscribe": ",".join(topics) or "none"}).settings
        client = clientFor(settings)
        named = lag.groupsOf(client) if groups is None else groups
        found = lag.table(self._spark, lag.lagOf(client, named, topics))
        found.coalesce(1).write.mode("append").parquet(f"{self._folder}/lag")

    def writePage(self) -> str:
        """
        The plots of all that is there.

        @return: the file.
        """
        charts = [
            self._lines("Messages", "messages", "traffic", "topic", ["messages"], "sum"),
            self._lines("Bytes", "bytes", "traffic", "topic", ["bytes"], "sum"),
            self._lines(
                "Consumer lag", "messages", "lag", "concat(`group`, ' / ', topic)", ["lag"], "sum"
            ),
            self._lines(
                "Delivery time",
                "ms",
                "latency",
                "concat(topic, ' to ', `group`)",
                list(PERCENTILES),
                "max",
            ),
        ]
        path = os.path.join(self._folder, _PAGE)
        with open(path, "w", encoding="utf-8") as file:
            file.write(page("Topics", charts))
        return path

    def _write(self, table: DataFrame, name: str) -> None:
        table.coalesce(1).write.mode("overwrite").parquet(f"{self._folder}/{name}")

    def _lines(
        self, title: str, unit: str, name: str, by: str, values: Sequence[str], how: str
    ) -> Chart:
        """
        A chart of a table that was written: a line for each of some values of each thing.
        """
        lines: dict[str, Line] = defaultdict(list)
        if os.path.isdir(os.path.join(self._folder, name)):
            rows = (
                self._spark.read.parquet(f"{self._folder}/{name}")
                .groupBy(_expression(by).alias("line"), "time")
                .agg(*[_expression(f"{how}({each})").alias(each) for each in values])
                .orderBy("time")
                .selectExpr("line", "unix_millis(time) / 1000 as at", *values)
                .collect()
            )
            for row in rows:
                for each in values:
                    label = row["line"] if len(values) == 1 else f"{row['line']}, {each}"
                    lines[label].append((row["at"], float(row[each])))
        return Chart(title, unit, lines)


def _expression(text: str) -> Any:
    from pyspark.sql import functions as f

    return f.expr(text)


def shown(report: DataFrame) -> str:
    """
    A report of dead letters as text.
    """
    lines = []
    for row in report.collect():
        lines.append(
            f"{row['group']}: {row['count']:,} from {row['originTopic']}, {row['reason']},"
            f" {row['first']:%Y-%m-%d %H:%M:%S} to {row['last']:%Y-%m-%d %H:%M:%S}"
        )
        for each in row["samples"]:
            keys = f" {each['keys']}" if each["keys"] else ""
            lines.append(f"    {each['msgId']}{keys}  {each['body']}")
    return "\n".join(lines) or "there are no dead letters"
