# SPDX-License-Identifier: Apache-2.0
"""
Topics as tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_rocketmq.cluster import Cluster, clientFor
from pyspark_rocketmq.narrowing import Narrowing
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.planning import Range, Task, ranges, tasks
from pyspark_rocketmq.reading import RangeReader
from pyspark_rocketmq.schema import projection

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["PushingReader", "TableReader", "TaskRanges", "TaskReader"]


class TaskRanges(InputPartition):
    """
    What one task reads.
    """

    def __init__(self, ranges: Task) -> None:
        super().__init__(ranges)


class TaskReader:
    """
    What readers of tables and of streams have in common: the part that runs on workers.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """
        @raise ConfigError: if the schema has a column that there is not.
        """
        self.options = options
        self._names = projection((each.name, each.dataType.simpleString()) for each in schema)
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """
        The rows of a task.
        """
        # Spark has one for a table without any task.
        if isinstance(partition, TaskRanges):
            reader = RangeReader(clientFor(self.options.settings), self.options)
            schema = to_arrow_schema(self._schema, timezone="UTC")
            yield from reader.read(partition.value, self._names, schema)

    def divided(self, found: list[Range]) -> list[InputPartition]:
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
        What there is to read now, divided among tasks.
        """
        return self.divided(self._found(Narrowing()))

    def _found(self, narrowing: Narrowing) -> list[Range]:
        options = self.options
        cluster = Cluster(clientFor(options.settings), options.chosen)
        queues = [each for own in cluster.queues().values() for each in own]
        strict = options.failOnDataLoss
        bounds = cluster.bounds(queues)
        start = cluster.resolve(options.starting, bounds, strict=strict)
        end = cluster.resolve(options.ending, bounds, strict=strict)
        # Between two times there may be no message, and the later one be the earlier's.
        byTime = options.starting.byTime or options.ending.byTime
        found = ranges(start, end, strict=strict and not byTime)
        return narrowing.narrowed(found, cluster.firstAt)


class PushingReader(TableReader):
    """
    The same for users who have Spark tell what they filter by.  It is a class of its own
    because Spark refuses to read with one that can be told where
    C{spark.sql.python.filterPushdown.enabled} is off.
    """

    _narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """
        Note what is not needed.  Spark looks at the rows all the same: what is left out
        is what cannot match, not all that does not.
        """
        for each in filters:
            self._narrowing = self._narrowing.by(each)
        return filters

    def partitions(self) -> list[InputPartition]:
        """
        What there is to read now, as far as it may match.
        """
        return self.divided(self._found(self._narrowing))
