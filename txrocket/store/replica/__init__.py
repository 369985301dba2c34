# SPDX-License-Identifier: Apache-2.0
"""
The log as bytes, for the replication between brokers: RocketMQ's C{getCommitLogData} and
C{appendToCommitLog}::

    master                                      slave
    CommitLog --> ReplicaLog.read --> network --> ReplicaLog.append --> CommitLog
                      ^ whenGrown                        |
                                                         +--> Dispatcher: queues, index, pulls

A slave's log has the bytes of its master's, file by file.  Queues and index are not copied: a
slave makes its own from the whole records.  A record whose end is still to come is in no file and
in no queue: see L{txrocket.store.replica.recordstream}.

While a store follows, it takes no messages; L{ReplicaLog.lead} has it take messages again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from txrocket.bulk import QueueKey
from txrocket.errors import MalformedLog, StoreError, StoreIsReplica
from txrocket.store.replica.cut import Cut
from txrocket.store.replica.cutter import LogCutter
from txrocket.store.replica.recordstream import Half, RecordStream

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
        # Whether the queues have no numbers that only a master may give.
        self._isPlain = False

    @property
    def first(self) -> int:
        """
        Where the oldest file begins.
        """
        return self._log.first

    @property
    def end(self) -> int:
        """
        Where the log ends.  All its whole records are in the files; of a record that a
        master has not sent to its end, the first bytes are in memory.
        """
        return self._log.written + self._stream.half.size

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
        if not log.first <= offset <= self.end:
            raise StoreError(f"the log begins at {log.first} and ends at {self.end}: {offset}")
        return log.read(offset, most)

    def whenGrown(self, offset: int) -> Deferred[None]:
        """
        A Deferred that fires once the files have more than the bytes before an offset.
        """
        return self._store.written.passes(offset)

    def queueBegins(self) -> dict[QueueKey, int]:
        """
        The queue offset of the first message of each queue that is in the log, or of its next
        message if none is; without the queues that begin at 0.  A slave whose log begins later
        than the queues needs it: of a queue without messages its log tells nothing.
        """
        begins = {}
        for topic, queueId, queue in self._store.queues:
            if queue.minOffset:
                begins[topic, queueId] = queue.minOffset
        return begins

    # --- a slave's -------------------------------------------------------

    def follow(self) -> None:
        """
        Take no messages any more: only what L{append} is given.

        @raise StoreError: if messages that were appended cannot be written.
        """
        if not self.isFollower:
            self._store.write()
            self._stream.half = Half()
            self._isPlain = False
            self._store.health.following = StoreIsReplica(
                f"{self._store.settings.storePathRootDir} follows the log of a master, and takes "
                "no messages"
            )

    def append(self, offset: int, data: bytes) -> None:
        """
        Take the next bytes of the master's log, within one file.  The records that are whole
        then are in the files and in their queues.

        @param offset: where in the log they belong, which must be its end.
        @raise MalformedLog: if they cannot be the next bytes of a log.  Nothing of them is
            kept, and the log ends with its last whole record.
        @raise DiskFull: if there is no room: nothing of them is kept, and they may be given
            again.
        @raise StoreError: if they do not belong at the end of the log, or the store does not
            follow.
        """
        stream = self._stream
        self._check(offset, len(data))
        if not data:
            return
        before = stream.half
        try:
            checked = stream.check(self._log.written, data)
        except MalformedLog:
            self.dropHalf()
            raise
        # First: a consumer that is told of a message may ask for more.
        stream.half = checked.half
        if checked.data:
            try:
                self._store.writer.adopt(checked.data, isPad=checked.isPad)
            except StoreError:
                stream.half = before
                raise

    def beginQueues(self, begins: Mapping[QueueKey, int]) -> None:
        """
        Let queues go on with the queue offsets that their master tells (L{queueBegins}), so that
        none is given twice once this store leads.  Queues that are further stay as they are.

        @raise StoreError: if they cannot be written.
        """
        self._checkFollower()
        store, queues = self._store, self._store.queues
        for key, begin in begins.items():
            queue = queues.get(*key)
            if begin > (0 if queue is None else queue.maxOffset):
                queues.skip(key, begin, self._log.written)
                try:
                    # At once: no record would tell it to a start after a crash.
                    queues.writeOne(key)
                except OSError as error:
                    raise StoreError(f"writing to the queue {key} failed: {error}") from error
                store.tasks.isCheckpointDue = True

    def dropHalf(self) -> None:
        """
        Forget the record of which the end is still to come: the log ends before it.  Forget the
        queue offsets, too, that were left out when this store was a master's and had lost
        messages: the next master gives them.

        @raise StoreError: if the disk fails.
        """
        if self._stream.half.size:
            self._stream.half = Half()
        if not self._isPlain:
            self._cutter.giveUpNumbers()
            self._isPlain = True

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
        if not log.first <= offset <= self.end:
            raise StoreError(f"the log begins at {log.first} and ends at {self.end}: {offset}")
        if offset == self.end:
            return Cut(offset, 0, 0, "")
        self.dropHalf()
        if offset >= log.written:
            return Cut(log.written, 0, 0, "")
        cut = self._cutter.cut(offset, epoch, self._store.health.fail)
        self._begunAnew()
        return cut

    def beginAt(self, offset: int) -> str:
        """
        Set the whole content aside, because it has nothing in common with the master's log, and
        begin with an empty log whose first file begins at an offset.  Blocks.  A start before
        the first bytes have come finds an empty log that begins at 0.

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

    def lead(self) -> None:
        """
        Take messages again, behind the last whole record.

        @raise StoreError: if the queues cannot be brought up to the log.
        @raise OSError: if the disk fails.
        """
        if not self.isFollower:
            return
        store, log = self._store, self._log
        if self._stream.half.pad:
            # Of a blank only the first bytes matter; the rest of its file reads as zeros.
            log.end = log.written = log.segments.end
        self._stream.half = Half()
        store.dispatcher.catchUp(log)
        store.appender.resume(store.dispatcher)
        store.written.advance(log.written)
        store.health.following = None

    def _check(self, offset: int, size: int) -> None:
        fileSize = self._log.segments.size
        self._checkFollower()
        if self._store.retention.full is not None:
            raise self._store.retention.full
        if offset != self.end:
            raise StoreError(f"the log ends at {self.end}: nothing can be added at {offset}")
        if offset % fileSize + size > fileSize:
            raise StoreError(f"{size} bytes at {offset} do not lie within one file of {fileSize}")

    def _checkFollower(self) -> None:
        if not self.isFollower:
            raise StoreError("a store that takes messages takes no log of a master")
        if self._store.failure is not None:
            raise self._store.failure

    def _begunAnew(self) -> None:
        """
        The log was cut, and the folder recovered.
        """
        store, end = self._store, self._log.written
        reason = StoreError(f"the log was cut at {end}")
        store.written.goBack(end, reason)
        store.flusher.goBack(end, reason)
        # Recovery has synced everything.
        store.written.advance(end)
        store.flusher.flushed.advance(end)
        store.appender.resume(store.dispatcher)
        store.reader.forget()
        store.tasks.isCheckpointDue = True
        self._stream.half = Half()
        self._cutter.giveUpNumbers()
