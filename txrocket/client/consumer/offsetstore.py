# SPDX-License-Identifier: Apache-2.0
"""
Where a consumer keeps how far it has come: at the brokers, where the members of
its group share it (C{RemoteBrokerOffsetStore}), or, if it broadcasts, in a file
of its own (C{LocalFileOffsetStore}).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.errors import ProtocolError, RocketError
from txrocket.model import MessageQueue
from txrocket.protocol.bodies import ResetOffsetBody
from txrocket.protocol.bodies.codec import decodeBody, encodeBody

__all__ = ["LocalOffsets", "MemoryOffsets", "OffsetStore", "RemoteOffsets"]


class OffsetStore(Protocol):
    """
    A consumer's offsets.
    """

    def load(self) -> None:
        """
        Get ready.
        """

    def get(self, queue: MessageQueue) -> int | None:
        """
        The offset as it is known here.
        """

    def fetch(self, queue: MessageQueue) -> Deferred[int | None]:
        """
        The offset that was persisted, or L{None}.
        """

    def update(self, queue: MessageQueue, offset: int, *, back: bool = False) -> None:
        """
        A queue is consumed up to an offset.

        @param back: whether it may be less than before.
        """

    def persist(self, queues: Iterable[MessageQueue] | None = None) -> Deferred[None]:
        """
        Keep the offsets of some queues, or of all.
        """

    def forget(self, queue: MessageQueue) -> None:
        """
        A queue is no longer this consumer's.
        """


class _Offsets:
    """
    Offsets in memory.
    """

    def __init__(self) -> None:
        self._table: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int | None:
        """
        The offset as it is known here.
        """
        return self._table.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, back: bool = False) -> None:
        """
        A queue is consumed up to an offset.
        """
        if back or offset > self._table.get(queue, -1):
            self._table[queue] = offset


class MemoryOffsets(_Offsets):
    """
    Offsets in memory, which end with the process.
    """

    def load(self) -> None:
        """
        There is nothing.
        """

    def fetch(self, queue: MessageQueue) -> Deferred[int | None]:
        """
        What is known.
        """
        return succeed(self._table.get(queue))

    def persist(self, queues: Iterable[MessageQueue] | None = None) -> Deferred[None]:
        """
        There is nowhere to keep them.
        """
        return succeed(None)

    def forget(self, queue: MessageQueue) -> None:
        """
        All members of a group have all queues: none is ever another's.
        """


class RemoteOffsets(_Offsets):
    """
    Offsets that brokers keep.
    """

    _log = Logger()

    def __init__(self, requests: GroupCalls) -> None:
        super().__init__()
        self._requests = requests
        self._persisted: dict[MessageQueue, int] = {}

    def load(self) -> None:
        """
        Nothing is known before it is asked for.
        """

    def fetch(self, queue: MessageQueue) -> Deferred[int | None]:
        """
        Ask the broker.
        """
        return self._requests.offset(queue)

    def persist(self, queues: Iterable[MessageQueue] | None = None) -> Deferred[None]:
        """
        Tell the brokers what they were not told yet.
        """
        chosen = self._table if queues is None else [each for each in queues if each in self._table]
        telling = [
            self._tell(queue, self._table[queue])
            for queue in list(chosen)
            if self._persisted.get(queue) != self._table[queue]
        ]
        return DeferredList(telling).addCallback(lambda results: None)

    def _tell(self, queue: MessageQueue, offset: int) -> Deferred[None]:
        def persisted(none: None) -> None:
            if queue in self._table:
                self._persisted[queue] = offset

        def failed(failure: Failure) -> None:
            failure.trap(RocketError)
            self._log.warn(
                "Offset {offset} of {queue} was not persisted, trying again: {error}",
                offset=offset,
                queue=queue,
                error=failure.value,
            )

        return self._requests.updateOffset(queue, offset).addCallbacks(persisted, failed)

    def forget(self, queue: MessageQueue) -> None:
        """
        A queue is another's now.
        """
        self._table.pop(queue, None)
        self._persisted.pop(queue, None)


class LocalOffsets(_Offsets):
    """
    Offsets in a file, in the form of Java's.
    """

    _log = Logger()

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """
        @param path: the file; its folder is made.  Java's clients keep it in
            C{~/.rocketmq_offsets/CLIENT/GROUP/offsets.json}.
        """
        super().__init__()
        self._path = Path(path)
        self._written: bytes | None = None

    def load(self) -> None:
        """
        Read the file, or the one before it if it is damaged.
        """
        for path in (self._path, self._path.with_name(f"{self._path.name}.bak")):
            try:
                body = decodeBody(ResetOffsetBody, path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, ProtocolError) as error:
                self._log.error("{path} cannot be read: {error}", path=str(path), error=error)
                continue
            self._table = dict(body.offsetTable)
            return

    def fetch(self, queue: MessageQueue) -> Deferred[int | None]:
        """
        What the file had.
        """
        return succeed(self._table.get(queue))

    def persist(self, queues: Iterable[MessageQueue] | None = None) -> Deferred[None]:
        """
        Write the file.
        """
        data = encodeBody(ResetOffsetBody(self._table))
        if data != self._written:
            try:
                self._write(data)
            except OSError as error:
                self._log.error("{path} was not written: {error}", path=self._path, error=error)
        return succeed(None)

    def _write(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_name(f"{self._path.name}.tmp")
        beside.write_bytes(data)
        if self._path.exists():
            os.replace(self._path, self._path.with_name(f"{self._path.name}.bak"))
        os.replace(beside, self._path)
        self._written = data

    def forget(self, queue: MessageQueue) -> None:
        """
        All members of a group have all queues: none is ever another's.
        """
