# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.gradual}.
"""

from __future__ import annotations

from collections.abc import Generator
from unittest.mock import patch

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from txrocket.processors.gradual import cooperator, gradually


class GraduallyTests(SynchronousTestCase):
    """
    Tests for L{gradually}.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.cooperator = cooperator(self.clock)
        self.steps = 0

    def work(self, count: int) -> Generator[None, None, str]:
        """
        So many steps.
        """
        for _ in range(count):
            self.steps += 1
            yield
        return "done"

    def test_result(self) -> None:
        """
        What the generator returns is the result; nothing is done before the
        reactor turns.
        """
        done = gradually(self.cooperator, self.work(3))
        self.assertEqual(0, self.steps)
        self.assertNoResult(done)
        self.clock.advance(0)
        self.assertEqual("done", self.successResultOf(done))
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_pauses(self) -> None:
        """
        After ten milliseconds the reactor has its turn, and then the work goes on.
        """
        now = [0.0]

        def slow() -> Generator[None, None, None]:
            for _ in range(5):
                now[0] += 0.006
                self.steps += 1
                yield

        turns = patch.object(self.clock, "callLater", wraps=self.clock.callLater)
        with patch("time.time", lambda: now[0]), turns as callLater:
            done = gradually(self.cooperator, slow())
            self.clock.advance(0)
        self.assertIsNone(self.successResultOf(done))
        # Two steps, two steps, one.
        self.assertEqual((5, 3), (self.steps, callLater.call_count))

    def test_raises(self) -> None:
        """
        What the generator raises is the failure.
        """

        def broken() -> Generator[None, None, None]:
            yield
            raise ZeroDivisionError

        done = gradually(self.cooperator, broken())
        self.clock.advance(0)
        self.failureResultOf(done, ZeroDivisionError)

    def test_cancel(self) -> None:
        """
        Nobody waits any more: the work ends, and nothing is left on the clock.
        """
        done = gradually(self.cooperator, self.work(1000))
        done.cancel()
        self.failureResultOf(done, CancelledError)
        self.clock.advance(0)
        self.assertEqual(0, self.steps)
        self.assertEqual([], self.clock.getDelayedCalls())
