# SPDX-License-Identifier: Apache-2.0
"""
The periodic tasks of a store::

    flush        the log goes to the disk: every 500 ms if 4 pages of it were written
    checkpoint   queues and index go to the disk: every second if there are 2 pages
    retention    old files are deleted: every 10 s

A task that meets an error says so and is called again; a sync that failed stops the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from txrocket.errors import FlushDiskTimeout, StoreError, StoreFailed
from txrocket.store.dispatch import Dispatcher
from txrocket.store.flush.checkpointer import Checkpointer
from txrocket.store.flush.flusher import PAGE
from txrocket.store.health import StoreHealth
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.settings import StoreSettings

__all__ = ["PeriodicTasks"]

# How many times as long as a checkpoint took the next one waits.  A start after a crash reads
# the records since the last checkpoint.
_REST = 5


class PeriodicTasks:
    """
    Runs the periodic tasks.

    @ivar settings: how often, and from how many bytes on.
    @ivar loops: the tasks.
    @ivar flusher: syncs the log.
    @ivar isCheckpointDue: whether the next checkpoint must not wait for more messages.
    """

    _log = Logger()

    def __init__(
        self,
        settings: StoreSettings,
        clock: IReactorTime,
        log: CommitLog,
        dispatcher: Dispatcher,
        checkpointer: Checkpointer,
        health: StoreHealth,
    ) -> None:
        """
        @param health: judges every error that a task meets.
        """
        self.settings = settings
        self._clock = clock
        self._commitLog = log
        self._dispatcher = dispatcher
        self.flusher = checkpointer.flusher
        self._checkpointer = checkpointer
        self._health = health
        self.loops: list[LoopingCall] = []
        self.isCheckpointDue = False
        self._lastFlush = 0.0
        self._lastCheckpoint = self._nextCheckpoint = 0.0

    def start(self, clean: Callable[[], object]) -> None:
        """
        Begin all tasks.

        @param clean: deletes old files.
        """
        settings = self.settings
        self._lastFlush = self._lastCheckpoint = self._clock.seconds()
        self.loop(settings.flushIntervalCommitLog, self._flushIfDue)
        self.loop(settings.flushIntervalConsumeQueue, self._checkpointIfDue)
        self.loop(settings.cleanResourceInterval, clean)

    def stop(self) -> None:
        """
        End all tasks.
        """
        for loop in self.loops:
            if loop.running:
                loop.stop()
        self.loops.clear()

    def loop(self, milliseconds: int, function: Callable[[], object]) -> None:
        """
        Call a function periodically.
        """

        def guarded() -> None:
            try:
                function()
            except (OSError, StoreError) as error:
                self._health.judge(error)
                self._log.error(
                    "{folder}: {error}", folder=self.settings.storePathRootDir, error=error
                )

        loop = LoopingCall(guarded)
        loop.clock = self._clock
        loop.start(milliseconds / 1000, now=False).addErrback(
            lambda failure: self._log.failure("A task of the store has ended", failure)
        )
        self.loops.append(loop)

    def flush(self) -> None:
        """
        Begin a sync of the log, unless one is under way.
        """
        # A flush that has begun goes on for all messages that wait.
        if not self.flusher.running:
            self._flush()

    def _flush(self) -> None:
        self._lastFlush = self._clock.seconds()
        # The flusher has logged the error.
        self.flusher.flush().addErrback(
            lambda failure: failure.trap(StoreError, FlushDiskTimeout) and None
        )

    def _flushIfDue(self) -> None:
        settings = self.settings
        unflushed = self._commitLog.written - self.flusher.flushed.offset
        thorough = settings.flushCommitLogThoroughInterval / 1000
        if unflushed >= settings.flushCommitLogLeastPages * PAGE or (
            unflushed and self._clock.seconds() - self._lastFlush >= thorough
        ):
            self._flush()

    def _checkpointIfDue(self) -> None:
        if not self._caughtUp() or self._checkpointer.running or self._health.failure is not None:
            return
        settings, now = self.settings, self._clock.seconds()
        if now < self._nextCheckpoint:
            return
        behind = self._dispatcher.position - (self._checkpointer.last.offset or 0)
        thorough = settings.flushConsumeQueueThoroughInterval / 1000
        if (
            self.isCheckpointDue
            or behind >= settings.flushConsumeQueueLeastPages * PAGE
            or (behind and now - self._lastCheckpoint >= thorough)
        ):
            self.isCheckpointDue = False
            self._lastCheckpoint = now
            made = self._checkpointer.checkpoint().addErrback(self._notChecked)
            made.addCallback(lambda none: self._rest(self._clock.seconds() - now))

    def _caughtUp(self) -> bool:
        """
        Dispatch the records that a full disk has kept from the queues.
        """
        if self._dispatcher.position < self._commitLog.written:
            try:
                self._dispatcher.catchUp(self._commitLog)
            except (OSError, StoreError) as error:
                self._health.judge(error)
                self._log.error(
                    "The queues are still behind the log, which is kept: {error}", error=error
                )
                return False
        return True

    def _rest(self, seconds: float) -> None:
        """
        Leave the disk alone for a while: a checkpoint of thousands of queues, each with a
        file to sync, takes long.

        @param seconds: how long the last checkpoint took.
        """
        self._nextCheckpoint = self._clock.seconds() + seconds * _REST

    def _notChecked(self, failure: Any) -> None:
        failure.trap(StoreError, FlushDiskTimeout, OSError)
        if isinstance(failure.value, StoreFailed):
            self._health.judge(failure.value)
            return
        self._log.error(
            "No checkpoint could be written, so the next start will take longer: {error}",
            error=failure.value,
        )
