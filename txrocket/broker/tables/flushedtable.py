# SPDX-License-Identifier: Apache-2.0
"""
How far messages were delivered, in a file that is never ahead of the disk::

    save(value) --> the store is flushed --> the file is written
                    all that was delivered    and tells of no more
                    is on the disk            than that

So after a crash, or a power loss, messages may be delivered twice, and none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred

from txrocket.broker.tables.savedtable import SavedTable, TableFile
from txrocket.broker.tables.tabletext import Whole
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.store.flush.flusher import InThread
from txrocket.store.jsontable import Table
from txrocket.store.messagestore import MessageStore

__all__ = ["FlushedTable"]

_Value = TypeVar("_Value")


class FlushedTable(Generic[_Value]):
    """
    One value in a file: how far the broker has delivered parked messages.
    """

    def __init__(self, store: MessageStore, table: Table, inThread: InThread) -> None:
        self._store = store
        self._safe: _Value | None = None
        file = TableFile(table, inThread)
        self._saved = SavedTable(file, Whole(lambda: encodeBody(self._safe)))

    def load(self, kind: type[_Value]) -> _Value | None:
        """
        Read the file.  If it is damaged, read the older one: some messages are then
        delivered twice.

        @return: L{None} if there is no file, or if neither can be read.
        """

        def mended(older: _Value | None, spoiled: Sequence[bytes]) -> _Value | None:
            return older

        decode: Callable[[bytes], _Value] = lambda data: decodeBody(kind, data)  # noqa: E731
        found = self._saved.load(decode, mended)
        # A damaged file is replaced even if the value has not changed.
        self._safe = None if self._saved.damaged else found
        return found

    def save(self, value: _Value) -> Deferred[None]:
        """
        Write the value, if it has changed, once all appended messages are on the disk.
        A failure is logged, and the next call writes the value.

        @param value: the caller does not change it any more.
        @return: a Deferred that fires once nothing is being written.
        """
        if value == self._safe:
            return self._saved.idle()

        def flushed(none: None) -> Deferred[None]:
            self._safe = value
            return self._saved.save()

        return (
            maybeDeferred(self._store.flushed).addCallback(flushed).addErrback(self._saved.failed)
        )
