# SPDX-License-Identifier: Apache-2.0
"""
The store as its users see it: put, get, look up.

A message that was put is not stored yet.  It is once L{MessageStore.stored} says
so: in the files with ASYNC_FLUSH, on the disk with SYNC_FLUSH.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from txrocket.errors import (
    DiskFull,
    FlushDiskTimeout,
    MalformedRecord,
    StoreError,
    StoreFailed,
    StoreInUse,
)
from txrocket.message import MessageExt
from txrocket.protocol.batch import batchRecords
from txrocket.protocol.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    decodeRecord,
    encodeRecord,
    encodeTopic,
    storeTimestampAt,
)
from txrocket.store.checkpoint import CheckpointFile
from txrocket.store.commitlog import CommitLog
from txrocket.store.consumequeue import ENTRY_SIZE, ConsumeQueue, ConsumeQueues, entries
from txrocket.store.deadlines import Deadlines
from txrocket.store.files import Files, Handles, Locked, SyncFailed
from txrocket.store.flush import PAGE, Checkpointer, Flusher, InThread
from txrocket.store.follow import Arrived, Follow
from txrocket.store.index import Index
from txrocket.store.recovery import Recovery
from txrocket.store.retention import Retention
from txrocket.store.settings import FlushDiskType, StoreSettings, delayLevels
from txrocket.store.watermark import Watermark

__all__ = ["Appended", "GetStatus", "Got", "MessageStore"]

_DAY = 86_400_000

# Entries that are looked at for one pull at most, as in Java (16,000 bytes).
_MOST_ENTRIES = 800


class Appended(NamedTuple):
    """
    Where a message went.

    @ivar end: what L{MessageStore.stored} waits for.
    """

    offset: int
    sizes: tuple[int, ...]
    queueOffset: int
    storeTimestamp: int
    end: int


class GetStatus(Enum):
    """
    What became of a pull; Java's C{GetMessageStatus}.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class Got(msgspec.Struct, frozen=True, gc=False):
    """
    What a pull gives.

    @ivar data: the records as they are in the log, one after the other.
    @ivar fromDisk: whether they are so old that a slave had better serve them.
    """

    status: GetStatus
    nextOffset: int
    minOffset: int
    maxOffset: int
    data: bytes = b""
    count: int = 0
    fromDisk: bool = False


_appended = tuple.__new__
_topicField = lru_cache(maxsize=4096)(encodeTopic)


