# SPDX-License-Identifier: Apache-2.0
"""
The store as a broker sees it: RocketMQ's C{DefaultMessageStore}::

    append --> Appender --> CommitLog --> Dispatcher --> ConsumeQueues, Index
    get, query --> StoreReader
    every second --> PeriodicTasks --> Flusher, Checkpointer, Retention

A message that was appended is not stored yet.  L{MessageStore.stored} tells when it is: in
the files with ASYNC_FLUSH, on the disk with SYNC_FLUSH.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Generator
from contextlib import suppress
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from txrocket.bulk import EncodedRecords, SentMessage
from txrocket.errors import (
    DiskFull,
    FlushDiskTimeout,
    StoreError,
    StoreFailed,
)
from txrocket.protocol.record import TopicField
from txrocket.store.confirmedtime import ConfirmedTime
from txrocket.store.dispatch import Arrived, Dispatcher
from txrocket.store.files import FULL, Files, SyncFailed
from txrocket.store.files.handles import Handles
from txrocket.store.flush.checkpoint import CheckpointFile
from txrocket.store.flush.checkpointer import Checkpointer
from txrocket.store.flush.deadlines import Deadlines
from txrocket.store.flush.flusher import Flusher, InThread
from txrocket.store.flush.watermark import Watermark
from txrocket.store.folder import StoreFolder
from txrocket.store.index import Index
from txrocket.store.log.append import Appended, Appender
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.log.write import Write, WriteSchedule
from txrocket.store.queue.consumequeues import ConsumeQueues
from txrocket.store.read.reader import StoreReader
from txrocket.store.recovery import Recovery
from txrocket.store.retention import Retention
from txrocket.store.settings import FlushDiskType, StoreSettings, delayLevels
from txrocket.store.tasks import PeriodicTasks

__all__ = ["Appended", "MessageStore"]

_DAY = 86_400_000


class MessageStore:
    """
    The store in one folder.

    @ivar written: how far the log is in the files.
    @ivar wall: the time of day in seconds.  The times of messages do not go back with it,
        lest searches by time be upset, unless it is set back by more than a day.
    @ivar confirmed: the time of day by which is judged what is too old to be kept.
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
        awaited: Container[tuple[str, int]] | None = None,
        syncInThread: InThread | None = None,
        wall: Callable[[], float] | None = None,
        needed: Callable[[], int] | None = None,
        writeSoon: Callable[[], None] | None = None,
    ) -> None:
        """
        @param clock: for all that is periodic, and for time-outs.
        @param inThread: runs a function that blocks: two at a time, and searches.
        @param storeHost: the broker's address, as records hold it.
        @param arrived: told of every message that has come to a queue.
        @param memory: the machine's, in bytes: it decides what counts as old.
        @param awaited: the queues, by topic and number, of which C{arrived} needs to
            hear; without it, all.
        @param syncInThread: runs a sync of the log; without it, C{inThread} does.
        @param wall: the time of day in seconds, which messages are stored with; without
            it, the clock's.
        @param writeSoon: has L{commit} called before the reactor waits for events; without
            it, a timer of the clock does.
        @param needed: from where on the log has messages that wait to be delivered.
        """
        root = settings.storePathRootDir
        self._files = files or Files()
        self._handles = handles = Handles(self._files, settings.openFiles)
        self.wall: Callable[[], float] = wall or clock.seconds
        self.confirmed = ConfirmedTime(self.wall, clock.seconds)
        self.settings = settings
        self.log = log = CommitLog(
            handles,
            settings.commitLogFolder,
            settings.mappedFileSizeCommitLog,
            settings.maxMessageSize,
            self._wrote,
        )
        self.queues = queues = ConsumeQueues(
            handles, os.path.join(root, "consumequeue"), settings.mappedFileSizeConsumeQueue
        )
        self.index = index = _index(settings, handles, self.now)
        self._inThread = inThread
        self.folder = StoreFolder(self._files, root, settings.commitLogFolder)
        self.dispatcher = Dispatcher(
            queues, index, delayLevels(settings.messageDelayLevel), arrived, awaited
        )
        self.reader = StoreReader(settings, log, queues, index, self.dispatcher.hash, memory)
        self._expose(self.reader)
        self.flusher = Flusher(log, handles, syncInThread or inThread, self._fail)
        checkpointFile = CheckpointFile(handles, os.path.join(root, "checkpoint"))
        self.checkpointer = Checkpointer(
            self.flusher,
            self.dispatcher,
            queues,
            index,
            checkpointFile,
            handles,
            inThread,
            self._fail,
        )
        self.retention = Retention(
            settings,
            self._files,
            log,
            queues,
            index,
            self.confirmed.now,
            lambda: self.checkpointer.last.offset or 0,
            needed,
        )
        self._recovery = Recovery(
            log, queues, index, self.dispatcher, checkpointFile, settings, handles
        )
        self.written = Watermark()
        self._deadlines = Deadlines(
            clock,
            settings.syncFlushTimeout / 1000,
            lambda after: FlushDiskTimeout(f"not known to be on disk after {after:g} s"),
        )
        self._schedule = WriteSchedule(
            writeSoon or partial(clock.callLater, 0, self._writeLater), self.wall, root
        )
        self.tasks = PeriodicTasks(
            settings, clock, log, self.dispatcher, self.flusher, self.checkpointer, self._failed
        )
        self.appender = Appender(log, storeHost, self._schedule, self.retention, self._notBegun)
        self._stopping = False

    def _expose(self, reader: StoreReader) -> None:
        """
        Offer what the reader offers.  Assigned and not called: a pull goes this way.
        """
        self.damage = reader.damage
        self.get = reader.messages.get
        self.getRecent = reader.messages.getRecent
        self.entries = reader.entries
        self.mended = reader.mended
        self.messages = reader.messagesAt
        self.messageAt = reader.messageAt
        self.query = reader.query
        self.minOffset = reader.minOffset
        self.maxOffset = reader.maxOffset
        self.placeOf = reader.placeOf
        self.isOld = reader.isOld
        self.storeTimestamp = reader.storeTimestamp
        self.earliestTimestamp = reader.earliestTimestamp
        self.firstTimestamp = reader.firstTimestamp
        self.offsetByTime = reader.offsetByTime

    def apply(self, settings: StoreSettings) -> None:
        """
        Take new settings, of which only those marked C{live} may differ.
        """
        self.settings = self.retention.settings = self.tasks.settings = settings
        self.reader.apply(settings)

    def now(self) -> int:
        """
        The time of day in milliseconds, by which messages are stored.
        """
        return int(self.wall() * 1000)

    # --- start and stop --------------------------------------------------

    def start(self) -> None:
        """
        Open the folder, recover it, and begin to work.

        @raise StoreInUse: if another process works on it.
        @raise DiskFull: if there is no room to recover it.
        @raise StoreFailed: if the disk fails.
        @raise StoreCorrupt: if it cannot be opened without losing data.
        """
        root = self.settings.storePathRootDir
        try:
            self._open()
        except OSError as error:
            self._release()
            if error.errno in FULL and not isinstance(error, SyncFailed):
                free = self._files.space(os.path.dirname(root) or ".")[1]
                raise DiskFull(f"{root}: {error}, {free} bytes are free") from error
            raise StoreFailed(f"opening {root} failed: {error}") from error
        except BaseException:
            self._release()
            raise
        self.tasks.start(self.retention.clean)

    def _open(self) -> None:
        clean = self.folder.open()
        self.flusher.flushed.advance(self._recovery.recover(clean=clean))
        self.checkpointer.resume()
        for topic, queueId, queue in self.queues:
            self.appender.nexts[topic, queueId] = queue.maxOffset
        # A damaged record's time is not followed into the far future.
        if self.dispatcher.timestamp <= self.now() + _DAY:
            self._schedule.timestamp = self.dispatcher.timestamp
        self.written.advance(self.log.written)
        self.reader.trustFrom(self.log.written)

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], None, None]:
        """
        Write and sync everything, and close the folder.
        """
        root = self.settings.storePathRootDir
        if self._stopping or not self.folder.isOpen:
            return
        self._stopping = True
        self.tasks.stop()
        try:
            self.write()
            if self.failure is not None:
                raise self.failure
            self.appender.failure = StoreFailed(f"{root} is closed")
            self.dispatcher.catchUp(self.log)
            yield self.checkpointer.checkpoint()
            self.folder.close()
        except (StoreError, FlushDiskTimeout, OSError) as error:
            self._log.error(
                "{folder} was not closed cleanly, the next start will check it: {error}",
                folder=root,
                error=error,
            )
        finally:
            self._release()

    # --- append ----------------------------------------------------------

    def put(
        self,
        topic: str,
        queueId: int,
        body: bytes,
        properties: bytes,
        bornTimestamp: int,
        bornHost: bytes,
        flag: int = 0,
        sysFlag: int = 0,
        reconsumeTimes: int = 0,
        preparedTransactionOffset: int = 0,
    ) -> Appended:
        """
        Append a message.

        @param properties: as they stand in a record.
        @raise InvalidMessage: if it cannot be stored.
        @raise StoreError: if the store takes no messages now.
        """
        fields = (
            *(None, (topic, queueId), body, properties, bornTimestamp, flag, sysFlag),
            *(reconsumeTimes, 0, preparedTransactionOffset),
        )
        # Half the price of calling the class.
        sent: SentMessage = tuple.__new__(SentMessage, fields)
        [(_, queueOffset, offset, size)] = self.appender.append([sent], [bornHost])[1]
        schedule = self._schedule
        place = offset, (size,), queueOffset, schedule.timestamp, offset + size, schedule.pending
        return tuple.__new__(Appended, place)

    def appendMany(
        self,
        messages: list[SentMessage],
        bornHosts: list[bytes],
        fields: dict[str, TopicField] | None = None,
    ) -> EncodedRecords:
        """
        Append messages, as many as one file of the log takes: see L{Appender.append}.  Whether
        they are in the files tells L{pendingWrite} after the next L{write}.
        """
        return self.appender.append(messages, bornHosts, fields)

    def appendBatch(self, message: SentMessage, bornHost: bytes) -> Appended:
        """
        Append the messages of a producer's batch: see L{Appender.appendBatch}.
        """
        return self.appender.appendBatch(message, bornHost)

    @property
    def failure(self) -> StoreFailed | None:
        """
        Why no message is taken any more, or L{None}.
        """
        return self.appender.failure

    @property
    def pendingWrite(self) -> Write:
        """
        The write that a message waits for that is appended now.
        """
        return self._schedule.pending

    def write(self) -> None:
        """
        Write all messages that were appended to the files.  The reactor does so when it
        turns; a caller that cannot wait for that calls this.

        @raise StoreError: if that fails: the messages are lost.
        """
        self._schedule.end()
        try:
            if self.failure is not None and self.log.end > self.log.written:
                self.log.drop()
                raise self.failure
            self.log.write()
        except StoreError as error:
            self._dropped(error)
            raise
        self.written.advance(self.log.written)
        if self.flusher.flushed.waiting:
            self.tasks.flush()

    def commit(self) -> None:
        """
        Bring what was appended in this turn into the files, if there is anything.
        """
        if self._schedule.isPending:
            # Waiters get the error through their Deferreds, and appenders by their Write.
            with suppress(StoreError):
                self.write()

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
                self.tasks.flush()
        return flushed

    @inlineCallbacks
    def search(
        self, topic: str, key: str, begin: int, end: int, most: int
    ) -> Generator[Deferred[Any], None, tuple[list[bytes], int, int]]:
        """
        What L{query} gives, with the index searched in a thread: a key of many
        messages may take long.

        @return: a Deferred that fails with L{StoreError} if the disk does not give
            them.
        """
        if self.index is None:
            return [], 0, 0
        try:
            search = self.index.search(topic, key, begin, end, self.reader.limit(most))
            try:
                yield self._inThread(search.run)
            finally:
                queried = self.index.ended(search)
        except OSError as error:
            raise StoreError(f"reading the index failed: {error}") from error
        return self.reader.records(queried)

    def flushed(self) -> Deferred[None]:
        """
        A Deferred that fires once all messages that were appended are on the disk.

        @raise StoreError: if it cannot be written.
        """
        self.write()
        return self.flusher.flush()

    @property
    def waiting(self) -> tuple[int, float]:
        """
        How many messages wait for the disk, and for how many seconds the first of them has.
        """
        count = self.flusher.flushed.waiting
        return (count, self._deadlines.waited()) if count else (0, 0.0)

    @property
    def sharedTime(self) -> int | None:
        """
        The time that all messages since the last write bear, in milliseconds, and that
        the next one would; L{None} if there are none.
        """
        return self._schedule.timestamp if self._schedule.isPending else None

    def space(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """
        How many bytes the disk of the log has, and how many of them are free; and
        the same of the disk of all else.

        @raise StoreError: if a disk does not tell.
        """
        rest = self.settings.storePathRootDir
        log = self.settings.storePathCommitLog or rest
        try:
            return self._files.space(log), self._files.space(rest)
        except OSError as error:
            raise StoreError(f"looking at the room on the disk failed: {error}") from error

    def removeTopic(self, topic: str) -> Deferred[None]:
        """
        Forget a topic's queues; its records stay in the log until they are old.

        If it is made again, its queues go on counting, where Java's begin at 0:
        should the log be read again after a crash, older records come before
        newer ones, and none takes another's place.

        @return: a Deferred that fires once the files are gone.  If they cannot be
            deleted that is logged, and the next start deletes them.
        @raise StoreError: if the queues cannot be put aside.
        """
        try:
            delete = self.queues.abandon(topic)
        except OSError as error:
            raise StoreError(f"removing the queues of {topic} failed: {error}") from error
        # A start after a crash takes queues that the checkpoint counts for lost.
        self.tasks.isCheckpointDue = True
        return self._inThread(delete).addErrback(self._notDeleted, topic)

    # --- inside ----------------------------------------------------------

    def _notBegun(self, error: StoreError) -> None:
        """
        No new file of the log could be begun.
        """
        if self.log.end == self.log.written:
            self._dropped(error)
        elif isinstance(error, StoreFailed):
            self._fail(error)

    def _writeLater(self) -> None:
        try:
            self.write()
        except DiskFull:
            # Waiters have got the error.
            pass
        except StoreError as error:
            self._log.error("{error}", error=error)

    def _wrote(self, offset: int, data: bytes) -> None:
        # Of a new file as well: all that was appended before it is in the files.
        self.appender.wrote()
        try:
            self.dispatcher.dispatch(offset, data)
        except (OSError, StoreError) as error:
            self._failed(error)
            self._log.error("The queues fall behind the log, which is kept: {error}", error=error)

    def _dropped(self, error: StoreError) -> None:
        """
        All messages that are not written are lost, and their waiters get the error.
        """
        self.appender.dropped(error)
        if isinstance(error, StoreFailed):
            self._fail(error)
        self.written.advance(self.log.written)
        self.written.disappoint(error)
        self.flusher.flushed.disappoint(error, self.log.written)
        # Those before it may have been written, and still wait for the disk.
        if self.flusher.flushed.waiting:
            self.tasks.flush()

    def _fail(self, error: StoreFailed) -> None:
        if self.failure is None:
            self.appender.failure = error
            self.tasks.hasFailed = True
            self._log.critical("{error}", error=error)
            self.written.fail(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StoreFailed):
            self._fail(error)
        elif isinstance(error, SyncFailed):
            root = self.settings.storePathRootDir
            self._fail(StoreFailed(f"syncing {root} failed: {error}; start the store anew"))

    def _notDeleted(self, failure: Any, topic: str) -> None:
        failure.trap(OSError)
        self._failed(failure.value)
        self._log.error(
            "The files of {topic} were not deleted, the next start will try again: {error}",
            topic=topic,
            error=failure.value,
        )

    def _release(self) -> None:
        self._schedule.end()
        self._deadlines.stop()
        self.log.segments.close()
        self._handles.close()
        self.folder.release()


def _index(settings: StoreSettings, handles: Handles, now: Callable[[], int]) -> Index | None:
    """
    The index, if there is to be one.
    """
    if not settings.messageIndexEnable:
        return None
    folder = os.path.join(settings.storePathRootDir, "index")
    return Index(handles, folder, settings.maxHashSlotNum, settings.maxIndexNum, now)
