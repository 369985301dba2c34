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

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed

from txrocket.errors import MalformedLog, StoreError, StoreFailed, StoreIsReplica
from txrocket.store.recordstream import RecordStream

if TYPE_CHECKING:
    from txrocket.store.messagestore import MessageStore

__all__ = ["ReplicaLog"]


class _Waiter(Deferred[None]):
    offset: int


class ReplicaLog:
    """
    The log of a store, read or followed byte by byte.
    """

    def __init__(
        self,
        store: MessageStore,
        wrote: Callable[[int, bytes], None],
        failed: Callable[[StoreFailed], None],
    ) -> None:
        """
        @param wrote: told of whole records that are in the files, and where.
        @param failed: told that the disk failed.
        """
        self._store = store
        self._log = log = store.log
        self._wrote = wrote
        self._failed = failed
        self._stream = RecordStream(log.segments.size, log.limit)
        self._waiting: list[_Waiter] = []

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
        return self._store.appender.following is not None

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
        if self._log.written > offset:
            return succeed(None)
        waiter = _Waiter(self._forget)
        waiter.offset = offset
        self._waiting.append(waiter)
        return waiter

    def grew(self) -> None:
        """
        More of the log is in the files.
        """
        if self._waiting:
            end = self._log.written
            ready = [each for each in self._waiting if each.offset < end]
            self._waiting = [each for each in self._waiting if each.offset >= end]
            for each in ready:
                each.callback(None)

    def _forget(self, waiter: Deferred[None]) -> None:
        self._waiting = [each for each in self._waiting if each is not waiter]

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
            self._store.appender.following = StoreIsReplica(
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
        log, stream = self._log, self._stream
        self._check(offset, len(data))
        if not data:
            return
        try:
            checked = stream.check(data)
        except MalformedLog:
            self._dropHalf()
            raise
        try:
            log.adopt(data)
        except StoreFailed as error:
            self._failed(error)
            raise
        stream.accept(checked)
        log.half = stream.half
        if checked.whole:
            self._wrote(checked.start, checked.whole)
        self._store.written.advance(log.written)
        self.grew()

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
        self._store.resume()
        self._store.written.advance(log.written)
        self._store.appender.following = None
        self.grew()

    def _check(self, offset: int, size: int) -> None:
        log, fileSize = self._log, self._log.segments.size
        refusal = self._store.failure or self._store.retention.full
        if refusal is not None:
            raise refusal
        if not self.isFollower:
            raise StoreError("a store that takes messages takes no log of a master")
        if offset != log.written:
            raise StoreError(f"the log ends at {log.written}: nothing can be added at {offset}")
        if offset % fileSize + size > fileSize:
            raise StoreError(f"{size} bytes at {offset} do not lie within one file of {fileSize}")

    def _dropHalf(self) -> None:
        """
        Let the log end with its last whole record.
        """
        start = self._stream.start
        if self._stream.half:
            self._log.endAt(start)
            self._goBack(start)
        self._stream.begin(start)

    def _goBack(self, offset: int) -> None:
        """
        The log was cut at an offset.
        """
        reason = StoreError(f"the log was cut at {offset}")
        self._store.written.goBack(offset, reason)
        self._store.flusher.goBack(offset, reason)
