# SPDX-License-Identifier: Apache-2.0
"""
The work of a task: it pulls its ranges and makes columns of them::

    pull --> bytes, bytes, bytes ... --> Records --> RecordBatch
             gathered up to 2 MiB

A message may be missing, because retention removed it or a broker lost it, or damaged.
The option C{failOnDataLoss} says whether that is an error or the message is skipped.  All
gathered bytes are checked together, and pull by pull only if the check fails.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.columns.arrow import recordBatch
from pyspark_rocketmq.columns.positions import positionsIn
from pyspark_rocketmq.columns.records import Records
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.read.offsets import DataLost
from pyspark_rocketmq.read.planning import Range
from pyspark_rocketmq.read.topicinfo import retry
from txrocket.blocking import Client
from txrocket.bulk import readableRecords
from txrocket.client.sansio.pullrequest import wantedTags
from txrocket.client.sansio.results import PullData, PullStatus
from txrocket.errors import MalformedRecord, RocketError
from txrocket.filters.tags import EVERYTHING
from txrocket.model import MessageQueue
from txrocket.protocol.salvage import salvage

__all__ = ["RangeReader"]

_log = logging.getLogger(__name__)

# The bytes of records in a batch of columns.  Larger batches are not cheaper for each row,
# and do not fit the processor's caches.
_GATHERED = 2 << 20

# The pulls in flight at a time, if the next offsets are known.  Brokers answer a pull with
# at most 32 messages by default, and waiting for each answer costs as much again.
_AHEAD = 16

# The faults of one pull that an error text lists.
_TOLD = 5

_THERE = (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG)


class _Piece(NamedTuple):
    """
    The answer to one pull.

    @ivar start: the offset where it began.
    @ivar end: where the next one begins.
    @ivar positions: where records begin in the data.
    @ivar whole: whether nothing but records is in it, as far as their sizes tell.
    """

    start: int
    end: int
    data: bytes
    positions: list[int]
    whole: bool

    @classmethod
    def of(cls, start: int, end: int, data: bytes) -> _Piece:
        """
        Find the records in the answer to a pull.
        """
        positions, stop = positionsIn(data)
        return cls(start, end, data, positions, stop == len(data))


class RangeReader:
    """
    Reads the ranges of a task from brokers.
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
        @param schema: the types that Spark expects.
        @raise DataLost: if a message is missing and C{failOnDataLoss} is set.
        """
        for each in ranges:
            queue = each.queue
            for records in self._records(each):
                yield recordBatch(
                    records, names, schema, topic=queue.topic, brokerName=queue.brokerName
                )

    def _records(self, wanted: Range) -> Iterator[Records]:
        pieces: list[_Piece] = []
        size = rows = 0
        for piece in self._pulled(wanted):
            pieces.append(piece)
            size += len(piece.data)
            rows += len(piece.positions)
            if rows >= self._options.arrowBatchRows or size >= _GATHERED:
                yield from self._wanted(self._gathered(wanted.queue, pieces), wanted)
                pieces, size, rows = [], 0, 0
        if pieces:
            yield from self._wanted(self._gathered(wanted.queue, pieces), wanted)

    def _gathered(self, queue: MessageQueue, pieces: list[_Piece]) -> Records:
        """
        The sound records of some pulls.

        @raise DataLost: if a record is damaged and C{failOnDataLoss} is set.
        """
        found = _sound(queue, pieces)
        if found is not None:
            return found
        sound = []
        for piece in pieces:
            if _sound(queue, [piece]) is None:
                piece = self._salvaged(queue, piece)
            sound.append(piece.data)
        data = b"".join(sound)
        return Records(data, positionsIn(data)[0])

    def _salvaged(self, queue: MessageQueue, piece: _Piece) -> _Piece:
        """
        The sound records of a damaged pull.
        """
        data, faults = salvage(piece.data)
        kept, last = [], piece.start - 1
        for at, stop in zip((ats := positionsIn(data)[0]), [*ats[1:], len(data)], strict=True):
            queueId = int.from_bytes(data[at + 12 : at + 16], "big", signed=True)
            offset = int.from_bytes(data[at + 20 : at + 28], "big", signed=True)
            if queueId == queue.queueId and last < offset < piece.end:
                kept.append(data[at:stop])
                last = offset
            else:
                faults.append(f"a message says that it is {offset} in queue {queueId}")
        what = (
            f"queue {queue.queueId} of {queue.topic} at {queue.brokerName} has messages from"
            f" {piece.start} to {piece.end} that cannot be read: {'; '.join(faults[:_TOLD])}"
        )
        if self._options.failOnDataLoss:
            raise DataLost(f"{what} (failOnDataLoss=false goes on without them)")
        _log.warning("%s: going on without them", what)
        return _Piece.of(piece.start, piece.end, b"".join(kept))

    def _wanted(self, records: Records, wanted: Range) -> Iterator[Records]:
        """
        The records that are in the range and have one of the tags.  A broker compares only
        the hashes of tags, so some may have another tag.
        """
        offsets = records.queueOffset
        chosen = records.where((offsets >= wanted.start) & (offsets < wanted.end))
        if self._tags:
            has = np.isin(chosen.tags.to_numpy(zero_copy_only=False), list(self._tags))
            chosen = chosen.where(has)
        if len(chosen):
            yield chosen

    def _pulled(self, wanted: Range) -> Iterator[_Piece]:
        """
        Pull the records of a range.
        """
        at = wanted.start
        step = 0
        while at < wanted.end:
            for got in self._ahead(wanted, at, step):
                yield self._look(wanted, at, got)
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
            piece = self._look(wanted, at, got)
            if self._every:
                step = got.nextBeginOffset - at
            if got.data:
                yield piece
            at = got.nextBeginOffset

    def _ahead(self, wanted: Range, at: int, step: int) -> Iterator[PullData]:
        """
        Send several pulls at once.  Go on while each gives the same number of messages,
        because only then are the offsets of the next pulls known.

        @param step: the number of messages of the last pull; 0 if it is not known.
        """
        while step and at + 2 * step <= wanted.end:
            offsets = range(at, wanted.end - step + 1, step)[:_AHEAD]
            try:
                pulled = self._client.pullAhead(
                    wanted.queue, offsets, step, timeout=self._options.settings.timeout
                )
            except RocketError as error:
                # The caller then sends a single pull, which is retried or raises.
                _log.warning("Pulling ahead from %s at %d failed: %s", wanted.queue, at, error)
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

        got = retry(options.settings.timeout, pull)
        if got.pullStatus not in _THERE:
            # A slave may not have the messages yet.
            got = retry(options.settings.timeout, lambda left: pull(left, True))
        return got

    def _look(self, wanted: Range, at: int, got: PullData) -> _Piece:
        """
        Check that the answer to a pull has all messages.

        @raise DataLost: if one is missing, no filter is set, and C{failOnDataLoss} is.
        """
        piece = _Piece.of(at, got.nextBeginOffset, got.data)
        there = len(piece.positions)
        # A damaged answer is reported when its records are read.
        if self._every and piece.whole and there < min(piece.end, wanted.end) - at:
            self._lost(wanted.queue, at, piece.end, there)
        return piece

    def _behindLoss(self, wanted: Range, at: int, low: int) -> int:
        """
        The offset at which to continue if there is no message at one.
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


def _sound(queue: MessageQueue, pieces: Sequence[_Piece]) -> Records | None:
    """
    The records of some pulls; L{None} if a record is damaged, or is of another queue or
    offset than its pull.
    """
    if not all(each.whole for each in pieces):
        return None
    whole = b"".join(each.data for each in pieces)
    sizes = np.cumsum([0] + [len(each.data) for each in pieces])
    starts = [
        np.asarray(each.positions, np.int64) + size
        for each, size in zip(pieces, sizes, strict=False)
    ]
    counts = [len(each.positions) for each in pieces]
    lows = np.repeat([each.start for each in pieces], counts)
    highs = np.repeat([each.end for each in pieces], counts)
    try:
        records = Records(whole, np.concatenate(starts))
    except MalformedRecord:
        return None
    offsets = records.queueOffset
    sound = (
        readableRecords(whole) == len(whole)
        and np.all(offsets >= lows)
        and np.all(offsets < highs)
        and np.all(np.diff(offsets) > 0)
        and np.all(records.queueId == queue.queueId)
    )
    return records if sound else None
