# SPDX-License-Identifier: Apache-2.0
"""
The queues of C{rmq_sys_timer} as buckets of time: five minutes each, around a wheel of
twelve hours::

                 now
    queue  ... 142  143   0    1    2    3  ... 141
               done  |    |    |__ what is due from 00:10 to 00:15
                     |    |__ coming: read shortly before its time
                     |__ current: its earliest messages are in memory

So the queues sort the messages, and no index is needed.  A message that is due after the
end of the wheel is parked in an earlier bucket, and appended to a later one when that
bucket's time has come.  So the record of a parked message is never older than the wheel is
long, and the log does not delete its file.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from txrocket.broker.delivery.timerbucket import BucketState, TimerBucket
from txrocket.message import PROPERTY_TIMER_OUT_MS
from txrocket.store.dispatch import TIMER_TOPIC, timeOf
from txrocket.store.messagestore import MessageStore

__all__ = ["TIMER_QUEUES", "TimerWheel"]

# The length of a bucket in milliseconds, and the number of buckets.  Shorter ones are read
# faster; more of them are more files to open at start.
_UNIT: Final = 300_000
TIMER_QUEUES: Final = 144

# How many messages of a bucket are in memory, 60 bytes each.  A larger heap would block the
# reactor for too long.
_MOST: Final = 50_000

# Messages due beyond the wheel wait this many buckets before its end, leaving time to move
# them.
_SLACK: Final = 2

# Rounds that it makes in order after a long stop: four days, which is longer than messages
# wait.
_ROUNDS: Final = 8

# Java's entries have the hash of a tag in place of a time: it is lower than this time, of
# 2001.
_TIMES: Final = 10**12

_HOUR: Final = 3_600_000


class TimerWheel:
    """
    The buckets.

    @ivar unit: how many milliseconds each has.
    @ivar queues: how many there are.
    @ivar offsets: for each queue the offset before which all is delivered; 0 if it is
        missing.
    @ivar since: the bucket of the time at which the wheel was last not behind.
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
        Whether a message was ever parked.
        """
        return any(self.end(each) for each in range(self.queues))

    def bucketOf(self, when: int, current: int) -> int:
        """
        The number of the bucket for a time: its own, an earlier one if that is beyond the
        wheel, or the current one if that has passed.
        """
        number = when // self.unit
        # Half of the time for which files are kept, as a reserve for a late broker.
        kept = self._store.settings.fileReservedTime * _HOUR // 2
        window = max(3, min(self.queues - 1, kept // self.unit))
        if number >= current + window:
            number = current + window - 1 - min(_SLACK, window - 2)
        return max(number, current)

    def following(self, number: int, now: int) -> int:
        """
        The bucket after one that is delivered: the next that has messages, or that of now.
        """
        current = now // self.unit
        if number - self.since >= _ROUNDS * self.queues:
            # All messages from before it fell behind are delivered.  For the later ones one
            # round through all queues is enough.
            number += max(0, (current - number) // self.queues - 1) * self.queues
        for each in range(number + 1, min(current, number + self.queues)):
            queueId = each % self.queues
            if self._offset(queueId) < self.end(queueId):
                return each
        self.since = current
        return current

    def bucket(self, number: int, state: BucketState | None = None) -> TimerBucket:
        """
        A bucket.

        @param state: how far it is delivered, if not from the beginning.
        """
        queueId = number % self.queues
        if state is None:
            offset = self._offset(queueId)
            state = BucketState(offset, offset, 0, 0, offset)
        end = (number + 1) * self.unit
        return TimerBucket(number, end, state, partial(self._entries, queueId), self._most)

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
            # These messages are deleted: count them as due, with nothing to deliver.
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
        An entry without a valid time: the record has it, if there is one.
        """
        at, size = self.place(queueId, queueOffset)
        [message] = self._store.messages([(at, size)])
        if message is None:
            return 0, 0, 0
        return at, size, timeOf(message.properties.get(PROPERTY_TIMER_OUT_MS))

    def place(self, queueId: int, queueOffset: int) -> tuple[int, int]:
        """
        Where in the log a message is, and its size, even if its entry is damaged.

        @return: two zeros if the queue does not have the entry any more.
        @raise StoreError: if the disk cannot be read.
        """
        found = next(self._store.mended(TIMER_TOPIC, queueId, queueOffset, 1), None)
        return (0, 0) if found is None else (found.offset, found.size)
