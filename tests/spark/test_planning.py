# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{pyspark_rocketmq.read.planning} and L{pyspark_rocketmq.read.offsetbytime}.
"""

from __future__ import annotations

import bisect

from hypothesis import given
from hypothesis import strategies as st
from pyspark_rocketmq.read.offsetbytime import firstAt
from pyspark_rocketmq.read.offsets import DataLost, Offsets
from pyspark_rocketmq.read.planning import (
    WORTH_A_TASK,
    Range,
    latestOffsets,
    limitOffsets,
    ranges,
    tasks,
)
from twisted.trial.unittest import SynchronousTestCase

from txrocket.model import MessageQueue

queues = st.builds(MessageQueue, st.sampled_from("TU"), st.sampled_from("ab"), st.integers(0, 3))
offsets = st.integers(0, 5000)
pairs = st.tuples(offsets, offsets).map(lambda pair: (min(pair), max(pair)))
bounds = st.dictionaries(queues, pairs)
limits = st.none() | st.integers(1, 12)


def queue(number: int) -> MessageQueue:
    """
    A queue.
    """
    return MessageQueue("T", "a", number)


def rangesOf(table: dict[MessageQueue, tuple[int, int]]) -> list[Range]:
    """
    One range for each queue.
    """
    return [Range(each, low, high) for each, (low, high) in table.items()]


class TasksTests(SynchronousTestCase):
    """
    The tasks and their ranges.
    """

    @given(bounds, limits, limits)
    def test_everyOffsetIsReadOnce(
        self, table: dict[MessageQueue, tuple[int, int]], least: int | None, most: int | None
    ) -> None:
        """
        Every offset is read once, by one task; there are as many tasks as was asked for,
        or as there are messages, and no task is empty.
        """
        found = tasks(rangesOf(table), least, most)
        pieces = sorted(each for task in found for each in task)
        self.assertTrue(all(found))
        self.assertTrue(all(len(each) for each in pieces))
        seen: dict[MessageQueue, int] = {}
        for each in pieces:
            self.assertEqual(each.start, seen.get(each.queue, table[each.queue][0]))
            seen[each.queue] = each.end
        for own, (low, high) in table.items():
            self.assertEqual(seen.get(own, low), high)
        total = sum(high - low for low, high in table.values())
        if most is not None:
            self.assertLessEqual(len(found), most)
        elif least is not None:
            self.assertGreaterEqual(len(found), min(least, total))

    @given(bounds, limits, limits)
    def test_orderOfRangesDoesNotCount(
        self, table: dict[MessageQueue, tuple[int, int]], least: int | None, most: int | None
    ) -> None:
        """
        The order in which ranges come does not count: a batch that is planned again is
        the same.
        """
        found = rangesOf(table)
        self.assertEqual(tasks(found, least, most), tasks(found[::-1], least, most))

    def test_fewMessagesAreOneTask(self) -> None:
        """
        A few messages are one task, however many queues they are in; many are one for
        each queue.
        """
        few = [Range(queue(number), 0, 10) for number in range(16)]
        self.assertEqual(tasks(few), [tuple(few)])
        many = [Range(queue(number), 0, WORTH_A_TASK) for number in range(4)]
        self.assertEqual(tasks(many), [(each,) for each in many])

    def test_largestQueuesAreCut(self) -> None:
        """
        For more tasks the largest queues are cut, into parts that differ by one at most.
        """
        found = tasks([Range(queue(0), 0, 100), Range(queue(1), 0, 10)], 5)
        self.assertEqual(len(found), 5)
        sizes = sorted(len(each) for (each,) in found)
        self.assertEqual(sizes, [10, 25, 25, 25, 25])
        self.assertEqual(len(tasks([Range(queue(0), 0, 3)], 5)), 3)
        self.assertEqual(tasks([], 5), [])

    def test_smallQueuesShareTasks(self) -> None:
        """
        For fewer tasks queues are put together, so that none has much more than another.
        """
        sizes = (7, 6, 5, 4, 3, 2)
        found = tasks(
            [Range(queue(number), 0, 1000 * size) for number, size in enumerate(sizes)], None, 3
        )
        self.assertEqual(sorted(sum(map(len, task)) for task in found), [9000, 9000, 9000])


class LimitOffsetsTests(SynchronousTestCase):
    """
    The messages of a micro-batch.
    """

    @given(bounds, st.none() | st.integers(1, 20_000))
    def test_limitIsKept(
        self, table: dict[MessageQueue, tuple[int, int]], most: int | None
    ) -> None:
        """
        It is as many as may be, or all that there are, and none beyond an end.
        """
        start = {each: low for each, (low, _) in table.items()}
        end = {each: high for each, (_, high) in table.items()}
        found = limitOffsets(start, end, most)
        total = sum(high - low for low, high in table.values())
        self.assertEqual(found.keys(), end.keys())
        for each in found:
            self.assertTrue(start[each] <= found[each] <= end[each])
        count = sum(found[each] - start[each] for each in found)
        self.assertEqual(count, total if most is None else min(most, total))

    def test_queuesGetProportionalShares(self) -> None:
        """
        Each queue has its share.
        """
        found = limitOffsets({queue(0): 3, queue(1): 0}, {queue(0): 9, queue(1): 21}, 9)
        self.assertEqual(found, {queue(0): 5, queue(1): 7})

    def test_newQueueCountsForNothing(self) -> None:
        """
        A queue that is entered, or that is behind its end, goes where it is to go and
        counts for nothing.
        """
        found = limitOffsets(
            {queue(0): 0, queue(1): 50}, {queue(0): 9, queue(1): 5, queue(2): 7}, 3
        )
        self.assertEqual(found, {queue(0): 3, queue(1): 5, queue(2): 7})


class RangesTests(SynchronousTestCase):
    """
    The ranges between two offsets.
    """

    def test_unchangedQueueHasNoRange(self) -> None:
        """
        An unchanged queue has no range, and a new one has none yet.
        """
        start = {queue(0): 3, queue(1): 5}
        end = {queue(0): 9, queue(1): 5, queue(2): 7}
        self.assertEqual(ranges(start, end, strict=True), [Range(queue(0), 3, 9)])

    def test_startBehindEndIsLost(self) -> None:
        """
        A start behind its end is lost data, or nothing to read, as the user has it.
        """
        error = self.assertRaises(DataLost, ranges, {queue(3): 9}, {queue(3): 2}, strict=True)
        self.assertIn("queue 3 of T at a is to be read from 9 to 2", str(error))
        self.assertIn("failOnDataLoss=false", str(error))
        self.assertEqual(ranges({queue(3): 9}, {queue(3): 2}, strict=False), [])


class LatestOffsetsTests(SynchronousTestCase):
    """
    As far as a stream can go.
    """

    def test_newQueueStartsAtFirstMessage(self) -> None:
        """
        A queue goes to its end, a new one is entered at its first message, and one whose
        broker is away stays.
        """
        found = latestOffsets(
            {queue(0): 3, queue(1): 5}, {queue(0): (2, 9), queue(2): (4, 8)}, strict=True
        )
        self.assertEqual(found, {queue(0): 9, queue(1): 5, queue(2): 4})

    def test_removedMessagesAreLost(self) -> None:
        """
        Messages that are gone are an error that says so; or the stream goes on, with one
        that was made anew from its beginning.
        """
        for low, high, onward in ((5, 9, 9), (0, 2, 0)):
            table = {queue(0): (low, high)}
            error = self.assertRaises(DataLost, latestOffsets, {queue(0): 3}, table, strict=True)
            self.assertIn(f"from 3 on, but has messages from {low} to {high}", str(error))
            self.assertEqual(latestOffsets({queue(0): 3}, table, strict=False), {queue(0): onward})

    @given(st.dictionaries(queues, offsets), bounds, st.none() | st.integers(1, 3000))
    def test_targetEndsStream(
        self,
        known: Offsets,
        table: dict[MessageQueue, tuple[int, int]],
        most: int | None,
    ) -> None:
        """
        Towards a target there is an end: the queues that there were are read up to it,
        whatever the limit, and then nothing changes any more, though more messages and
        queues come.
        """
        for each in known.keys() & table.keys():
            low, high = table[each]
            known[each] = min(max(known[each], low), high)
        target = {each: high for each, (_, high) in table.items()}
        later = {each: (low, high + 7) for each, (low, high) in table.items()}
        later[MessageQueue("New", "c", 0)] = (0, 5)
        for _ in range(100_000):
            found = limitOffsets(known, latestOffsets(known, later, target, strict=True), most)
            if found == known:
                break
            for each, offset in known.items():
                self.assertGreaterEqual(found[each], offset)
            known = found
        else:
            self.fail("it does not end")
        self.assertEqual({each: known[each] for each in target}, target)


class FirstAtTests(SynchronousTestCase):
    """
    Looking for a time.
    """

    @given(
        st.lists(st.integers(0, 30)).map(sorted),
        st.integers(-1, 31),
        st.integers(-5, 60),
        st.integers(0, 10),
        st.integers(0, 10),
    )
    def test_firstMessageAtTimeIsFound(
        self, times: list[int], when: int, near: int, low: int, gone: int
    ) -> None:
        """
        The first message at a time or later is found, wherever the search begins, also
        if messages vanish from the beginning.
        """
        removed = min(gone, bisect.bisect_left(times, when))

        def timeAt(offset: int) -> int | None:
            index = offset - low
            self.assertTrue(0 <= index < len(times))
            return None if index < removed else times[index]

        high = low + len(times)
        expected = low + bisect.bisect_left(times, when)
        self.assertEqual(firstAt(when, low, high, near, timeAt), expected)

    def test_goodGuessNeedsFewLooks(self) -> None:
        """
        If the broker was right, or one off, a few looks do, however long the queue; and
        not many more if all were stored at once.
        """
        looks: list[int] = []

        def timeAt(offset: int) -> int:
            looks.append(offset)
            return offset

        for near in (499_999, 500_000, 500_001):
            self.assertEqual(firstAt(500_000, 0, 10**9, near, timeAt), 500_000)
        self.assertLess(len(looks), 12)
        looks.clear()
        self.assertEqual(firstAt(5, 0, 10**6, 10**6, lambda offset: timeAt(offset) * 0 + 7), 0)
        self.assertLess(len(looks), 50)
