# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.flush.watermark}.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import StoreFailed
from txrocket.store.flush.watermark import Watermark


class WatermarkTests(SynchronousTestCase):
    """
    Tests for L{Watermark}.
    """

    def test_reachedOffsetNeedsNoWait(self) -> None:
        """
        A caller does not wait for an offset that is reached.
        """
        mark = Watermark(10)
        self.successResultOf(mark.reaches(10))
        self.assertEqual(0, mark.waiting)

    def test_oneStepServesMany(self) -> None:
        """
        One step serves all waiters up to its offset, and none past it.
        """
        mark = Watermark()
        first, second, third = (mark.reaches(each) for each in (5, 10, 11))
        mark.advance(10)
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertNoResult(third)
        self.assertEqual(1, mark.waiting)

    def test_outOfOrder(self) -> None:
        """
        The waiter for the smaller offset is served first; waiters for the same offset in the
        order in which they came.
        """
        mark = Watermark()
        served: list[str] = []
        for offset, name in ((200, "d"), (100, "a"), (150, "b"), (150, "c"), (300, "e")):
            mark.reaches(offset).addCallback(lambda _, each: served.append(each), name)
        mark.advance(120)
        self.assertEqual(["a"], served)
        mark.advance(199)
        self.assertEqual(["a", "b", "c"], served)
        mark.advance(300)
        self.assertEqual(["a", "b", "c", "d", "e"], served)

    def test_markNeverGoesBack(self) -> None:
        """
        The mark does not go back.
        """
        mark = Watermark(10)
        mark.advance(5)
        self.assertEqual(10, mark.offset)

    def test_waitsAgainWhenServed(self) -> None:
        """
        A waiter that is served may wait again at once, and the same step serves it if it
        leads so far.
        """
        mark = Watermark()
        again = mark.reaches(5).addCallback(lambda _: mark.reaches(7))
        mark.advance(7)
        self.successResultOf(again)

    def test_cancelledWaiterIsPassedOver(self) -> None:
        """
        A cancelled waiter is passed over, by success and by failure.
        """
        mark = Watermark()
        gone = mark.reaches(5)
        gone.cancel()
        self.failureResultOf(gone, CancelledError)
        mark.advance(5)
        other = mark.reaches(6)
        other.cancel()
        self.failureResultOf(other, CancelledError)
        mark.fail(StoreFailed("gone"))
        self.assertEqual(0, mark.waiting)

    def test_failedMarkFailsAllWaiters(self) -> None:
        """
        A failed mark fails present and later waiters, but a reached offset stays reached.
        """
        mark = Watermark(10)
        waiting = mark.reaches(11)
        mark.fail(StoreFailed("the disk is gone"))
        self.failureResultOf(waiting, StoreFailed)
        self.failureResultOf(mark.reaches(11), StoreFailed)
        self.successResultOf(mark.reaches(10))

    def test_disappointmentFailsPresentWaiters(self) -> None:
        """
        A disappointment fails only the present waiters.
        """
        mark = Watermark()
        waiting = mark.reaches(5)
        mark.disappoint(StoreFailed("full"))
        self.failureResultOf(waiting, StoreFailed)
        later = mark.reaches(5)
        self.assertNoResult(later)
        mark.advance(5)
        self.successResultOf(later)
