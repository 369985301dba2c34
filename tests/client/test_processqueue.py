# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.push.processqueue}.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from tests.client.messages import QUEUE, offsetsOf, pulled, several
from txrocket.client.consumer.push.processqueue import ProcessQueue, Room
from txrocket.protocol.bodies import ProcessQueueInfo


class WindowTests(SynchronousTestCase):
    """
    The messages of a queue between its broker and a listener.
    """

    def setUp(self) -> None:
        self.window = ProcessQueue(QUEUE, 7)

    def test_emptyWindowCommitsItsBeginning(self) -> None:
        """
        Before the first pull, the beginning can be committed.
        """
        self.assertEqual((len(self.window), self.window.commitOffset), (0, 7))

    def test_repeatedMessageIsAddedOnce(self) -> None:
        """
        A message that was pulled before is not added again: a pull may repeat it if its
        broker has changed.
        """
        self.assertEqual(offsetsOf(self.window.add(several([7, 8]))), [7, 8])
        self.assertEqual(offsetsOf(self.window.add(several([6, 7, 8, 9]))), [9])
        self.assertEqual((len(self.window), self.window.size), (3, 12))

    def test_commitOffsetIsFirstUnconsumed(self) -> None:
        """
        The offset to commit is that of the first unconsumed message, whatever was consumed
        after it.
        """
        a, b, c = self.window.add(several([7, 8, 12]))
        self.assertEqual(self.window.done([b]), 7)
        self.assertEqual(self.window.done([a]), 12)
        self.assertEqual(self.window.done([c]), 13)
        self.assertEqual((len(self.window), self.window.size), (0, 0))

    def test_secondDoneChangesNothing(self) -> None:
        """
        A consumed message can be reported again without effect.
        """
        a, _ = self.window.add(several([7, 8]))
        self.assertEqual([self.window.done([a]), self.window.done([a])], [8, 8])
        self.assertEqual((len(self.window), self.window.size), (1, 4))
        self.assertNotIn(a, self.window)

    def test_defaultLimitsAreJavas(self) -> None:
        """
        The default limits are those of Java's consumer.
        """
        self.assertEqual(Room(), Room(count=1000, size=100 * 1024 * 1024, span=2000))

    def test_messageCountIsLimited(self) -> None:
        """
        The number of messages is limited, those of a listener included.
        """
        room = Room(count=3)
        self.window.add(several([7, 8]))
        self.assertIsNone(self.window.fullReason(room, span=True))
        self.window.add(several([9]))
        self.assertIn("3 messages", str(self.window.fullReason(room, span=True)))
        self.window.take(2)
        self.assertIn("3 messages", str(self.window.fullReason(room, span=True)))
        self.window.commit()
        self.assertIsNone(self.window.fullReason(room, span=True))

    def test_bodySizeIsLimited(self) -> None:
        """
        The size of the bodies is limited, and one message may exceed it.
        """
        room = Room(size=10)
        (a,) = self.window.add([pulled(7, b"x" * 9)])
        self.assertIsNone(self.window.fullReason(room, span=True))
        self.window.add([pulled(8, b"x" * 9)])
        self.assertIn("18 bytes", str(self.window.fullReason(room, span=True)))
        self.window.done([a])
        self.assertIsNone(self.window.fullReason(room, span=True))

    def test_offsetSpanIsLimited(self) -> None:
        """
        The span of offsets between the first unconsumed and the last pulled message is
        limited, if wanted.
        """
        room = Room(span=100)
        a, b = self.window.add(several([7, 107]))
        self.assertIsNone(self.window.fullReason(room, span=True))
        (c,) = self.window.add(several([108]))
        self.window.done([b, c])
        self.assertIn("message 7 is not consumed", str(self.window.fullReason(room, span=True)))
        self.assertIsNone(self.window.fullReason(room, span=False))
        self.window.done([a])
        self.assertIsNone(self.window.fullReason(room, span=True))

    def test_overdueMessagesAreTakenFromFront(self) -> None:
        """
        Messages that a listener has for too long are taken from the front only: one behind
        another keeps no offset from being committed.
        """
        a, b, c, d = self.window.add(several([7, 8, 9, 10]))
        self.window.begin([a, b], 100.0)
        self.window.begin([c], 110.0)
        self.window.begin([d], 100.0)
        self.assertEqual(self.window.overdue(100.0), [])
        self.assertEqual(self.window.overdue(100.1), [a, b])
        self.assertEqual(self.window.overdue(100.1), [])
        self.assertEqual(self.window.end([a, b, c]), [c])
        self.assertEqual(self.window.end([c]), [])

    def test_unbegunMessageIsNeverOverdue(self) -> None:
        """
        A message that no listener has is never overdue.
        """
        self.window.add(several([7]))
        self.assertEqual(self.window.overdue(1e9), [])

    def test_takenMessagesCommitWhenConsumed(self) -> None:
        """
        In order, messages are taken from the front, and can be committed once they are
        consumed.
        """
        self.window.add(several([7, 8, 9]))
        self.assertEqual(offsetsOf(self.window.take(2)), [7, 8])
        self.assertEqual((len(self.window), self.window.waiting), (3, 1))
        self.assertEqual(self.window.commitOffset, 7)
        self.assertEqual(self.window.commit(), 9)
        self.assertEqual((len(self.window), self.window.size), (1, 4))
        self.assertEqual(offsetsOf(self.window.take(2)), [9])
        self.assertEqual(self.window.commit(), 10)
        self.assertEqual(list(self.window.take(2)), [])

    def test_givenBackMessagesComeFirst(self) -> None:
        """
        Messages that are given back are taken again, first and in their order, with their
        changes.
        """
        self.window.add(several([7, 8, 9]))
        self.window.take(2)
        self.window.giveBack([pulled(7, times=1), pulled(8, times=1)])
        self.assertEqual((self.window.commitOffset, self.window.waiting), (7, 3))
        taken = self.window.take(3)
        self.assertEqual(
            [(each.queueOffset, each.reconsumeTimes) for each in taken][:2], [(7, 1), (8, 1)]
        )
        self.assertEqual(self.window.commit(), 10)
        self.assertEqual(self.window.size, 0)

    def test_infoHasJavasNamesAndUnits(self) -> None:
        """
        The info has the names and units of Java's C{ProcessQueueInfo}: milliseconds and
        whole MiB.
        """

        def milliseconds(seconds: float) -> int:
            return int(seconds * 1000)

        self.assertEqual(self.window.info(5, milliseconds), ProcessQueueInfo(commitOffset=5))
        self.window.add([pulled(each, b"x" * (1 << 19)) for each in range(7, 12)])
        self.window.take(2)
        self.window.locked, self.window.lockedAt = True, 1.5
        self.window.pulledAt, self.window.consumedAt = 2.25, 3.125
        self.window.dropped = True
        self.assertEqual(
            self.window.info(6, milliseconds),
            ProcessQueueInfo(
                commitOffset=6,
                cachedMsgMinOffset=9,
                cachedMsgMaxOffset=11,
                cachedMsgCount=3,
                cachedMsgSizeInMiB=2,
                transactionMsgMinOffset=7,
                transactionMsgMaxOffset=8,
                transactionMsgCount=2,
                locked=True,
                lastLockTimestamp=1500,
                droped=True,
                lastPullTimestamp=2250,
                lastConsumeTimestamp=3125,
            ),
        )


