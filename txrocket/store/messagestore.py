# SPDX-License-Identifier: Apache-2.0
"""
The store as a broker sees it: RocketMQ's C{DefaultMessageStore}::

    append --> Appender --> CommitLog --> Dispatcher --> ConsumeQueues, Index
    get, query --> StoreReader
    when the reactor turns --> LogWriter --> CommitLog, and StoreHealth if that fails
    every second --> PeriodicTasks --> Flusher, Checkpointer, Retention
    start, stop --> StoreSession --> StoreFolder, Recovery

A message that was appended is not stored yet.  L{MessageStore.stored} tells when it is: in
the files with ASYNC_FLUSH, on the disk with SYNC_FLUSH.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from txrocket.bulk import EncodedRecords, SentMessage
from txrocket.errors import (
    FlushDiskTimeout,
    StoreError,
    StoreFailed,
)
from txrocket.protocol.record import TopicField
from txrocket.store.confirmedtime import ConfirmedTime
from txrocket.store.dispatch import Arrived, Dispatcher
from txrocket.store.files import Files
from txrocket.store.files.handles import Handles
from txrocket.store.flush.checkpoint import CheckpointFile
from txrocket.store.flush.checkpointer import Checkpointer
from txrocket.store.flush.deadlines import Deadlines
from txrocket.store.flush.flusher import Flusher, InThread
from txrocket.store.flush.watermark import Watermark
from txrocket.store.folder import StoreFolder
from txrocket.store.health import StoreHealth
from txrocket.store.index import Index
from txrocket.store.log.append import Appended, Appender
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.log.write import Write, WriteSchedule
from txrocket.store.log.writer import LogWriter
from txrocket.store.queue.consumequeues import ConsumeQueues
from txrocket.store.read.reader import StoreReader
from txrocket.store.recovery import Recovery
from txrocket.store.replica import ReplicaLog
from txrocket.store.replica.cutter import LogCutter
from txrocket.store.retention import Retention
from txrocket.store.session import StoreSession
from txrocket.store.settings import FlushDiskType, StoreSettings, delayLevels
from txrocket.store.tasks import PeriodicTasks

__all__ = ["Appended", "MessageStore"]


class MessageStore:
    """
    The store in one folder.

    @ivar written: how far the log is in the files.
    @ivar replica: the log as bytes, for the replication between brokers.
    @ivar wall: the time of day in seconds.  The times of messages do not go back with it,
        lest searches by time be upset, unless it is set back by more than a day.
    @ivar confirmed: the time of day that decides which files are too old.
    """

    _log = Logger()

    # The log and the appender call the writer, which needs both.
    writer: LogWriter

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
        @param arrived: called for every message that has come to a queue.
        @param memory: the memory of the machine in bytes, which decides which messages are
            old.
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
        self.settings = settings
        self._inThread = inThread
        self.wall: Callable[[], float] = wall or clock.seconds
        self.confirmed = ConfirmedTime(self.wall, clock.seconds)
        self._handles = handles = Handles(files or Files(), settings.openFiles)
        self.written = Watermark()
        self.health = health = StoreHealth(root, self.written)
        self.log = log = _commitLog(settings, handles, lambda *wrote: self.writer.wrote(*wrote))
        self.queues = queues = ConsumeQueues(
            handles, os.path.join(root, "consumequeue"), settings.mappedFileSizeConsumeQueue
        )
        self.index = index = _index(settings, handles, self.now)
        delays = delayLevels(settings.messageDelayLevel)
        self.dispatcher = dispatcher = Dispatcher(queues, index, delays, arrived, awaited)
        self.reader = StoreReader(settings, log, dispatcher, memory, inThread)
        self.flusher = Flusher(log, handles, syncInThread or inThread, health.fail)
        checkpointFile = CheckpointFile(handles, os.path.join(root, "checkpoint"))
        self.checkpointer = checkpointer = Checkpointer(
            self.flusher, dispatcher, checkpointFile, handles, inThread, health.fail
        )
        self.tasks = PeriodicTasks(settings, clock, log, dispatcher, checkpointer, health)
        self.retention = Retention(
            settings, handles.files, log, checkpointer, self.confirmed.now, needed
        )
        soon = writeSoon or partial(clock.callLater, 0, lambda: self.writer.writeLater())
        self._schedule = schedule = WriteSchedule(soon, self.wall, root)
        self.appender = Appender(
            log, storeHost, schedule, self.retention, health, lambda why: self.writer.notBegun(why)
        )
        self.writer = LogWriter(log, self.written, self.appender, dispatcher, health, self.tasks)
        self._deadlines = _deadlines(settings, clock)
        self.folder = StoreFolder(handles.files, root, settings.commitLogFolder)
        recovery = Recovery(log, dispatcher, checkpointFile, settings, handles)
        self.session = StoreSession(
            self.folder, recovery, self.writer, checkpointer, self._deadlines, handles
        )
        cutter = LogCutter(settings, log, dispatcher, checkpointFile, self.session, handles)
        self.replica = ReplicaLog(self, cutter)
        self._expose(self.reader)

    def _expose(self, reader: StoreReader) -> None:
        """
        Offer the methods of the parts.  They are assigned because a call more for each pull
        would cost too much.
        """
        self.write = self.writer.write
        self.commit = self.writer.commit
        self.space = self.folder.space
        self.damage = reader.damage
        self.get = reader.messages.get
        self.getRecent = reader.messages.getRecent
        self.entries = reader.entries
        self.mended = reader.mended
        self.messages = reader.messagesAt
        self.messageAt = reader.messageAt
        self.query = reader.query
        self.search = reader.search
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
        Take new settings.  Only settings that are marked C{live} may differ.
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
        self.flusher.flushed.advance(self.session.open(self.replica.isFollower))
        self.appender.resume(self.dispatcher)
        self.written.advance(self.log.written)
        self.reader.trustFrom(self.log.written)
        self.tasks.start(self.retention.clean)

    def stop(self) -> Deferred[None]:
        """
        Write and sync everything, and close the folder.
        """
        self.tasks.stop()
        return self.session.close()

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
        return self.health.failure

    @property
    def pendingWrite(self) -> Write:
        """
        The write that a message waits for that is appended now.
        """
        return self._schedule.pending

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
        the next one would; L{None} if no message was appended.
        """
        return self._schedule.timestamp if self._schedule.isPending else None

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

    def _notDeleted(self, failure: Any, topic: str) -> None:
        failure.trap(OSError)
        self.health.judge(failure.value)
        self._log.error(
            "The files of {topic} were not deleted, the next start will try again: {error}",
            topic=topic,
            error=failure.value,
        )


def _commitLog(
    settings: StoreSettings, handles: Handles, wrote: Callable[[int, bytes], None]
) -> CommitLog:
    """
    The log, as the settings want it.
    """
    size, most = settings.mappedFileSizeCommitLog, settings.maxMessageSize
    return CommitLog(handles, settings.commitLogFolder, size, most, wrote)


def _deadlines(settings: StoreSettings, clock: IReactorTime) -> Deadlines:
    """
    The time-outs of senders that wait for the disk.
    """
    return Deadlines(
        clock,
        settings.syncFlushTimeout / 1000,
        lambda after: FlushDiskTimeout(f"not known to be on disk after {after:g} s"),
    )


def _index(settings: StoreSettings, handles: Handles, now: Callable[[], int]) -> Index | None:
    """
    The index, if there is to be one.
    """
    if not settings.messageIndexEnable:
        return None
    folder = os.path.join(settings.storePathRootDir, "index")
    return Index(handles, folder, settings.maxHashSlotNum, settings.maxIndexNum, now)
