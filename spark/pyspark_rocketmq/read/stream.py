# SPDX-License-Identifier: Apache-2.0
"""
Topics as streams.

Spark's calls, and its checkpoint after each::

    initialOffset    {"v": 1}                          no queue is known
    batch 0          {"v": 1, "offsets": start}        no rows: the checkpoint gets the start
    batch 1          {"v": 1, "offsets": end}          the rows from start to end
    ...                                                a new queue is added in the same way

If Spark restarts before the first batch is done, it asks for the initial offset again.  A
stream from C{latest} would then begin later and lose messages.  The batch without rows
prevents that, because Spark writes its end to the checkpoint before any row is read.
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

from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.read.offsetcommit import OffsetCommit
from pyspark_rocketmq.read.offsets import UNKNOWN, Offsets, fromJson, toJson
from pyspark_rocketmq.read.planning import latestOffsets, limitOffsets, ranges
from pyspark_rocketmq.read.table import TaskReader
from pyspark_rocketmq.read.topicinfo import Bounds, TopicInfo, clientFor

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["StreamReader"]

_log = logging.getLogger(__name__)

# Without new messages Spark asks a hundred times a second.  These are the least seconds
# between two requests to the brokers, and to the name servers for new queues.
_POLL = 0.1
_LOOK = 2.0


class StreamReader(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    Reads a stream.  Spark has one on the driver for as long as a query runs, and others
    on the workers.
    """

    # In seconds.  Class attributes, because Spark pickles the instances; tests replace them.
    now: Callable[[], float] = staticmethod(time.monotonic)
    sleep: Callable[[float], None] = staticmethod(time.sleep)

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._info: TopicInfo | None = None
        self._offsetCommit: OffsetCommit | None = None
        self._target: Offsets | None = None
        self._queues: dict[str, tuple[Any, ...]] = {}
        self._looked: float | None = None
        self._polled: float | None = None
        self._triggered: float | None = None
        self._latest: Offsets | None = None

    # --- Spark's interface -----------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """
        The offsets of a new stream: no queue is known yet.
        """
        return dict(UNKNOWN)

    def getDefaultReadLimit(self) -> ReadLimit:
        """
        How many messages a micro-batch may have, or must have, by the options.
        """
        options = self.options
        if options.maxOffsets is not None:
            return ReadMaxRows(options.maxOffsets)
        if options.minOffsets is not None:
            return ReadMinRows(options.minOffsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """
        Stop the stream at the messages that exist now.
        """
        self._target = {queue: high for queue, (_, high) in self._bounds(strict=False).items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """
        Where the next micro-batch ends; C{start} if there is nothing to read.

        @raise DataLost: if messages were removed and C{failOnDataLoss} is set.
        """
        known = fromJson(start)
        if known is None:
            bounds = self._bounds(strict=True)
            strict = self.options.failOnDataLoss
            return toJson(self._topicInfo().resolve(self.options.starting, bounds, strict=strict))
        self._commit(known)
        ends = latestOffsets(
            known, self._bounds(strict=False), self._target, strict=self.options.failOnDataLoss
        )
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if not isinstance(limit, ReadAllAvailable) and not self._isEnough(known, ends):
            return start
        found = limitOffsets(known, ends, most)
        if found == known:
            return start
        self._triggered = self.now()
        return toJson(found)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """
        Where queues ended at the last request to the brokers; Spark shows it.
        """
        return None if self._latest is None else toJson(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """
        The messages between two offsets, divided among tasks.  Equal offsets always give
        equal tasks.
        """
        first, last = fromJson(start), fromJson(end)
        strict = self.options.failOnDataLoss
        return self.divide(ranges(first or {}, last or {}, strict=strict))

    def commit(self, end: dict[str, Any]) -> None:
        """
        Spark has processed all messages before C{end}.
        """
        known = fromJson(end)
        if known is not None:
            self._commit(known)

    # --- inside ----------------------------------------------------------

    def _topicInfo(self) -> TopicInfo:
        if self._info is None:
            self._info = TopicInfo(clientFor(self.options.settings), self.options.choice)
        return self._info

    def _bounds(self, *, strict: bool) -> Bounds:
        """
        Where queues begin and end.  Wait first if the last request is too recent.
        """
        if self._polled is not None and (early := self._polled + _POLL - self.now()) > 0:
            self.sleep(early)
        self._polled = self.now()
        info = self._topicInfo()
        if strict or self._looked is None or self._polled - self._looked >= _LOOK:
            self._queues = info.queues(strict=strict)
            self._looked = self._polled
        bounds = info.bounds(each for own in self._queues.values() for each in own)
        self._latest = {queue: high for queue, (_, high) in bounds.items()}
        return bounds

    def _isEnough(self, known: Offsets, ends: Offsets) -> bool:
        """
        Whether there are enough messages for a micro-batch, or C{maxTriggerDelay} is over.
        """
        options = self.options
        if options.minOffsets is None or self._target is not None:
            return True
        if any(each not in known for each in ends):
            return True
        if self._triggered is None or self.now() - self._triggered >= options.maxDelay:
            return True
        return sum(max(0, ends[each] - known[each]) for each in known) >= options.minOffsets

    def _commit(self, known: Offsets) -> None:
        """
        Commit offsets to the brokers.  Spark commits a batch only when the next one has
        rows, but asks for the latest offset after each batch.  Both commit here, so that
        the group of an idle stream does not appear to lag.
        """
        options = self.options
        if options.groupId is None:
            return
        if self._offsetCommit is None:
            self._offsetCommit = OffsetCommit(
                clientFor(options.settings),
                options.groupId,
                options.expression,
                options.expressionType,
            )
        self._offsetCommit.commit(known)
