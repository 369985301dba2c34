# SPDX-License-Identifier: Apache-2.0
"""
The open files of a store: RocketMQ maps every file, we keep the files open that are in use::

    path --> Handles.get --> handle, good until the next call
             Handles.pin --> handle, good until unpin: for a sync in a thread

A store of ten thousand queues has more files than a process may open.  L{Handles} closes
the file that was not used for the longest time, and opens it again when it is needed.
"""

from __future__ import annotations

from collections import OrderedDict

from txrocket.store.files import Files

__all__ = ["Handles"]


class Handles:
    """
    Open files, the most recently used ones: ten thousand queues are served
    within a bounded number of them.
    """

    def __init__(self, files: Files, limit: int = 512) -> None:
        self.files = files
        self._limit = limit
        self._open: OrderedDict[str, int] = OrderedDict()
        self._pins: dict[str, int] = {}
        self._forgotten: dict[str, list[int]] = {}  # but pinned

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: str) -> int:
        """
        A file's handle, good until the next call.
        """
        handle = self._open.get(path)
        if handle is not None:
            self._open.move_to_end(path)
            return handle
        handle = self._open[path] = self.files.open(path)
        self._shrink()
        return handle

    def pin(self, path: str) -> int:
        """
        A file's handle, good until it is unpinned: for a thread that syncs it.
        """
        # First: a file that cannot be opened must not count as pinned.
        handle = self.get(path)
        self._pins[path] = self._pins.get(path, 0) + 1
        return handle

    def unpin(self, path: str) -> None:
        """
        The handle is no longer needed.
        """
        self._pins[path] -= 1
        if not self._pins[path]:
            del self._pins[path]
            for handle in self._forgotten.pop(path, ()):
                self.files.close(handle)
            self._shrink()

    def forget(self, path: str) -> None:
        """
        A file is about to be removed.  A thread that has it pinned may go on.
        """
        handle = self._open.pop(path, None)
        if handle is None:
            return
        if path in self._pins:
            self._forgotten.setdefault(path, []).append(handle)
        else:
            self.files.close(handle)

    def close(self) -> None:
        """
        Close all files; a pinned file is closed when it is unpinned.
        """
        for path in list(self._open):
            self.forget(path)

    def _shrink(self) -> None:
        while len(self._open) > self._limit:
            oldest = next((path for path in self._open if path not in self._pins), None)
            # The caller is about to use the newest.
            if oldest is None or oldest == next(reversed(self._open)):
                break
            self.files.close(self._open.pop(oldest))
