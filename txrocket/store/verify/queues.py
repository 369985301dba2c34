# SPDX-License-Identifier: Apache-2.0
"""
Checking consume queues beside the log::

    entries   | deleted | of records, each compared | zeros |
              first     seen                        next    end

Entries of deleted records have no record to be compared with: their order is checked,
and that they point before the log.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from txrocket.message import PROPERTY_DELAY, MessageExt
from txrocket.store.dispatch import SCHEDULE_TOPIC
from txrocket.store.files.handles import Handles
from txrocket.store.files.segments import Segments
from txrocket.store.queue.consumequeues import ASIDE, ConsumeQueues
from txrocket.store.queue.entry import ENTRY_SIZE, FILLER_SIZE, entries
from txrocket.store.verify.readonly import Note, firstData, openSegments, sizeOfFirst

__all__ = ["QueuesCheck"]

# Entries that are read at a time, of each queue: 4 KiB.
_CHUNK = 4096 // ENTRY_SIZE

# Java's filler.
_FILLER = 0, 0x7FFFFFFF, 0

_NOTHING = 0, 0, 0

# Delays are full seconds.
_SECOND = 1000


def _isFiller(entry: tuple[int, int, int]) -> bool:
    return entry == _FILLER or (entry[0] >= 0 and entry[1:] == (FILLER_SIZE, 0))


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

    def raw(self, queueOffset: int) -> tuple[int, int, int]:
        """
        The bytes in the place of an entry; zeros where no file is.
        """
        if not 0 <= queueOffset - self._heldAt < len(self._held):
            data = self.segments.read(queueOffset * ENTRY_SIZE, _CHUNK * ENTRY_SIZE)
            self._held = list(entries(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]))
            self._heldAt = queueOffset
            if not self._held:
                return _NOTHING
        return self._held[queueOffset - self._heldAt]

    def entry(self, queueOffset: int) -> tuple[int, int, int] | None:
        """
        An entry; L{None} if its place is empty.
        """
        found = self.raw(queueOffset)
        return found if found[1] > 0 else None


class QueuesCheck(ConsumeQueues):
    """
    Queues that compare the entries of records with their own.

    @ivar record: the record that is being put.
    """

    def __init__(
        self,
        handles: Handles,
        folder: str,
        note: Note,
        unreadable: Sequence[tuple[int, int]],
        delaysKnown: bool,
        tidy: bool,
    ) -> None:
        """
        @param unreadable: stretches of the log in which records cannot be read.
        @param delaysKnown: whether the delay levels are known.  If not, the entry of a
            delayed message must have any time that a delay can lead to.
        @param tidy: whether all bytes behind the last entry must be zeros.
        """
        super().__init__(handles, folder, ENTRY_SIZE)
        self._root = folder
        self._note = note
        self._unreadable = unreadable
        self._delaysKnown = delaysKnown
        self._tidy = tidy
        self._checked: dict[tuple[str, int], _Queue] = {}
        self._entries = 0
        self.record: MessageExt | None = None

    def load(self) -> None:
        """
        Find all queues.
        """
        files = self._handles.files
        for topic in files.names(self._root):
            for name in files.names(os.path.join(self._root, topic)):
                if name.isascii() and name.isdigit() and not topic.startswith(ASIDE):
                    self._open(topic, name)
        sizes = Counter(
            each.segments.size for each in self._checked.values() if each.first < each.end
        )
        for queue in self._checked.values():
            usual, size = sizes.most_common(1)[0][0] if sizes else 0, queue.segments.size
            if queue.first < queue.end and size != usual:
                self._note(
                    queue.segments.folder,
                    "a file has another size than other queues'",
                    f"{size} bytes, not {usual}",
                )

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
            queue.seen = queue.next = queueOffset
        if queueOffset != queue.next and not self._accounted(queue, queueOffset):
            self._note(
                where,
                "out of order",
                f"the record at {offset} has queue offset {queueOffset}, not {queue.next}",
            )
            if queue.raw(queue.next)[0] == offset:
                # The queue knows better, and goes on.
                queueOffset = queue.next
        queue.next = queueOffset + 1
        found = queue.entry(queueOffset)
        if found is None:
            self._note(where, "missing entry", f"{queueOffset}, of the record at {offset}")
            return
        self._entries += 1
        for what, expected, there in zip(
            ("offset", "size", "tag's hash"), (offset, size, tagsCode), found, strict=True
        ):
            if expected != there and not (what == "tag's hash" and self._delayed(topic, there)):
                self._note(
                    where, f"wrong {what}", f"entry {queueOffset} has {there}, not {expected}"
                )

    def _delayed(self, topic: str, time: int) -> bool:
        """
        Whether an entry has a time that some delay leads to.
        """
        record = self.record
        if self._delaysKnown or topic != SCHEDULE_TOPIC or record is None:
            return False
        delay = time - record.storeTimestamp
        return PROPERTY_DELAY in record.properties and delay >= 0 and delay % _SECOND == 0

    def _accounted(self, queue: _Queue, queueOffset: int) -> bool:
        """
        Whether it is known why a queue goes on at a later queue offset.
        """
        if not queue.next < queueOffset <= queue.end:
            return False
        skipped = map(queue.raw, range(queue.next, queueOffset))
        return all(
            _isFiller(each) or any(start <= each[0] < end for start, end in self._unreadable)
            for each in skipped
        )

    def finish(self, first: int) -> None:
        """
        All records have been put: each other entry belongs to a deleted record, or is a fault.

        @param first: where the log begins.
        """
        for (topic, queueId), queue in self._checked.items():
            where = os.path.join(self._root, topic, str(queueId))
            if queue.seen is None:
                queue.next = self._front(where, queue, queue.end, first)
            else:
                self._front(where, queue, queue.seen, first)
            self._back(where, queue)

    def _front(self, where: str, queue: _Queue, end: int, first: int) -> int:
        """
        Check the entries of deleted records.

        @return: where they end.
        """
        last = -1
        # A damaged record may have any queue offset.
        for queueOffset in range(queue.first, min(end, queue.end)):
            found = queue.raw(queueOffset)
            if found == _NOTHING and queue.seen is None:
                return queueOffset
            if _isFiller(found):
                continue
            offset, size, _ = found
            self._entries += size > 0
            if offset >= first:
                self._surplus(where, queueOffset, offset)
            elif not last < offset or not 0 < size < FILLER_SIZE:
                self._note(where, "wrong entry", f"{queueOffset} is {found}, of no deleted record")
            last = max(last, offset)
        return end

    def _back(self, where: str, queue: _Queue) -> None:
        """
        Check that nothing is behind the last entry.
        """
        position: int | None = queue.next * ENTRY_SIZE
        for base in queue.segments.bases:
            end = base + queue.segments.size
            while position is not None and base <= position < end:
                position = firstData(queue.segments, position, end)
                if position is None:
                    position = end
                    break
                queueOffset = position // ENTRY_SIZE
                found = queue.raw(queueOffset)
                if found[1] > 0:
                    self._entries += 1
                    if not any(start <= found[0] < stop for start, stop in self._unreadable):
                        self._surplus(where, queueOffset, found[0])
                elif self._tidy:
                    self._note(where, "data behind the queue's end", f"entry {queueOffset}")
                position = (queueOffset + 1) * ENTRY_SIZE

    def _surplus(self, where: str, queueOffset: int, offset: int) -> None:
        self._note(
            where, "surplus entry", f"{queueOffset} points to {offset}, where no such record is"
        )

    def ends(self) -> Iterator[tuple[tuple[str, int], int]]:
        """
        One past the last queue offset of each queue.
        """
        for key, queue in self._checked.items():
            yield key, queue.next

    def counts(self) -> tuple[int, int, int]:
        """
        How many queues, files and entries there are.
        """
        files = sum(len(each.segments.bases) for each in self._checked.values())
        return len(self._checked), files, self._entries
