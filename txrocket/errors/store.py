# SPDX-License-Identifier: Apache-2.0
"""
Errors of the message store: its folder, its files and its disk.
"""

from __future__ import annotations

from typing import ClassVar

from txrocket.errors.base import RocketError

__all__ = [
    "DiskFull",
    "MalformedLog",
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreInUse",
    "StoreIsReplica",
]


class StoreError(RocketError):
    """
    The store cannot serve the call.
    """


class StoreInUse(StoreError):
    """
    Another process has the same store folder open.
    """


class StoreCorrupt(StoreError):
    """
    The files on disk break the format, and opening the store would lose data.
    """


class StoreFailed(StoreError):
    """
    A write or flush failed.  The store accepts no further writes, because the content
    of the disk is unknown.
    """


class DiskFull(StoreError):
    """
    The disk is full.  Reads continue, and writes are accepted again once there is
    space.
    """

    retriable: ClassVar[bool] = True


class StoreIsReplica(StoreError):
    """
    The store follows the log of a master, and takes no messages of its own.
    """

    retriable: ClassVar[bool] = True


class MalformedLog(StoreError):
    """
    Bytes that a master sent do not continue the log of this store.
    """
