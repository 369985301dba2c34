# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.bench.histogram}.
"""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.bench.histogram import LARGEST, Histogram

PERCENTS = st.sampled_from([0.1, 1, 50, 90, 99, 99.9, 100])


def filled(values: list[int]) -> Histogram:
    """
    A histogram of values.
    """
    histogram = Histogram()
    for each in values:
        histogram.record(each)
    return histogram


class HistogramTests(SynchronousTestCase):
    """
    Tests for L{Histogram}.
    """

    @given(st.lists(st.integers(0, LARGEST), min_size=1, max_size=200), PERCENTS)
    def test_percentileIsAtMost256thOff(self, values: list[int], percent: float) -> None:
        """
        A percentile is at most 1/256 off from that of all values in order.
        """
        rank = max(1, math.ceil(round(percent * len(values) / 100, 6)))
        exact = sorted(values)[rank - 1]
        told = filled(values).percentile(percent)
        self.assertLessEqual(abs(told - exact), exact / 256)

    @given(st.lists(st.integers(0, LARGEST), min_size=1))
    def test_countMeanAndExtremesAreExact(self, values: list[int]) -> None:
        """
        Count, mean, least and most are exact, and no percentile lies beyond them.
        """
        histogram = filled(values)
        self.assertEqual(
            (histogram.count, histogram.least, histogram.most),
            (len(values), min(values), max(values)),
        )
        self.assertEqual(histogram.mean, sum(values) / len(values))
        self.assertTrue(min(values) <= histogram.percentile(50) <= max(values))

    def test_valuesOutOfRangeAreClamped(self) -> None:
        """
        A negative value, of clocks that differ, counts as 0, and a too large one as the
        largest: nothing is lost, and nothing fails.
        """
        histogram = filled([-5, 2**70])
        self.assertEqual((histogram.count, histogram.least, histogram.most), (2, 0, LARGEST))
        self.assertEqual(histogram.percentile(50), 0)

    def test_smallNumbersAreExact(self) -> None:
        """
        Below 256 every number is exact.
        """
        histogram = filled(list(range(1, 201)))
        self.assertEqual([histogram.percentile(each) for each in (50, 99, 99.5)], [100, 198, 199])

    def test_emptyHistogramIsZero(self) -> None:
        """
        Of nothing all is 0.
        """
        histogram = Histogram()
        self.assertEqual((histogram.percentile(99), histogram.mean, histogram.least), (0, 0.0, 0))
