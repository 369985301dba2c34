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

from txrocket.broker.kept import Kept
from txrocket.broker.pieces import Whole
from txrocket.protocol.bodycodec import decodeBody, encodeBody
from txrocket.store.flush import InThread
from txrocket.store.messages import MessageStore
from txrocket.store.tables import Table

__all__ = ["Reached"]

_Value = TypeVar("_Value")


class Reached(Generic[_Value]):
    """
    The file.
    """

    def __init__(self, store: MessageStore, table: Table, inThread: InThread) -> None:
        self._store = store
        self._safe: _Value | None = None
        self._kept = Kept(table, Whole(lambda: encodeBody(self._safe)), inThread)

    def load(self, kind: type[_Value]) -> _Value | None:
        """
        Read it.  If it is damaged, the one before is read: some messages are delivered
        twice.

        @return: L{None} if there is no file, or none that can be read.
        """

        def mended(older: _Value | None, spoiled: Sequence[bytes]) -> _Value | None:
            return older

        decode: Callable[[bytes], _Value] = lambda data: decodeBody(kind, data)  # noqa: E731
        found = self._kept.load(decode, mended)
        # One that is damaged is to be replaced, though nothing may have changed.
        self._safe = None if self._kept.damaged else found
        return found

    def save(self, value: _Value) -> Deferred[None]:
        """
        Write it, if it has changed, once all that was put is on the disk.  A failure
        is logged: it is written the next time.

        @param value: is not changed from now on.
        @return: a Deferred that fires once nothing is being written.
        """
        if value == self._safe:
            return self._kept.idle()

        def flushed(none: None) -> Deferred[None]:
            self._safe = value
            return self._kept.save()

        return maybeDeferred(self._store.flushed).addCallback(flushed).addErrback(self._kept.failed)
