# SPDX-License-Identifier: Apache-2.0
"""
The plan of a read: which offsets a micro-batch gets, and which task reads which of them.
A plan depends on its arguments alone, so that Spark gets the same batch again after a
crash.

Ends are exclusive::

    queue 0        3 ........... 9
    queue 1        0 ............................... 21       maxOffsetsPerTrigger 9
    limitOffsets   [3, 5)   [0, 7)                            in proportion to the messages
    tasks          [[3, 5) of 0, [0, 7) of 1]                 too few for two tasks
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs

from pyspark_rocketmq.read.offsets import DataLost, Offsets
from txrocket.model import MessageQueue

__all__ = ["WORTH_A_TASK", "Range", "Task", "latestOffsets", "limitOffsets", "ranges", "tasks"]

#: Queues share a task until it has this many messages.  With fewer, starting the task
#: takes longer than reading.
WORTH_A_TASK = 1000


@attrs.frozen(order=True)
class Range:
    """
    Consecutive messages of a queue, which one task reads.

    @ivar start: the offset of the first message.
    @ivar end: the offset behind the last message.
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
    The messages between two offsets of each queue.  If a queue has an end and no start,
    its range is empty.

    @param strict: whether a start behind its end is an error; else the range is empty.
    @raise DataLost: if a start is behind its end.
    """
    found = []
    for queue in sorted(end):
        first, last = start.get(queue, end[queue]), end[queue]
        if first > last and strict:
            raise DataLost(
                f"queue {queue.queueId} of {queue.topic} at {queue.brokerName} is to be read from"
                f" {first} to {last}, backwards: the queue was created again, or lost messages,"
                " or the options say so (failOnDataLoss=false reads nothing of it)"
            )
        if first < last:
            found.append(Range(queue, first, last))
    return found


def latestOffsets(
    known: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, tuple[int, int]],
    target: Mapping[MessageQueue, int] | None = None,
    *,
    strict: bool,
) -> Offsets:
    """
    The offsets up to which a stream can read now.

    A new queue gets the offset of its first message, so the batch reads nothing of it.
    The checkpoint then says where each part of a later batch begins, also after a crash.
    If the broker of a queue is not reachable, the queue keeps its offset.

    @param known: the offsets that the stream has reached.
    @param bounds: where queues begin and end now.
    @param target: the offsets not to go beyond, and the only queues to add; L{None} is
        no limit.
    @param strict: whether removed messages are an error; else the stream continues with
        the messages that exist.
    @raise DataLost: if messages to be read were removed.
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
            # A queue that ends before the known offset was created again: read all of it.
            ends[queue] = low if first > high else max(first, high)
    return ends


def limitOffsets(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], most: int | None
) -> Offsets:
    """
    The offsets at which a micro-batch ends: each queue gets a share of the limit in
    proportion to its messages.

    @param most: the number of messages in the batch; L{None} is no limit.
    @return: for each queue of the end, an offset not before its start and not after its
        end.  If there is any message, the batch has at least one.
    """
    there = {queue: max(0, end[queue] - start.get(queue, end[queue])) for queue in sorted(end)}
    total = sum(there.values())
    base = {queue: end[queue] - count for queue, count in there.items()}
    if most is None or total <= most:
        return {queue: base[queue] + count for queue, count in there.items()}
    shares = {queue: count * most // total for queue, count in there.items()}
    # Rounding down leaves a rest, which goes to the queues that lost most by it.
    left = most - sum(shares.values())
    by = sorted(there, key=lambda queue: (-(there[queue] * most % total), queue))
    for queue in by[:left]:
        shares[queue] += 1
    return {queue: base[queue] + count for queue, count in shares.items()}


#: The ranges that one task reads, one after the other.
Task = tuple[Range, ...]


def tasks(found: Sequence[Range], least: int | None = None, most: int | None = None) -> list[Task]:
    """
    Divide ranges among tasks.

    @param least: the wanted number of tasks: queues are cut into pieces to reach it.
        With fewer messages than that there are fewer tasks.
    @param most: the highest number of tasks: queues share tasks to keep to it.
    @return: tasks that together read every message once, none of them empty.
    """
    pieces = sorted(each for each in found if len(each))
    if least is None:
        total = sum(map(len, pieces))
        wanted = min(len(pieces), -(-total // WORTH_A_TASK))
    else:
        wanted = least
        pieces = _cut(pieces, least)
    if most is not None:
        wanted = min(wanted, most)
    return _pack(pieces, wanted)


def _cut(pieces: list[Range], least: int) -> list[Range]:
    """
    Cut the largest ranges until there are at least C{least} pieces.
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
    Pack pieces into at most C{count} tasks: the next largest piece goes to the task with
    the fewest messages.
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
