# SPDX-License-Identifier: Apache-2.0
"""
A table in memory and its file, which follows it.

The reactor encodes what has changed, in slices, and a thread writes the table, one
write at a time.  Changes that come while it is being written are written next, all
together, so a hundred new topics cost two writes and not a hundred::

    save() --> idle? --> encode --> write --> done: callers from before it began are told
               else: remember --------------> encode and write once more

Changes are numbered, so that a caller waits for the write that has its change, and for
no other::

    asked   the last change
    begun   the last change that is in the table being written, or written last
    done    the last change that is on the disk
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import attrs
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Cooperator
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.tables.tabletext import Source
from txrocket.errors import StoreError, StoreFailed
from txrocket.store.flush.flusher import InThread
from txrocket.store.jsontable import Table

__all__ = ["SavedTable", "TableFile"]

_Value = TypeVar("_Value")


@attrs.frozen
class TableFile:
    """
    A table's file and the means to write it.

    @ivar inThread: runs a function that blocks.
    @ivar slices: divides the time for encoding many members; without it, they are encoded
        in one go.
    """

    table: Table
    inThread: InThread
    slices: Cooperator | None = None


class SavedTable:
    """
    Writes one table to its file.

    @ivar asked: the number of the last change.
    @ivar done: the number of the last change that is on the disk.
    """

    _log = Logger()

    def __init__(self, file: TableFile, source: Source) -> None:
        """
        @param source: the table's text.
        """
        self._table = file.table
        self._source = source
        self._inThread = file.inThread
        self._slices = file.slices
        self.asked = self._begun = self.done = 0
        self._busy = False
        self._writing: list[Deferred[None]] = []
        self._waiting: list[Deferred[None]] = []

    @property
    def damaged(self) -> bool:
        """
        Whether the file was found damaged.
        """
        return self._table.damaged

    def load(
        self,
        decode: Callable[[bytes], _Value],
        mend: Callable[[_Value | None, Sequence[bytes]], _Value | None] | None = None,
    ) -> _Value | None:
        """
        Read the file.

        @param mend: as L{Table.load} has it.
        @return: L{None} if there is no file.
        @raise StoreCorrupt: if it cannot be read.
        """
        value = self._table.load(decode, mend)
        if self._table.damaged:
            # Replace the damaged file with the next write.
            self.asked += 1
        return value

    def save(self) -> Deferred[None]:
        """
        Write the table, which has changed.

        @return: a Deferred that fires once it is on the disk, and fails with
            L{StoreError} if it cannot be written.
        """
        self.asked += 1
        return self.saved()

    def saved(self) -> Deferred[None]:
        """
        A Deferred that fires once all changes so far are on the disk, and fails with
        L{StoreError} if they cannot be written.
        """
        if self.done == self.asked:
            return succeed(None)
        saved: Deferred[None] = Deferred()
        if self._writing and self._begun == self.asked:
            self._writing.append(saved)
            return saved
        self._waiting.append(saved)
        if not self._busy:
            self._encode()
        return saved

    def encoded(self) -> Deferred[bytes]:
        """
        The table's text, once all changed members are encoded.
        """
        if self._slices is None or self._source.refresh():
            return succeed(self._source.text()())
        return self._slices.coiterate(self._slicewise()).addCallback(
            lambda none: self._source.text()()
        )

    def failed(self, failure: Failure) -> None:
        """
        Log that the table was not written, for a change that no caller waits for.
        """
        failure.trap(StoreError)
        self._log.error(
            "{path} was not written; the broker tries again: {error}",
            path=self._table.path,
            error=failure.value,
        )

    def idle(self) -> Deferred[None]:
        """
        Write the changes that are not written yet.  A failure is logged.

        @return: a Deferred that fires once nothing is being written.
        """
        return self.saved().addErrback(self.failed)

    def _encode(self) -> None:
        self._busy = True
        # One slice is nearly always enough.
        if self._source.refresh() or self._slices is None:
            self._write()
        else:
            self._slices.coiterate(self._slicewise()).addCallbacks(
                lambda none: self._write(), self._notEncoded
            )

    def _slicewise(self) -> Iterator[None]:
        while not self._source.refresh():
            yield

    def _notEncoded(self, failure: Failure) -> None:
        self._writing, self._waiting = self._waiting, []
        self._written(failure)

    def _write(self) -> None:
        # This write also serves the callers that came while members were encoded.
        self._writing, self._waiting = self._waiting, []
        self._begun = self.asked
        text = self._source.text()
        self._inThread(lambda: self._table.save(text())).addBoth(self._written)

    def _written(self, result: object) -> None:
        waiting, self._writing = self._writing, []
        if not isinstance(result, Failure):
            self.done = self._begun
        elif result.check(StoreError) is None:
            result = Failure(StoreFailed(f"writing {self._table.path} failed: {result.value!r}"))
        self._busy = False
        if self._waiting:
            self._encode()
        for each in waiting:
            each.callback(result)  # type: ignore[arg-type]
