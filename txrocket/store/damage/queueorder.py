# SPDX-License-Identifier: Apache-2.0
"""
The order of queues while the log is filed again.

The CRC of a record covers its body alone, so a damaged bit may change the number that
it has in its queue, or the queue.  Numbers grow by one from record to record; so where
one does not fit, its record waits for the next one of the queue to tell::

    queue at 51   record says 115   next says 52, or 51   the first one lies
    queue at 51   record says 52    next says 53          51 was lost

A number that a lost record may have had is not given again: an entry that stands for
nothing takes it.
"""

from __future__ import annotations

from typing import NamedTuple

from twisted.logger import Logger

from txrocket.store.damage.holes import SMALLEST
from txrocket.store.queue.consumequeues import ConsumeQueues
from txrocket.store.queue.entry import FILLER_SIZE

__all__ = ["Order"]


class _Held(NamedTuple):
    """
    An entry that does not follow on the last one of its queue.

    @ivar expected: the queue offset that would have followed.
    """

    expected: int
    queueOffset: int
    offset: int
    size: int
    tagsCode: int


class Order:
    """
    Puts entries into queues, and holds entries back that do not fit.
    """

    _log = Logger()

    def __init__(self, queues: ConsumeQueues) -> None:
        self._queues = queues
        self._held: dict[tuple[str, int], _Held] = {}

    def put(
        self, topic: str, queueId: int, queueOffset: int, offset: int, size: int, tagsCode: int
    ) -> None:
        """
        Add the entry of a record, now or once it is known to fit.
        """
        key = topic, queueId
        self._decide(key, queueOffset)
        queue = self._queues.get(topic, queueId)
        following = 0 if queue is None else queue.maxOffset
        begins = queue is None or not (following or queue.segments.bases)
        if begins or queueOffset == following:
            self._queues.put(topic, queueId, queueOffset, offset, size, tagsCode)
        elif queueOffset > following:
            self._held[key] = _Held(following, queueOffset, offset, size, tagsCode)
        elif queue is not None and offset > queue.lastOffset():
            # It is newer than all of the queue, and says that it is not.
            self._held[key] = _Held(following, following, offset, FILLER_SIZE, 0)

    def lost(self, topic: str, queueId: int, queueOffset: int, offset: int) -> None:
        """
        A record cannot be read any more, but for its header.
        """
        key = topic, queueId
        self._decide(key, queueOffset)
        queue = self._queues.get(topic, queueId)
        following = 0 if queue is None else queue.maxOffset
        if queueOffset >= following:
            self._held[key] = _Held(following, queueOffset, offset, FILLER_SIZE, 0)

    def settle(self) -> None:
        """
        No record follows: put the entries that are held back.
        """
        for key in list(self._held):
            self._decide(key, None)

    def _decide(self, key: tuple[str, int], queueOffset: int | None) -> None:
        """
        Put the entries that a queue holds back, or drop them.

        @param queueOffset: the queue offset of the next record; L{None} if no record follows.
        """
        held = self._held.pop(key, None)
        if held is None:
            return
        queue = self._queues.get(*key)
        following = 0 if queue is None else queue.maxOffset
        if following == held.expected and (queueOffset is None or queueOffset > held.queueOffset):
            last = -1 if queue is None else queue.lastOffset()
            # As many as there is room for in the log may have been lost between.
            if (
                queue is not None
                and held.queueOffset - following <= (held.offset - last) // SMALLEST
            ):
                self._queues.skip(key, held.queueOffset, held.offset)
            self._queues.put(*key, held.queueOffset, held.offset, held.size, held.tagsCode)
            queue = self._queues.get(*key)
            if queue is None or queue.maxOffset == following:
                # Too far away to be true; but a record was there.
                self._queues.skip(key, following + 1, held.offset)
        elif held.size < FILLER_SIZE:
            self._log.error(
                "The record at {offset} of the log says to be number {number} of {topic}-{queue}, "
                "and others say that it is not: it is left out of the queue",
                offset=held.offset,
                number=held.queueOffset,
                topic=key[0],
                queue=key[1],
            )
