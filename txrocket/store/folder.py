# SPDX-License-Identifier: Apache-2.0
"""
The folder of a store, which one process has to itself::

    lock     locked while a process works on the store, as Java locks it
    abort    there while a process works on the store: a start that finds it follows a crash

Two stores may have one folder for the log and folders of their own for the rest, so the
folder of the log is locked as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from twisted.logger import Logger

from txrocket.errors import StoreError, StoreInUse
from txrocket.store.files import Files, Locked

__all__ = ["StoreFolder"]


class StoreFolder:
    """
    Locks the folder, and marks it.

    @ivar root: the path of the folder.
    """

    _log = Logger()

    def __init__(self, files: Files, root: str, commitLogFolder: str) -> None:
        self._files = files
        self.root = root
        self._commitLogFolder = commitLogFolder
        self._abortPath = os.path.join(root, "abort")
        self._locks: list[Callable[[], None]] = []

    @property
    def isOpen(self) -> bool:
        """
        Whether this process has the folder.
        """
        return bool(self._locks)

    def open(self) -> bool:
        """
        Lock the folder, and mark it.

        @return: whether the last process has closed it.
        @raise StoreInUse: if another process has it.
        @raise OSError: if the disk fails.
        """
        self._files.makeFolder(self.root)
        if self._files.size(self._abortPath) is None:
            self._syncAbove(self.root)
        try:
            self._lock()
        except Locked as locked:
            # The lock file lies in the root; of other folders, the folder is locked.
            folder = locked.args[0] if self._locks else self.root
            raise StoreInUse(f"{folder} is in use by another process") from None
        clean = self._files.size(self._abortPath) is None
        # Before anything is changed, for that may be interrupted as well.
        self._files.close(self._files.open(self._abortPath))
        self._files.syncFolder(self.root)
        return clean

    def close(self) -> None:
        """
        Take the mark away: everything is on the disk.

        @raise OSError: if the disk fails.
        """
        self._files.remove(self._abortPath)
        self._files.syncFolder(self.root)

    def release(self) -> None:
        """
        Unlock the folder.
        """
        while self._locks:
            self._locks.pop()()

    def space(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """
        The bytes of the disk that holds the log, and how many of them are free; and the same
        of the disk that holds all else.

        @raise StoreError: if a disk does not tell.
        """
        try:
            return self._files.space(self._commitLogFolder), self._files.space(self.root)
        except OSError as error:
            raise StoreError(f"looking at the room on the disk failed: {error}") from error

    def _lock(self) -> None:
        self._locks.append(self._files.lock(os.path.join(self.root, "lock")))
        for folder in (self.root, self._commitLogFolder):
            self._files.makeFolder(folder)
            unlock = self._files.lockFolder(folder)
            if unlock is not None:
                self._locks.append(unlock)
            elif folder != self.root:
                self._log.warn(
                    "{folder} cannot be locked on its file system: see to it that no other "
                    "broker has it as its storePathCommitLog",
                    folder=folder,
                )

    def _syncAbove(self, path: str) -> None:
        """
        Sync a folder's name: the process that made it may have ended before doing so.
        """
        above = os.path.dirname(os.path.abspath(path))
        # A folder of another user need not be readable, nor know of syncs; it is old then.
        with suppress(OSError):
            self._files.syncFolder(above)
        if above != os.path.dirname(above):
            self._syncAbove(above)
