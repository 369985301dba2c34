# SPDX-License-Identifier: Apache-2.0
"""
One sync: the files and folders that must be on the disk before the store calls a message,
or a checkpoint, safe::

    reactor  SyncJob.add -----------------------> SyncJob.end
    thread                 SyncJob.run (blocks)

The job takes over the list of changed files in the reactor thread.  The thread then touches
no state of the store.
"""

from __future__ import annotations

from txrocket.store.files.handles import Handles
from txrocket.store.files.segments import Segments

__all__ = ["SyncJob"]


class SyncJob:
    """
    The files and folders that one sync brings to the disk.

    It is made in the reactor's thread, run in another, and ended in the
    reactor's thread again.
    """

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._pinned: dict[str, int] = {}
        self._paths: set[str] = set()
        self._folders: set[str] = set()

    def add(self, segments: Segments, *, keepOpen: bool = False) -> None:
        """
        Take over the files that were written since the last job.

        @param keepOpen: whether to sync the very handles that were written to,
            which hear of every error of the disk.  The others are opened one
            after the other, since there may be more than can be open.
        """
        if keepOpen:
            for path in segments.dirtyPaths:
                if path not in self._pinned:
                    self._pinned[path] = self._handles.pin(path)
        else:
            self._paths |= segments.dirtyPaths
        self._folders |= segments.dirtyFolders
        segments.dirtyPaths.clear()
        segments.dirtyFolders.clear()

    def addPath(self, path: str) -> None:
        """
        Have one more file synced.
        """
        self._paths.add(path)

    def addFolder(self, path: str) -> None:
        """
        Have the names in a folder synced.
        """
        self._folders.add(path)

    def run(self) -> None:
        """
        Wait for the disk.  Blocks; touches nothing but the files.
        """
        files = self._handles.files
        for handle in self._pinned.values():
            files.sync(handle)
        files.syncPaths(sorted(self._paths))
        for folder in sorted(self._folders):
            files.syncFolder(folder)

    def end(self) -> None:
        """
        The handles are no longer needed.
        """
        for path in self._pinned:
            self._handles.unpin(path)
        self._pinned.clear()

    def giveBack(self, segments: Segments) -> None:
        """
        It was not run to its end: the next job must sync the same.
        """
        segments.dirtyPaths.update(self._pinned, self._paths)
        segments.dirtyFolders |= self._folders
