# SPDX-License-Identifier: Apache-2.0
"""
Checking consume queues beside the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from txrocket.store.consumequeue import ASIDE, ENTRY_SIZE, FILLER_SIZE, ConsumeQueues, entries
from txrocket.store.files import Handles
from txrocket.store.readonly import Note, openSegments, sizeOfFirst
from txrocket.store.segments import Segments

__all__ = ["QueuesCheck"]

# Entries that are read at a time, of each queue: 4 KiB.
_CHUNK = 4096 // ENTRY_SIZE


class _Queue:
    """
    One queue, read from front to back.

    @ivar seen: the queue offset of the first record; L{None} before it.
    @ivar next: the queue offset that the next record must have.
    """

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.first = segments.bases[0] // ENTRY_SIZE if segments.bases else 0
        self.end = segments.end // ENTRY_SIZE
        self.seen: int | None = None
        self.next = self.first
        self._held: list[tuple[int, int, int]] = []
        self._heldAt = 0

    def entry(self, queueOffset: int) -> tuple[int, int, int] | None:
        """
        An entry; L{None} where there is none.
        """
        if not 0 <= queueOffset - self._heldAt < len(self._held):
            data = self.segments.read(queueOffset * ENTRY_SIZE, _CHUNK * ENTRY_SIZE)
            self._held = list(entries(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]))
            self._heldAt = queueOffset
            if not self._held:
                return None
        found = self._held[queueOffset - self._heldAt]
        return found if found[1] > 0 else None

    def between(self, start: int, end: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """
        Entries with their queue offsets, up to the first that is none.
        """
        for queueOffset in range(start, end):
            found = self.entry(queueOffset)
            if found is None:
                return
            yield queueOffset, found


class QueuesCheck(ConsumeQueues):
    """
    Queues that compare what is put into them with what they have.
    """

    def __init__(self, handles: Handles, folder: str, note: Note) -> None:
        super().__init__(handles, folder, ENTRY_SIZE)
        self._root = folder
        self._note = note
        self._checked: dict[tuple[str, int], _Queue] = {}
        self._entries = 0

    def load(self) -> None:
        """
        Find all queues.
        """
        files = self._handles.files
        for topic in files.names(self._root):
            for name in files.names(os.path.join(self._root, topic)):
                if name.isascii() and name.isdigit() and not topic.startswith(ASIDE):
                    self._open(topic, name)

    def _open(self, topic: str, name: str) -> None:
        folder = os.path.join(self._root, topic, name)
        size = sizeOfFirst(folder)
        segments = Segments(self._handles, folder, size or ENTRY_SIZE, self._handles.files.truncate)
        if size % ENTRY_SIZE or not size:
            if self._handles.files.names(folder):
                self._note(folder, "no queue's file", f"{size} bytes")
        else:
            openSegments(segments, self._note)
        self._checked[topic, int(name)] = _Queue(segments)

    def put(
        self, topic: str, queueId: int, queueOffset: int, offset: int, size: int, tagsCode: int
    ) -> None:
        """
        There is a record: its entry must be there.
        """
        queue = self._checked.get((topic, queueId))
        where = os.path.join(self._root, topic, str(queueId))
        if queue is None:
            self._note(where, "missing entry", f"of the record at {offset}: no such queue")
            return
        if queue.seen is None:
            queue.seen = queueOffset
        elif queueOffset != queue.next:
            self._note(
                where,
                "out of order",
                f"the record at {offset} has queue offset {queueOffset}, not {queue.next}",
            )
        queue.next = queueOffset + 1
        found = queue.entry(queueOffset)
        if found is None:
            self._note(where, "missing entry", f"{queueOffset}, of the record at {offset}")
            return
        self._entries += 1
        for what, expected, there in zip(
            ("offset", "size", "tag's hash"), (offset, size, tagsCode), found, strict=True
        ):
            if expected != there:
                self._note(
                    where, f"wrong {what}", f"entry {queueOffset} has {there}, not {expected}"
                )

    def finish(self, first: int) -> None:
        """
        All records have been put: what else is there tells of deleted records,
        or is too much.

        @param first: where the log begins.
        """
        for (topic, queueId), queue in self._checked.items():
            where = os.path.join(self._root, topic, str(queueId))
            for queueOffset, found in self._rest(queue):
                if found[1] >= FILLER_SIZE:
                    continue
                self._entries += 1
                if found[0] >= first:
                    self._note(
                        where,
                        "surplus entry",
                        f"{queueOffset} points to {found[0]}, where no such record is",
                    )

    def _rest(self, queue: _Queue) -> Iterator[tuple[int, tuple[int, int, int]]]:
        if queue.seen is not None:
            yield from queue.between(queue.first, queue.seen)
        yield from queue.between(queue.next, queue.end)

    def counts(self) -> tuple[int, int, int]:
        """
        How many queues, files and entries there are.
        """
        files = sum(len(each.segments.bases) for each in self._checked.values())
        return len(self._checked), files, self._entries
