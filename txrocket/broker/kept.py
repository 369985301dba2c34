# SPDX-License-Identifier: Apache-2.0
"""
A table in memory and its file, which follows it.

The table is written as a whole, in a thread, one write at a time.  Changes that
come while it is being written are written next, all together, so a hundred new
topics cost two writes and not a hundred::

    save() --> idle? --> write ---> done: who asked before it began is told
               else: remember -----> write once more
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.errors import StoreError
from txrocket.store.flush import InThread
from txrocket.store.tables import Table

__all__ = ["Kept"]

_Value = TypeVar("_Value")


class Kept:
    """
    One table's file.
    """

    _log = Logger()

    def __init__(self, table: Table, encode: Callable[[], bytes], inThread: InThread) -> None:
        """
        @param encode: makes the text of the table as it is now.
        @param inThread: runs a function that blocks.
        """
        self._table = table
        self._encode = encode
        self._inThread = inThread
        self._writing = False
        self._unsaved = False
        self._waiting: list[Deferred[None]] = []

    def load(self, decode: Callable[[bytes], _Value]) -> _Value | None:
        """
        Read the file.

        @return: L{None} if there is none.
        @raise StoreCorrupt: if it cannot be read.
        """
        return self._table.load(decode)

    def save(self) -> Deferred[None]:
        """
        Have the table as it is now written.

        @return: a Deferred that fires once it is on the disk, and fails with
            L{StoreError} if it cannot be written.
        """
        saved: Deferred[None] = Deferred()
        self._waiting.append(saved)
        if not self._writing:
            self._write()
        return saved

    def failed(self, failure: Failure) -> None:
        """
        Log that the table was not written, for who has nobody to tell.
        """
        failure.trap(StoreError)
        self._log.error(
            "{path} was not written and will be with the next change: {error}",
            path=self._table.path,
            error=failure.value,
        )

    def idle(self) -> Deferred[None]:
        """
        A Deferred that fires once nothing is being written.  What could not be
        written is tried once more.
        """
        if self._writing or self._unsaved:
            return self.save().addErrback(self.failed)
        return succeed(None)

    def _write(self) -> None:
        self._writing = True
        waiting, self._waiting = self._waiting, []
        data = self._encode()
        self._inThread(lambda: self._table.save(data)).addBoth(self._written, waiting)

    def _written(self, result: object, waiting: list[Deferred[None]]) -> None:
        self._writing = False
        self._unsaved = isinstance(result, Failure)
        if self._waiting:
            self._write()
        for each in waiting:
            each.callback(result)  # type: ignore[arg-type]
