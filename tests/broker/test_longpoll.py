# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.pull.longpoll}.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.pull import longpoll
from txrocket.broker.pull.longpoll import LongPoll
from txrocket.broker.settings import PullSettings
from txrocket.config import Live
from txrocket.errors import SystemBusy
from txrocket.message import MessageExt

MESSAGE = MessageExt("T", b"", 0, b"", 0, 0, 0, 0, 0, b"", 0, b"", 0, 0, 0, 0)


class LongPollTests(SynchronousTestCase):
    """
    Pulls that are held.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.settings = Live(PullSettings(pullThreadPoolQueueCapacity=1000))
        self.longPoll = LongPoll(self.clock, self.settings)

    def hold(
        self,
        seconds: float = 15.0,
        topic: str = "T",
        queueId: int = 0,
        offset: int = 0,
        matches: Callable[[int], bool] | None = None,
        accepts: Callable[[MessageExt], bool] | None = None,
    ) -> Deferred[None]:
        """
        Hold a pull.
        """
        return self.longPoll.hold(topic, queueId, offset, seconds, matches, accepts)

    def arrive(self, topic: str = "T", queueId: int = 0, offset: int = 0, hashed: int = 0) -> None:
        """
        Let a message come.
        """
        self.longPoll.arrived(topic, queueId, offset, hashed, MESSAGE)

    def test_messageWakesPullsOfItsQueue(self) -> None:
        """
        A message wakes all that wait at its queue, and no others.
        """
        here = [self.hold(), self.hold()]
        elsewhere = [self.hold(queueId=1), self.hold(topic="U")]
        self.assertEqual(4, len(self.longPoll))
        self.arrive()
        for each in here:
            self.successResultOf(each)
        for each in elsewhere:
            self.assertNoResult(each)
        self.assertEqual(2, len(self.longPoll))
        self.arrive()
        self.arrive("V")

    def test_earlierMessageWakesNoPull(self) -> None:
        """
        A message before the offset of a pull does not wake it.
        """
        held = self.hold(offset=5)
        self.arrive(offset=4)
        self.assertNoResult(held)
        self.arrive(offset=5)
        self.successResultOf(held)

    def test_otherTagWakesNoPull(self) -> None:
        """
        A message whose tag's hash does not match wakes no pull; it is looked at
        more closely only where the hash is.
        """
        looked: list[MessageExt] = []

        def accepts(message: MessageExt) -> bool:
            looked.append(message)
            return len(looked) > 1

        tagged = self.hold(matches=lambda hashed: hashed == 3)
        filtered = self.hold(matches=lambda hashed: hashed == 4, accepts=accepts)
        self.arrive(hashed=3)
        self.successResultOf(tagged)
        self.assertNoResult(filtered)
        self.assertEqual([], looked)
        self.arrive(hashed=4)
        self.assertNoResult(filtered)
        self.arrive(hashed=4)
        self.successResultOf(filtered)
        self.assertEqual([MESSAGE, MESSAGE], looked)

    def test_timeLimitWakesPull(self) -> None:
        """
        At its time limit each is woken, in whatever order they came.
        """
        held = {seconds: self.hold(seconds) for seconds in (20.0, 5.0, 10.0, 5.01)}
        self.clock.advance(4.9)
        for each in held.values():
            self.assertNoResult(each)
        self.clock.advance(0.1)
        self.successResultOf(held[5.0])
        self.assertNoResult(held[10.0])
        # Limits that are near each other are met together, a little late.
        self.clock.advance(0.05)
        self.successResultOf(held[5.01])
        self.clock.advance(4.95)
        self.successResultOf(held[10.0])
        self.assertNoResult(held[20.0])
        self.clock.advance(10)
        self.successResultOf(held[20.0])
        self.assertEqual(0, len(self.longPoll))
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_manyPullsShareOneTimer(self) -> None:
        """
        However many are held, there is one timer.
        """
        for number in range(1000):
            self.hold(15 + number % 7)
        self.assertEqual(1, len(self.clock.getDelayedCalls()))

    def test_wokenPullMayBeHeldAgain(self) -> None:
        """
        A woken pull may be held again at once, for the same message.
        """
        held = self.hold()
        again: list[Deferred[None]] = []
        held.addCallback(lambda none: again.append(self.hold(offset=1)))
        self.arrive()
        self.assertNoResult(again[0])
        self.arrive(offset=1)
        self.successResultOf(again[0])

    def test_cancelledPullIsReleased(self) -> None:
        """
        A pull whose connection went away is held no longer: not when a message
        comes, and not at its limit.
        """
        held, other = self.hold(), self.hold()
        held.cancel()
        self.failureResultOf(held, CancelledError)
        self.assertEqual(1, len(self.longPoll))
        self.arrive()
        self.successResultOf(other)
        self.clock.advance(15)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_wokenPullMayCancelOthers(self) -> None:
        """
        A woken pull may close the connections of others that would be woken.
        """
        first, second = self.hold(), self.hold()
        first.addCallback(lambda none: second.cancel())
        self.arrive()
        self.failureResultOf(second, CancelledError)
        self.assertEqual(0, len(self.longPoll))

    def test_endedPullsAreForgotten(self) -> None:
        """
        Pulls that are over are not kept until their limits: a queue through
        which messages run holds and wakes thousands a second.
        """
        keep = self.hold()
        for _ in range(10_000):
            self.hold(queueId=1)
            self.arrive(queueId=1)
        self.assertLess(len(self.longPoll._heap), 100)
        self.clock.advance(15)
        self.successResultOf(keep)

    def test_pullBeyondLimitIsRefused(self) -> None:
        """
        No more than the limit are held; the limit may be changed.
        """
        self.settings.now = PullSettings(pullThreadPoolQueueCapacity=2)
        self.hold()
        held = self.hold()
        with self.assertRaises(SystemBusy):
            self.hold()
        held.cancel()
        self.failureResultOf(held, CancelledError)
        self.hold()

    def test_stopWakesAllPulls(self) -> None:
        """
        A stop wakes all, and leaves nothing on the clock.
        """
        held = [self.hold(), self.hold(), self.hold(topic="U")]
        self.longPoll.stop()
        for each in held:
            self.successResultOf(each)
        self.assertEqual([], self.clock.getDelayedCalls())
        self.longPoll.stop()


class TurningClock(Clock):
    """
    A clock that can run the calls of one turn, without those that they make.
    """

    def turn(self, seconds: float = 0.0) -> bool:
        """
        Let time pass, and run what is due.

        @return: whether anything was.
        """
        self.rightNow += seconds
        due = [each for each in self.calls if each.getTime() <= self.rightNow]
        for each in due:
            if each in self.calls:
                self.calls.remove(each)
                each.called = 1
                each.func(*each.args, **each.kw)
        return bool(due)


class CrowdTests(SynchronousTestCase):
    """
    Thousands of pulls that are held at one queue.
    """

    COUNT = 3000

    #: As many pulls may be woken in one turn of the reactor.
    MOST = longpoll._WORK // longpoll._WAKE

    def setUp(self) -> None:
        self.clock = TurningClock()
        self.longPoll = LongPoll(self.clock, Live(PullSettings(pullThreadPoolQueueCapacity=10_000)))
        self.woken: list[int] = []
        self.compared = 0

    def hold(self, count: int, hashed: int | None = None, seconds: float = 15.0) -> None:
        """
        Hold pulls that want messages with a hash, or all.
        """

        def matches(each: int) -> bool:
            self.compared += 1
            return each == hashed

        for _ in range(count):
            held = self.longPoll.hold("T", 0, 0, seconds, None if hashed is None else matches, None)
            held.addCallbacks(lambda none: self.woken.append(1), lambda failure: None)

    def arrive(self, hashed: int = 0, offset: int = 0) -> None:
        """
        Let a message come.
        """
        self.longPoll.arrived("T", 0, offset, hashed, MESSAGE)

    def turns(self) -> list[int]:
        """
        Let the reactor turn until nothing is left to do at once.

        @return: how many pulls were woken in each turn.
        """
        found, before = [], len(self.woken)
        while self.clock.turn():
            found.append(len(self.woken) - before)
            before = len(self.woken)
        return found

    def test_manyHeldWokenInSlices(self) -> None:
        """
        A message wakes all pulls of its queue, and no turn wakes more than the limit.
        """
        self.hold(self.COUNT)
        self.arrive()
        self.assertEqual(self.woken, [])
        turns = self.turns()
        self.assertLessEqual(max(turns), self.MOST)
        self.assertEqual(sum(turns), self.COUNT)
        self.assertEqual((len(self.longPoll), ("T", 0) in self.longPoll.awaited), (0, False))

    def test_manyDueWokenInSlices(self) -> None:
        """
        Pulls that reach their time limit together are all woken, and no turn wakes more
        than the limit.
        """
        self.hold(self.COUNT)
        self.clock.turn(15)
        self.assertLessEqual(len(self.woken), self.MOST)
        self.assertLessEqual(max(self.turns()), self.MOST)
        self.assertEqual(len(self.woken), self.COUNT)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_releaseComparesNothing(self) -> None:
        """
        A pull that is given up leaves without a search among the others.
        """
        compared: list[object] = []

        def equal(one: object, other: object) -> bool:
            compared.append(other)
            return one is other

        self.patch(longpoll._Held, "__eq__", equal)
        held = [self.longPoll.hold("T", 0, 0, 15) for _ in range(100)]
        for each in reversed(held):
            each.addErrback(lambda failure: None)
            each.cancel()
        self.assertEqual((compared, len(self.longPoll)), ([], 0))

    def test_othersMessagesComparedInSlices(self) -> None:
        """
        Pulls that do not want a message stay held, and no turn compares more than the
        limit.
        """
        self.hold(self.COUNT * 2, hashed=3)
        for offset in range(5):
            self.arrive(hashed=4, offset=offset)
        most = 0
        while self.longPoll._crowds:
            before = self.compared
            self.clock.turn()
            most = max(most, self.compared - before)
        self.assertLessEqual(most, longpoll._WORK + longpoll._WAKE + longpoll._NEWS)
        self.assertEqual((self.woken, self.compared), ([], self.COUNT * 2 * 5))
        self.arrive(hashed=3, offset=5)
        self.assertEqual(sum(self.turns()), self.COUNT * 2)

    def test_messageDuringWakingIsNotMissed(self) -> None:
        """
        A message that comes while a crowd is gone through wakes those that were passed.
        """
        self.hold(self.COUNT, hashed=3)
        self.arrive(hashed=4)
        self.clock.turn()
        self.arrive(hashed=3, offset=1)
        self.turns()
        self.assertEqual(len(self.woken), self.COUNT)

    def test_tooManyMessagesWakeAll(self) -> None:
        """
        When more messages wait than a crowd holds, all its pulls are woken, and no pull
        needs to hear of further messages until then.
        """
        self.hold(self.COUNT, hashed=3)
        for offset in range(longpoll._NEWS):
            self.arrive(hashed=4, offset=offset)
        self.assertIn(("T", 0), self.longPoll.awaited)
        self.arrive(hashed=4, offset=longpoll._NEWS)
        self.assertNotIn(("T", 0), self.longPoll.awaited)
        self.turns()
        self.assertEqual((len(self.woken), self.compared), (self.COUNT, 0))
        self.hold(1)
        self.assertIn(("T", 0), self.longPoll.awaited)

    def test_stopEndsTheTurns(self) -> None:
        """
        A stop while a crowd is gone through wakes all, and leaves nothing on the clock.
        """
        self.hold(self.COUNT)
        self.arrive()
        self.clock.turn()
        self.longPoll.stop()
        self.assertEqual(len(self.woken), self.COUNT)
        self.assertEqual(self.clock.getDelayedCalls(), [])
