# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.delivery.timerbucket}.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.delivery.timerbucket import BucketState, TimerBucket, Waiting

END = 1000
FAR = 10**18
LOST = -1


class Queue:
    """
    A queue of times, which gives a few entries at a time.  L{LOST} is an entry
    that stands for no message.
    """

    def __init__(self, *times: int) -> None:
        self.times = list(times)
        self.reads: list[tuple[int, int]] = []

    def __call__(self, start: int, count: int) -> list[tuple[int, int, int]]:
        self.reads.append((start, count))
        count = min(count, 7)
        # Places of the log that use all the bits there are.
        return [
            ((1 << 62) + offset, (1 << 29) - 1 - offset, time) if time != LOST else (0, 0, 0)
            for offset, time in enumerate(self.times[start : start + count], start)
        ]


def loaded(queue: Queue, most: int = 100, state: BucketState | None = None) -> TimerBucket:
    """
    A bucket that was read.
    """
    bucket = TimerBucket(5, END, state or BucketState(), queue, most)
    while bucket.read():
        pass
    return bucket


def times(waiting: list[Waiting]) -> list[int]:
    """
    When messages are due.
    """
    return [each.time for each in waiting]


class BucketTests(SynchronousTestCase):
    """
    One bucket.
    """

    def test_emptyBucketIsReadyOnceRead(self) -> None:
        """
        An empty one has nothing to do, and is not ready before that is known.
        """
        bucket = TimerBucket(5, END, BucketState(), Queue(), 3)
        self.assertEqual((bucket.ready, bucket.idle, bucket.next), (False, False, None))
        self.assertFalse(bucket.read())
        self.assertEqual((bucket.ready, bucket.idle, bucket.next), (True, True, None))
        self.assertEqual(bucket.take(END, 9, 9), [])

    def test_earliestIsTakenFirst(self) -> None:
        """
        The earliest is first, of two the one that came first; nothing is taken early.
        """
        bucket = loaded(Queue(30, 10, 20, 10))
        self.assertEqual(bucket.next, 10)
        self.assertEqual(bucket.take(9, 10, 1 << 40), [])
        taken = bucket.take(25, 10, 1 << 40)
        self.assertEqual(
            taken,
            [
                (10, 1, (1 << 62) + 1, (1 << 29) - 2),
                (10, 3, (1 << 62) + 3, (1 << 29) - 4),
                (20, 2, (1 << 62) + 2, (1 << 29) - 3),
            ],
        )
        self.assertEqual(bucket.next, 30)

    def test_takeIsBounded(self) -> None:
        """
        No more are taken than asked for, nor more bytes, but always one.
        """
        bucket = loaded(Queue(*range(9)))
        self.assertEqual(len(bucket.take(END, 2, 1 << 40)), 2)
        self.assertEqual(len(bucket.take(END, 9, 1)), 1)
        self.assertEqual(len(bucket.take(END, 9, 1 << 31)), 4)
        self.assertEqual(len(bucket.take(END, 9, 1 << 31)), 2)

    def test_undeliveredMessageIsTakenAgain(self) -> None:
        """
        A taken message that could not be delivered is there again.
        """
        bucket = loaded(Queue(1, 2, 3))
        bucket.take(END, 9, 1 << 40)
        self.assertFalse(bucket.idle)
        bucket.done(1)
        self.assertEqual(times(bucket.take(END, 9, 1 << 40)), [2, 3])
        bucket.done(2)
        self.assertTrue(bucket.idle)

    def test_laterMessageIsSorted(self) -> None:
        """
        A new message is sorted among the others, also if it is earlier than all.
        """
        queue = Queue(20, 40)
        bucket = loaded(queue)
        queue.times += [30, 10, 50]
        self.assertFalse(bucket.read())
        self.assertEqual(times(bucket.take(END, 9, 1 << 40)), [10, 20, 30, 40, 50])

    def test_manyNewMessagesTakeSeveralTurns(self) -> None:
        """
        Very many new messages are read in several turns.
        """
        queue = Queue()
        bucket = loaded(queue)
        queue.times += range(7 * 16 + 1)
        self.assertTrue(bucket.read())
        self.assertEqual(bucket.mark, 7 * 16)
        self.assertFalse(bucket.read())
        self.assertEqual(len(bucket.take(END, 500, 1 << 50)), 7 * 16 + 1)

    def test_memoryIsBounded(self) -> None:
        """
        Of many messages a limited number is in memory, and the rest is read afterwards.
        """
        queue = Queue(*(number * 37 % 100 for number in range(100)))
        bucket = loaded(queue, most=8)
        found = []
        while not bucket.idle:
            self.assertLessEqual(len(bucket._heap), 8)
            taken = bucket.take(END, 3, 1 << 40)
            found += times(taken)
            bucket.done(len(taken))
            while bucket.read():
                pass
        self.assertEqual(found, list(range(100)))

    def test_justAsMany(self) -> None:
        """
        If there are just as many as fit there is nothing more to read.
        """
        queue = Queue(3, 2, 1)
        bucket = loaded(queue, most=3)
        queue.reads.clear()
        bucket.take(END, 9, 1 << 40)
        bucket.done(3)
        self.assertFalse(bucket.read())
        self.assertEqual((queue.reads, bucket.idle), ([(3, 4096)], True))

    def test_sameTimeKeepsOrder(self) -> None:
        """
        Many messages of the same time come in their order.
        """
        bucket = loaded(Queue(*[7] * 50), most=4)
        found = []
        while not bucket.idle:
            taken = bucket.take(END, 3, 1 << 40)
            found += [each.queueOffset for each in taken]
            bucket.done(len(taken))
            while bucket.read():
                pass
        self.assertEqual(found, list(range(50)))

    def test_latestMessagesGoBackToQueue(self) -> None:
        """
        A new message that is later than all in memory stays in the queue; if those in
        memory become too many, the latest go back.
        """
        queue = Queue(*range(100, 120))
        bucket = loaded(queue, most=5)
        queue.times += [500, 101]
        bucket.read()
        self.assertEqual(len(bucket._heap), 6)
        queue.times += [50] * 5
        bucket.read()
        self.assertEqual(len(bucket._heap), 5)
        found = []
        while not bucket.idle:
            taken = bucket.take(END, 9, 1 << 40)
            found += times(taken)
            bucket.done(len(taken))
            while bucket.read():
                pass
        self.assertEqual(found, sorted(queue.times))

    def test_farMessageIsNotDelivered(self) -> None:
        """
        A message that is due after the bucket's end is not delivered; such messages are
        given in the order of the queue, some at a time.
        """
        queue = Queue(1, 2000, 2, 3000, END, 3, FAR)
        bucket = loaded(queue)
        self.assertEqual(times(bucket.take(FAR * 2, 9, 1 << 40)), [1, 2, 3])
        bucket.done(3)
        self.assertEqual((bucket.hasFar, bucket.idle), (True, False))
        far, behind = bucket.takeFar(2, 1 << 40)
        self.assertEqual(([each.queueOffset for each in far], behind), ([1, 3], 4))
        # One of the two was not moved.
        bucket.farDone(3)
        far, behind = bucket.takeFar(9, 1)
        self.assertEqual(([each.queueOffset for each in far], behind), ([3], 4))
        bucket.farDone(4)
        far, behind = bucket.takeFar(9, 1 << 40)
        self.assertEqual(([each.queueOffset for each in far], behind), ([4, 6], 7))
        bucket.farDone(7)
        self.assertEqual((bucket.hasFar, bucket.idle, bucket.base), (False, True, 7))
        queue.times.append(5000)
        bucket.read()
        self.assertTrue(bucket.hasFar)
        self.assertEqual(times(bucket.takeFar(9, 1 << 40)[0]), [5000])

    def test_deletedFarMessagesAreSkipped(self) -> None:
        """
        Far messages that are deleted from the queue are skipped.
        """
        queue = Queue(2000)
        bucket = loaded(queue)
        queue.times.clear()
        self.assertEqual(bucket.takeFar(9, 9), ([], 1))
        self.assertEqual(bucket.takeFar(9, 9), ([], bucket.mark))

    def test_stateIsCutToTheQueue(self) -> None:
        """
        A state is taken back to where a queue ends.
        """
        self.assertEqual(BucketState(5, 9, 77, 3, 7).within(6), BucketState(5, 6, 77, 3, 6))

    def test_lostLeavesOthersDone(self) -> None:
        """
        Entries that stand for lost messages are passed over, and what was done before
        them stays done.
        """
        queue = Queue(100, 300)
        bucket = loaded(queue)
        self.assertEqual(times(bucket.take(200, 10, FAR)), [100])
        bucket.done(1)
        queue.times += [LOST, 400, LOST]
        again = loaded(queue, 2, bucket.state)
        self.assertEqual(again.state.time, 300)
        queue.times += [LOST, 500]
        self.assertFalse(again.read())
        self.assertEqual(times(again.take(450, 10, FAR)), [300, 400])
        again.done(2)
        while again.read():
            pass
        self.assertEqual(times(again.take(END, 10, FAR)), [500])

    def test_lateMessageIsDelivered(self) -> None:
        """
        If one comes after its time, which happens when the clock is set back, those
        after it may come twice when all begins again.
        """
        queue = Queue(20, 24)
        bucket = loaded(queue)
        bucket.take(20, 9, 1 << 40)
        bucket.done(1)
        queue.times.append(10)
        bucket.read()
        bucket = loaded(queue, state=bucket.state)
        self.assertEqual(times(bucket.take(END, 9, 1 << 40)), [10, 20, 24])

    @settings(max_examples=300, deadline=None)
    @given(
        st.lists(st.integers(0, 30), max_size=40),
        st.integers(1, 6),
        st.lists(
            st.one_of(
                st.tuples(st.just("put"), st.integers(0, 30)),
                st.tuples(st.just("read"), st.booleans()),
                st.tuples(st.just("take"), st.integers(0, 30)),
                st.tuples(st.just("done"), st.integers(0, 5)),
                st.tuples(st.just("far"), st.integers(0, 5)),
                st.tuples(st.just("again"), st.just(0)),
            ),
            max_size=60,
        ),
    )
    def test_bucketMatchesModel(
        self, first: list[int], most: int, steps: list[tuple[str, int]]
    ) -> None:
        """
        Whatever comes when, and however often all begins again from the saved state, each
        message is delivered or moved once, unless one comes after its time.
        """
        end = 25
        reached = 0
        queue = Queue(*first)
        bucket = TimerBucket(0, end, BucketState(), queue, most)
        while bucket.read():
            pass
        done: list[int] = []
        flight: list[Waiting] = []

        def settle(count: int) -> None:
            done.extend(each.queueOffset for each in flight[:count])
            bucket.done(count)
            flight.clear()

        for step, number in [*steps, ("finish", 0)]:
            if step == "put":
                queue.times.append(max(number, reached))
            elif step == "read":
                while bucket.read() and number:
                    pass
            elif step == "take" and not bucket.read() and not flight:
                flight += bucket.take(number, 3, 1 << 40)
                self.assertTrue(all(each.time <= number for each in flight))
                reached = max([reached, *times(flight)])
            elif step == "done" and flight:
                settle(min(number, len(flight)))
            elif step == "far" and bucket.ready and bucket.hasFar:
                far, behind = bucket.takeFar(3, 1 << 40)
                moved = far[:number]
                done += [each.queueOffset for each in moved]
                bucket.farDone(behind if len(moved) == len(far) else far[number].queueOffset)
            elif step == "again":
                # What is under way is not done.
                flight.clear()
                bucket = TimerBucket(0, end, bucket.state, queue, most)
            self.assertLessEqual(len(bucket._heap), 2 * most)
        settle(0) if flight else None
        while True:
            more = bucket.read()
            flight += bucket.take(end, 3, 1 << 40) if bucket.ready else []
            settle(len(flight))
            if bucket.ready and bucket.hasFar:
                far, behind = bucket.takeFar(3, 1 << 40)
                done += [each.queueOffset for each in far]
                bucket.farDone(behind)
            if bucket.idle and not more and bucket.mark == len(queue.times):
                break
        self.assertEqual(sorted(done), list(range(len(queue.times))))
        state: Any = bucket.state
        self.assertEqual((state.base, state.mark, state.far), (len(queue.times),) * 3)
