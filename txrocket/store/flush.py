# SPDX-License-Identifier: Apache-2.0
"""
Getting to the disk what is in the files.

L{Flusher} syncs the log.  With SYNC_FLUSH senders wait for it, and one sync serves
all that wait when it begins, while those that come meanwhile gather for the next:
the more wait, the less each costs.  With ASYNC_FLUSH it happens every half second
if there is enough, or every ten seconds anyway.

L{Checkpointer} syncs queues and index, and then writes how far everything is safe.

A sync that fails is the end of writing: the system may have thrown away what it
could not write, and a second sync that succeeds says nothing about it.  Any other error,
such as a file that cannot be opened for its sync, has lost nothing: the next sync covers
what this one did not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock, inlineCallbacks
from twisted.logger import Logger

from txrocket.errors import FlushDiskTimeout, StoreFailed
from txrocket.store.checkpoint import Checkpoint, CheckpointFile
from txrocket.store.commitlog import CommitLog
from txrocket.store.consumequeues import ConsumeQueues
from txrocket.store.dispatch import Dispatcher
from txrocket.store.files import Handles, SyncFailed
from txrocket.store.index import Index
from txrocket.store.segments import SyncJob
from txrocket.store.watermark import Watermark

__all__ = ["Checkpointer", "Failed", "Flusher", "InThread"]

InThread = Callable[[Callable[[], None]], Deferred[None]]
Failed = Callable[[StoreFailed], None]

PAGE = 4096


class Flusher:
    """
    Syncs the log.

    @ivar flushed: how far it is on the disk.
    @ivar running: whether a sync is under way.
    """

    _logger = Logger()

    def __init__(
        self, log: CommitLog, handles: Handles, inThread: InThread, failed: Failed
    ) -> None:
        """
        @param inThread: runs a function that blocks, one at a time.
        @param failed: told when a sync fails, before those who wait for it.
        """
        self._log = log
        self._handles = handles
        self._inThread = inThread
        self._failed = failed
        self.flushed = Watermark()
        self.running = False
        # What the sync that is under way has covered, and what the last one had.
        self._target = self._synced = 0

    def flush(self) -> Deferred[None]:
        """
        Have all that is written synced.

        @return: a Deferred that fires once it is, fails with L{StoreFailed} if a sync has
            failed, and with L{FlushDiskTimeout} if it could not begin.
        """
        reached = self.flushed.reaches(self._log.written)
        if not self.running and not reached.called:
            self._flush()
        return reached

    @inlineCallbacks
    def _flush(self) -> Generator[Deferred[None], None, None]:
        self.running = True
        self._synced = self.flushed.offset
        while self.flushed.failure is None:
            if not self._wanted():
                # A waiter that is told may ask for more.
                self.flushed.advance(self._synced)
                if not self._wanted():
                    break
            self._target = self._log.written
            job = SyncJob(self._handles)
            try:
                job.add(self._log.segments, keepOpen=True)
                done = self._inThread(job.run)
                # Those whom the last one served are told while this one is under way, and
                # not before: the disk need not wait for that.
                self.flushed.advance(self._synced)
                yield done
            except SyncFailed as error:
                failure = _syncFailed(self._log.segments.folder, error)
                self._failed(failure)
                self.flushed.fail(failure)
            except OSError as error:
                job.giveBack(self._log.segments)
                self.flushed.advance(self._synced)
                self._postpone(error)
            else:
                self._synced = self._target
            finally:
                job.end()
        self.running = False

    def goBack(self, offset: int, reason: Exception) -> None:
        """
        The log was cut at an offset: a sync that is under way says nothing of what will be
        written there.
        """
        self._target = min(self._target, offset)
        self._synced = min(self._synced, offset)
        self.flushed.goBack(offset, reason)

    def _postpone(self, error: OSError) -> None:
        """
        A sync could not begin.  Nothing is lost, but those who wait are not told that
        their messages are safe.
        """
        self._logger.error(
            "{folder} could not be synced, which will be tried again: {error}",
            folder=self._log.segments.folder,
            error=error,
        )
        self.flushed.disappoint(
            FlushDiskTimeout(f"not known to be on disk: {self._log.segments.folder}: {error}")
        )

    def _wanted(self) -> bool:
        """
        Whether somebody waits for more to be synced than is.
        """
        synced = self._synced
        return synced < self._log.written and self.flushed.awaitedBeyond(synced)


def _syncFailed(what: str, error: OSError) -> StoreFailed:
    return StoreFailed(
        f"syncing {what} failed: {error}; no write is accepted until the store is started anew"
    )


class Checkpointer:
    """
    Writes checkpoints.
    """

    def __init__(
        self,
        flusher: Flusher,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        index: Index | None,
        checkpointFile: CheckpointFile,
        handles: Handles,
        inThread: InThread,
        failed: Failed,
    ) -> None:
        self._flusher = flusher
        self._dispatcher = dispatcher
        self._queues = queues
        self._index = index
        self._file = checkpointFile
        self._handles = handles
        self._inThread = inThread
        self._failed = failed
        self._failure: StoreFailed | None = None
        self._turn = DeferredLock()
        # Outlives a checkpoint that did not come to its end: what is not synced
        # then must be before the next one speaks of it.
        self._owed = SyncJob(handles)
        self.last = Checkpoint()

    def resume(self) -> None:
        """
        Go on from the checkpoint that is on the disk.
        """
        self.last = self._file.read()

    @property
    def running(self) -> bool:
        """
        Whether a checkpoint is being made.
        """
        return bool(self._turn.locked)

    def checkpoint(self) -> Deferred[Any]:
        """
        Make all safe that the queues and the index know of, and say so; after
        that is done which may be under way.

        @return: a Deferred that fails with L{StoreFailed} if a sync failed, now
            or ever, and with L{OSError} if something could not be written.
        """
        return self._turn.run(self._checkpoint)

    @inlineCallbacks
    def _checkpoint(self) -> Generator[Deferred[Any], None, None]:
        if self._failure is not None:
            raise self._failure
        offset, timestamp = self._dispatcher.position, self._dispatcher.timestamp
        # The index first: it may find the disk full, and then is asked again.
        mark = self._index.seal(self._owed) if self._index else None
        try:
            self._queues.sync(self._owed)
        except SyncFailed as error:
            # A new file is synced before the next one is made.
            raise self._broken(error) from error
        entries = self._queues.total
        yield self._flusher.flush()
        yield self._sync(self._owed)
        self._owed = SyncJob(self._handles)
        if self._index:
            self._index.settle(self._owed)
            yield self._sync(self._owed)
            self._owed = SyncJob(self._handles)
        checkpoint = Checkpoint(timestamp, timestamp, timestamp, offset, mark, timestamp, entries)
        self._file.write(checkpoint)
        third = SyncJob(self._handles)
        third.addPath(self._file.path)
        yield self._sync(third)
        self.last = checkpoint

    @inlineCallbacks
    def _sync(self, job: SyncJob) -> Generator[Deferred[None], None, None]:
        try:
            yield self._inThread(job.run)
        except SyncFailed as error:
            raise self._broken(error) from error

    def _broken(self, error: OSError) -> StoreFailed:
        self._failure = _syncFailed("queues and index", error)
        self._failed(self._failure)
        return self._failure
