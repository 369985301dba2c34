# SPDX-License-Identifier: Apache-2.0
"""
Syncs of the log: RocketMQ's C{GroupCommitService} and C{FlushRealTimeService}::

    SYNC_FLUSH   sender sender sender --> one sync --> all three are answered
                        sender sender ------------> the next sync
    ASYNC_FLUSH  every half second if there are 4 pages, every ten seconds anyway

One sync serves all senders that wait when it begins.  Senders that come meanwhile share the
next one, so the more senders wait, the less each costs.

After a failed sync no message is taken: the system may have thrown away data that it could
not write, and a second sync that succeeds proves nothing.  Any other error, such as a file
that cannot be opened for its sync, loses nothing: the next sync covers the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.errors import FlushDiskTimeout, StoreFailed
from txrocket.store.files import SyncFailed
from txrocket.store.files.handles import Handles
from txrocket.store.files.syncjob import SyncJob
from txrocket.store.flush.watermark import Watermark
from txrocket.store.log.commitlog import CommitLog

__all__ = ["PAGE", "Failed", "Flusher", "InThread", "syncFailed"]

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
        @param failed: gets the error of a failed sync, before the waiters get it.
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
                # A waiter may append and wait again.
                self.flushed.advance(self._synced)
                if not self._wanted():
                    break
            self._target = self._log.written
            job = SyncJob(self._handles)
            try:
                job.add(self._log.segments, keepOpen=True)
                done = self._inThread(job.run)
                # The waiters of the last sync are answered while this one is under way, so
                # that the disk does not wait for their callbacks.
                self.flushed.advance(self._synced)
                yield done
            except SyncFailed as error:
                failure = syncFailed(self._log.segments.folder, error)
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
        A sync could not begin.  Nothing is lost, but the waiters get an error, because their
        messages are not known to be safe.
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
        Whether a caller waits for bytes that are not synced.
        """
        synced = self._synced
        return synced < self._log.written and self.flushed.awaitedBeyond(synced)


def syncFailed(what: str, error: OSError) -> StoreFailed:
    """
    The error after a sync of the log, or of other files, has failed.
    """
    return StoreFailed(
        f"syncing {what} failed: {error}; no write is accepted until the store is started anew"
    )
