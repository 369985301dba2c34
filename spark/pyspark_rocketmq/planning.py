# SPDX-License-Identifier: Apache-2.0
"""
Dividing what is to be read: which offsets a micro-batch gets, and which task reads which
of them.  All of it follows from its arguments alone, so that a batch that is planned again
after a crash is the same.

Ends are exclusive::

    queue 0   3 ........... 9
    queue 1   0 ............................... 21       maxOffsetsPerTrigger 9
    granted   [3, 5)   [0, 7)                            in proportion to what is there
    tasks     [[3, 5) of 0, [0, 7) of 1]                 too few to be worth two
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs

from pyspark_rocketmq.offsets import DataLost, Offsets
from txrocket.model import MessageQueue

__all__ = ["WORTHWHILE", "Range", "Task", "following", "granted", "ranges", "tasks"]

#: With fewer messages a task costs more to begin, some 40 ms, than to do: queues share
#: one up to that.
WORTHWHILE = 1000


@attrs.frozen(order=True)
class Range:
    """
    Messages of a queue.

    @ivar start: the offset of the first.
    @ivar end: the offset behind the last.
    """

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def ranges(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], *, strict: bool
) -> list[Range]:
    """
    What lies between two offsets of each queue.  A queue that only the end has begins
    there.

    @param strict: whether it is an error if one lies behind its end; else there is
        nothing in it.
    @raise DataLost: naming the queue.
    """
    found = []
    for queue in sorted(end):
        first, last = start.get(queue, end[queue]), end[queue]
        if first > last and strict:
            raise DataLost(
                f"queue {queue.queueId} of {queue.topic} at {queue.brokerName} is to be read from"
                f" {first} to {last}, backwards: it was made anew, or has lost messages, or was"
                " given so (failOnDataLoss=false reads nothing of it)"
            )
        if first < last:
            found.append(Range(queue, first, last))
    return found


def following(
    known: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, tuple[int, int]],
    target: Mapping[MessageQueue, int] | None = None,
    *,
    strict: bool,
) -> Offsets:
    """
    As far as a stream can go.

    A queue that is new is entered at its first message, of which nothing is read yet: so
    offsets always say where each part of a batch begins, also when it is planned again
    after a crash.  One of which nothing can be told now, because its broker is away, stays
    where it is.

    @param known: the offsets so far.
    @param bounds: where queues begin and end now.
    @param target: where to go at most, in the queues that there were once; L{None} is
        no limit.
    @param strict: whether it is an error if messages are gone; else it goes on with what
        is there.
    @raise DataLost: naming the queue.
    """
    ends = dict(known)
    for queue, (low, high) in bounds.items():
        first = known.get(queue)
        if first is None:
            if target is None or queue in target:
                ends[queue] = low
        elif low <= first <= high:
            end = high if target is None else min(high, target.get(queue, first))
            ends[queue] = max(first, end)
        elif strict:
            raise DataLost(
                f"queue {queue.queueId} of {queue.topic} at {queue.brokerName} is to be read from"
                f" {first} on, but has messages from {low} to {high}"
                " (failOnDataLoss=false goes on)"
            )
        else:
            # Behind its end there are other messages by now: it was made anew.
            ends[queue] = low if first > high else max(first, high)
    return ends


def granted(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], most: int | None
) -> Offsets:
    """
    As far as a micro-batch may go: each queue gets its share, in proportion to what is
    there.

    @param most: how many messages there may be; L{None} is no limit.
    @return: for each queue of the end, an offset not before its start and not after its
        end.  As long as there is any message, there is at least one.
    """
    there = {queue: max(0, end[queue] - start.get(queue, end[queue])) for queue in sorted(end)}
    total = sum(there.values())
    base = {queue: end[queue] - count for queue, count in there.items()}
    if most is None or total <= most:
        return {queue: base[queue] + count for queue, count in there.items()}
    shares = {queue: count * most // total for queue, count in there.items()}
    # What rounding down has left, to those that lost most by it.
    left = most - sum(shares.values())
    by = sorted(there, key=lambda queue: (-(there[queue] * most % total), queue))
    for queue in by[:left]:
        shares[queue] += 1
    return {queue: base[queue] + count for queue, count in shares.items()}


#: What one task reads, one after the other.
Task = tuple[Range, ...]


def tasks(found: Sequence[Range], least: int | None = None, most: int | None = None) -> list[Task]:
    """
    Divide ranges among tasks.

    @param least: how many tasks there should be: queues are cut into pieces for that.
        There are fewer where there are fewer messages.
    @param most: how many there may be: queues share tasks for that.
    @return: tasks that together read every message once, none of them empty.
    """
    pieces = sorted(each for each in found if len(each))
    if least is None:
        total = sum(map(len, pieces))
        wanted = min(len(pieces), -(-total // WORTHWHILE))
    else:
        wanted = least
        pieces = _cut(pieces, least)
    if most is not None:
        wanted = min(wanted, most)
    return _pack(pieces, wanted)


def _cut(pieces: list[Range], least: int) -> list[Range]:
    """
    Cut the largest until there are so many.
    """
    if len(pieces) >= least or not pieces:
        return pieces
    # Always one more part for the queue whose parts are the largest.
    heap = [(-len(each), index, 1) for index, each in enumerate(pieces)]
    heapq.heapify(heap)
    for _ in range(least - len(pieces)):
        size, index, parts = heap[0]
        if size >= -1:
            break
        heapq.heapreplace(heap, (-len(pieces[index]) // (parts + 1), index, parts + 1))
    cut = []
    for _, index, parts in sorted(heap, key=lambda each: each[1]):
        whole = pieces[index]
        bounds = [whole.start + len(whole) * part // parts for part in range(parts + 1)]
        cut += [Range(whole.queue, low, high) for low, high in pairwise(bounds) if low < high]
    return cut


def _pack(pieces: list[Range], count: int) -> list[Task]:
    """
    Put pieces together until there are no more than so many tasks: the next largest to
    the task that has the least.
    """
    if len(pieces) <= count:
        return [(each,) for each in pieces]
    heap: list[tuple[int, int]] = [(0, index) for index in range(count)]
    packed: list[list[Range]] = [[] for _ in range(count)]
    for each in sorted(pieces, key=lambda piece: (-len(piece), piece)):
        size, index = heap[0]
        packed[index].append(each)
        heapq.heapreplace(heap, (size + len(each), index))
    return [tuple(sorted(each)) for each in packed if each]
