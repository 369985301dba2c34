# SPDX-License-Identifier: Apache-2.0
"""
Which messages wait in which queue: the queues of C{rmq_sys_timer} are buckets of time,
five minutes each, and begin anew after twelve hours::

                 now
    queue  ... 142  143   0    1    2    3  ... 141
               done  |    |    |__ what is due from 00:10 to 00:15
                     |    |__ coming: read shortly before its time
                     |__ current: its earliest messages are in memory

So the queues sort the messages, and nothing else is needed to find them.  What is due
later than the wheel goes waits in a bucket before, and is put anew into a later one
when that one's time has come.  The record of a message that waits is therefore never
older than the wheel is long, and no file of the log is deleted with it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from txrocket.broker.buckets import Bucket, BucketState
from txrocket.message import PROPERTY_TIMER_OUT_MS
from txrocket.store.follow import TIMER_TOPIC, timeOf
from txrocket.store.messages import MessageStore

__all__ = ["TIMER_QUEUES", "Wheel"]

# What a bucket holds, in milliseconds, and how many there are.  Shorter ones are read
# faster; more of them are more files to open on a start.
_UNIT: Final = 300_000
TIMER_QUEUES: Final = 144

# How many messages of a bucket are in memory, 60 bytes each.  To make a heap of twice as
# many would keep the reactor for 20 ms.
_MOST: Final = 50_000

# What is due after the wheel's end waits so many buckets before it, that there be time
# to put it into another one.
_SLACK: Final = 2

# How often it goes around in order after a long stop: four days, which is longer than
# messages wait.
_ROUNDS: Final = 8

# Entries whose time is before this one, of 2001, have the hash of a tag in its place:
# Java has made them.
_TIMES: Final = 10**12

_HOUR: Final = 3_600_000


class Wheel:
    """
    The buckets.

    @ivar unit: how many milliseconds each has.
    @ivar queues: how many there are.
    @ivar offsets: for each queue the offset before which all is done; 0 if it is not
        there.
    @ivar since: the bucket of the time at which it was last not behind.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        unit: int = _UNIT,
        queues: int = TIMER_QUEUES,
        most: int = _MOST,
    ) -> None:
        """
        @param most: how many messages of a bucket are held in memory.
        """
        self._store = store
        self.unit = unit
        self.queues = queues
        self._most = most
        self.offsets: dict[int, int] = {}
        self.since = 0

    @property
    def used(self) -> bool:
        """
        Whether there has been a message, ever.
        """
        return any(self.end(each) for each in range(self.queues))

    def bucketOf(self, when: int, current: int) -> int:
        """
        The number of the bucket for a time: its own, or one before if that is too far
        away, or the current one if it is over.
        """
        number = when // self.unit
        # Half of the time for which files are kept, so that there is time to be late.
        kept = self._store.settings.fileReservedTime * _HOUR // 2
        window = max(3, min(self.queues - 1, kept // self.unit))
        if number >= current + window:
            number = current + window - 1 - min(_SLACK, window - 2)
        return max(number, current)

    def following(self, number: int, now: int) -> int:
        """
        The bucket that comes after one that is done: the next that has messages, or
        that of this time.
        """
        current = now // self.unit
        if number - self.since >= _ROUNDS * self.queues:
            # By now all is delivered that waited when it fell behind.  For what has come
            # since then it need not go around more often than to see all queues.
            number += max(0, (current - number) // self.queues - 1) * self.queues
        for each in range(number + 1, min(current, number + self.queues)):
            queueId = each % self.queues
            if self._offset(queueId) < self.end(queueId):
                return each
        self.since = current
        return current

    def bucket(self, number: int, state: BucketState | None = None) -> Bucket:
        """
        A bucket.

        @param state: how far it is done, if some of it is.
        """
        queueId = number % self.queues
        if state is None:
            offset = self._offset(queueId)
            state = BucketState(offset, offset, 0, 0, offset)
        end = (number + 1) * self.unit
        return Bucket(number, end, state, partial(self._entries, queueId), self._most)

    def end(self, queueId: int) -> int:
        """
        The offset at which a queue ends.
        """
        return self._store.maxOffset(TIMER_TOPIC, queueId)

    def _offset(self, queueId: int) -> int:
        return self.offsets.get(queueId, 0)

    def _entries(self, queueId: int, start: int, count: int) -> list[tuple[int, int, int]]:
        low = self._store.minOffset(TIMER_TOPIC, queueId)
        if start < low:
            # What is too old is gone: there is nothing to deliver, at once.
            return [(0, 0, 0)] * min(count, low - start)
        found = self._store.entries(TIMER_TOPIC, queueId, start, count)
        return [
            (at, size, time)
            if time >= _TIMES and at >= 0 and size > 0
            else self._mended(queueId, queueOffset)
            for queueOffset, (at, size, time) in enumerate(found, start)
        ]

    def _mended(self, queueId: int, queueOffset: int) -> tuple[int, int, int]:
        """
        An entry whose time is no time: the record tells it, if there is one.
        """
        at, size = self.place(queueId, queueOffset)
        [message] = self._store.messages([(at, size)])
        if message is None:
            return 0, 0, 0
        return at, size, timeOf(message.properties.get(PROPERTY_TIMER_OUT_MS))

    def place(self, queueId: int, queueOffset: int) -> tuple[int, int]:
        """
        Where in the log a message is, and its size, though its entry may be damaged.

        @return: two zeros if the queue has no such entry any more.
        @raise StoreError: if the disk does not give it.
        """
        found = next(self._store.mended(TIMER_TOPIC, queueId, queueOffset, 1), None)
        return (0, 0) if found is None else (found.offset, found.size)
