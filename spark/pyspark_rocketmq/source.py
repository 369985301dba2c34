# SPDX-License-Identifier: Apache-2.0
"""
C{format("rocketmq")}: topics as tables and streams, and rows as messages.

Spark makes a L{RocketSource} on the driver, asks it for a reader or a writer, pickles that
and has it read or write on the workers.  What a reader needs is imported when there is
one: that Spark can look at the class must not depend on Arrow, for a package that cannot
be imported hides all other sources from Spark.
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

from pyspark_rocketmq.options import SinkOptions, SourceOptions
from pyspark_rocketmq.schema import defaultSchema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RocketSource"]


class RocketSource(DataSource):
    """
    RocketMQ's topics.
    """

    @classmethod
    def name(cls) -> str:
        """
        What a user says to C{format}.
        """
        return "rocketmq"

    def schema(self) -> str:
        """
        The columns, if the user gives no schema.

        @raise ConfigError: if an option is wrong.
        """
        options = SourceOptions.read(self.options)
        return defaultSchema(properties=options.includeProperties)

    def reader(self, schema: StructType) -> DataSourceReader:
        """
        Reads a table.

        @raise ConfigError: if an option or a column is wrong.
        """
        from pyspark_rocketmq.reader import PushingReader, TableReader

        options = SourceOptions.read(self.options, streaming=False)
        return (PushingReader if options.pushDownFilters else TableReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """
        Reads a stream.

        @raise ConfigError: if an option or a column is wrong.
        """
        from pyspark_rocketmq.stream import StreamReader

        return StreamReader(SourceOptions.read(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """
        Sends the rows of a table.

        @raise ConfigError: if an option or a column is wrong.
        """
        from pyspark_rocketmq.writer import TableWriter

        return TableWriter(SinkOptions.read(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """
        Sends the rows of a stream.

        @raise ConfigError: if an option or a column is wrong.
        """
        from pyspark_rocketmq.writer import StreamWriter

        return StreamWriter(SinkOptions.read(self.options), schema)
