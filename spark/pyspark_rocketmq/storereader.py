# SPDX-License-Identifier: Apache-2.0
"""
Reading the files of a broker as a table.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_rocketmq.columns import recordBatch
from pyspark_rocketmq.options import StoreOptions
from pyspark_rocketmq.records import Records
from pyspark_rocketmq.schema import projection
from pyspark_rocketmq.segments import Damaged, LogFile, Split, segmentsIn, splits
from txrocket.errors import MalformedRecord

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["FilePart", "StoreReader"]

_log = logging.getLogger(__name__)

# What is made into one batch of columns: at most so many rows, or about so many bytes.
# Smaller ones cost more for each row, larger ones are no cheaper, and leave the caches.
_ROWS: Final = 8192
_BYTES: Final = 2 << 20


class FilePart(InputPartition):
    """
    What one task reads.
    """

    def __init__(self, split: Split) -> None:
        super().__init__(split)


class StoreReader(DataSourceReader):
    """
    Reads the table.
    """

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        """
        @raise ConfigError: if the schema has a column that there is not.
        """
        self.options = options
        self._names = projection((each.name, each.dataType.simpleString()) for each in schema)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """
        The files, divided among tasks.

        @raise ConfigError: if a folder has none.
        """
        options = self.options
        return [
            FilePart(split)
            for path in options.paths
            for split in splits(
                segmentsIn(path), options.splitBytes, options.starting, options.ending
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """
        The rows of a task.

        @raise Damaged: if there is something else than records, and that is an error.
        """
        # Spark has another one for a table without any task.
        if isinstance(partition, FilePart):
            schema = to_arrow_schema(self._schema, timezone="UTC")
            for records in self._records(partition.value):
                chosen = self._chosen(records)
                if len(chosen):
                    yield recordBatch(
                        chosen, self._names, schema, brokerName=self.options.brokerName
                    )

    def _records(self, split: Split) -> Iterator[Records]:
        with LogFile(split.segment) as file:
            for positions in file.records(split.start, split.stop, self._lost):
                at = np.asarray(positions, np.int64)
                low = 0
                while low < len(at):
                    full = int(np.searchsorted(at, at[low] + _BYTES))
                    high = min(low + _ROWS, max(full, low + 1))
                    yield self._sound(file, split, at[low:high])
                    low = high

    def _sound(self, file: LogFile, split: Split, at: np.ndarray) -> Records:
        """
        The records that begin at some positions.
        """
        try:
            records = Records(file.data, at)
            if (records.commitLogOffset == split.segment.base + at).all():
                return records
        except MalformedRecord:
            pass
        sound = np.array([file.isRecord(int(each)) for each in at])
        for each in at[~sound]:
            self._lost(
                f"{split.segment.path} has a damaged record at {each}, which is"
                f" {split.segment.base + each} in the log"
            )
        return Records(file.data, at[sound])

    def _chosen(self, records: Records) -> Records:
        """
        Those that the options ask for.
        """
        options = self.options
        if options.starting is not None or options.ending is not None:
            times = records.storeTimestamp
            after = times >= (options.starting or 0)
            records = records.where(
                after if options.ending is None else after & (times < options.ending)
            )
        if options.chosen is not None and len(records):
            topics = records.topic.dictionary_encode()
            wanted = [options.chosen.matches(each) for each in topics.dictionary.to_pylist()]
            records = records.where(np.array(wanted)[topics.indices.to_numpy()])
        return self._checked(records) if options.checkCrc else records

    def _checked(self, records: Records) -> Records:
        """
        Those whose bodies are what their checksums say.
        """
        sound = np.ones(len(records), bool)
        crcs = records.bodyCRC
        for index, body in enumerate(records.storedBody.to_pylist()):
            # Java does not look at the checksum of an empty body either.
            if body and zlib.crc32(body) & 0x7FFFFFFF != crcs[index]:
                sound[index] = False
                self._lost(
                    f"the body of the message at {records.commitLogOffset[index]} in the log does"
                    " not match its checksum"
                )
        return records.where(sound)

    def _lost(self, what: str) -> None:
        if self.options.failOnDataLoss:
            raise Damaged(f"{what} (failOnDataLoss=false goes on behind it)")
        _log.warning("%s: going on behind it", what)
