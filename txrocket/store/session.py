# SPDX-License-Identifier: Apache-2.0
"""
One session of a process on the folder of a store, from start to stop::

    open   StoreFolder.open --> Recovery.recover --> Checkpointer.resume
    close  LogWriter.write --> Dispatcher.catchUp --> checkpoint --> StoreFolder.close

The folder is marked while a session lasts.  A close that does not come to its end leaves the
mark, and the next start recovers as after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.errors import DiskFull, FlushDiskTimeout, StoreError, StoreFailed
from txrocket.store.files import FULL, SyncFailed
from txrocket.store.files.handles import Handles
from txrocket.store.flush.checkpointer import Checkpointer
from txrocket.store.flush.deadlines import Deadlines
from txrocket.store.folder import StoreFolder
from txrocket.store.log.writer import LogWriter
from txrocket.store.recovery import Recovery

__all__ = ["StoreSession"]


class StoreSession:
    """
    Opens and closes the folder.

    @ivar recovery: brings the folder in line with the log.
    """

    _log = Logger()

    def __init__(
        self,
        folder: StoreFolder,
        recovery: Recovery,
        writer: LogWriter,
        checkpointer: Checkpointer,
        deadlines: Deadlines,
        handles: Handles,
    ) -> None:
        self._folder = folder
        self.recovery = recovery
        self._writer = writer
        self._checkpointer = checkpointer
        self._deadlines = deadlines
        self._handles = handles
        self._isClosing = False

    def open(self, follower: bool = False) -> int:
        """
        Lock the folder, and recover it.

        @param follower: whether its log is the copy of a master's.
        @return: where the log ends; up to there it is on the disk.
        @raise StoreInUse: if another process works on it.
        @raise DiskFull: if there is no room to recover it.
        @raise StoreFailed: if the disk fails.
        @raise StoreCorrupt: if it cannot be opened without losing data.
        """
        root = self._folder.root
        try:
            end = self.recovery.recover(clean=self._folder.open(), follower=follower)
            self._checkpointer.resume()
        except OSError as error:
            self.release()
            if error.errno in FULL and not isinstance(error, SyncFailed):
                free = self._handles.files.space(os.path.dirname(root) or ".")[1]
                raise DiskFull(f"{root}: {error}, {free} bytes are free") from error
            raise StoreFailed(f"opening {root} failed: {error}") from error
        except BaseException:
            self.release()
            raise
        return end

    def forgetCheckpoint(self) -> None:
        """
        The log is going to be cut: a checkpoint that is being made is not written.
        """
        self._checkpointer.forget()

    def forget(self) -> None:
        """
        Forget everything in memory, as if the process had died.
        """
        self._checkpointer.forget()
        self._checkpointer.dispatcher.forget()
        self._writer.forget()
        self.recovery.forget()
        self._handles.close()

    def reopen(self) -> int:
        """
        Recover the folder of a follower as after a crash.

        @return: where the log ends.
        @raise OSError: if the disk fails.
        @raise StoreCorrupt: if the folder cannot be opened without losing data.
        """
        end = self.recovery.recover(clean=False, follower=True)
        self._checkpointer.resume()
        return end

    @inlineCallbacks
    def close(self) -> Generator[Deferred[Any], None, None]:
        """
        Write and sync everything, and unlock the folder.
        """
        if self._isClosing or not self._folder.isOpen:
            return
        self._isClosing = True
        try:
            self._writer.close()
            yield self._checkpointer.checkpoint()
            self._folder.close()
        except (StoreError, FlushDiskTimeout, OSError) as error:
            self._log.error(
                "{folder} was not closed cleanly, the next start will check it: {error}",
                folder=self._folder.root,
                error=error,
            )
        finally:
            self.release()

    def release(self) -> None:
        """
        Close all files and unlock the folder.  Nothing more is written.
        """
        self._writer.release()
        self._deadlines.stop()
        self._handles.close()
        self._folder.release()
