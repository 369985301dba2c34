# SPDX-License-Identifier: Apache-2.0
"""
What a task does: pulls its ranges and makes columns of them::

    pull --> bytes, bytes, bytes ... --> Records --> RecordBatch
             gathered until they are worth it

A message that is to be read and is not there is an error, or is passed over, as the user
has it: retention may have removed it, or a broker lost it.  So is one that is damaged: all
that was gathered is looked at together, and pull by pull only if something is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
from txrocket.compiled import speed
from txrocket.errors import MalformedRecord, RocketError
from txrocket.filters.tags import EVERYTHING
from txrocket.model import MessageQueue
from txrocket.protocol.salvage import salvage

__all__ = ["RangeReader"]

_log = logging.getLogger(__name__)

# A batch of columns is made of so many bytes of records, however few they are: larger
# ones are no cheaper for each row, and leave the caches.
_GATHERED = 2 << 20

# So many pulls are under way at a time where the next ones are known: brokers give 32
# messages for each, and one after the other they cost twice as much.
_AHEAD = 16

# How many faults of one pull are told.
_TOLD = 5

_THERE = (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG)


class _Piece(NamedTuple):
    """
    What one pull gave.

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
        What a pull from one offset to another gave.
        """
        positions, stop = positionsIn(data)
        return cls(start, end, data, positions, stop == len(data))


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
        The records of some pulls, without those that are damaged.

        @raise DataLost: if one is damaged, and that is an error.
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
        What can be read of a pull.
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
        Those that are in the range, and have one of the tags: a broker compares hashes.
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
        The records of a range, as they are pulled.
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

    def _look(self, wanted: Range, at: int, got: PullData) -> _Piece:
        """
        What a pull gave.

        @raise DataLost: if every message is wanted, one is not there, and that is an error.
        """
        piece = _Piece.of(at, got.nextBeginOffset, got.data)
        there = len(piece.positions)
        # What is damaged is told of when it is read.
        if self._every and piece.whole and there < min(piece.end, wanted.end) - at:
            self._lost(wanted.queue, at, piece.end, there)
        return piece

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


def _sound(queue: MessageQueue, pieces: Sequence[_Piece]) -> Records | None:
    """
    The records of some pulls; L{None} if one of them is damaged, or says that it is not
    where its pull is.
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
    matches = records.bodiesMatch() if speed is None else speed.readableRecords(whole) == len(whole)
    sound = (
        matches
        and np.all(offsets >= lows)
        and np.all(offsets < highs)
        and np.all(np.diff(offsets) > 0)
        and np.all(records.queueId == queue.queueId)
    )
    return records if sound else None
