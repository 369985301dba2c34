# SPDX-License-Identifier: Apache-2.0
"""
Bringing a log in line with its master's, where appending alone cannot::

    cut      keepRecords --> lowerCheckpoint --> log ends earlier --> recovery
    beginAt  empty checkpoint --> setAside --> recovery

Both end as a start after a crash does: everything in memory is forgotten, and L{Recovery} brings
queues and index in line with the log.  So a process that dies anywhere in between leaves
nothing that a start would not put right.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from txrocket.errors import DiskFull, StoreError, StoreFailed
from txrocket.store.dispatch import Dispatcher
from txrocket.store.files import FULL, SyncFailed
from txrocket.store.files.handles import Handles
from txrocket.store.files.syncjob import SyncJob
from txrocket.store.flush.checkpoint import Checkpoint, CheckpointFile
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.replica.aside import asideFolder, setAside
from txrocket.store.replica.cut import CUT_FOLDER, Cut, boundaryAt, keepRecords, lowerCheckpoint
from txrocket.store.session import StoreSession
from txrocket.store.settings import StoreSettings

__all__ = ["LogCutter"]


class LogCutter:
    """
    Cuts the log, or sets it aside.
    """

    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog,
        dispatcher: Dispatcher,
        checkpointFile: CheckpointFile,
        session: StoreSession,
        handles: Handles,
    ) -> None:
        self._settings = settings
        self._commitLog = log
        self._dispatcher = dispatcher
        self._checkpointFile = checkpointFile
        self._session = session
        self._handles = handles

    def cut(self, offset: int, epoch: int, failed: Callable[[StoreFailed], None]) -> Cut:
        """
        Let the log end at an offset, or before the record that it lies in.  Blocks.

        @param epoch: of the records that are cut off.
        @param failed: told that the log is neither as before nor cut.
        @raise DiskFull: if there is no room to keep the records; then nothing is changed.
        @raise StoreError: if the disk fails.
        """
        log = self._commitLog
        folder = os.path.join(self._settings.storePathRootDir, CUT_FOLDER)
        with self._explained(f"keeping what is cut off at {offset}"):
            start = boundaryAt(log, offset)
            kept = keepRecords(self._handles.files, folder, epoch, log, start)
        with self._explained(f"cutting the log at {offset}", failed):
            self._session.forgetCheckpoint()
            lowerCheckpoint(self._checkpointFile, self._dispatcher, log, start)
            log.segments.clearFrom(start)
            self._session.forget()
            end = self._session.reopen()
        return kept._replace(offset=end)

    def beginAt(self, offset: int, now: int, failed: Callable[[StoreFailed], None]) -> str:
        """
        Set the content of the folder aside, and begin with a log whose first file will begin
        at an offset: there is none before there are bytes for it.  Blocks.

        @param now: the time of day in milliseconds.
        @param failed: told that the content is neither in its place nor aside.
        @return: the folder with the content; empty if there was none.
        @raise DiskFull: if there is no room for another folder; then nothing is changed.
        @raise StoreError: if the disk fails.
        """
        settings, files, log = self._settings, self._handles.files, self._commitLog
        root = settings.storePathRootDir
        aside = asideFolder(files, root, now)
        if log.segments.bases:
            with self._explained(f"making a folder in {root}"):
                files.makeFolder(self._logAside(aside))
        with self._explained(f"setting the content of {root} aside", failed):
            self._session.forget()
            self._checkpointFile.write(Checkpoint())
            self._checkpointFile.sync()
            moved = setAside(
                files,
                settings.commitLogFolder,
                self._logAside(aside),
                [(os.path.join(root, each), os.path.join(aside, each)) for each in _OTHERS],
            )
            self._session.reopen()
            log.end = log.written = self._dispatcher.position = offset
        return aside if moved else ""

    def giveUpNumbers(self) -> None:
        """
        Forget the fillers behind the last message of each queue.  Blocks, if there are any.

        @raise StoreError: if the disk fails.
        """
        queues = self._dispatcher.queues
        with self._explained("forgetting queue offsets without messages"):
            if queues.dropFillers():
                job = SyncJob(self._handles)
                queues.sync(job)
                job.run()
                job.end()

    def _logAside(self, aside: str) -> str:
        """
        Where to move the files of the log: on the disk that they are on.
        """
        configured = self._settings.storePathCommitLog
        if configured is None:
            return os.path.join(aside, "commitlog")
        return os.path.join(f"{configured.rstrip(os.sep)}-aside", os.path.basename(aside))

    @contextmanager
    def _explained(
        self, what: str, failed: Callable[[StoreFailed], None] | None = None
    ) -> Iterator[None]:
        try:
            yield
        except (OSError, StoreError) as error:
            if failed is not None:
                failure = StoreFailed(f"{what} failed: {error}; start the store anew")
                failed(failure)
                raise failure from error
            if isinstance(error, OSError) and not isinstance(error, SyncFailed):
                if error.errno in FULL:
                    raise DiskFull(f"{what} failed: {error}") from error
                raise StoreError(f"{what} failed: {error}") from error
            raise


# The folders beside the log that are set aside.
_OTHERS = ("consumequeue", "index")