class MessageStore:
    """
    The store in one folder.

    @ivar written: how far the log is in the files.
    @ivar failure: why no write is accepted any more, or L{None}.
    """

    _log = Logger()

    def __init__(
        self,
        settings: StoreSettings,
        clock: IReactorTime,
        inThread: InThread,
        storeHost: bytes,
        arrived: Arrived = lambda topic, queueId, queueOffset, hashed, record: None,
        files: Files | None = None,
        memory: int | None = None,
    ) -> None:
        """
        @param inThread: runs a function that blocks, in the order of the calls.
        @param storeHost: the broker's address, as records hold it.
        @param arrived: told of every message that has come to a queue.
        @param memory: the machine's, in bytes: it decides what counts as old.
        """
        self.settings = settings
        self._clock = clock
        self._storeHost = storeHost
        self._files = files or Files()
        self._handles = handles = Handles(self._files, settings.openFiles)
        root = settings.storePathRootDir
        self._abortPath = os.path.join(root, "abort")
        self.log = CommitLog(
            handles,
            os.path.join(root, "commitlog"),
            settings.mappedFileSizeCommitLog,
            settings.maxMessageSize,
            self._wrote,
        )
        self.queues = ConsumeQueues(
            handles, os.path.join(root, "consumequeue"), settings.mappedFileSizeConsumeQueue
        )
        self.index = (
            Index(
                handles,
                os.path.join(root, "index"),
                settings.maxHashSlotNum,
                settings.maxIndexNum,
                self._now,
            )
            if settings.messageIndexEnable
            else None
        )
        self.follow = Follow(
            self.queues, self.index, delayLevels(settings.messageDelayLevel), arrived
        )
        self.flusher = Flusher(self.log, handles, inThread, self._fail)
        checkpointFile = CheckpointFile(handles, os.path.join(root, "checkpoint"))
        self.checkpointer = Checkpointer(
            self.flusher,
            self.follow,
            self.queues,
            self.index,
            checkpointFile,
            handles,
            inThread,
            self._fail,
        )
        self.retention = Retention(
            settings,
            self._files,
            self.log,
            self.queues,
            self.index,
            self._now,
            lambda: self.checkpointer.last.offset or 0,
        )
        self._recovery = Recovery(
            self.log, self.queues, self.index, self.follow, checkpointFile, settings
        )
        self.written = Watermark()
        self._deadlines = Deadlines(
            clock,
            settings.syncFlushTimeout / 1000,
            lambda after: FlushDiskTimeout(f"not known to be on disk after {after:g} s"),
        )
        self.failure: StoreFailed | None = None
        self._next: dict[tuple[str, int], int] = {}
        self._unwritten: dict[tuple[str, int], int] = {}
        self._writing: IDelayedCall | None = None
        self._lastTimestamp = 0
        self._lastFlush = 0.0
        self._lastCheckpoint = 0.0
        self._loops: list[LoopingCall] = []
        self._unlock: Callable[[], None] | None = None
        self._stopping = False
        total = memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._near = total * settings.accessMessageInMemoryMaxRatio // 100

    # --- start and stop --------------------------------------------------

    def start(self) -> None:
        """
        Open the folder, put right what a crash left, and begin to work.

        @raise StoreInUse: if another process works on it.
        @raise DiskFull: if there is no room to put it right.
        @raise StoreFailed: if the disk fails.
        @raise StoreCorrupt: if it cannot be opened without losing data.
        """
        root = self.settings.storePathRootDir
        try:
            self._open(root)
        except Locked:
            raise StoreInUse(f"{root} is in use by another process") from None
        except OSError as error:
            self._release()
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if full and not isinstance(error, SyncFailed):
                free = self._files.space(os.path.dirname(root) or ".")[1]
                raise DiskFull(f"{root}: {error}, {free} bytes are free") from error
            raise StoreFailed(f"opening {root} failed: {error}") from error
        except BaseException:
            self._release()
            raise
        settings = self.settings
        self._lastFlush = self._lastCheckpoint = self._clock.seconds()
        self._loop(settings.flushIntervalCommitLog, self._flushNow)
        self._loop(settings.flushIntervalConsumeQueue, self._checkpointNow)
        self._loop(settings.cleanResourceInterval, self.retention.clean)

    def _open(self, root: str) -> None:
        self._files.makeFolder(root)
        if self._files.size(self._abortPath) is None:
            self._syncAbove(root)
        self._unlock = self._files.lock(os.path.join(root, "lock"))
        clean = self._files.size(self._abortPath) is None
        # Before anything is changed, for that may be interrupted as well.
        self._mark()
        self.flusher.flushed.advance(self._recovery.recover(clean=clean))
        self.checkpointer.resume()
        for topic, queueId, queue in self.queues:
            self._next[topic, queueId] = queue.maxOffset
        # A damaged record's time is not followed into the far future.
        if self.follow.timestamp <= self._now() + _DAY:
            self._lastTimestamp = self.follow.timestamp
        self.written.advance(self.log.written)

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], None, None]:
        """
        Bring everything to the disk and close the folder.
        """
        root = self.settings.storePathRootDir
        if self._stopping or self._unlock is None:
            return
        self._stopping = True
        for loop in self._loops:
            if loop.running:
                loop.stop()
        self._loops.clear()
        try:
            self.write()
            if self.failure is not None:
                raise self.failure
            self.failure = StoreFailed(f"{root} is closed")
            self.follow.catchUp(self.log)
            yield self.checkpointer.checkpoint()
            self._files.remove(self._abortPath)
            self._files.syncFolder(root)
        except (StoreError, OSError) as error:
            self._log.error(
                "{folder} was not closed cleanly, the next start will check it: {error}",
                folder=root,
                error=error,
            )
        finally:
            self._release()

    # --- putting ---------------------------------------------------------

    def put(
        self,
        topic: str,
        queueId: int,
        body: bytes,
        properties: bytes,
        *,
        bornTimestamp: int,
        bornHost: bytes,
        flag: int = 0,
        sysFlag: int = 0,
        reconsumeTimes: int = 0,
        preparedTransactionOffset: int = 0,
    ) -> Appended:
        """
        Add a message to the log.

        @param properties: as they stand in a record.
        @raise InvalidMessage: if it cannot be stored.
        @raise StoreError: if the store takes no messages now.
        """
        self._mayWrite()
        field = _topicField(topic)
        # What a record has beside hosts, body, topic and properties.
        fixed = 74 + len(bornHost) + len(self._storeHost)
        offset = self._reserve(fixed + len(body) + len(field) + len(properties), len(body))
        state = sysFlag & TRANSACTION_ROLLBACK_TYPE
        queued = state in (TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE)
        key = topic, queueId
        queueOffset = self._next.get(key, 0) if queued else 0
        timestamp = self._timestamp()
        record = encodeRecord(
            field,
            body,
            properties,
            queueId,
            flag,
            queueOffset,
            offset,
            sysFlag,
            bornTimestamp,
            bornHost,
            timestamp,
            self._storeHost,
            reconsumeTimes,
            preparedTransactionOffset,
        )
        self._add(record, key, queueOffset, 1 if queued else 0)
        size = len(record)
        # Half the price of calling the class.
        return _appended(Appended, (offset, (size,), queueOffset, timestamp, offset + size))

    def putBatch(
        self,
        topic: str,
        queueId: int,
        batch: bytes,
        properties: bytes,
        *,
        bornTimestamp: int,
        bornHost: bytes,
        sysFlag: int = 0,
        reconsumeTimes: int = 0,
    ) -> Appended:
        """
        Add several messages, given in the client's form, one after the other.

        @raise InvalidMessage: if one cannot be stored; then none is.
        @raise MalformedRecord: if the batch is none.
        @raise StoreError: if the store takes no messages now.
        """
        self._mayWrite()
        key = topic, queueId
        queueOffset = self._next.get(key, 0)
        timestamp = self._timestamp()

        def at(offset: int) -> tuple[bytes, list[int]]:
            return batchRecords(
                batch,
                _topicField(topic),
                properties,
                queueId,
                queueOffset,
                offset,
                sysFlag,
                bornTimestamp,
                bornHost,
                timestamp,
                self._storeHost,
                reconsumeTimes,
            )

        start = self.log.end
        records, sizes = at(start)
        offset = self._reserve(len(records), len(batch))
        if offset != start:
            # It goes to a new file: the records tell where they are.
            records, sizes = at(offset)
        self._add(records, key, queueOffset, len(sizes))
        return Appended(offset, tuple(sizes), queueOffset, timestamp, offset + len(records))

    def write(self) -> None:
        """
        Bring what was put into the files.  It is done by itself when the
        reactor turns; who cannot wait for that calls this.

        @raise StoreError: if that fails: what was put is forgotten.
        """
        if self._writing is not None:
            if self._writing.active():
                self._writing.cancel()
            self._writing = None
        try:
            if self.failure is not None and self.log.end > self.log.written:
                self.log.drop()
                raise self.failure
            self.log.write()
        except StoreError as error:
            self._dropped(error)
            raise
        self._unwritten.clear()
        self.written.advance(self.log.written)
        if self.flusher.flushed.waiting:
            self._flushForWaiting()

    def stored(self, end: int) -> Deferred[None]:
        """
        A Deferred that fires once the message that ends there is as safe as
        C{flushDiskType} promises.  It fails with L{FlushDiskTimeout} if that
        takes longer than C{syncFlushTimeout}, and with L{StoreError} if the
        message is lost.
        """
        if self.settings.flushDiskType is FlushDiskType.ASYNC_FLUSH:
            return self.written.reaches(end)
        flushed = self.flusher.flushed.reaches(end)
        if not flushed.called:
            self._deadlines.watch(flushed)
            if end <= self.log.written:
                self._flushForWaiting()
        return flushed

    def _flushForWaiting(self) -> None:
        # One under way goes on for whoever waits: the many need not each ask for it.
        if not self.flusher.running:
            self._flush()

    # --- getting ---------------------------------------------------------

    def get(
        self,
        topic: str,
        queueId: int,
        offset: int,
        most: int,
        matches: Callable[[int], bool] | None = None,
        accepts: Callable[[MessageExt], bool] | None = None,
    ) -> Got:
        """
        Messages of a queue from an offset on.

        @param matches: whether a message is wanted, by the hash of its tag.
        @param accepts: whether it is, by all of it but its body.
        @raise StoreError: if the disk does not give them.
        """
        queue = self.queues.get(topic, queueId)
        if queue is None:
            return Got(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.minOffset, queue.maxOffset
        if high == 0:
            return Got(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return Got(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return Got(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return Got(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        data = queue.read(offset, max(_MOST_ENTRIES, most))
        if not data:
            perFile = self.settings.mappedFileSizeConsumeQueue // ENTRY_SIZE
            nextFile = offset + perFile - offset % perFile
            return Got(GetStatus.OFFSET_FOUND_NULL, nextFile, low, high)
        return self._collect(data, offset, most, matches, accepts, low, high)

    def _collect(
        self,
        data: bytes,
        offset: int,
        most: int,
        matches: Callable[[int], bool] | None,
        accepts: Callable[[MessageExt], bool] | None,
        low: int,
        high: int,
    ) -> Got:
        settings = self.settings
        first, end = self.log.first, self.log.written
        pieces: list[bytes] = []
        # Records that lie one behind the other are read at once.
        start = stop = size = count = looked = 0
        removed = fromDisk = False
        for recordOffset, recordSize, hashed in entries(data):
            fromDisk = end - recordOffset > self._near
            if count:
                if fromDisk:
                    mostBytes = settings.maxTransferBytesOnMessageInDisk
                    mostCount = settings.maxTransferCountOnMessageInDisk
                else:
                    mostBytes = settings.maxTransferBytesOnMessageInMemory
                    mostCount = settings.maxTransferCountOnMessageInMemory
                if count >= most or size + recordSize > mostBytes or count >= mostCount:
                    break
            looked += 1
            if matches is not None and not matches(hashed):
                continue
            # A filler is as long as no record, and ends behind the log.
            if recordOffset < first or recordOffset + recordSize > end:
                removed = True
                continue
            if accepts is not None and not self._accepted(accepts, recordOffset, recordSize):
                continue
            if recordOffset != stop:
                if stop > start:
                    pieces.append(self.log.read(start, stop - start))
                start = recordOffset
            stop = recordOffset + recordSize
            size += recordSize
            count += 1
        if stop > start:
            pieces.append(self.log.read(start, stop - start))
        if count:
            status = GetStatus.FOUND
        else:
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
        return Got(status, offset + looked, low, high, b"".join(pieces), count, fromDisk)

    def _accepted(self, accepts: Callable[[MessageExt], bool], offset: int, size: int) -> bool:
        return accepts(decodeRecord(self.log.read(offset, size), readBody=False))

    def messageAt(self, offset: int) -> bytes | None:
        """
        The record at an offset of the log, if there is one.
        """
        if not self.log.first <= offset < self.log.written:
            return None
        size = int.from_bytes(self.log.read(offset, 4), "big", signed=True)
        data = self.log.read(offset, size) if size > 0 else b""
        try:
            record = decodeRecord(data, readBody=False)
        except MalformedRecord:
            return None
        return data if record.commitLogOffset == offset else None

    def query(
        self, topic: str, key: str, begin: int, end: int, most: int
    ) -> tuple[list[bytes], int, int]:
        """
        Records that may have a key or unique id, stored between two times, the
        newest first; and the time and offset up to which the index reaches.

        The index knows hashes only: the caller looks at the keys.

        @raise StoreError: if the disk does not give them.
        """
        if self.index is None:
            return [], 0, 0
        most = min(most, self.settings.maxMsgsNumBatch)
        try:
            queried = self.index.query(topic, key, begin, end, most)
        except OSError as error:
            raise StoreError(f"reading the index failed: {error}") from error
        found = [self.messageAt(each) for each in dict.fromkeys(queried.offsets)]
        return [each for each in found if each], queried.lastTimestamp, queried.lastOffset

    # --- offsets and times -----------------------------------------------

    def minOffset(self, topic: str, queueId: int) -> int:
        """
        The queue offset of the first message in a queue.
        """
        queue = self.queues.get(topic, queueId)
        return queue.minOffset if queue else 0

    def maxOffset(self, topic: str, queueId: int) -> int:
        """
        One past the queue offset of the last message in a queue.
        """
        queue = self.queues.get(topic, queueId)
        return queue.maxOffset if queue else 0

    def storeTimestamp(self, topic: str, queueId: int, queueOffset: int) -> int | None:
        """
        When a message was stored, if it is there.
        """
        queue = self.queues.get(topic, queueId)
        return self._timestampOf(queue, queueOffset) if queue else None

    def earliestTimestamp(self, topic: str, queueId: int) -> int | None:
        """
        When the first message of a queue was stored.
        """
        return self.storeTimestamp(topic, queueId, self.minOffset(topic, queueId))

    def offsetByTime(self, topic: str, queueId: int, timestamp: int) -> int:
        """
        The queue offset of the first message that was stored at a time, or else
        of the one stored nearest to it; 0 if there is none.
        """
        queue = self.queues.get(topic, queueId)
        if queue is None or queue.minOffset == queue.maxOffset:
            return 0
        low, high = queue.minOffset, queue.maxOffset
        while low < high:
            middle = (low + high) // 2
            found = self._timestampOf(queue, middle)
            if found is None or found < timestamp:
                low = middle + 1
            else:
                high = middle
        after = self._timestampOf(queue, low) if low < queue.maxOffset else None
        before = self._timestampOf(queue, low - 1) if low > queue.minOffset else None
        if after is None:
            return max(low - 1, queue.minOffset)
        if before is None or after == timestamp:
            return low
        return low - 1 if timestamp - before <= after - timestamp else low

    def _timestampOf(self, queue: ConsumeQueue, queueOffset: int) -> int | None:
        entry = queue.entry(queueOffset)
        if entry is None or entry[0] < self.log.first:
            return None
        try:
            return storeTimestampAt(self.log.read(entry[0], entry[1]))
        except MalformedRecord:
            return None

    def removeTopic(self, topic: str) -> None:
        """
        Forget a topic's queues; its records stay in the log until they are old.

        If it is made again, its queues go on counting, where Java's begin at 0:
        should the log be read again after a crash, older records come before
        newer ones, and none takes another's place.
        """
        self.queues.remove(topic)

    # --- inside ----------------------------------------------------------

    def _now(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _timestamp(self) -> int:
        # A clock that is set back must not upset searches by time.
        now = int(self._clock.seconds() * 1000)
        if now > self._lastTimestamp:
            self._lastTimestamp = now
        return self._lastTimestamp

    def _mayWrite(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.retention.full is not None:
            raise self.retention.full

    def _reserve(self, size: int, bodySize: int) -> int:
        written = self.log.written
        try:
            offset = self.log.reserve(size, bodySize)
        except StoreError as error:
            if isinstance(error, StoreFailed):
                self._fail(error)
            if self.log.end == self.log.written:
                self._dropped(error)
            raise
        if self.log.written != written:
            # What was put before went to the file that is full now, and stays.
            self._unwritten.clear()
        return offset

    def _add(self, data: bytes, key: tuple[str, int], queueOffset: int, count: int) -> None:
        self.log.add(data)
        if count:
            self._unwritten.setdefault(key, queueOffset)
            self._next[key] = queueOffset + count
        if self._writing is None:
            self._writing = self._clock.callLater(0, self._writeLater)

    def _writeLater(self) -> None:
        self._writing = None
        try:
            self.write()
        except DiskFull:
            # Those who wait have been told.
            pass
        except StoreFailed as error:
            self._log.error("{error}", error=error)

    def _wrote(self, offset: int, data: bytes) -> None:
        try:
            self.follow.feed(offset, data)
        except (OSError, StoreError) as error:
            self._syncFailed(error)
            self._log.error("The queues fall behind the log, which is kept: {error}", error=error)

    def _dropped(self, error: StoreError) -> None:
        """
        What was put and not written is lost, and those who wait must know.
        """
        self._next |= self._unwritten
        self._unwritten.clear()
        if isinstance(error, StoreFailed):
            self._fail(error)
        self.written.advance(self.log.written)
        self.written.disappoint(error)
        self.flusher.flushed.disappoint(error, self.log.written)
        # Those before it may have been written, and still wait for the disk.
        if self.flusher.flushed.waiting:
            self._flushForWaiting()

    def _fail(self, error: StoreFailed) -> None:
        if self.failure is None:
            self.failure = error
            self._log.critical("{error}", error=error)
            self.written.fail(error)

    def _syncFailed(self, error: Exception) -> None:
        if isinstance(error, SyncFailed):
            root = self.settings.storePathRootDir
            self._fail(StoreFailed(f"syncing {root} failed: {error}; start the store anew"))

    def _flush(self) -> None:
        self._lastFlush = self._clock.seconds()
        # The flusher has said it already.
        self.flusher.flush().addErrback(lambda failure: failure.trap(StoreFailed) and None)

    def _flushNow(self) -> None:
        settings = self.settings
        unflushed = self.log.written - self.flusher.flushed.offset
        thorough = settings.flushCommitLogThoroughInterval / 1000
        if unflushed >= settings.flushCommitLogLeastPages * PAGE or (
            unflushed and self._clock.seconds() - self._lastFlush >= thorough
        ):
            self._flush()

    def _checkpointNow(self) -> None:
        settings = self.settings
        if self.follow.position < self.log.written:
            try:
                self.follow.catchUp(self.log)
            except (OSError, StoreError) as error:
                self._syncFailed(error)
                self._log.error(
                    "The queues are still behind the log, which is kept: {error}", error=error
                )
                return
        if self.checkpointer.running or self.failure is not None:
            return
        behind = self.follow.position - (self.checkpointer.last.offset or 0)
        thorough = settings.flushConsumeQueueThoroughInterval / 1000
        now = self._clock.seconds()
        if behind >= settings.flushConsumeQueueLeastPages * PAGE or (
            behind and now - self._lastCheckpoint >= thorough
        ):
            self._lastCheckpoint = now
            self.checkpointer.checkpoint().addErrback(self._notChecked)

    def _notChecked(self, failure: Any) -> None:
        failure.trap(StoreError, OSError)
        if isinstance(failure.value, StoreFailed):
            self._fail(failure.value)
            return
        self._log.error(
            "No checkpoint could be written, so the next start will take longer: {error}",
            error=failure.value,
        )

    def _syncAbove(self, path: str) -> None:
        """
        Sync a folder's name: who made it may have ended before doing so.
        """
        above = os.path.dirname(os.path.abspath(path))
        # Others' folders need not be readable, nor know of syncs; they are old then.
        with suppress(OSError):
            self._files.syncFolder(above)
        if above != os.path.dirname(above):
            self._syncAbove(above)

    def _mark(self) -> None:
        """
        Leave a mark that is taken away by a clean stop.
        """
        self._files.close(self._files.open(self._abortPath))
        self._files.syncFolder(self.settings.storePathRootDir)

    def _loop(self, milliseconds: int, function: Callable[[], object]) -> None:
        def guarded() -> None:
            try:
                function()
            except (OSError, StoreError) as error:
                self._syncFailed(error)
                self._log.error(
                    "{folder}: {error}", folder=self.settings.storePathRootDir, error=error
                )

        loop = LoopingCall(guarded)
        loop.clock = self._clock
        loop.start(milliseconds / 1000, now=False).addErrback(
            lambda failure: self._log.failure("A task of the store has ended", failure)
        )
        self._loops.append(loop)

    def _release(self) -> None:
        if self._writing is not None and self._writing.active():
            self._writing.cancel()
        self._deadlines.stop()
        self._handles.close()
        if self._unlock is not None:
            self._unlock()
            self._unlock = None
