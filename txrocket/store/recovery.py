# SPDX-License-Identifier: Apache-2.0
"""
Opening a folder, after a clean stop or a crash.

The log is read from where everything is known to be safe (L{CheckpointFile}), or
where only Java has been here, from where Java would begin: the third last file
after a clean stop, after a crash the last file that begins with a record older than
Java's checkpoint.  Queues and index get their missing entries on the way.  Reading passes over
damaged stretches (L{Holes}), and ends where no sound record follows; the log is cut there.

    first            safe                           end            cut
      |---------------|-----------|#######|----------|~~~~~~~~~~~~~~~|
       not read again  entered again hole  entered again torn or garbage

After a crash all that is kept behind C{safe} is written again before it is synced: if a
sync has failed, the system shows bytes that are not on the disk, and takes them for
written.
"""

from __future__ import annotations

from twisted.logger import Logger

from txrocket.errors import MalformedRecord
from txrocket.protocol.record import (
    BLANK_SIZE,
    encodeBlank,
    storeTimestampAt,
)
from txrocket.store.damage.holes import Holes
from txrocket.store.damage.losses import Losses
from txrocket.store.damage.queueorder import Order
from txrocket.store.dispatch import TIMED_TOPICS, Dispatcher
from txrocket.store.files.handles import Handles
from txrocket.store.files.syncjob import SyncJob
from txrocket.store.flush.checkpoint import Checkpoint, CheckpointFile
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.queue.consumequeue import ConsumeQueue
from txrocket.store.queue.queueend import Confirm
from txrocket.store.settings import StoreSettings

__all__ = ["Recovery"]


