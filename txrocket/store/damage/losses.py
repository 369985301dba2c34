# SPDX-License-Identifier: Apache-2.0
"""
The records that a damaged log has lost, and the queue offsets that must not be given again.

A start meets holes in two ways: files that are missing or too short when they are loaded,
and records that cannot be read while the log is filed again.  Either way the place in the
log stays taken, and so do the numbers in the queues::

    log      | 40 | 41 |##########| 44 |      queue   40  41  --  --  44
                        hole                              no message, no number twice
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from txrocket.errors import StoreCorrupt
from txrocket.protocol.record import TRANSACTION_PREPARED_TYPE
from txrocket.store.damage.holes import SMALLEST, Hole, Holes
from txrocket.store.damage.queueorder import Order
from txrocket.store.files.segments import Gap
from txrocket.store.log.commitlog import CommitLog, torn
from txrocket.store.queue.consumequeue import ConsumeQueue
from txrocket.store.queue.consumequeues import ConsumeQueues
from txrocket.store.queue.entry import ENTRY_SIZE

__all__ = ["Losses"]

# How many entries, all queues together, may stand for records that cannot be counted.
_MOST_SKIPPED = 1_000_000


class Losses:
    """
    The holes of a log.

    @ivar floors: how many entries each queue had at the checkpoint, if that is known.
    @ivar claims: how many entries a queue had when it was loaded, and the offset in the
        log of the last one; for queues with more entries than are sure.
    """

    _log = Logger()

    def __init__(self, log: CommitLog, queues: ConsumeQueues, holes: Holes, order: Order) -> None:
        self._commitLog = log
        self._queues = queues
        self._holes = holes
        self._order = order
        self._found: list[Hole] = []
        self.floors: dict[ConsumeQueue, int] = {}
        self.claims: dict[ConsumeQueue, tuple[int, int]] = {}
        # Where the log ends, if a clean stop has said it.
        self._final: int | None = None
        # The bytes that the last file lacked behind the last known record.
        self._cut: Gap | None = None

    def findGaps(self, gaps: list[Gap], known: int | None, clean: bool) -> None:
        """
        Find the stretches of the log whose files were missing or too short.

        @param gaps: the bytes that the files lack.
        @param known: up to where the log was on the disk, if that is known.
        @param clean: whether the last process has closed the folder.
        """
        segments = self._commitLog.segments
        self._final = known if clean else None
        for gap in gaps:
            base = segments.baseOf(gap.start)
            assert base is not None
            end = gap.end
            if gap.end == segments.end:
                # A file that is being made is empty.
                if gap.start > base:
                    self._cut = gap
                if (known or 0) <= gap.start:
                    continue
                if clean and known is not None:
                    end = min(gap.end, known)
            start = self._holes.soundEnd(base, gap.start)
            if not self._holes.isBlank(start):
                self._found.append(self._holes.between(start, end))
                self._queues.void(start, end)

    def refuseGaps(self) -> None:
        """
        Refuse a log whose files were missing or too short, because no filler may stand in the
        copy of a master's log.

        @raise StoreCorrupt: if there are such files.
        """
        if self._found:
            start, end, *_ = min(self._found)
            raise StoreCorrupt(
                f"{self._commitLog.segments.folder}: the bytes from {start} to {end} are missing, "
                "and other brokers have copies of this log.  Move the folder of the store away to "
                "have all of it copied from the master (promote a slave if this was the master), "
                "or delete config/replica.json in it to go on with the rest and without slaves"
            )

    def leave(self, end: int, known: int) -> None:
        """
        Save the bytes of a copied log behind its last sound record, and tell of them.  The
        bytes of a record that was never finished are not saved.

        @param end: where that record ends.
        @param known: up to where the log was on the disk.
        """
        segments = self._commitLog.segments
        start = self._holes.pastBlank(end)
        if start >= known and self._holes.nextSound(start) is None:
            return
        saved = self._holes.save(Hole(start, segments.end, (), segments.end - start))
        self._log.error(
            "{folder}: the log cannot be read at {start} and is cut there, because the master has "
            "the messages; {saved}",
            folder=segments.folder,
            start=start,
            saved="nothing was behind it" if saved is None else f"the bytes are in {saved}",
        )

    def passOver(self, end: int, known: int) -> int | None:
        """
        Look on past the place where no sound record follows.

        @param end: where the last one ends.
        @param known: the log does not end before it.
        @return: where the log goes on; L{None} if it ends.
        """
        hole = None if end == self._final else self._holeAt(self._holes.pastBlank(end), known)
        if hole is None:
            return None
        if hole not in self._found:
            self._found.append(hole)
        at = hole.start
        for record in hole.lost:
            # Its number is kept, if its header can be believed.
            if not record.sysFlag & TRANSACTION_PREPARED_TYPE and not torn(record, at):
                self._order.lost(record.topic, record.queueId, record.queueOffset, at)
            at += record.storeSize
        return hole.end

    def keepNumbers(self, known: int) -> bool:
        """
        Give no queue offset again that an unreadable record may have had.

        The first record of a queue behind a hole shows how many records the hole had.  If no
        record follows, the entries that the queue had before show it.  Without them, the
        queue goes on behind as many offsets as the hole may have had records.

        @param known: the queues have all entries for records before this offset.
        @return: whether there are holes, or a queue had to go on behind numbers.
        """
        self._found.sort(key=lambda hole: hole.start)
        before = self._queues.total
        queues = list(self._queues)
        most = max(_MOST_SKIPPED // max(len(queues), 1), 1)
        for topic, queueId, queue in queues:
            if queue.maxOffset < self.floors.get(queue, 0):
                # The record of its last entry may be damaged.
                self._queues.skip((topic, queueId), self.floors[queue], known)
        for hole in self._found:
            # After a clean stop the queues have entries for damaged records.
            self._queues.void(hole.start, hole.end)
            for topic, queueId, queue in queues:
                if hole.end > known and queue.lastOffset() < hole.end:
                    count = self._mostIn(hole, queue, most)
                    self._queues.skip((topic, queueId), queue.maxOffset + count, hole.start)
            self._queues.write(room=0)
        self._queues.write()
        return bool(self._found) or self._queues.total > before

    def _mostIn(self, hole: Hole, queue: ConsumeQueue, most: int) -> int:
        """
        How many records of a queue that cannot be read may be in a hole.
        """
        perFile = queue.segments.size // ENTRY_SIZE
        claimed, place = self.claims.get(queue, (0, 0))
        if hole.start <= place < hole.end and claimed - queue.maxOffset <= perFile:
            return max(claimed - queue.maxOffset, 0)
        return min(-(-hole.unknown // SMALLEST), most, perFile)

    def fill(self, timeOf: Callable[[int], int | None], timestamp: int) -> None:
        """
        Tell of the holes, and put something readable into their places.

        @param timeOf: the store time of the record at an offset.
        @param timestamp: the last store time.
        """
        for hole in self._found:
            saved = self._holes.fill(hole, max(timeOf(hole.end) or timestamp, 1))
            self._log.error(
                "{folder}: the log cannot be read from {start} to {end}, {size} bytes with at "
                "least {lost} messages; {saved}.  Sound messages behind are kept",
                folder=self._commitLog.segments.folder,
                start=hole.start,
                end=hole.end,
                size=hole.end - hole.start,
                lost=len(hole.lost) or int(hole.unknown > 0),
                saved="nothing is left of them" if saved is None else f"what is left is in {saved}",
            )
        if self._found:
            self._commitLog.segments.syncFrom(self._found[0].start)

    def _holeAt(self, offset: int, known: int) -> Hole | None:
        """
        The hole that keeps the log from going on at an offset.

        @param known: as in L{passOver}.
        """
        for hole in self._found:
            if hole.start <= offset < hole.end:
                return hole
        found = self._holes.after(offset, self._cut)
        return self._holes.between(offset, known) if found is None and offset < known else found
