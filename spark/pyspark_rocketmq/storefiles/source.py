# SPDX-License-Identifier: Apache-2.0
"""
C{format("rocketmq-store")}: the files of a broker as a table, without the broker.

The table has every message of the log, in store order: also parked and half messages, and
messages that no consume queue refers to any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from pyspark_rocketmq.columns.schema import defaultSchema
from pyspark_rocketmq.options import StoreOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["StoreSource"]


class StoreSource(DataSource):
    """
    Spark's data source for the files of a broker.
    """

    @classmethod
    def name(cls) -> str:
        """
        The name for C{format}.
        """
        return "rocketmq-store"

    def schema(self) -> str:
        """
        The columns, if the user gives no schema.

        @raise ConfigError: if an option is not valid.
        """
        return defaultSchema(properties=StoreOptions.read(self.options).includeProperties)

    def reader(self, schema: StructType) -> DataSourceReader:
        """
        A reader for the table.

        @raise ConfigError: if an option or a column is not valid.
        """
        from pyspark_rocketmq.storefiles.reader import StoreTableReader

        return StoreTableReader(StoreOptions.read(self.options), schema)
