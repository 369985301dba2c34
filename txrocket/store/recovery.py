# SPDX-License-Identifier: Apache-2.0
"""
Opening a folder, after a clean stop or a crash.

The log is read from where everything is known to be safe (L{CheckpointFile}), or
where only Java has been here, from where Java would begin: the third last file
after a clean stop, after a crash the last file that begins with a record older than
Java's checkpoint.  Reading ends at the first thing that is no whole record; the log
is cut there.  On the way, queues and index get what they miss.

    first            safe                  end            cut
      |---------------|---------------------|~~~~~~~~~~~~~~~|
       not read again   checked, filed again  torn or garbage
"""

from __future__ import annotations

from twisted.logger import Logger

from txrocket.errors import MalformedRecord
from txrocket.message import MessageExt
from txrocket.protocol.record import BLANK_SIZE, decodeRecord, encodeBlank, storeTimestampAt
from txrocket.store.checkpoint import Checkpoint, CheckpointFile
from txrocket.store.commitlog import CommitLog
from txrocket.store.consumequeue import ConsumeQueue, ConsumeQueues
from txrocket.store.follow import Follow
from txrocket.store.index import Index
from txrocket.store.settings import StoreSettings

__all__ = ["Recovery"]


class Recovery:
    """
    Puts right what the last process left.
    """

    _log = Logger()

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
        follow: Follow,
        checkpointFile: CheckpointFile,
        settings: StoreSettings,
    ) -> None:
        self._commitLog = log
        self._queues = queues
        self._index = index
        self._follow = follow
        self._checkpointFile = checkpointFile
        self._settings = settings

    def recover(self, *, clean: bool) -> int:
        """
        Load everything and bring it in line with the log.

        @param clean: whether the last process has closed the folder.
        @return: up to where the log is known to be on the disk.
        @raise StoreCorrupt: if files are there that cannot be.
        """
        log = self._commitLog
        log.segments.load()
        self._queues.load()
        if self._index is not None:
            self._index.load()
        checkpoint = self._checkpointFile.read()
        if not log.segments.bases:
            self._forgetAll()
            return 0
        log.end = log.written = log.segments.end
        safe = self._safeOffset(checkpoint, clean)
        start = min(safe, self._indexOffset(checkpoint, safe, clean), self._queuesOffset())
        if start < safe and not self._goesOn(start):
            # After a crash, what queues or index say may be anything.
            start = log.first
        start = max(start, log.first)
        if not clean:
            self._log.info(
                "{folder} was not closed cleanly: checking the log from {start} on",
                folder=self._settings.storePathRootDir,
                start=start,
            )
            for topic, queueId, queue in self._queues:
                self._cut(topic, queueId, queue, safe)
        end = self._replay(start)
        self._cutAt(end)
        self._queues.follow(log.first)
        self._follow.timestamp = max(self._follow.timestamp, self._lastTimestamp())
        if clean:
            return end
        # What was written before the crash may be in the system's memory only.
        log.segments.distrustFrom(safe)
        return min(safe, end)

    def _forgetAll(self) -> None:
        """
        Without a log there is nothing that queues and index could tell of.
        """
        for topic in self._queues.topics():
            self._queues.remove(topic)
        if self._index is not None:
            self._index.clear()
        self._commitLog.end = self._commitLog.written = 0

    def _safeOffset(self, checkpoint: Checkpoint, clean: bool) -> int:
        log = self._commitLog
        bases = log.segments.bases
        safe = bases[max(0, len(bases) - 3)] if clean else self._fileBefore(checkpoint)
        own = checkpoint.offset
        if own is not None and own > safe and self._isRecord(own):
            safe = own
        return safe

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

    def _indexOffset(self, checkpoint: Checkpoint, safe: int, clean: bool) -> int:
        """
        From where the index must be told of records again.
        """
        if self._index is None or clean:
            return safe
        if checkpoint.offset == safe and self._index.rewind(checkpoint.index):
            return safe
        self._index.distrust()
        return self._index.reach

    def _queuesOffset(self) -> int:
        """
        Up to where the queues know of records.  It is less than what is safe if
        somebody has deleted them, to have them made anew.
        """
        offset, size = self._lastEntry()
        return offset + size

    def _lastEntry(self) -> tuple[int, int]:
        last = 0, 0
        for _, _, queue in self._queues:
            entry = queue.entry(queue.maxOffset - 1) if queue.maxOffset else None
            if entry is not None:
                last = max(last, entry[:2])
        return last

    def _lastTimestamp(self) -> int:
        """
        When the last record was stored that the queues know of: after a clean
        stop no record is read, but times must not go back.
        """
        record = self._recordAt(self._lastEntry()[0])
        return record.storeTimestamp if record is not None else 0

    def _cut(self, topic: str, queueId: int, queue: ConsumeQueue, bound: int) -> None:
        def confirm(offset: int, queueOffset: int) -> bool:
            record = self._recordAt(offset)
            return (
                record is not None
                and (record.topic, record.queueId) == (topic, queueId)
                and record.queueOffset == queueOffset
            )

        queue.cut(bound, confirm)

    def _recordAt(self, offset: int) -> MessageExt | None:
        segments = self._commitLog.segments
        size = int.from_bytes(segments.read(offset, 4), "big", signed=True)
        if not 0 < size <= segments.size:
            return None
        try:
            return decodeRecord(segments.read(offset, size), readBody=False)
        except MalformedRecord:
            return None

    def _replay(self, start: int) -> int:
        """
        File the records from an offset on.

        @return: where the last one ends.
        """
        end = start
        strict = self._settings.checkCRCOnRecover
        for count, scanned in enumerate(self._commitLog.scan(start, strict=strict)):
            self._follow.file(scanned.record)
            end = scanned.offset + scanned.size
            if count % 4096 == 4095:
                self._queues.write()
        self._queues.write()
        return end

    def _cutAt(self, end: int) -> None:
        log = self._commitLog
        log.segments.clearFrom(end)
        log.end = log.written = self._follow.position = end
        for topic, queueId, queue in self._queues:
            entry = queue.entry(queue.maxOffset - 1) if queue.maxOffset else None
            if entry is not None and entry[0] >= end:
                self._cut(topic, queueId, queue, end)
        if self._index is not None:
            self._index.cut(end)
