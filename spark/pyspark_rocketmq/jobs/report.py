# SPDX-License-Identifier: Apache-2.0
"""
The output of jobs: metrics as tables and as a page, dead letters as text::

    folder/traffic     replaced each time
    folder/latency     replaced each time
    folder/lag         samples; each run adds its own
    folder/metrics.html

Spark writes the tables, on any file system that it knows.  The driver writes the page as a
local file, so it needs a path of its own if the folder is on another file system.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark_rocketmq.jobs import lag
from pyspark_rocketmq.jobs.htmlchart import Chart, page
from pyspark_rocketmq.jobs.metrics import PERCENTILES, latency, traffic
from pyspark_rocketmq.jobs.traces import TRACE_COLUMNS
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.options.parser import CONNECTION
from pyspark_rocketmq.read.topicinfo import TopicInfo, clientFor
from txrocket.errors import ConfigError, TopicNotExist

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Metrics", "shown", "tracesOf"]

_PAGE: Final = "metrics.html"

_CONNECTION: Final = frozenset(each.lower() for each in (*CONNECTION, "nameServer"))

_TAGGED: Final = "concat_ws(' ', topic, nullif(tag, ''))"

Line = list[tuple[float, float]]


def _connection(options: Mapping[str, str]) -> dict[str, str]:
    """
    The options of the connection to a cluster.
    """
    return {name: value for name, value in options.items() if name.lower() in _CONNECTION}


def tracesOf(spark: SparkSession, options: Mapping[str, str], topic: str) -> DataFrame | None:
    """
    The messages of the trace topic.

    @param options: options of the source; only those of the connection are used.
    @return: L{None} if the topic does not exist, because no client writes traces.
    """
    source = {**_connection(options), "subscribe": topic}
    read = SourceOptions.read(source)
    try:
        TopicInfo(clientFor(read.settings), read.choice).queues()
    except TopicNotExist:
        return None
    return spark.read.format("rocketmq").options(**source).schema(TRACE_COLUMNS).load()


class Metrics:
    """
    Writes metrics to a folder, and a page with their charts.
    """

    def __init__(self, spark: SparkSession, folder: str, page: str | None = None) -> None:
        """
        @param folder: the folder of the tables.
        @param page: the file of the page; L{None} for one in the folder.
        @raise ConfigError: if the folder is not local and no page is given.
        """
        self._spark = spark
        self._folder = folder
        local = folder.removeprefix("file://")
        if page is None and "://" in local:
            raise ConfigError(f"the page cannot be written to {folder}: give a file for it")
        self._page = page or os.path.join(local, _PAGE)
        os.makedirs(os.path.dirname(os.path.abspath(self._page)), exist_ok=True)

    def writeTraffic(self, table: DataFrame, every: str, when: str) -> list[str]:
        """
        Write messages and bytes.

        @return: the topics with messages.
        """
        self._write(traffic(table, every, when), "traffic")
        found = self._spark.read.parquet(f"{self._folder}/traffic").select("topic").distinct()
        return sorted(row[0] for row in found.collect())

    def writeLatency(self, options: Mapping[str, str], topic: str, every: str) -> bool:
        """
        Write delivery times.

        @param topic: the trace topic.
        @return: whether it exists.
        """
        traces = tracesOf(self._spark, options, topic)
        if traces is None:
            return False
        self._write(latency(traces, every), "latency")
        return True

    def sampleLag(
        self, options: Mapping[str, str], topics: Sequence[str], groups: Sequence[str] | None
    ) -> None:
        """
        Add a sample of the groups' lag.

        @param groups: the groups; L{None} for all.
        """
        source = {**_connection(options), "subscribe": ",".join(topics) or "none"}
        client = clientFor(SourceOptions.read(source).settings)
        named = lag.groupsOf(client) if groups is None else groups
        found = lag.table(self._spark, lag.lagOf(client, named, topics))
        found.coalesce(1).write.mode("append").parquet(f"{self._folder}/lag")

    def writePage(self) -> str:
        """
        Write the page with the charts of all tables.

        @return: its path.
        """
        charts = [
            self._lines("Messages", "messages", "traffic", _TAGGED, ["messages"], "sum"),
            self._lines("Bytes", "bytes", "traffic", _TAGGED, ["bytes"], "sum"),
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
        with open(self._page, "w", encoding="utf-8") as file:
            file.write(page("Topics", charts))
        return self._page

    def _write(self, table: DataFrame, name: str) -> None:
        table.coalesce(1).write.mode("overwrite").parquet(f"{self._folder}/{name}")

    def _lines(
        self, title: str, unit: str, name: str, by: str, values: Sequence[str], how: str
    ) -> Chart:
        """
        A chart of a written table, with a line for each value column of each group of rows.
        """
        lines: dict[str, Line] = defaultdict(list)
        if (table := self._read(name)) is not None:
            rows = (
                table.groupBy(_expression(by).alias("line"), "time")
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

    def _read(self, name: str) -> DataFrame | None:
        from pyspark.errors import AnalysisException

        try:
            return self._spark.read.parquet(f"{self._folder}/{name}")
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return None


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
            lines.append(f"    {each['givenUp']:%H:%M:%S} {each['msgId']}{keys}  {each['body']}")
    return "\n".join(lines) or "there are no dead letters"
