# SPDX-License-Identifier: Apache-2.0
"""
C{format("rocketmq-store")}: the files of a broker as a table, without the broker.

All that its log has is there, in the order in which it was stored: also messages that wait
for their time, halves of transactions, and what no queue leads to any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from pyspark_rocketmq.options import StoreOptions
from pyspark_rocketmq.schema import defaultSchema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["StoreSource"]


class StoreSource(DataSource):
    """
    The files of a broker.
    """

    @classmethod
    def name(cls) -> str:
        """
        What a user says to C{format}.
        """
        return "rocketmq-store"

    def schema(self) -> str:
        """
        The columns, if the user gives no schema.

        @raise ConfigError: if an option is wrong.
        """
        return defaultSchema(properties=StoreOptions.read(self.options).includeProperties)

    def reader(self, schema: StructType) -> DataSourceReader:
        """
        Reads the table.

        @raise ConfigError: if an option or a column is wrong.
        """
        from pyspark_rocketmq.storereader import StoreReader

        return StoreReader(StoreOptions.read(self.options), schema)
