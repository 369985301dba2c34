# SPDX-License-Identifier: Apache-2.0
"""
Checkpoints: L{Checkpointer} syncs log, queues and index, and then writes how far all of them
are safe::

    index.seal, queues.sync --> log --> queues, index --> index headers --> checkpoint

The next start begins at the checkpoint.  Each step is on the disk before the next one begins,
because a checkpoint must not promise entries that a power loss has taken.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock, inlineCallbacks

from txrocket.errors import StoreFailed
from txrocket.store.dispatch import Dispatcher
from txrocket.store.files import SyncFailed
from txrocket.store.files.handles import Handles
from txrocket.store.files.syncjob import SyncJob
from txrocket.store.flush.checkpoint import Checkpoint, CheckpointFile
from txrocket.store.flush.flusher import Failed, Flusher, InThread, syncFailed

__all__ = ["Checkpointer"]


class Checkpointer:
    """
    Writes checkpoints.

    @ivar flusher: syncs the log.
    @ivar dispatcher: knows queues and index.
    @ivar last: the last checkpoint.
    """

    def __init__(
        self,
        flusher: Flusher,
        dispatcher: Dispatcher,
        checkpointFile: CheckpointFile,
        handles: Handles,
        inThread: InThread,
        failed: Failed,
    ) -> None:
        self.flusher = flusher
        self.dispatcher = dispatcher
        self._file = checkpointFile
        self._handles = handles
        self._inThread = inThread
        self._failed = failed
        self._failure: StoreFailed | None = None
        self._turn = DeferredLock()
        # Outlives a checkpoint that failed: the next one must sync its files as well.
        self._owed = SyncJob(handles)
        # How often the log was cut.  A checkpoint that began before must not be written.
        self._cuts = 0
        self.last = Checkpoint()

    def resume(self) -> None:
        """
        Go on from the checkpoint that is on the disk.
        """
        self.last = self._file.read()

    def forget(self) -> None:
        """
        The log is going to be cut: a checkpoint that is being made is not written.
        """
        self._cuts += 1
        self._owed = SyncJob(self._handles)

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
        queues, index, cuts = self.dispatcher.queues, self.dispatcher.index, self._cuts
        offset, timestamp = self.dispatcher.position, self.dispatcher.timestamp
        # The index first: it may find the disk full, and then is asked again.
        mark = index.seal(self._owed) if index else None
        try:
            queues.sync(self._owed)
        except SyncFailed as error:
            # A new file is synced before the next one is made.
            raise self._broken(error) from error
        entries = queues.total
        yield self.flusher.flush()
        if cuts == self._cuts:
            yield self._syncOwed(cuts)
        if index and cuts == self._cuts:
            index.settle(self._owed)
            yield self._syncOwed(cuts)
        if cuts != self._cuts:
            return
        checkpoint = Checkpoint(timestamp, timestamp, timestamp, offset, mark, timestamp, entries)
        self._file.write(checkpoint)
        third = SyncJob(self._handles)
        third.addPath(self._file.path)
        yield self._sync(third)
        if cuts == self._cuts:
            self.last = checkpoint

    @inlineCallbacks
    def _syncOwed(self, cuts: int) -> Generator[Deferred[None], None, None]:
        yield self._sync(self._owed)
        if cuts == self._cuts:
            self._owed = SyncJob(self._handles)

    @inlineCallbacks
    def _sync(self, job: SyncJob) -> Generator[Deferred[None], None, None]:
        try:
            yield self._inThread(job.run)
        except SyncFailed as error:
            raise self._broken(error) from error

    def _broken(self, error: OSError) -> StoreFailed:
        self._failure = syncFailed("queues and index", error)
        self._failed(self._failure)
        return self._failure
