# SPDX-License-Identifier: Apache-2.0
"""
A bucket of time: the messages that are due within the same few minutes, parked in one queue
in any order.

Only the earliest of them are in memory, each as one number, in a heap::

    time:64 | queue offset:48 | offset in the log:64 | size:32

    queue   base . . . . . . . . . . mark . . . new ones
              \\ those before next     / all are yet to come
                in time are done     /
    heap    next ... horizon: what is later stays in the queue

When the heap is empty the queue is scanned again, for the earliest of the rest.  So a
million messages of one minute take no more memory than ten thousand.

A message that is due after the end of the bucket is I{far}: when the bucket's time comes, it
is appended to a bucket that is nearer to its own time.  Far messages are moved in the
queue's order, and are not in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

import msgspec

from txrocket.store.queue.entry import FILLER_SIZE

__all__ = ["BucketState", "Entries", "TimerBucket", "Waiting"]

# Entries that are looked at in one turn.
_CHUNK: Final = 4096

# Chunks of new entries that are read in one turn.
_JOINS: Final = 16

_OFFSET_BITS: Final = 48
_PLACE_BITS: Final = 96
_SIZE_BITS: Final = 32


class Waiting(NamedTuple):
    """
    A parked message.

    @ivar time: when it is due, in milliseconds.
    @ivar queueOffset: where it is in its queue.
    @ivar at: where it is in the log.
    """

    time: int
    queueOffset: int
    at: int
    size: int


# Gives entries of the bucket's queue, from a queue offset on, as many as asked for or
# fewer, but one if there is one: offset in the log, size, time.
Entries = Callable[[int, int], list[tuple[int, int, int]]]


class BucketState(msgspec.Struct, frozen=True):
    """
    How far a bucket is delivered.

    @ivar base: all before this queue offset is done.
    @ivar mark: all from this one on is not.
    @ivar time: what lies between is done if it is due before this time,
    @ivar offset: or at it and has a queue offset before this one.
    @ivar far: what is far is done if it is before this queue offset.
    """

    base: int = 0
    mark: int = 0
    time: int = 0
    offset: int = 0
    far: int = 0

    def within(self, end: int) -> BucketState:
        """
        The same, but not beyond a queue's end.
        """
        return BucketState(
            min(self.base, end), min(self.mark, end), self.time, self.offset, min(self.far, end)
        )


class TimerBucket:
    """
    One bucket and its earliest messages.

    @ivar number: which of all since 1970.
    @ivar end: the time at which the next one begins; what is due then is far.
    @ivar mark: the queue offset up to which the queue was read.
    """

    def __init__(
        self, number: int, end: int, state: BucketState, entries: Entries, most: int
    ) -> None:
        """
        @param most: how many messages are held in memory.
        """
        self.number = number
        self.end = end
        self._entries = entries
        self._most = most
        self.base = state.base
        # A scan leaves out keys below `_done`, unless they lie at `mark` or behind it.
        self.mark = state.mark
        self._done = _key(state.time, state.offset, 0, 0)
        self._far = state.far
        self._firstFar: int | None = None
        self._heap: list[int] = []
        self._flight: list[int] = []
        # The last key in memory, if there are more in the queue.
        self._horizon: int | None = None
        self._scan: _Scan | None = _Scan(state.base, state.mark, self._done, end, most)

    @property
    def ready(self) -> bool:
        """
        Whether the earliest messages are in memory.
        """
        return self._scan is None

    @property
    def idle(self) -> bool:
        """
        Whether all messages that were read are delivered.
        """
        return (
            self._scan is None
            and not self._heap
            and not self._flight
            and self._horizon is None
            and self._firstFar is None
        )

    @property
    def state(self) -> BucketState:
        """
        How far it is delivered.
        """
        if self._scan is not None:
            following = self._done
        elif self._heap or self._flight:
            following = min(self._heap[:1] + self._flight[:1])
        elif self._horizon is not None:
            following = _behind(self._horizon)
        else:
            # If there are any left, they are far.
            following = _key(self.end, 0, 0, 0)
        first = _waiting(following)
        return BucketState(self.base, self.mark, first.time, first.queueOffset, self._far)

    # --- reading -----------------------------------------------------------

    def read(self) -> bool:
        """
        Read on in the queue.

        @return: whether there is more to read.
        @raise StoreError: if the disk cannot be read.
        """
        scan = self._scan
        if scan is None:
            if self._heap or self._flight or self._horizon is None:
                return self._join()
            # All in memory is delivered: scan for the next.
            self._done = _behind(self._horizon)
            scan = self._scan = _Scan(self.base, self.mark, self._done, self.end, self._most)
        chunk = self._entries(scan.position, _CHUNK)
        if chunk:
            self._rememberFar(scan.take(chunk, self._far))
            return True
        self._heap, self._horizon = scan.finish()
        self.mark = scan.position
        self._scan = None
        self._rest()
        return False

    def _join(self) -> bool:
        """
        Add the messages that have come since the scan.
        """
        for _ in range(_JOINS):
            chunk = self._entries(self.mark, _CHUNK)
            if not chunk:
                self._rest()
                return False
            heap, horizon = self._heap, self._horizon
            for offset, (at, size, time) in enumerate(chunk, self.mark):
                if not 0 < size < FILLER_SIZE:
                    continue
                if time >= self.end:
                    self._rememberFar(offset)
                    continue
                key = _key(time, offset, at, size)
                if horizon is None or key < horizon:
                    heappush(heap, key)
            self.mark += len(chunk)
            if len(heap) > 2 * self._most:
                # Sorting is rare: once for as many messages as are in memory.
                heap.sort()
                self._horizon = heap[self._most - 1]
                del heap[self._most :]
        return True

    def _rememberFar(self, far: int | None) -> None:
        if far is not None and self._firstFar is None:
            self._firstFar = far

    def _rest(self) -> None:
        if self.idle:
            self.base = self._far = self.mark

    # --- what is due -------------------------------------------------------

    @property
    def next(self) -> int | None:
        """
        When the earliest message in memory is due.
        """
        return _waiting(self._heap[0]).time if self._heap else None

    def take(self, now: int, most: int, size: int) -> list[Waiting]:
        """
        Take the earliest that are due, to deliver them.

        @param most: how many at most.
        @param size: how many bytes, but always one message.
        """
        heap, flight = self._heap, self._flight
        taken: list[Waiting] = []
        while heap and len(taken) < most:
            waiting = _waiting(heap[0])
            size -= waiting.size
            if waiting.time > now or (taken and size < 0):
                break
            flight.append(heappop(heap))
            taken.append(waiting)
        return taken

    def done(self, count: int) -> None:
        """
        The first of the taken messages are delivered, and the others are not.
        """
        for key in self._flight[count:]:
            heappush(self._heap, key)
        self._flight = []
        self._rest()

    # --- what is far -------------------------------------------------------

    @property
    def hasFar(self) -> bool:
        """
        Whether there may be some that are far.
        """
        return self._firstFar is not None

    def takeFar(self, most: int, size: int) -> tuple[list[Waiting], int]:
        """
        Take some of the far messages.

        @return: them, and the queue offset behind the last that was looked at.
        @raise StoreError: if the disk cannot be read.
        """
        taken: list[Waiting] = []
        offset = self._far if self._firstFar is None else self._firstFar
        chunk = self._entries(offset, min(_CHUNK, self.mark - offset))
        if not chunk:
            return taken, self.mark
        for at, length, time in chunk:
            if time >= self.end:
                size -= length
                if len(taken) >= most or (taken and size < 0):
                    break
                taken.append(Waiting(time, offset, at, length))
            offset += 1
        return taken, offset

    def farDone(self, offset: int) -> None:
        """
        All that are far and before a queue offset are in another bucket now.
        """
        self._far = offset
        self._firstFar = offset if offset < self.mark else None
        self._rest()


class _Scan:
    """
    One time over a queue, for the earliest of its messages.
    """

    __slots__ = (
        "_done",
        "_end",
        "_found",
        "_full",
        "_limit",
        "_mark",
        "_more",
        "_most",
        "position",
    )

    def __init__(self, base: int, mark: int, done: int, end: int, most: int) -> None:
        self.position = base
        self._mark = mark
        self._done = done
        self._end = end
        # Times from here on need not be looked at more closely.
        self._limit = end
        self._most = most
        # Once it is full, the negatives, so that the last of them is the first.
        self._found: list[int] = []
        self._full = False
        self._more = False

    def take(self, chunk: list[tuple[int, int, int]], farFrom: int) -> int | None:
        """
        Look at entries.

        @return: the queue offset of the first that is far, from one on.
        """
        far: int | None = None
        end, limit, done, found = self._end, self._limit, self._done, self._found
        for offset, (at, size, time) in enumerate(chunk, self.position):
            # It stands for a message that is lost.  Its time is 0: were it taken for the
            # earliest one, all others would count as yet to come.
            if not 0 < size < FILLER_SIZE:
                continue
            if time >= limit:
                if time < end:
                    self._more = True
                elif far is None and offset >= farFrom:
                    far = offset
                continue
            key = (((time << _OFFSET_BITS) + offset << 64) + at << _SIZE_BITS) + size
            if key < done and offset < self._mark:
                continue
            if not self._full:
                found.append(key)
                self._full = len(found) == self._most
                if self._full:
                    found[:] = [-each for each in found]
                    heapify(found)
                continue
            self._more = True
            if -key > found[0]:
                heapreplace(found, -key)
                # Of the same time there come only such with a higher offset.
                limit = _waiting(-found[0]).time
        self._limit = limit
        self.position += len(chunk)
        return far

    def finish(self) -> tuple[list[int], int | None]:
        """
        All was looked at.

        @return: the earliest, as a heap; and the last of them, if there are more.
        """
        found = self._found
        if not self._full:
            heapify(found)
            return found, None
        horizon = -found[0] if self._more else None
        found[:] = [-each for each in found]
        heapify(found)
        return found, horizon


def _behind(key: int) -> int:
    """
    Where what follows a message begins.
    """
    return (key >> _PLACE_BITS) + 1 << _PLACE_BITS


def _key(time: int, queueOffset: int, at: int, size: int) -> int:
    return (((time << _OFFSET_BITS) + queueOffset << 64) + at << _SIZE_BITS) + size


def _waiting(key: int) -> Waiting:
    place = key & (1 << _PLACE_BITS) - 1
    first = key >> _PLACE_BITS
    return Waiting(
        first >> _OFFSET_BITS,
        first & (1 << _OFFSET_BITS) - 1,
        place >> _SIZE_BITS,
        place & (1 << _SIZE_BITS) - 1,
    )