class Recovery:
    """
    Brings log, queues and index in line with each other.
    """

    _log = Logger()

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        checkpointFile: CheckpointFile,
        settings: StoreSettings,
        handles: Handles,
    ) -> None:
        self._handles = handles
        self._queues = dispatcher.queues
        self._index = dispatcher.index
        self._holes = Holes(log, handles.files, settings.storePathRootDir)
        self._commitLog = log
        self._dispatcher = dispatcher
        self._checkpointFile = checkpointFile
        self._settings = settings
        self.forget()

    def forget(self) -> None:
        """
        Forget the holes that L{recover} has found, before it is called again.
        """
        self._order = Order(self._queues)
        self._losses = Losses(self._commitLog, self._queues, self._holes, self._order)

    def recover(self, *, clean: bool, follower: bool = False) -> int:
        """
        Load everything and bring it in line with the log.

        @param clean: whether the last process has closed the folder.
        @param follower: whether the log is the copy of a master's.  Then nothing takes the
            place of damaged records: the log ends before them, and the master has them.
        @return: where the log ends; up to there it is on the disk.
        @raise StoreCorrupt: if files are there that cannot be.
        """
        log = self._commitLog
        gaps = log.segments.load()
        self._queues.load()
        if self._index is not None:
            self._index.load()
        checkpoint = self._checkpointFile.read()
        if not clean and checkpoint.offset is not None:
            # A process that was killed while it cut the log may not have synced it, and the
            # one on the disk tells of what was cut off.
            self._writeSynced(checkpoint)
        self._dispatcher.timestamp = checkpoint.timestamp
        if not log.segments.bases:
            self._forgetAll()
            if follower:
                # A process that was killed may have moved the files, and not synced.
                self._handles.files.syncFolder(log.segments.folder)
                self._handles.files.syncFolder(self._settings.storePathRootDir)
            return 0
        known = checkpoint.offset if checkpoint.ours else None
        while known is not None and log.segments.end < known:
            gaps.append(log.segments.restore())
        # If the log goes on behind the checkpoint of a clean stop, a crash came after it.
        clean = clean and (known is None or self._isLast(checkpoint))
        log.end = log.written = log.segments.end
        self._losses.findGaps(gaps, known, clean)
        if follower:
            self._losses.refuseGaps()
        safe = self._safeOffset(checkpoint, clean)
        start = self._start(checkpoint, safe, clean)
        replay = self._replayCopy if follower else self._replay
        end = replay(start, known or 0)
        self._cutAt(end)
        if not clean:
            # Kept records may be in the system's memory only.  Parts of the records that
            # were cut must not come back among new records.
            log.segments.rewrite(min(safe, end), end)
            log.segments.syncFrom(min(safe, end))
        self._queues.follow(log.first)
        if not follower and self._losses.keepNumbers(known or 0):
            self._vouch(end)
            self._losses.fill(self._timeOf, self._dispatcher.timestamp)
        return end

    def _writeSynced(self, checkpoint: Checkpoint) -> None:
        self._checkpointFile.write(checkpoint)
        self._checkpointFile.sync()

    def _start(self, checkpoint: Checkpoint, safe: int, clean: bool) -> int:
        """
        Bring queues and index to where they are sure.

        @return: from where on the records must be entered again.
        """
        log = self._commitLog
        ends = self._queueEnds(log.segments.end if clean else safe, checkpoint.offset is not None)
        told = self._isLast(checkpoint) if clean else checkpoint.ours and checkpoint.offset == safe
        if told and sum(queue.searched for queue in ends) == checkpoint.entries:
            self._losses.floors = {queue: queue.searched for queue in ends}
        start = self._missing(checkpoint, safe, ends, told, clean)
        rewound = self._index is None or self._rewound(checkpoint, safe, clean)
        if self._index is not None and not rewound:
            start = min(start, self._index.distrust(checkpoint.indexTimestamp))
        if start < safe or not rewound or (checkpoint.offset or 0) > safe:
            # Its entries are going to be made anew, and may get lost meanwhile.
            time = self._timeOf(start) or 0
            self._writeSynced(Checkpoint(time, time, time))
        for queue, queueEnd in ends.items():
            if not clean and queue.maxOffset > queueEnd:
                self._losses.claims[queue] = queue.maxOffset, queue.lastOffset()
            queue.endAt(queueEnd, doubt=not clean)
        start = self._recordBefore(start) if start < safe else start
        if not clean:
            self._log.info(
                "{folder} was not closed cleanly: checking the log from {start} on",
                folder=self._settings.storePathRootDir,
                start=start,
            )
        return start

    def _vouch(self, end: int) -> None:
        """
        Write a checkpoint: a second start must not have to find out again which numbers
        were lost.  Blocks.
        """
        self._commitLog.segments.syncFrom(0)
        job, second = SyncJob(self._handles), SyncJob(self._handles)
        mark = self._index.seal(job) if self._index else None
        self._queues.sync(job)
        job.run()
        if self._index:
            self._index.settle(second)
            second.run()
        time = self._dispatcher.timestamp
        self._writeSynced(Checkpoint(time, time, time, end, mark, time, self._queues.total))

    def _forgetAll(self) -> None:
        """
        Without a log there is nothing that queues and index could tell of.
        """
        for topic in self._queues.topics():
            self._queues.remove(topic)
        if self._index is not None:
            self._index.clear()
        self._commitLog.end = self._commitLog.written = self._dispatcher.position = 0

    def _safeOffset(self, checkpoint: Checkpoint, clean: bool) -> int:
        """
        Up to where log and queues are known to be safe.

        Our own offset is, wherever there is one; if Java has worked here since
        it is early, which after a clean stop only costs time.  Then Java may
        also have cut the log before it, and that must not be taken for a record
        that was torn.
        """
        bases = self._commitLog.segments.bases
        own = checkpoint.offset
        if own is not None and (checkpoint.ours or self._isRecord(own)):
            own = min(max(own, self._commitLog.first), self._commitLog.segments.end)
            return max(own, bases[max(0, len(bases) - 3)]) if clean else own
        return bases[max(0, len(bases) - 3)] if clean else self._fileBefore(checkpoint)

    def _isRecord(self, offset: int) -> bool:
        """
        Whether the log can go on at an offset: there is a record, a blank, or
        nothing yet.
        """
        log = self._commitLog
        if not log.first <= offset < log.segments.end:
            return offset == log.segments.end
        return not any(log.segments.read(offset, BLANK_SIZE)) or self._goesOn(offset)

    def _goesOn(self, offset: int) -> bool:
        """
        Whether there is a record or a blank at an offset of the log.
        """
        log = self._commitLog
        if log.segments.read(offset, BLANK_SIZE)[4:] == encodeBlank(0)[4:]:
            return True
        return next(log.scan(offset, strict=False), None) is not None

    def _recordBefore(self, offset: int) -> int:
        """
        An offset that was read somewhere, if a record is there; or else where
        the file begins that it is in.
        """
        log = self._commitLog
        if offset <= log.first:
            return log.first
        if next(log.scan(offset, strict=False), None) is not None:
            return offset
        base = log.segments.baseOf(offset)
        return log.first if base is None else base

    def _isLast(self, checkpoint: Checkpoint) -> bool:
        """
        Whether nothing has been stored since a checkpoint.
        """
        segments = self._commitLog.segments
        own = checkpoint.offset
        return own is not None and not any(segments.read(own, 8))

    def _fileBefore(self, checkpoint: Checkpoint) -> int:
        bases = self._commitLog.segments.bases
        for base in reversed(bases):
            try:
                data = self._commitLog.segments.read(base, self._settings.maxMessageSize + 65536)
                timestamp = storeTimestampAt(data)
            except MalformedRecord:
                continue
            if 0 < timestamp <= checkpoint.safeTimestamp:
                return base
        return bases[0]

    def _rewound(self, checkpoint: Checkpoint, safe: int, clean: bool) -> bool:
        """
        Bring the index to where it was at the checkpoint, if that can be.
        """
        assert self._index is not None
        if clean and not self._isLast(checkpoint):
            return True
        return checkpoint.offset == safe and self._index.rewind(
            checkpoint.index, self._timeOf, doubt=not clean
        )

    def _queueEnds(self, bound: int, ours: bool) -> dict[ConsumeQueue, int]:
        return {
            queue: queue.sureEnd(bound, self._confirm(topic, queueId, ours))
            for topic, queueId, queue in self._queues
        }

    def _missing(
        self,
        checkpoint: Checkpoint,
        safe: int,
        ends: dict[ConsumeQueue, int],
        told: bool,
        clean: bool,
    ) -> int:
        """
        The offset from which on records must be entered again.  It is before the safe
        offset if queues are damaged, or were deleted to be made anew.

        @param told: whether the checkpoint has the number of entries.
        """
        if told and not self._losses.floors:
            self._log.warn(
                "{folder}: entries of queues are missing, and are made anew from the whole log",
                folder=self._settings.storePathRootDir,
            )
            return 0
        damaged = [
            queue.reach(end)
            for queue, end in ends.items()
            if end < (queue.maxOffset if clean else self._losses.floors.get(queue, 0))
        ]
        reach = max((queue.reach(end) for queue, end in ends.items()), default=0)
        return min([safe, reach, *damaged])

    def _confirm(self, topic: str, queueId: int, ours: bool) -> Confirm:
        def confirm(queueOffset: int, offset: int, size: int, hashed: int) -> bool:
            if 0 <= offset < self._commitLog.first:
                # Deleted: only records whose entries are safe ever are.
                return True
            found = self._commitLog.recordAt(offset)
            if found is None:
                return False
            record = found[1]
            return (
                (record.topic, record.queueId) == (topic, queueId)
                and (record.queueOffset, record.storeSize) == (queueOffset, size)
                # A delay may have been configured anew, and Java knows of no other
                # times; it may also keep more than a hash, in a file of its own, and
                # the place in that file here.
                and (not ours or topic in TIMED_TOPICS or self._dispatcher.hash(record) == hashed)
            )

        return confirm

    def _timeOf(self, offset: int) -> int | None:
        found = self._commitLog.recordAt(offset)
        return None if found is None else found[1].storeTimestamp

    def _replay(self, start: int, known: int) -> int:
        """
        Enter the records from an offset on in queues and index, past damaged stretches.

        @param known: the log does not end before it.
        @return: where the log ends.
        """
        end = start
        while True:
            end = self._enter(end, self._settings.checkCRCOnRecover)
            following = self._losses.passOver(end, known)
            if following is None:
                break
            end = following
        self._order.settle()
        self._queues.write()
        return end

    def _replayCopy(self, start: int, known: int) -> int:
        """
        Enter the records from an offset on in queues and index, up to the first damaged one.

        @param known: up to where the log was on the disk.
        @return: where the log ends.
        """
        # Of the last record a part may be still to come, which reads as zeros.
        end = self._enter(start, strict=True)
        self._order.settle()
        self._queues.write()
        segments = self._commitLog.segments
        room = segments.size - end % segments.size
        if segments.read(end, BLANK_SIZE) == encodeBlank(room):
            # The next file is still to come, and the pad is of no use.
            end += room
        self._losses.leave(end, known)
        if end < known:
            # It tells of records that are going to be cut.
            self._writeSynced(Checkpoint())
        return end

    def _enter(self, start: int, strict: bool) -> int:
        """
        Enter the records from an offset on in queues and index, up to the first that is not
        sound.

        @return: where the last one ends.
        """
        end = start
        for offset, data in self._commitLog.scan(start, strict=strict):
            self._dispatcher.enter(offset, data, self._order.put)
            self._queues.write(room=0)
            end = offset + len(data)
        return end

    def _cutAt(self, end: int) -> None:
        log = self._commitLog
        log.segments.clearFrom(end)
        log.end = log.written = self._dispatcher.position = end
        for topic, queueId, queue in self._queues:
            if queue.reach(queue.maxOffset) > end:
                confirm = self._confirm(topic, queueId, ours=False)
                queue.endAt(queue.sureEnd(end, confirm), doubt=True)
        if self._index is not None:
            self._index.cut(end, self._timeOf)
