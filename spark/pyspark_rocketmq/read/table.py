# SPDX-License-Identifier: Apache-2.0
"""
Topics as tables.

Spark makes a reader on the driver, asks it for partitions, pickles both and has workers
read the partitions.  One partition is one task with some ranges of queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_rocketmq.columns.schema import projection
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.read.planning import Range, Task, ranges, tasks
from pyspark_rocketmq.read.pushdown import PushedFilters
from pyspark_rocketmq.read.task import RangeReader
from pyspark_rocketmq.read.topicinfo import TopicInfo, clientFor

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["PushingReader", "TableReader", "TaskRanges", "TaskReader"]


class TaskRanges(InputPartition):
    """
    The ranges of one task.
    """

    def __init__(self, ranges: Task) -> None:
        super().__init__(ranges)


class TaskReader:
    """
    The part of a reader that runs on workers; tables and streams share it.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """
        @raise ConfigError: if the schema has a column that does not exist.
        """
        self.options = options
        self._names = projection((each.name, each.dataType.simpleString()) for each in schema)
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """
        The rows of a task.
        """
        # For a table without tasks Spark passes a partition of its own.
        if isinstance(partition, TaskRanges):
            reader = RangeReader(clientFor(self.options.settings), self.options)
            schema = to_arrow_schema(self._schema, timezone="UTC")
            yield from reader.read(partition.value, self._names, schema)

    def divide(self, found: list[Range]) -> list[InputPartition]:
        """
        Ranges divided among tasks.
        """
        options = self.options
        return [
            TaskRanges(each) for each in tasks(found, options.minPartitions, options.maxPartitions)
        ]


class TableReader(TaskReader, DataSourceReader):
    """
    Reads a table.
    """

    def partitions(self) -> list[InputPartition]:
        """
        The messages that exist now, divided among tasks.
        """
        return self.divide(self._found(PushedFilters()))

    def _found(self, filters: PushedFilters) -> list[Range]:
        options = self.options
        info = TopicInfo(clientFor(options.settings), options.choice)
        queues = [each for own in info.queues().values() for each in own]
        strict = options.failOnDataLoss
        bounds = info.bounds(queues)
        start = info.resolve(options.starting, bounds, strict=strict)
        end = info.resolve(options.ending, bounds, strict=strict)
        # Two times without a message between them may resolve to offsets in reverse order.
        byTime = options.starting.byTime or options.ending.byTime
        found = ranges(start, end, strict=strict and not byTime)
        return filters.apply(found, info.firstAt)


class PushingReader(TableReader):
    """
    Reads a table by the filters that Spark pushes down.  It is a class of its own because
    Spark refuses a reader with C{pushFilters} if
    C{spark.sql.python.filterPushdown.enabled} is off.
    """

    _filters = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """
        Remember the filters.  All of them are returned, so that Spark applies them to the
        rows: only messages that cannot match are left out here.
        """
        for each in filters:
            self._filters = self._filters.add(each)
        return filters

    def partitions(self) -> list[InputPartition]:
        """
        The messages that exist now and may match, divided among tasks.
        """
        return self.divide(self._found(self._filters))
