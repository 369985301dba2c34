# SPDX-License-Identifier: Apache-2.0
"""
The log as bytes, for the replication between brokers: RocketMQ's C{getCommitLogData} and
C{appendToCommitLog}::

    master                                      slave
    CommitLog --> ReplicaLog.read --> network --> ReplicaLog.append --> CommitLog
                      ^ whenGrown                        |
                                                         +--> Dispatcher: queues, index, pulls

A slave's log has the bytes of its master's, file by file.  Queues and index are not copied: a
slave makes its own from the whole records.  A record whose end is still to come is in the log,
and in no queue.

While a store follows, it takes no messages; L{ReplicaLog.lead} has it take messages again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from txrocket.errors import MalformedLog, StoreError, StoreFailed, StoreIsReplica
from txrocket.store.replica.cut import Cut
from txrocket.store.replica.cutter import LogCutter
from txrocket.store.replica.recordstream import RecordStream

if TYPE_CHECKING:
    from txrocket.store.messagestore import MessageStore

__all__ = ["ReplicaLog"]


class ReplicaLog:
    """
    The log of a store, read or followed byte by byte.
    """

    def __init__(self, store: MessageStore, cutter: LogCutter) -> None:
        self._store = store
        self._cutter = cutter
        self._log = log = store.log
        self._stream = RecordStream(log.segments.size, log.limit)

    @property
    def first(self) -> int:
        """
        Where the oldest file begins.
        """
        return self._log.first

    @property
    def end(self) -> int:
        """
        Up to where the log is in the files.
        """
        return self._log.written

    @property
    def flushed(self) -> int:
        """
        Up to where it is on the disk.
        """
        return self._store.flusher.flushed.offset

    @property
    def isFollower(self) -> bool:
        """
        Whether the store takes the log of a master, and no messages.
        """
        return self._store.health.following is not None

    # --- a master's ------------------------------------------------------

    def read(self, offset: int, most: int) -> bytes:
        """
        Bytes of the log as they lie in the file, up to the end of the file.

        @return: nothing at the end of the log.
        @raise StoreError: if the files do not have the offset, or the disk does not give it.
        """
        log = self._log
        if not log.first <= offset <= log.written:
            raise StoreError(f"the log begins at {log.first} and ends at {log.written}: {offset}")
        return log.read(offset, most)

    def whenGrown(self, offset: int) -> Deferred[None]:
        """
        A Deferred that fires once the log ends behind an offset.
        """
        return self._store.written.passes(offset)

    def opened(self) -> None:
        """
        The folder was opened: the log ends with a whole record.
        """
        self._stream.begin(self._log.written)

    # --- a slave's -------------------------------------------------------

    def follow(self) -> None:
        """
        Take no messages any more: only what L{append} is given.

        @raise StoreError: if messages that were appended cannot be written.
        """
        if not self.isFollower:
            self._store.write()
            self._stream.begin(self._log.written)
            self._store.health.following = StoreIsReplica(
                f"{self._store.settings.storePathRootDir} follows the log of a master, and takes "
                "no messages"
            )

    def append(self, offset: int, data: bytes) -> None:
        """
        Take the next bytes of the master's log, within one file.  Whole records are in their
        queues then.

        @param offset: where in the log they belong, which must be its end.
        @raise MalformedLog: if they cannot be the next bytes of a log.  Nothing of them is
            written, and the log ends with its last whole record.
        @raise DiskFull: if there is no room: nothing of them is written, and they may be
            given again.
        @raise StoreError: if they do not belong at the end of the log, or the store does not
            follow.
        """
        stream = self._stream
        self._check(offset, len(data))
        if not data:
            return
        try:
            checked = stream.check(data)
        except MalformedLog:
            self._dropHalf()
            raise
        # First: a consumer that is told of a message may ask for more.
        before = stream.accept(checked.half)
        try:
            self._store.writer.adopt(data, checked.start, checked.whole, checked.half.have)
        except StoreError:
            stream.accept(before)
            raise

    def cut(self, offset: int, epoch: int) -> Cut:
        """
        Let the log end at an offset, because its master has other bytes there.  What is cut
        off is kept in a file, in whole records; queues and index follow.  Blocks.

        The caller cuts the epochs then (L{EpochFile.cutAt<txrocket.store.replica.epochs
        .EpochFile.cutAt>}), and not before.

        @param epoch: the epoch of what is cut off.
        @return: what was cut off.  If no record ends at the offset, the log ends before it.
        @raise DiskFull: if there is no room to keep it; then nothing is changed.
        @raise StoreError: if the log does not have the offset, or the disk fails.
        """
        log = self._log
        self._checkFollower()
        if not log.first <= offset <= log.written:
            raise StoreError(f"the log begins at {log.first} and ends at {log.written}: {offset}")
        if offset == log.written:
            return Cut(offset, 0, 0, "")
        cut = self._cutter.cut(offset, epoch, self._store.health.fail)
        self._begunAnew()
        return cut

    def beginAt(self, offset: int) -> str:
        """
        Set the whole content aside, because it has nothing in common with the master's log, and
        begin with an empty log whose first file begins at an offset.  Blocks.

        @return: the folder with the content; empty if there was none.
        @raise StoreError: if no file of the log can begin at the offset, or the disk fails.
        """
        self._checkFollower()
        if offset < 0 or offset % self._log.segments.size:
            raise StoreError(
                f"no file of {self._log.segments.size} bytes begins at {offset}: is "
                "mappedFileSizeCommitLog the same on both brokers?"
            )
        folder = self._cutter.beginAt(offset, self._store.now(), self._store.health.fail)
        self._begunAnew()
        return folder

    def close(self) -> None:
        """
        Let the log end with its last whole record, before the store is stopped.
        """
        # The next start drops the half record as well.
        with suppress(StoreError):
            self._dropHalf()

    def lead(self) -> None:
        """
        Take messages again, behind the last whole record.

        @raise StoreError: if the queues cannot be brought up to the log.
        @raise OSError: if the disk fails.
        """
        if not self.isFollower:
            return
        log, stream = self._log, self._stream
        if stream.isPad:
            # A blank is whole with its 8 bytes: the rest of its file was never written.
            log.end = log.written = log.segments.end
            log.half = 0
        elif stream.half:
            self._dropHalf()
            # A producer's records take the place, and must not be found in pieces of both.
            log.segments.syncFrom(log.written)
        self._store.dispatcher.catchUp(log)
        self._store.appender.resume(self._store.dispatcher)
        self._store.written.advance(log.written)
        self._store.health.following = None
        stream.begin(log.written)

    def _check(self, offset: int, size: int) -> None:
        log, fileSize = self._log, self._log.segments.size
        self._checkFollower()
        if self._store.retention.full is not None:
            raise self._store.retention.full
        if offset != log.written:
            raise StoreError(f"the log ends at {log.written}: nothing can be added at {offset}")
        if offset % fileSize + size > fileSize:
            raise StoreError(f"{size} bytes at {offset} do not lie within one file of {fileSize}")

    def _checkFollower(self) -> None:
        if not self.isFollower:
            raise StoreError("a store that takes messages takes no log of a master")
        if self._store.failure is not None:
            raise self._store.failure

    def _dropHalf(self) -> None:
        """
        Let the log end with its last whole record.
        """
        if self._log.half:
            try:
                self._log.dropHalf()
            except StoreFailed as error:
                self._store.health.fail(error)
                raise
            self._goBack(self._log.written)
        self._stream.begin(self._log.written)

    def _begunAnew(self) -> None:
        """
        The log was cut, and the folder recovered.
        """
        store, end = self._store, self._log.written
        self._goBack(end)
        store.written.advance(end)
        store.flusher.flushed.advance(end)
        store.appender.resume(store.dispatcher)
        store.reader.forget()
        store.tasks.isCheckpointDue = True
        self._stream.begin(end)

    def _goBack(self, offset: int) -> None:
        """
        The log was cut at an offset.
        """
        reason = StoreError(f"the log was cut at {offset}")
        self._store.written.goBack(offset, reason)
        self._store.flusher.goBack(offset, reason)