class AnyOrder(RuleBasedStateMachine):
    """
    A window whose messages are done in any order, beside a set of what is not done.
    """

    def __init__(self) -> None:
        super().__init__()
        self.window = ProcessQueue(QUEUE, 0)
        self.next = 0
        self.undone: set[int] = set()
        self.committed = 0

    @rule(gaps=st.lists(st.integers(0, 3), min_size=1, max_size=5), again=st.booleans())
    def pull(self, gaps: list[int], again: bool) -> None:
        """
        A filter leaves gaps, and another broker may give the last once more.
        """
        offsets = [self.next - 1] if again and self.next else []
        for gap in gaps:
            self.next += gap
            offsets.append(self.next)
            self.undone.add(self.next)
            self.next += 1
        self.window.add(several(offsets))

    @precondition(lambda self: self.undone)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """
        Some messages are consumed.
        """
        some = data.draw(st.sets(st.sampled_from(sorted(self.undone)), min_size=1))
        self.undone -= some
        self.keep(self.window.done(several(some)))

    @precondition(lambda self: self.undone)
    @rule(data=st.data())
    def late(self, data: st.DataObject) -> None:
        """
        Listeners have some for too long, and the front of them is taken away.
        """
        some = data.draw(st.sets(st.sampled_from(sorted(self.undone)), min_size=1))
        self.window.begin(several(some), 1.0)
        taken = offsetsOf(self.window.overdue(2.0))
        front = [each for each in sorted(self.undone) if each in taken]
        assert taken == front == sorted(self.undone)[: len(taken)]
        assert set(taken) <= some
        assert set(offsetsOf(self.window.end(several(some)))) == some - set(taken)

    def keep(self, offset: int) -> None:
        """
        The committed offset never passes an unconsumed message, and never goes back.
        """
        assert all(offset <= each for each in self.undone)
        assert offset >= self.committed
        self.committed = offset

    @invariant()
    def counts(self) -> None:
        """
        All that is not done is there, and nothing else.
        """
        assert len(self.window) == len(self.undone)
        assert self.window.size == 4 * len(self.undone)
        assert self.window.commitOffset == min(self.undone, default=self.next)


