# SPDX-License-Identifier: Apache-2.0
"""
Topics as streams.

What Spark asks for, and what its checkpoint holds then::

    initialOffset    {"v": 1}                          nothing is known
    batch 0          {"v": 1, "offsets": start}        no row: where it begins is written down
    batch 1          {"v": 1, "offsets": end}          the rows from start to end
    ...                                                a new queue is entered in the same way

Spark asks for the initial offset again when it starts before the first batch is done, and
does not keep what it was told.  If that were C{latest}, a stream that is killed then would
lose messages, so it is only told once it is written down: that is what the batch without
rows is for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_rocketmq.cluster import Bounds, Cluster, clientFor
from pyspark_rocketmq.offsets import UNKNOWN, Offsets, fromJson, toJson
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.planning import following, granted, ranges
from pyspark_rocketmq.progress import Progress
from pyspark_rocketmq.reader import TaskReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["StreamReader"]

_log = logging.getLogger(__name__)

# Spark asks a hundred times a second if there was nothing new.  Brokers are asked so many
# seconds apart at least, name servers for new queues less often.
_POLL = 0.1
_LOOK = 2.0


class StreamReader(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    Reads a stream.  Spark has one on the driver for as long as a query runs, and others
    on the workers.
    """

    # In seconds; on the class, for tests.
    now: Callable[[], float] = staticmethod(time.monotonic)
    sleep: Callable[[float], None] = staticmethod(time.sleep)

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._cluster: Cluster | None = None
        self._progress: Progress | None = None
        self._target: Offsets | None = None
        self._queues: dict[str, tuple[Any, ...]] = {}
        self._looked: float | None = None
        self._polled: float | None = None
        self._triggered: float | None = None
        self._latest: Offsets | None = None

    # --- what Spark asks -------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """
        What a stream begins with.
        """
        return dict(UNKNOWN)

    def getDefaultReadLimit(self) -> ReadLimit:
        """
        How much a micro-batch may have.
        """
        options = self.options
        if options.maxOffsets is not None:
            return ReadMaxRows(options.maxOffsets)
        if options.minOffsets is not None:
            return ReadMinRows(options.minOffsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """
        What is there now is all that is to be read.
        """
        self._target = {queue: high for queue, (_, high) in self._bounds(strict=False).items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """
        Where the next micro-batch ends; the same if there is nothing to be read.

        @raise DataLost: if messages are gone, and that is an error.
        """
        known = fromJson(start)
        if known is None:
            bounds = self._bounds(strict=True)
            strict = self.options.failOnDataLoss
            return toJson(self._asked().resolve(self.options.starting, bounds, strict=strict))
        self._tell(known)
        ends = following(
            known, self._bounds(strict=False), self._target, strict=self.options.failOnDataLoss
        )
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if not isinstance(limit, ReadAllAvailable) and not self._worth(known, ends):
            return start
        found = granted(known, ends, most)
        if found == known:
            return start
        self._triggered = self.now()
        return toJson(found)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """
        Where queues ended when they were last looked at; Spark shows it.
        """
        return None if self._latest is None else toJson(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """
        What lies between two offsets, divided among tasks: for the same two always the
        same.
        """
        first, last = fromJson(start), fromJson(end)
        strict = self.options.failOnDataLoss
        return self.divided(ranges(first or {}, last or {}, strict=strict))

    def commit(self, end: dict[str, Any]) -> None:
        """
        All before that has been dealt with.
        """
        known = fromJson(end)
        if known is not None:
            self._tell(known)

    # --- inside ----------------------------------------------------------

    def _asked(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(clientFor(self.options.settings), self.options.chosen)
        return self._cluster

    def _bounds(self, *, strict: bool) -> Bounds:
        """
        Where queues begin and end, asked for no more often than is of use.
        """
        if self._polled is not None and (early := self._polled + _POLL - self.now()) > 0:
            self.sleep(early)
        self._polled = self.now()
        cluster = self._asked()
        if strict or self._looked is None or self._polled - self._looked >= _LOOK:
            self._queues = cluster.queues(strict=strict)
            self._looked = self._polled
        bounds = cluster.bounds(each for own in self._queues.values() for each in own)
        self._latest = {queue: high for queue, (_, high) in bounds.items()}
        return bounds

    def _worth(self, known: Offsets, ends: Offsets) -> bool:
        """
        Whether there are enough messages for a micro-batch, or they have waited for long
        enough.
        """
        options = self.options
        if options.minOffsets is None or self._target is not None:
            return True
        if any(each not in known for each in ends):
            return True
        if self._triggered is None or self.now() - self._triggered >= options.maxDelay:
            return True
        return sum(max(0, ends[each] - known[each]) for each in known) >= options.minOffsets

    def _tell(self, known: Offsets) -> None:
        """
        Have brokers know.  Spark commits a batch only when the next one has rows, but it
        asks for the latest offset once a batch is done: so groups of idle streams are not
        shown behind.
        """
        options = self.options
        if options.groupId is None:
            return
        if self._progress is None:
            self._progress = Progress(
                clientFor(options.settings),
                options.groupId,
                options.expression,
                options.expressionType,
            )
        self._progress.tell(known)
