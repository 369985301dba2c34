# SPDX-License-Identifier: Apache-2.0
"""
The tables in C{config/}: small JSON files that are written as a whole.

A table is never changed in place.  The new one is written beside the old one and
synced, then renamed over it; the old one stays as C{.bak}.  Whenever the power
goes, one of the two is whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from twisted.logger import Logger

from txrocket.errors import DiskFull, ProtocolError, StoreCorrupt, StoreFailed
from txrocket.store.files import FULL, Files

__all__ = ["TABLES", "Table"]

# The tables that RocketMQ keeps.
TABLES = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "delayOffset.json",
    "consumerFilter.json",
)

_Value = TypeVar("_Value")


class Table:
    """
    One table.
    """

    _log = Logger()

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._current: bytes | None = None

    def load(self, decode: Callable[[bytes], _Value]) -> _Value | None:
        """
        Read the table, or the one before it if it is damaged.

        @param decode: makes a value of the text; raises L{ProtocolError} if it
            is none.
        @return: the value; L{None} if there is no table.
        @raise StoreCorrupt: if both are damaged.
        """
        problems = []
        for path in (self.path, f"{self.path}.bak"):
            data = self._read(path)
            if not data:
                if data is not None:
                    problems.append(f"{path} is empty")
                continue
            try:
                value = decode(data)
            except ProtocolError as error:
                problems.append(f"{path} is damaged: {error}")
                continue
            if path == self.path:
                self._current = data
            else:
                self._log.warn(
                    "Using {path}, an older state: {problems}",
                    path=path,
                    problems="; ".join(problems) or f"{self.path} is missing",
                )
            return value
        if problems:
            raise StoreCorrupt(
                f"{'; '.join(problems)}; restore one of them, or remove both to begin anew"
            )
        return None

    def save(self, data: bytes) -> None:
        """
        Put a new table into the place of the old one.  Blocks for a moment.

        @raise DiskFull: if there is no room; the old one stays.
        @raise StoreFailed: if the disk does not take it; it may be taken anew.
        """
        if data == self._current:
            return
        folder = os.path.dirname(self.path)
        try:
            self._files.makeFolder(folder)
            if self._current is not None:
                self._replace(f"{self.path}.bak", self._current)
            self._replace(self.path, data)
        except OSError as error:
            if error.errno not in FULL:
                raise StoreFailed(f"writing {self.path} failed: {error}") from error
            free = self._files.space(os.path.dirname(folder))[1]
            raise DiskFull(f"{self.path}: no room, {free} bytes are free") from error
        self._current = data

    def _replace(self, path: str, data: bytes) -> None:
        beside = f"{path}.tmp"
        handle = self._files.open(beside)
        try:
            self._files.truncate(handle, 0)
            self._files.pwrite(handle, data, 0)
            self._files.sync(handle)
        finally:
            self._files.close(handle)
        self._files.rename(beside, path)
        self._files.syncFolder(os.path.dirname(path))

    def _read(self, path: str) -> bytes | None:
        size = self._files.size(path)
        if size is None:
            return None
        handle = self._files.open(path)
        try:
            return self._files.pread(handle, size, 0)
        finally:
            self._files.close(handle)
