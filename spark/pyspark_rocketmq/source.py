# SPDX-License-Identifier: Apache-2.0
"""
C{format("rocketmq")}: topics as tables and streams, and rows as messages.

Spark makes a L{RocketSource} on the driver, asks it for a reader or a writer, pickles that
and runs it on the workers.  Readers and writers are imported only when Spark asks for one,
because they need Arrow.  If this module could not be imported, Spark would find no other
data source either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from pyspark_rocketmq.columns.schema import defaultSchema
from pyspark_rocketmq.options import SinkOptions, SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RocketSource"]


class RocketSource(DataSource):
    """
    Spark's data source for RocketMQ's topics.
    """

    @classmethod
    def name(cls) -> str:
        """
        The name for C{format}.
        """
        return "rocketmq"

    def schema(self) -> str:
        """
        The columns, if the user gives no schema.

        @raise ConfigError: if an option is not valid.
        """
        options = SourceOptions.read(self.options)
        return defaultSchema(properties=options.includeProperties)

    def reader(self, schema: StructType) -> DataSourceReader:
        """
        A reader for a table.

        @raise ConfigError: if an option or a column is not valid.
        """
        from pyspark_rocketmq.read.table import PushingReader, TableReader

        options = SourceOptions.read(self.options, streaming=False)
        return (PushingReader if options.pushDownFilters else TableReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """
        A reader for a stream.

        @raise ConfigError: if an option or a column is not valid.
        """
        from pyspark_rocketmq.read.stream import StreamReader

        return StreamReader(SourceOptions.read(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """
        A writer that sends the rows of a table.

        @raise ConfigError: if an option or a column is not valid.
        """
        from pyspark_rocketmq.write.writer import TableWriter

        return TableWriter(SinkOptions.read(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """
        A writer that sends the rows of a stream.

        @raise ConfigError: if an option or a column is not valid.
        """
        from pyspark_rocketmq.write.writer import StreamWriter

        return StreamWriter(SinkOptions.read(self.options), schema)
