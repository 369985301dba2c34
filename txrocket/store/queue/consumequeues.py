# SPDX-License-Identifier: Apache-2.0
"""
The consume queues of all topics::

    ConsumeQueues --> topic --> queue id --> ConsumeQueue

Entries that are in no file yet are bounded for all queues together (L{TAILS}): if there are
more, the queues that have had theirs for longest are written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from txrocket.store.files.handles import Handles
from txrocket.store.files.syncjob import SyncJob
from txrocket.store.queue.consumequeue import Ahead, ConsumeQueue
from txrocket.store.queue.entry import ENTRY_SIZE

__all__ = ["ASIDE", "TAILS", "ConsumeQueues"]

# How many bytes of entries are kept in memory, all queues together.
TAILS = 4 * 1024 * 1024

# The folder of a topic has this name while it is being deleted; no topic has.
ASIDE = ".gone-"


class ConsumeQueues:
    """
    All queues of all topics.

    @ivar touched: the queues with entries to write, the oldest first.
    """

    def __init__(self, handles: Handles, folder: str, segmentSize: int) -> None:
        self._handles = handles
        self._folder = folder
        self._segmentSize = segmentSize
        self._queues: dict[str, dict[int, ConsumeQueue]] = {}
        self.touched: dict[tuple[str, int], ConsumeQueue] = {}
        self._room = TAILS
        self._unsynced: set[ConsumeQueue] = set()
        self._ahead: Ahead = {}
        self._asides = count()

    def __iter__(self) -> Iterator[tuple[str, int, ConsumeQueue]]:
        for topic, queues in self._queues.items():
            for queueId, queue in queues.items():
                yield topic, queueId, queue

    def load(self) -> None:
        """
        Find all queues.
        """
        files = self._handles.files
        for topic in files.names(self._folder):
            folder = os.path.join(self._folder, topic)
            if topic.startswith(ASIDE):
                files.removeFolder(folder)
                continue
            for name in files.names(folder):
                if name.isascii() and name.isdigit():
                    self._make(topic, int(name)).load()

    def forget(self) -> None:
        """
        Let go of all queues and of their entries that are in no file.
        """
        for _, _, queue in self:
            queue.segments.abandon()
        self._queues.clear()
        self.touched.clear()
        self._unsynced.clear()
        self._ahead.clear()
        self._room = TAILS

    def get(self, topic: str, queueId: int) -> ConsumeQueue | None:
        """
        A queue, if there is one.
        """
        return self._queues.get(topic, {}).get(queueId)

    @property
    def total(self) -> int:
        """
        How many entries the queues have had, all together.
        """
        return sum(queue.maxOffset for _, _, queue in self)

    def topics(self) -> list[str]:
        """
        The topics that have queues.
        """
        return list(self._queues)

    def put(
        self, topic: str, queueId: int, queueOffset: int, offset: int, size: int, tagsCode: int
    ) -> None:
        """
        Add an entry to a queue, which is made if it does not exist.
        """
        self._room -= self.touch((topic, queueId)).put(queueOffset, offset, size, tagsCode)

    def skip(self, key: tuple[str, int], queueOffset: int, offset: int) -> None:
        """
        Let a queue go on at a later queue offset, after something was lost at an offset
        of the log.
        """
        self._room -= self.touch(key).skip(queueOffset, offset)

    def void(self, start: int, end: int) -> None:
        """
        Let the entries of all records in a stretch of the log stand for nothing.
        """
        for _, _, queue in self:
            queue.void(start, end)
            self._unsynced.add(queue)

    def took(self, count: int) -> None:
        """
        A caller of L{touch} has added entries to the tails of queues.

        @param count: how many.
        """
        self._room -= count * ENTRY_SIZE

    def touch(self, key: tuple[str, int]) -> ConsumeQueue:
        """
        A queue that gets an entry next, by its topic and number.  It is made if it does not
        exist.
        """
        queue = self.touched.get(key)
        if queue is None:
            queue = self.touched[key] = self.get(*key) or self._make(*key)
        return queue

    def write(self, room: int = TAILS) -> None:
        """
        Write the tails to the files.

        @param room: for how many bytes there must be room in memory then.
        """
        while self.touched and self._room < room:
            self.writeOne(next(iter(self.touched)))

    def writeOne(self, key: tuple[str, int]) -> None:
        """
        Write the tail of one queue to its files.
        """
        queue = self.touched.get(key)
        if queue is not None:
            size = queue.unwritten
            queue.write()
            self._room += size
            del self.touched[key]
            self._unsynced.add(queue)

    def sync(self, job: SyncJob) -> None:
        """
        Have all that was put written and synced.
        """
        self.write()
        for queue in self._unsynced:
            job.add(queue.segments)
        self._unsynced.clear()

    def follow(self, first: int) -> None:
        """
        The log begins at C{first} now.
        """
        for _, _, queue in self:
            queue.follow(first)
            self._unsynced.add(queue)

    def dropFillers(self) -> bool:
        """
        Forget the fillers behind the last message of each queue.

        @return: whether there were any.
        """
        self.write()
        dropped = [queue for _, _, queue in self if queue.dropFillers()]
        self._unsynced.update(dropped)
        return bool(dropped)

    def remove(self, topic: str) -> None:
        """
        Forget a topic and its files.
        """
        for queue in self._pop(topic):
            queue.clear()
        self._handles.files.removeFolder(os.path.join(self._folder, topic))

    def abandon(self, topic: str) -> Callable[[], None]:
        """
        Forget a topic, and put its files aside.

        @return: a function that deletes them, which takes long where there are
            many; it touches nothing but the files.
        """
        files = self._handles.files
        # Not all names in the folder: to list 20,000 topics takes 20 ms.
        names = (os.path.join(self._folder, f"{ASIDE}{each}") for each in self._asides)
        aside = next(each for each in names if not files.names(each))
        if files.names(os.path.join(self._folder, topic)):
            files.rename(os.path.join(self._folder, topic), aside)
        for queue in self._pop(topic):
            queue.segments.abandon()

        def delete() -> None:
            # Else a crash might bring the topic back with some of its files.
            files.syncFolder(self._folder)
            files.removeFolder(aside)

        return delete

    def _pop(self, topic: str) -> Iterable[ConsumeQueue]:
        queues = self._queues.pop(topic, {})
        for queueId, queue in queues.items():
            self._room += queue.unwritten
            self.touched.pop((topic, queueId), None)
            self._unsynced.discard(queue)
            self._ahead.pop(queue, None)
        return queues.values()

    def _make(self, topic: str, queueId: int) -> ConsumeQueue:
        folder = os.path.join(self._folder, topic, str(queueId))
        queue = ConsumeQueue(self._handles, folder, self._segmentSize, self._ahead)
        self._queues.setdefault(topic, {})[queueId] = queue
        return queue
