# SPDX-License-Identifier: Apache-2.0
"""
What a task does: pulls its ranges and makes columns of them::

    pull --> bytes, bytes, bytes ... --> Records --> RecordBatch
             gathered until they are worth it

A message that is to be read and is not there is an error, or is passed over, as the user
has it: retention may have removed it, or a broker lost it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.cluster import patiently
from pyspark_rocketmq.columns import recordBatch
from pyspark_rocketmq.hopping import positionsIn
from pyspark_rocketmq.offsets import DataLost
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.planning import Range
from pyspark_rocketmq.records import Records
from txrocket.blocking import Client
from txrocket.client.pulled import wantedTags
from txrocket.client.results import PullData, PullStatus
from txrocket.errors import MalformedRecord, RocketError
from txrocket.filters.tags import EVERYTHING
from txrocket.model import MessageQueue

__all__ = ["RangeReader"]

_log = logging.getLogger(__name__)

# A batch of columns is made of so many bytes of records, however few they are: larger
# ones are no cheaper for each row, and leave the caches.
_GATHERED = 2 << 20

# So many pulls are under way at a time where the next ones are known: brokers give 32
# messages for each, and one after the other they cost twice as much.
_AHEAD = 16

_THERE = (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG)


class RangeReader:
    """
    Reads ranges.
    """

    def __init__(self, client: Client, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        self._tags = wantedTags(options.expression, options.expressionType)
        self._every = options.expression == EVERYTHING

    def read(
        self, ranges: Sequence[Range], names: Sequence[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """
        The messages of some ranges.

        @param names: the columns.
        @param schema: what Spark expects.
        @raise DataLost: if a message is not there, and that is an error.
        """
        for each in ranges:
            queue = each.queue
            for records in self._records(each):
                yield recordBatch(
                    records, names, schema, topic=queue.topic, brokerName=queue.brokerName
                )

    def _records(self, wanted: Range) -> Iterator[Records]:
        pieces: list[bytes] = []
        starts: list[np.ndarray] = []
        size = count = 0
        for data in self._pulled(wanted):
            positions, end = positionsIn(data)
            if end != len(data):
                raise MalformedRecord(f"a pull from {wanted.queue} gave no record at byte {end}")
            pieces.append(data)
            starts.append(np.asarray(positions, np.int64) + size)
            size += len(data)
            count += len(positions)
            if count >= self._options.arrowBatchRows or size >= _GATHERED:
                yield from self._wanted(Records(b"".join(pieces), np.concatenate(starts)), wanted)
                pieces, starts, size, count = [], [], 0, 0
        if count:
            yield from self._wanted(Records(b"".join(pieces), np.concatenate(starts)), wanted)

    def _wanted(self, records: Records, wanted: Range) -> Iterator[Records]:
        """
        Those that are in the range, and have one of the tags: a broker compares hashes.
        """
        offsets = records.queueOffset
        chosen = records.where((offsets >= wanted.start) & (offsets < wanted.end))
        if self._tags:
            has = np.isin(chosen.tags.to_numpy(zero_copy_only=False), list(self._tags))
            chosen = chosen.where(has)
        if len(chosen):
            yield chosen

    def _pulled(self, wanted: Range) -> Iterator[bytes]:
        """
        The records of a range, as they are pulled.
        """
        at = wanted.start
        step = 0
        while at < wanted.end:
            for got in self._ahead(wanted, at, step):
                self._look(wanted, at, got)
                yield got.data
                at = got.nextBeginOffset
            if at == wanted.end:
                return
            got = self._pull(wanted.queue, at, wanted.end)
            if got.pullStatus not in _THERE:
                at = self._behindLoss(wanted, at, got.minOffset)
                continue
            if got.nextBeginOffset <= at:
                raise MalformedRecord(
                    f"a pull from {wanted.queue} at {at} is to go on at {got.nextBeginOffset}"
                )
            if self._every:
                self._look(wanted, at, got)
                step = got.nextBeginOffset - at
            if got.data:
                yield got.data
            at = got.nextBeginOffset

    def _ahead(self, wanted: Range, at: int, step: int) -> Iterator[PullData]:
        """
        Further pulls, as long as each gives as many messages as the one before, so that
        it is known where the next begins.

        @param step: how many that are; 0 if it is not known.
        """
        while step and at + 2 * step <= wanted.end:
            offsets = range(at, wanted.end - step + 1, step)[:_AHEAD]
            try:
                pulled = self._client.pullAhead(
                    wanted.queue, offsets, step, timeout=self._options.settings.timeout
                )
            except RocketError:
                # A single one is tried again, or says what is wrong.
                return
            for offset, got in zip(offsets, pulled, strict=True):
                at = offset + step
                if got.pullStatus is not PullStatus.FOUND or got.nextBeginOffset != at:
                    return
                yield got

    def _pull(self, queue: MessageQueue, at: int, end: int) -> PullData:
        options = self._options
        most = min(options.pullBatchSize, end - at) if self._every else options.pullBatchSize

        def pull(left: float, master: bool = False) -> PullData:
            return self._client.pullData(
                queue,
                at,
                most,
                options.expression,
                expressionType=options.expressionType,
                master=master,
                timeout=left,
            )

        got = patiently(options.settings.timeout, pull)
        if got.pullStatus not in _THERE:
            # A slave may not have it yet.
            got = patiently(options.settings.timeout, lambda left: pull(left, True))
        return got

    def _look(self, wanted: Range, at: int, got: PullData) -> None:
        """
        Whether each message is there, if every message is wanted.
        """
        there = len(positionsIn(got.data)[0])
        if there < min(got.nextBeginOffset, wanted.end) - at:
            self._lost(wanted.queue, at, got.nextBeginOffset, there)

    def _behindLoss(self, wanted: Range, at: int, low: int) -> int:
        """
        Where to go on if there is nothing at an offset.
        """
        nextOffset = min(low, wanted.end) if low > at else wanted.end
        self._lost(wanted.queue, at, nextOffset, 0)
        return nextOffset

    def _lost(self, queue: MessageQueue, start: int, end: int, there: int) -> None:
        what = (
            f"queue {queue.queueId} of {queue.topic} at {queue.brokerName} has {there} of the"
            f" {end - start} messages from {start} to {end}"
        )
        if self._options.failOnDataLoss:
            raise DataLost(f"{what}: the others are gone (failOnDataLoss=false goes on)")
        _log.warning("%s: going on without the others", what)