class InOrder(RuleBasedStateMachine):
    """
    A window whose messages are taken in order, beside two lists.
    """

    def __init__(self) -> None:
        super().__init__()
        self.window = ProcessQueue(QUEUE, 0)
        self.next = 0
        self.waiting: list[int] = []
        self.taken: list[int] = []

    @rule(count=st.integers(1, 4))
    def pull(self, count: int) -> None:
        """
        Messages come.
        """
        offsets = range(self.next, self.next + count)
        self.next += count
        self.window.add(several(offsets))
        self.waiting += offsets

    @precondition(lambda self: not self.taken)
    @rule(most=st.integers(1, 4))
    def take(self, most: int) -> None:
        """
        A listener is given the next.
        """
        self.taken, self.waiting = self.waiting[:most], self.waiting[most:]
        assert offsetsOf(self.window.take(most)) == self.taken

    @rule()
    def commit(self) -> None:
        """
        The taken messages are consumed.
        """
        self.taken = []
        assert self.window.commit() == min(self.waiting, default=self.next)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def giveBack(self, data: st.DataObject) -> None:
        """
        It has not, but for some that left for the dead letters.
        """
        dead = data.draw(st.sets(st.sampled_from(self.taken)))
        left = [each for each in self.taken if each not in dead]
        self.waiting = left + self.waiting
        self.window.giveBack(several(left))
        assert self.window.commitOffset == min([*self.waiting, *dead], default=self.next)
        self.commit()

    @invariant()
    def counts(self) -> None:
        """
        Each is in one of the two, and what can be committed passes neither.
        """
        assert len(self.window) == len(self.waiting) + len(self.taken)
        assert self.window.waiting == len(self.waiting)
        assert self.window.size == 4 * len(self.window)
        assert self.window.commitOffset == min(self.waiting + self.taken, default=self.next)


class ModelTests(SynchronousTestCase):
    """
    A window and a simple model of it.
    """

    settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

    def test_concurrentCommitPassesNoUnconsumed(self) -> None:
        """
        In whichever order messages are consumed, the offset to commit never passes an
        unconsumed one.
        """
        run_state_machine_as_test(AnyOrder, settings=self.settings)

    def test_orderlyMessagesKeepOrder(self) -> None:
        """
        Whichever messages are taken, given back or committed, the rest comes in order.
        """
        run_state_machine_as_test(InOrder, settings=self.settings)
