# SPDX-License-Identifier: Apache-2.0
"""
Getting to the disk what is in the files.

L{Flusher} syncs the log.  With SYNC_FLUSH senders wait for it, and one sync serves
all that wait when it begins, while those that come meanwhile gather for the next:
the more wait, the less each costs.  With ASYNC_FLUSH it happens every half second
if there is enough, or every ten seconds anyway.

L{Checkpointer} syncs queues and index, and then writes how far everything is safe.

A sync that fails is the end of writing: the system may have thrown away what it
could not write, and a second sync that succeeds says nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from txrocket.errors import StoreFailed
from txrocket.store.checkpoint import Checkpoint, CheckpointFile
from txrocket.store.commitlog import CommitLog
from txrocket.store.consumequeue import ConsumeQueues
from txrocket.store.files import Handles
from txrocket.store.follow import Follow
from txrocket.store.index import Index
from txrocket.store.segments import SyncJob
from txrocket.store.watermark import Watermark

__all__ = ["Checkpointer", "Flusher", "InThread"]

InThread = Callable[[Callable[[], None]], Deferred[None]]

PAGE = 4096


class Flusher:
    """
    Syncs the log.

    @ivar flushed: how far it is on the disk.
    """

    def __init__(self, log: CommitLog, handles: Handles, inThread: InThread) -> None:
        """
        @param inThread: runs a function that blocks, one at a time.
        """
        self._log = log
        self._handles = handles
        self._inThread = inThread
        self.flushed = Watermark()
        self._running = False

    @property
    def running(self) -> bool:
        """
        Whether a sync is under way.
        """
        return self._running

    def flush(self) -> Deferred[None]:
        """
        Have all that is written synced.

        @return: a Deferred that fires once it is, or fails with L{StoreFailed}.
        """
        reached = self.flushed.reaches(self._log.written)
        if not self._running and not reached.called:
            self._flush()
        return reached

    @inlineCallbacks
    def _flush(self) -> Generator[Deferred[None], None, None]:
        self._running = True
        while self.flushed.failure is None and self.flushed.offset < self._log.written:
            target = self._log.written
            job = SyncJob(self._handles)
            job.add(self._log.segments, keepOpen=True)
            try:
                yield self._inThread(job.run)
            except OSError as error:
                self.flushed.fail(
                    StoreFailed(
                        f"syncing {self._log.segments.folder} failed: {error}; "
                        "no write is accepted until the store is started anew"
                    )
                )
            else:
                self.flushed.advance(target)
            finally:
                job.end()
            if not self.flushed.waiting:
                break
        self._running = False


class Checkpointer:
    """
    Writes checkpoints.
    """

    def __init__(
        self,
        flusher: Flusher,
        follow: Follow,
        queues: ConsumeQueues,
        index: Index | None,
        checkpointFile: CheckpointFile,
        handles: Handles,
        inThread: InThread,
    ) -> None:
        self._flusher = flusher
        self._follow = follow
        self._queues = queues
        self._index = index
        self._file = checkpointFile
        self._handles = handles
        self._inThread = inThread
        self.last = Checkpoint()
        self._running = False

    @inlineCallbacks
    def checkpoint(self) -> Generator[Deferred[Any], None, None]:
        """
        Make all safe that the queues and the index know of, and say so.
        """
        if self._running:
            return
        self._running = True
        try:
            offset, timestamp = self._follow.position, self._follow.timestamp
            first = SyncJob(self._handles)
            self._queues.sync(first)
            mark = self._index.seal(first) if self._index else None
            yield self._flusher.flush()
            yield self._inThread(first.run)
            if self._index:
                second = SyncJob(self._handles)
                self._index.settle(second)
                yield self._inThread(second.run)
            self.last = Checkpoint(timestamp, timestamp, timestamp, offset, mark)
            self._file.write(self.last)
            third = SyncJob(self._handles)
            third.addPath(self._file.path)
            yield self._inThread(third.run)
        finally:
            self._running = False
