# SPDX-License-Identifier: Apache-2.0
"""
Deleting old files, as Java's C{CleanCommitLogService} does::

    disk in use    action
    always         at the hours of deleteWhen, files older than fileReservedTime go
    above 75 %     they go at any hour
    above 85 %     the oldest files go, however young
    above 90 %     and no message is accepted until it is below again

The file that is written to never goes, nor one that queues and index may still be
needed for.  One with messages that wait to be delivered goes only if the disk is too
full.  Queues and index follow the log: entries and files that tell of records before
its first go too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from twisted.logger import Logger

from txrocket.errors import DiskFull
from txrocket.store.files import Files
from txrocket.store.flush.checkpointer import Checkpointer
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.settings import StoreSettings

__all__ = ["Retention"]

# How many files go at a time, so that one turn does not take long.
_AT_ONCE = 10
_HOUR_MS = 3_600_000


class Retention:
    """
    Watches the disk.

    @ivar settings: may be replaced while the store is open.
    @ivar full: why no message is accepted, or L{None}.
    @ivar needed: tells from where on the log has messages that wait to be delivered.
    """

    _log = Logger()

    def __init__(
        self,
        settings: StoreSettings,
        files: Files,
        log: CommitLog,
        checkpointer: Checkpointer,
        now: Callable[[], int],
        needed: Callable[[], int] | None = None,
    ) -> None:
        """
        @param now: the time of day in milliseconds, for the age of files and the hour.
        @param checkpointer: knows up to where queues and index are on the disk.
        @param needed: as the attribute; without it, no message waits to be delivered.
        """
        self.settings = settings
        self._files = files
        self._commitLog = log
        self._checkpointer = checkpointer
        self._now = now
        self.full: DiskFull | None = None
        self.needed: Callable[[], int] = needed or (lambda: log.written)

    def clean(self, *, asked: bool = False) -> int:
        """
        Look at the disk, and delete the files that must go.

        @param asked: whether an operator wants old files deleted now.
        @return: how many files of the log were deleted.
        """
        settings = self.settings
        # A step of the clock has to be seen when it comes, be there something to do or not.
        isTime = self._isTime()
        total, free = self._files.space(settings.commitLogFolder)
        used = 1.0 - free / total if total else 0.0
        self._watch(used, free)
        crowded = used > settings.diskMaxUsedSpaceRatio / 100
        forced = used > settings.diskSpaceCleanForciblyRatio and settings.cleanFileForciblyEnable
        if not (asked or crowded or forced or isTime):
            return 0
        deleted = self._delete(forced)
        if deleted:
            self.follow()
        elif crowded:
            self._log.warn(
                "The disk of {folder} is {used:.0%} full, and no file is old enough to go",
                folder=settings.storePathRootDir,
                used=used,
            )
        return deleted

    def follow(self) -> None:
        """
        Let queues and index forget the records that the log has no longer.
        """
        dispatcher, first = self._checkpointer.dispatcher, self._commitLog.first
        dispatcher.queues.follow(first)
        if dispatcher.index is not None:
            dispatcher.index.follow(first)

    def _watch(self, used: float, free: int) -> None:
        folder = self.settings.storePathRootDir
        if used > self.settings.diskSpaceWarningLevelRatio:
            if self.full is None:
                self._log.error(
                    "The disk of {folder} is {used:.0%} full: no message is accepted until "
                    "there is room again",
                    folder=folder,
                    used=used,
                )
            self.full = DiskFull(f"{folder}: the disk is {used:.0%} full, {free} bytes are free")
        elif self.full is not None:
            self._log.info("{folder} has room again: messages are accepted", folder=folder)
            self.full = None

    def _isTime(self) -> bool:
        hour = time.strftime("%H", time.localtime(self._now() / 1000))
        return hour in [each.strip().zfill(2) for each in self.settings.deleteWhen.split(";")]

    def _delete(self, forced: bool) -> int:
        segments = self._commitLog.segments
        oldest = self._now() - self.settings.fileReservedTime * _HOUR_MS
        deleted = 0
        needed = self._commitLog.written if forced else self.needed()
        safe = self._checkpointer.last.offset or 0
        while len(segments.bases) > 1 and deleted < _AT_ONCE:
            base = segments.bases[0]
            # Not the file that is written to, nor a file that queues may have to be made
            # from: a queue that is lost with its records would begin at offset 0 again.
            if base + segments.size > min(self._commitLog.written, safe, needed):
                break
            if not forced and segments.modified(base) * 1000 > oldest:
                break
            self._log.info("Deleting {path}", path=segments.pathOf(base))
            segments.removeFirst()
            deleted += 1
        return deleted
