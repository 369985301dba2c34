# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.confirmedtime}.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from txrocket.store.confirmedtime import ConfirmedTime

HOUR = 3600.0
DAY = 24 * HOUR
YEAR = 365 * DAY
START = 1_700_000_000.0


class ConfirmedTimeTests(SynchronousTestCase):
    """
    A clock that is looked at every minute.

    @ivar shift: by how much the time of day was set.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(START)
        self.shift = 0.0
        self.time = ConfirmedTime(lambda: self.clock.seconds() + self.shift, self.clock.seconds)

    def after(self, seconds: float) -> float:
        """
        Let time pass.

        @return: by how much the confirmed time is ahead of the monotonic clock.
        """
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end:
            self.clock.advance(min(60.0, end - self.clock.seconds()))
            ahead = self.time.now() / 1000 - self.clock.seconds()
        return round(ahead)

    def test_setAheadCountsAfterADay(self) -> None:
        """
        A step ahead counts only after it has stood for a day.
        """
        self.after(HOUR)
        self.shift = YEAR
        self.assertEqual(self.after(DAY), 0)
        self.assertEqual(self.after(60), YEAR)

    def test_setAheadAndBackLeavesNothing(self) -> None:
        """
        A step ahead that is taken back within a day never counts.
        """
        self.shift = YEAR
        self.assertEqual(self.after(HOUR), 0)
        self.shift = 0.0
        self.assertEqual(self.after(3 * DAY), 0)

    def test_setBackCountsAtOnce(self) -> None:
        """
        A step back counts at once, since it has nothing deleted early.
        """
        self.shift = -HOUR
        self.assertEqual(self.after(60), -HOUR)

    def test_setBackTakesTheLastStepsBack(self) -> None:
        """
        Of several steps ahead the last are taken back first, and each of the others
        counts after its own day.
        """
        self.shift = HOUR
        self.after(12 * HOUR)
        self.shift += 3 * HOUR
        self.after(HOUR)
        self.shift -= 2 * HOUR
        self.assertEqual(self.after(11 * HOUR), 0)
        self.assertEqual(self.after(60), HOUR)
        self.assertEqual(self.after(12 * HOUR), 2 * HOUR)
        self.shift -= 5 * HOUR
        self.assertEqual(self.after(60), -3 * HOUR)

    def test_driftCountsAtOnce(self) -> None:
        """
        A clock that is corrected by seconds has not been set.
        """
        for _ in range(100):
            self.shift += 5
            self.assertEqual(self.after(60), self.shift)
        for _ in range(100):
            self.shift -= 5
            self.assertEqual(self.after(60), self.shift)

    def test_manyStepsAreBounded(self) -> None:
        """
        However often the clock is set, little is kept, and the sum counts in the end.
        """
        for _ in range(1000):
            self.shift += 2 * HOUR
            self.assertEqual(self.after(1), 0)
        self.assertEqual(len(self.time._steps), 100)
        self.assertEqual(self.after(DAY + 60), 2000 * HOUR)
