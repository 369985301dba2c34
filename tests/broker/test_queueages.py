# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.transaction.queueages}.
"""

from __future__ import annotations

from math import inf

from hypothesis import given, strategies
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.transaction.queueages import QueueAges


class QueueAgesTests(SynchronousTestCase):
    """
    Entries between notes.
    """

    def test_unnotedEntryMayBeOfAnyAge(self) -> None:
        """
        Before an age is noted, an entry may be of any age.
        """
        self.assertEqual(QueueAges().between(0, 100.0), (0.0, inf))

    def test_recordsBoundAnAge(self) -> None:
        """
        An entry is younger than the last note that is without it, and older than the
        first that is with it.
        """
        ages = QueueAges()
        ages.record(10, 100.0)
        ages.record(25, 101.0)
        self.assertEqual(ages.between(9, 107.0), (7.0, inf))
        self.assertEqual(ages.between(10, 107.0), (6.0, 7.0))
        self.assertEqual(ages.between(24, 107.0), (6.0, 7.0))
        self.assertEqual(ages.between(25, 107.0), (0.0, 6.0))

    def test_unchangedEndDatesNextEntry(self) -> None:
        """
        While no message comes, the next entry is known to be younger.
        """
        ages = QueueAges()
        ages.record(10, 100.0)
        ages.record(10, 103.0)
        ages.record(10, 105.0)
        self.assertEqual(ages.between(9, 107.0), (7.0, inf))
        self.assertEqual(ages.between(10, 107.0), (0.0, 2.0))

    @given(strategies.lists(strategies.integers(0, 3), max_size=200))
    def test_fewRecordsStillBoundAges(self, arrivals: list[int]) -> None:
        """
        Of many notes few are kept, and the true age is always within what is told.
        """
        ages = QueueAges(8)
        born: list[float] = []
        for second, count in enumerate(arrivals):
            born += [second - 0.5] * count
            ages.record(len(born), float(second))
        self.assertLessEqual(len(ages._ends), 8)
        now = float(len(arrivals))
        for offset, time in enumerate(born):
            least, most = ages.between(offset, now)
            self.assertTrue(least <= now - time <= most)
