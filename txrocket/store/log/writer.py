# SPDX-License-Identifier: Apache-2.0
"""
Writing: appended messages become bytes of the files, and their callers learn it::

    Appender --> CommitLog.write --> wrote --> Dispatcher, Write.isWritten
                      |
                      +--> fails --> dropped: Write.error, and an error for each waiter

All messages that were appended since the last write are written at once.  If that fails, all
of them are lost, and the next messages get their offsets.
"""

from __future__ import annotations

from contextlib import suppress

from twisted.logger import Logger

from txrocket.errors import DiskFull, StoreError, StoreFailed
from txrocket.store.dispatch import Dispatcher
from txrocket.store.flush.watermark import Watermark
from txrocket.store.health import StoreHealth
from txrocket.store.log.append import Appender
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.tasks import PeriodicTasks

__all__ = ["LogWriter"]


class LogWriter:
    """
    Writes the messages that were appended.

    @ivar written: how far the log is in the files.
    """

    _log = Logger()

    def __init__(
        self,
        log: CommitLog,
        written: Watermark,
        appender: Appender,
        dispatcher: Dispatcher,
        health: StoreHealth,
        tasks: PeriodicTasks,
    ) -> None:
        self._commitLog = log
        self.written = written
        self._appender = appender
        self._dispatcher = dispatcher
        self._health = health
        self._tasks = tasks
        self._flushed = tasks.flusher.flushed

    def write(self) -> None:
        """
        Write all messages that were appended to the files.  The reactor does so when it
        turns; a caller that cannot wait for that calls this.

        @raise StoreError: if that fails: the messages are lost.
        """
        log, failure = self._commitLog, self._health.failure
        self._appender.schedule.end()
        try:
            if failure is not None and log.end > log.written:
                log.drop()
                raise failure
            log.write()
        except StoreError as error:
            self._dropped(error)
            raise
        self.written.advance(log.written)
        if self._flushed.waiting:
            self._tasks.flush()

    def adopt(self, data: bytes, *, isPad: bool) -> None:
        """
        Write the next bytes of a master's log, as they are.

        @param data: whole records, and maybe a blank behind them.
        @param isPad: whether they fill a file instead, and are no records.
        @raise StoreError: if that fails; nothing is written.
        """
        log, start = self._commitLog, self._commitLog.written
        try:
            log.adopt(data)
        except StoreFailed as error:
            self._health.fail(error)
            raise
        if not isPad:
            self.wrote(start, data)
        self.written.advance(log.written)
        if self._flushed.waiting:
            self._tasks.flush()

    def commit(self) -> None:
        """
        Write the messages that were appended in this turn, if there are any.
        """
        if self._appender.schedule.isPending:
            # Waiters get the error through their Deferreds, and appenders by their Write.
            with suppress(StoreError):
                self.write()

    def writeLater(self) -> None:
        """
        The reactor has turned: write.
        """
        try:
            self.write()
        except DiskFull:
            # Waiters have got the error.
            pass
        except StoreError as error:
            self._log.error("{error}", error=error)

    def close(self) -> None:
        """
        Write and dispatch all messages, and take no more.

        @raise StoreError: if that fails, or the store has failed before.
        @raise OSError: if the queues cannot be written.
        """
        self.write()
        if self._health.failure is not None:
            raise self._health.failure
        self._health.close()
        self._dispatcher.catchUp(self._commitLog)

    def forget(self) -> None:
        """
        Let go of the files of the log.
        """
        self._commitLog.segments.abandon()

    def release(self) -> None:
        """
        Write nothing more.
        """
        self._appender.schedule.end()
        self._commitLog.segments.close()

    def wrote(self, offset: int, data: bytes) -> None:
        """
        The log has written records.  When it begins a new file, it calls this as well: all
        messages that were appended before are in the files.
        """
        self._appender.wrote()
        try:
            self._dispatcher.dispatch(offset, data)
        except (OSError, StoreError) as error:
            self._health.judge(error)
            self._log.error("The queues fall behind the log, which is kept: {error}", error=error)

    def notBegun(self, error: StoreError) -> None:
        """
        No new file of the log could be begun.
        """
        if self._commitLog.end == self._commitLog.written:
            self._dropped(error)
        elif isinstance(error, StoreFailed):
            self._health.fail(error)

    def _dropped(self, error: StoreError) -> None:
        """
        All messages that are not written are lost, and their waiters get the error.
        """
        self._appender.dropped(error)
        if isinstance(error, StoreFailed):
            self._health.fail(error)
        written = self._commitLog.written
        self.written.advance(written)
        self.written.disappoint(error)
        self._flushed.disappoint(error, written)
        # Messages before the lost ones may be written, and still wait for the disk.
        if self._flushed.waiting:
            self._tasks.flush()
