# SPDX-License-Identifier: Apache-2.0
"""
Setting the content of a store aside, because its master has nothing in common with it::

    ROOT/commitlog     --+
    ROOT/consumequeue  --+--> ROOT/aside/20260131235959000/commitlog ...
    ROOT/index         --+

Files are moved and not copied, so they take no room.  The newest file of the log goes first,
and each move is on the disk before the next one: whenever the power goes, the log is a shorter
one, and its queues are shorter or made anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

from txrocket.store.files import Files
from txrocket.store.files.segments import Segments, basesIn

__all__ = ["ASIDE_FOLDER", "asideFolder", "setAside"]

#: The folder for the content of stores that began anew.
ASIDE_FOLDER: Final = "aside"


def asideFolder(files: Files, root: str, now: int) -> str:
    """
    A folder to set content aside in.

    @param now: the time of day in milliseconds, which names it.
    """
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"
    taken = files.names(os.path.join(root, ASIDE_FOLDER))
    while name in taken:
        name = str(int(name) + 1)
    return os.path.join(root, ASIDE_FOLDER, name)


def setAside(files: Files, logFolder: str, logAside: str, others: Sequence[tuple[str, str]]) -> int:
    """
    Move the files of a log, and other folders.  Blocks.

    @param logAside: the folder to move the files of the log to.
    @param others: the other folders, each with its new path.
    @return: how many files and folders were moved.
    @raise OSError: if the disk fails.
    """
    moved = 0
    for base in reversed(basesIn(files, logFolder)):
        files.makeFolder(logAside)
        name = Segments.nameOf(base)
        # Not the folder itself, because it is locked.
        _move(files, os.path.join(logFolder, name), os.path.join(logAside, name))
        moved += 1
    for old, new in others:
        if files.names(old):
            files.makeFolder(os.path.dirname(new))
            _move(files, old, new)
            moved += 1
    return moved


def _move(files: Files, old: str, new: str) -> None:
    files.rename(old, new)
    files.syncFolder(os.path.dirname(new))
    files.syncFolder(os.path.dirname(old))
