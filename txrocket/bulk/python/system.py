# SPDX-License-Identifier: Apache-2.0
"""
What is asked of the operating system for many files at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["guardBus", "isGuarded", "releaseBus", "syncPaths"]


def syncPaths(paths: Iterable[str]) -> int:
    """
    See L{Bulk.syncPaths<txrocket.bulk.interface.Bulk.syncPaths>}.
    """
    listed = list(paths)
    # All types are checked before the first is synced.
    for path in listed:
        os.fsencode(path)
    for path in listed:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            os.fdatasync(handle)
        except OSError as error:
            return error.errno or 0
        finally:
            os.close(handle)
    return 0


def guardBus() -> None:
    """
    Do nothing: Python reads files by their handles, and no fault can raise SIGBUS.
    """


def releaseBus() -> None:
    """
    Do nothing, as L{guardBus} did.
    """


def isGuarded() -> bool:
    """
    Never: Python has to be given handles.
    """
    return False
