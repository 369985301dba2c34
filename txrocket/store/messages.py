# SPDX-License-Identifier: Apache-2.0
"""
The store as its users see it: what L{StoreReader} has, and putting.

A message that was put is not stored yet.  It is once L{MessageStore.stored} says
so: in the files with ASYNC_FLUSH, on the disk with SYNC_FLUSH.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Generator, Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from txrocket.compiled import speed
from txrocket.errors import (
    DiskFull,
    FlushDiskTimeout,
    InvalidMessage,
    StoreError,
    StoreFailed,
    StoreInUse,
)
from txrocket.message import MessageExt
from txrocket.protocol.batch import batchRecords
from txrocket.protocol.record import (
    TRANSACTION_PREPARED_TYPE,
    TopicField,
    decodeRecord,
    encodeRecord,
    encodeTopic,
)
from txrocket.store.checkpoint import CheckpointFile
from txrocket.store.commitlog import LOST, CommitLog
from txrocket.store.confirmed import ConfirmedTime
from txrocket.store.consumequeue import ConsumeQueues
from txrocket.store.deadlines import Deadlines
from txrocket.store.files import FULL, Files, Handles, Locked, SyncFailed
from txrocket.store.flush import PAGE, Checkpointer, Flusher, InThread
from txrocket.store.follow import TIMED_TOPICS, Arrived, Filing, Follow, Put
from txrocket.store.index import Index
from txrocket.store.reading import StoreReader
from txrocket.store.recovery import Recovery
from txrocket.store.retention import Retention
from txrocket.store.settings import FlushDiskType, StoreSettings, delayLevels
from txrocket.store.watermark import Watermark

__all__ = ["Appended", "MessageStore", "Sent"]

#: A message that was sent: who waits for the answer, topic and queue, body, properties,
#: time of birth, flag, sysFlag, how often it was tried, where its frame ends.
Sent: TypeAlias = tuple[int | None, tuple[str, int], bytes, bytes, int, int, int, int, int]

_DAY = 86_400_000

# How many times as long as a checkpoint took there is none.  A start after a crash reads
# what was stored since the last one.
_REST = 5


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


_appended = tuple.__new__


@lru_cache(maxsize=4096)
def _topicField(topic: str) -> TopicField:
    # A topic names a folder of its queues, and must not lead out of it.
    if not topic or topic in (".", "..") or "/" in topic or "\0" in topic:
        raise InvalidMessage(f"topic {topic!r} cannot be the name of a folder")
    return encodeTopic(topic)


def _checkTellable(queueId: int, properties: bytes) -> None:
    """
    Refuse what a start after a crash would take for a torn record.
    """
    if queueId < 0:
        raise InvalidMessage(f"queue {queueId}: there is none below 0")
    if properties.endswith(b"\0") or LOST in properties:
        raise InvalidMessage("properties that end in NUL, or have 16 of them, cannot be stored")


def suspectPlainly(records: bytes, sizes: list[int]) -> bool:
    """
    Whether some of these records may be such: there are many zeros, or one ends with
    one, as it does without properties as well.
    """
    ends = accumulate(sizes)
    return LOST in records or not all(records[end - 1] for end in ends)


_suspect: Callable[[bytes, list[int]], bool] = suspectPlainly if speed is None else speed.suspect


def _checkBatch(records: bytes, sizes: list[int]) -> None:
    if _suspect(records, sizes):
        for end, size in zip(accumulate(sizes), sizes, strict=True):
            record = decodeRecord(records, end - size, readBody=False)
            _checkTellable(record.queueId, record.propertiesData)


class MessageStore(StoreReader):
    """
    The store in one folder.

    @ivar written: how far the log is in the files.
    @ivar losses: how often something that was put could not be written.
    @ivar failure: why no write is accepted any more, or L{None}.
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
        """
        root = settings.storePathRootDir
        self._files = files or Files()
        self._handles = handles = Handles(self._files, settings.openFiles)
        self.wall: Callable[[], float] = wall or clock.seconds
        self.confirmed = ConfirmedTime(self.wall, clock.seconds)
        super().__init__(
            settings,
            CommitLog(
                handles,
                settings.commitLogFolder,
                settings.mappedFileSizeCommitLog,
                settings.maxMessageSize,
                self._wrote,
            ),
            ConsumeQueues(
                handles, os.path.join(root, "consumequeue"), settings.mappedFileSizeConsumeQueue
            ),
            Index(
                handles,
                os.path.join(root, "index"),
                settings.maxHashSlotNum,
                settings.maxIndexNum,
                self.now,
            )
            if settings.messageIndexEnable
            else None,
            memory,
        )
        self._clock = clock
        self._inThread = inThread
        self._storeHost = storeHost
        self._abortPath = os.path.join(root, "abort")
        self.follow = Follow(
            self.queues, self.index, delayLevels(settings.messageDelayLevel), arrived, awaited
        )
        self.flusher = Flusher(self.log, handles, syncInThread or inThread, self._fail)
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
            self.confirmed.now,
            lambda: self.checkpointer.last.offset or 0,
        )
        self._recovery = Recovery(
            self.log, self.queues, self.index, self.follow, checkpointFile, settings, handles
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
        # What is not written yet, if all of it is as ordinary as L{Follow.take} wants,
        # and there is no compiled helper, which reads it where it is written.
        self._puts: list[Put] = []
        self._ordinary = True
        self.losses = 0
        self._lost: StoreError | None = None
        self._writing: IDelayedCall | None = None
        self._lastTimestamp = 0
        self._lastFlush = 0.0
        self._lastCheckpoint = self._nextCheckpoint = 0.0
        self._loops: list[LoopingCall] = []
        self._locks: list[Callable[[], None]] = []
        self._stopping = False
        self._removed = False

    def apply(self, settings: StoreSettings) -> None:
        """
        Take new settings, of which only those marked C{live} may differ.
        """
        self.settings = settings
        self.retention.settings = settings

    def now(self) -> int:
        """
        The time of day in milliseconds, by which messages are stored.
        """
        return int(self.wall() * 1000)

    # --- start and stop --------------------------------------------------

    def _hashOf(self, record: MessageExt) -> int:
        """
        See L{StoreReader._hashOf}: delayed messages have a time.
        """
        return self.follow.hash(record)

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
        except Locked as locked:
            # The lock file lies in the root; of other folders, the folder is locked.
            folder = locked.args[0] if self._locks else root
            self._release()
            raise StoreInUse(f"{folder} is in use by another process") from None
        except OSError as error:
            self._release()
            if error.errno in FULL and not isinstance(error, SyncFailed):
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
        self._lockAll(root)
        clean = self._files.size(self._abortPath) is None
        # Before anything is changed, for that may be interrupted as well.
        self._mark()
        self.flusher.flushed.advance(self._recovery.recover(clean=clean))
        self.checkpointer.resume()
        for topic, queueId, queue in self.queues:
            self._next[topic, queueId] = queue.maxOffset
        # A damaged record's time is not followed into the far future.
        if self.follow.timestamp <= self.now() + _DAY:
            self._lastTimestamp = self.follow.timestamp
        self.written.advance(self.log.written)
        self.trustFrom(self.log.written)

    def _lockAll(self, root: str) -> None:
        """
        Keep others out of every folder that is written: two stores may have the same
        folder for the log, and folders of their own for the rest.
        """
        self._locks.append(self._files.lock(os.path.join(root, "lock")))
        for folder in (root, self.settings.commitLogFolder):
            self._files.makeFolder(folder)
            unlock = self._files.lockFolder(folder)
            if unlock is not None:
                self._locks.append(unlock)
            elif folder != root:
                self._log.warn(
                    "{folder} cannot be locked on its file system: see to it that no other "
                    "broker has it as its storePathCommitLog",
                    folder=folder,
                )

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], None, None]:
        """
        Bring everything to the disk and close the folder.
        """
        root = self.settings.storePathRootDir
        if self._stopping or not self._locks:
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
        except (StoreError, FlushDiskTimeout, OSError) as error:
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
        bornTimestamp: int,
        bornHost: bytes,
        flag: int = 0,
        sysFlag: int = 0,
        reconsumeTimes: int = 0,
        preparedTransactionOffset: int = 0,
        filing: Filing | None = None,
    ) -> Appended:
        """
        Add a message to the log.

        @param properties: as they stand in a record.
        @param filing: what L{filed<txrocket.store.follow.filed>} finds in them, from
            who knows it already.
        @raise InvalidMessage: if it cannot be stored.
        @raise StoreError: if the store takes no messages now.
        """
        if self.failure is not None or self.retention.full is not None:
            self._refuse()
        if self._writing is None:
            self._beginTurn()
        # A number is found in 0.02 us where a string of one byte takes 0.14.
        if queueId < 0 or 0 in properties:
            _checkTellable(queueId, properties)
        field = _topicField(topic)
        bodySize = len(body)
        # What a record has beside hosts, body, topic and properties.
        size = 74 + len(bornHost) + len(self._storeHost) + bodySize + len(field) + len(properties)
        log = self.log
        offset = log.end
        if offset + size > log.brim or bodySize > log.maxBody:
            offset = self._reserve(size, bodySize)
        key = topic, queueId
        # The halves of transactions are in the log, but not in a queue.
        queued = not sysFlag & TRANSACTION_PREPARED_TYPE
        queueOffset = self._next.get(key, 0) if queued else 0
        timestamp = self._lastTimestamp
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
        # As C{log.add(record)}, whose call would cost as much as what it does.
        log.gathered.append(record)
        log.end = end = offset + size
        if speed is None:
            if queued and topic not in TIMED_TOPICS:
                self._puts.append((key, queueOffset, offset, size, properties, filing))
            else:
                self._ordinary = False
        if queued:
            if key not in self._unwritten:
                self._unwritten[key] = queueOffset
            self._next[key] = queueOffset + 1
        # Half the price of calling the class.
        return _appended(Appended, (offset, (size,), queueOffset, timestamp, end))

    def putSent(
        self, sent: list[Sent], fields: dict[str, TopicField], bornHosts: list[bytes]
    ) -> tuple[list[Put], dict[str, tuple[int, int]]]:
        """
        What L{put} does, for many ordinary messages at once, with the compiled helper:
        0.7 us for each in place of 2.5.

        @param fields: the topics of the messages, as records have them.
        @param bornHosts: who has sent each.
        @return: those that were put, fewer than were given if a new file must be begun
            for the rest; and for each topic how many there are and how long.
        @raise StoreError: if the store takes no messages now.
        """
        assert speed is not None
        if self.failure is not None or self.retention.full is not None:
            self._refuse()
        if self._writing is None:
            self._beginTurn()
        log = self.log
        records, puts, totals = speed.sendRecords(
            sent,
            fields,
            self._next,
            log.end,
            log.brim,
            log.maxBody,
            self._lastTimestamp,
            bornHosts,
            self._storeHost,
        )
        if puts:
            log.add(records)
            # From the last to the first, so that the first of a queue stays.
            for key, number in {put[0]: put[1] for put in reversed(puts)}.items():
                self._unwritten.setdefault(key, number)
        return puts, totals

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
        if self.failure is not None or self.retention.full is not None:
            self._refuse()
        if self._writing is None:
            self._beginTurn()
        if queueId < 0:
            _checkTellable(queueId, properties)
        key = topic, queueId
        timestamp = self._lastTimestamp

        def at(offset: int) -> tuple[bytes, list[int], list[bytes]]:
            return batchRecords(
                batch,
                _topicField(topic),
                properties,
                queueId,
                self._next.get(key, 0),
                offset,
                sysFlag,
                bornTimestamp,
                bornHost,
                timestamp,
                self._storeHost,
                reconsumeTimes,
                # The helper finds them in the log, all at once.
                told=speed is None,
            )

        start = self.log.end
        records, sizes, said = at(start)
        _checkBatch(records, sizes)
        offset = self._reserve(len(records), len(batch))
        if offset != start:
            # It goes to a new file: the records tell where they are, and who was
            # told of those before may have put others.
            records, sizes, said = at(offset)
        queueOffset = self._next.get(key, 0)
        self.log.add(records)
        if speed is None:
            self._note(key, sysFlag, zip(sizes, said, strict=True), queueOffset, offset)
        self._unwritten.setdefault(key, queueOffset)
        self._next[key] = queueOffset + len(sizes)
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
        self.written.advance(self.log.written)
        if self.flusher.flushed.waiting:
            self._flushForWaiting()

    def settle(self, losses: int) -> StoreError | None:
        """
        Bring what was put in this turn of the reactor into the files, for who
        needs no Deferred for each message.

        @param losses: what L{losses} was when the first of it was put.
        @return: why some of it was lost, and all of it may be; L{None} if all of
            it is in the files.
        """
        # If something is lost already, the rest waits until the reactor turns: who
        # is told of it during a write may tell others, and must know of the loss.
        if self.losses == losses:
            # Who waits is told; what is told here may have happened before.
            with suppress(StoreError):
                self.write()
        return None if self.losses == losses else self._lost

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
            search = self.index.search(topic, key, begin, end, self._most(most))
            try:
                yield self._inThread(search.run)
            finally:
                queried = self.index.ended(search)
        except OSError as error:
            raise StoreError(f"reading the index failed: {error}") from error
        return self._queried(queried)

    def flushed(self) -> Deferred[None]:
        """
        A Deferred that fires once all that was put is on the disk.

        @raise StoreError: if it cannot be written.
        """
        self.write()
        return self.flusher.flush()

    @property
    def waiting(self) -> tuple[int, float]:
        """
        How many wait for the disk, and how many seconds the first of them has.
        """
        count = self.flusher.flushed.waiting
        return (count, self._deadlines.waited()) if count else (0, 0.0)

    @property
    def sharedTime(self) -> int | None:
        """
        The time that all messages since the last write bear, in milliseconds, and that
        the next one would; L{None} if there are none.
        """
        return None if self._writing is None else self._lastTimestamp

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

    def _flushForWaiting(self) -> None:
        # One under way goes on for whoever waits: the many need not each ask for it.
        if not self.flusher.running:
            self._flush()

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
        self._removed = True
        return self._inThread(delete).addErrback(self._notDeleted, topic)

    # --- inside ----------------------------------------------------------

    def _beginTurn(self) -> None:
        """
        The first message since the last write: all until the next one share its
        time, and go to the files together.
        """
        now = int(self.wall() * 1000)
        if now > self._lastTimestamp:
            self._lastTimestamp = now
        elif self._lastTimestamp - now > _DAY:
            # The time of the log would stand still for long.
            self._goBack(now)
        self._writing = self._clock.callLater(0, self._writeLater)

    def _goBack(self, now: int) -> None:
        """
        The clock was set back by more than a day, so that it was wrong before.
        """
        self._log.warn(
            "{folder}: the last message was stored {hours:.0f} hours from now by the clock of this"
            " machine. The clock was set back, and the times of new messages follow it; a search"
            " by time may miss messages that were stored in between",
            folder=self.settings.storePathRootDir,
            hours=(self._lastTimestamp - now) / 3_600_000,
        )
        self._lastTimestamp = now

    def _refuse(self) -> None:
        reason = self.failure or self.retention.full
        assert reason is not None
        raise reason

    def _reserve(self, size: int, bodySize: int) -> int:
        try:
            offset = self.log.reserve(size, bodySize)
        except StoreError as error:
            if self.log.end == self.log.written:
                self._dropped(error)
            elif isinstance(error, StoreFailed):
                self._fail(error)
            raise
        if self._writing is None:
            # A new file was begun, and who was told of the messages before it has had
            # them written: this one needs a write of its own.
            self._beginTurn()
        return offset

    def _writeLater(self) -> None:
        self._writing = None
        try:
            self.write()
        except DiskFull:
            # Those who wait have been told.
            pass
        except StoreError as error:
            self._log.error("{error}", error=error)

    def _wrote(self, offset: int, data: bytes) -> None:
        # All that was put is in the files now, be it that a new one was begun.
        puts = self._forgetPuts()
        try:
            # Not if a blank is the end of it.
            if puts and puts[-1][2] + puts[-1][3] == offset + len(data):
                self.follow.take(offset, data, puts, self._lastTimestamp)
            else:
                self.follow.feed(offset, data)
        except (OSError, StoreError) as error:
            self._syncFailed(error)
            self._log.error("The queues fall behind the log, which is kept: {error}", error=error)

    def _note(
        self,
        key: tuple[str, int],
        sysFlag: int,
        batch: Iterable[tuple[int, bytes]],
        queueOffset: int,
        offset: int,
    ) -> None:
        """
        Note what L{Follow.take} needs of the messages of a batch: their sizes and
        properties.
        """
        if sysFlag & TRANSACTION_PREPARED_TYPE or key[0] in TIMED_TOPICS:
            self._ordinary = False
            return
        for number, (size, properties) in enumerate(batch, queueOffset):
            self._puts.append((key, number, offset, size, properties, None))
            offset += size

    def _forgetPuts(self) -> list[Put]:
        """
        @return: all that was put since the last time; nothing if not all is known.
        """
        puts, ordinary = self._puts, self._ordinary
        self._puts, self._ordinary = [], True
        self._unwritten.clear()
        return puts if ordinary else []

    def _dropped(self, error: StoreError) -> None:
        """
        What was put and not written is lost, and those who wait must know.
        """
        self._next |= self._unwritten
        self._forgetPuts()
        self.losses += 1
        self._lost = error
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
        self.flusher.flush().addErrback(
            lambda failure: failure.trap(StoreFailed, FlushDiskTimeout) and None
        )

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
        if self._clock.seconds() < self._nextCheckpoint:
            return
        behind = self.follow.position - (self.checkpointer.last.offset or 0)
        thorough = settings.flushConsumeQueueThoroughInterval / 1000
        now = self._clock.seconds()
        if (
            self._removed
            or behind >= settings.flushConsumeQueueLeastPages * PAGE
            or (behind and now - self._lastCheckpoint >= thorough)
        ):
            self._removed = False
            self._lastCheckpoint = now
            made = self.checkpointer.checkpoint().addErrback(self._notChecked)
            made.addCallback(lambda none: self._rest(self._clock.seconds() - now))

    def _rest(self, seconds: float) -> None:
        """
        A checkpoint took so long.  Where that is because of thousands of queues, each
        with a file to sync, the disk is left alone for a while.
        """
        self._nextCheckpoint = self._clock.seconds() + seconds * _REST

    def _notChecked(self, failure: Any) -> None:
        failure.trap(StoreError, FlushDiskTimeout, OSError)
        if isinstance(failure.value, StoreFailed):
            self._fail(failure.value)
            return
        self._log.error(
            "No checkpoint could be written, so the next start will take longer: {error}",
            error=failure.value,
        )

    def _notDeleted(self, failure: Any, topic: str) -> None:
        failure.trap(OSError)
        self._syncFailed(failure.value)
        self._log.error(
            "The files of {topic} were not deleted, the next start will try again: {error}",
            topic=topic,
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
        self.log.segments.close()
        self._handles.close()
        while self._locks:
            self._locks.pop()()
