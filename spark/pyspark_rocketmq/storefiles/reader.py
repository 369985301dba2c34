# SPDX-License-Identifier: Apache-2.0
"""
A reader of store files as a table: each task reads a part of a log file.
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

from pyspark_rocketmq.columns.arrow import recordBatch
from pyspark_rocketmq.columns.records import Records
from pyspark_rocketmq.columns.schema import projection
from pyspark_rocketmq.options import StoreOptions
from pyspark_rocketmq.storefiles.segments import DamagedLog, LogFile, Split, segmentsIn, splits
from txrocket.errors import MalformedRecord

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["FilePart", "StoreTableReader"]

_log = logging.getLogger(__name__)

# The limits of a batch of columns.  Smaller batches cost more for each row; larger ones are
# not cheaper, and do not fit the processor's caches.
_ROWS: Final = 8192
_BYTES: Final = 2 << 20


class FilePart(InputPartition):
    """
    The part of a log file that one task reads.
    """

    def __init__(self, split: Split) -> None:
        super().__init__(split)


class StoreTableReader(DataSourceReader):
    """
    Reads store files as a table.
    """

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        """
        @raise ConfigError: if the schema has a column that does not exist.
        """
        self.options = options
        self._names = projection((each.name, each.dataType.simpleString()) for each in schema)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """
        The files, divided among tasks.

        @raise ConfigError: if a folder has no log files.
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

        @raise DamagedLog: if the log is damaged and C{failOnDataLoss} is set.
        """
        # For a table without tasks Spark passes a partition of its own.
        if isinstance(partition, FilePart):
            schema = to_arrow_schema(self._schema, timezone="UTC")
            for records in self._records(partition.value):
                chosen = self._select(records)
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
        The sound records that begin at some positions.
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

    def _select(self, records: Records) -> Records:
        """
        The records that the options select.
        """
        options = self.options
        if options.starting is not None or options.ending is not None:
            times = records.storeTimestamp
            after = times >= (options.starting or 0)
            records = records.where(
                after if options.ending is None else after & (times < options.ending)
            )
        if options.choice is not None and len(records):
            topics = records.topic.dictionary_encode()
            wanted = [options.choice.matches(each) for each in topics.dictionary.to_pylist()]
            records = records.where(np.array(wanted)[topics.indices.to_numpy()])
        return self._checked(records) if options.checkCrc else records

    def _checked(self, records: Records) -> Records:
        """
        The records whose bodies match their checksums.
        """
        sound = np.ones(len(records), bool)
        crcs = records.bodyCRC
        for index, body in enumerate(records.storedBody.to_pylist()):
            # Like Java, do not check the checksum of an empty body.
            if body and zlib.crc32(body) & 0x7FFFFFFF != crcs[index]:
                sound[index] = False
                self._lost(
                    f"the body of the message at {records.commitLogOffset[index]} in the log does"
                    " not match its checksum"
                )
        return records.where(sound)

    def _lost(self, what: str) -> None:
        if self.options.failOnDataLoss:
            raise DamagedLog(f"{what} (failOnDataLoss=false goes on behind it)")
        _log.warning("%s: going on behind it", what)
