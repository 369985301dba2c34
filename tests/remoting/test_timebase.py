# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.timebase}, with a reactor of its own.
"""

from __future__ import annotations

import time
from typing import Any

from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock, LoopingCall
from twisted.trial.unittest import SynchronousTestCase

from txrocket.remoting.timebase import steady, wallOf

HOUR = 3600.0
YEAR = 365 * 24 * HOUR


class SteadyTests(SynchronousTestCase):
    """
    A reactor whose clocks a test sets.
    """

    def setUp(self) -> None:
        # Sums of these are exact.
        self.timeOfDay = 1_700_000_000.0
        self.monotonic = 5000.0
        self.reactor: Any = SelectReactor()
        self.addCleanup(self.reactor.disconnectAll)
        self.happened: list[str] = []

    def steady(self) -> None:
        """
        Have its timers follow the monotonic clock.
        """
        steady(self.reactor, lambda: self.timeOfDay, lambda: self.monotonic)

    def after(self, seconds: float) -> list[str]:
        """
        Let time pass.

        @return: what has happened so far.
        """
        self.timeOfDay += seconds
        self.monotonic += seconds
        self.reactor.runUntilCurrent()
        return self.happened

    def test_setBackKeepsTimers(self) -> None:
        """
        A call comes after as many seconds as it was asked for, though the time of day is
        set back meanwhile, and the reactor does not sleep longer.
        """
        self.steady()
        self.reactor.callLater(4, self.happened.append, "called")
        self.assertEqual(self.after(1), [])
        for step in (HOUR, YEAR):
            self.timeOfDay -= step
            self.assertEqual(self.reactor.timeout(), 3.0)
        self.assertEqual(self.after(2), [])
        self.assertEqual(self.after(1), ["called"])

    def test_setAheadKeepsTimers(self) -> None:
        """
        A call does not come early because the time of day is set ahead.
        """
        self.steady()
        self.reactor.callLater(4, self.happened.append, "called")
        for step in (HOUR, YEAR):
            self.timeOfDay += step
            self.assertEqual(self.after(1), [])
        self.assertEqual(self.after(2), ["called"])

    def test_setBackKeepsLoops(self) -> None:
        """
        What is done every second is done every second, however the time of day is set.
        """
        self.steady()
        loop = LoopingCall(self.happened.append, "again")
        loop.clock = self.reactor
        loop.start(1.0, now=False)
        for number, step in enumerate((-HOUR, HOUR, YEAR, -YEAR, 0.0), 1):
            self.timeOfDay += step
            self.assertEqual(len(self.after(1)), number)
        loop.stop()

    def test_resetCountsFromNow(self) -> None:
        """
        A call that is put off after the time of day was set comes in as many seconds.
        """
        self.steady()
        call = self.reactor.callLater(4, self.happened.append, "called")
        self.timeOfDay -= HOUR
        call.reset(2)
        self.assertEqual(self.after(1), [])
        self.assertEqual(self.after(1), ["called"])

    def test_pendingCallKeepsItsTime(self) -> None:
        """
        What was scheduled before comes when it was asked for.
        """
        self.reactor.seconds = lambda: self.timeOfDay
        self.reactor.callLater(4, self.happened.append, "called")
        del self.reactor.seconds
        self.steady()
        self.assertEqual(self.after(3), [])
        self.assertEqual(self.after(1), ["called"])

    def test_secondTimeChangesNothing(self) -> None:
        """
        One reactor serves several servers and clients: only the first sets its clock.
        """
        self.steady()
        first = self.reactor.seconds
        self.timeOfDay -= HOUR
        self.steady()
        self.assertIs(self.reactor.seconds, first)
        self.assertEqual(first(), 1_700_000_000.0)

    def test_otherClocksAreKept(self) -> None:
        """
        A clock for tests, and a reactor that has a clock of somebody else's, keep theirs.
        """
        clock = Clock()
        steady(clock)
        self.assertEqual(clock.seconds(), 0.0)
        self.reactor.seconds = own = lambda: 7.0
        self.steady()
        self.assertIs(self.reactor.seconds, own)

    def test_wallOf(self) -> None:
        """
        The time of day is the machine's, steady timers or not, and with a clock for tests
        that clock's.
        """
        self.steady()
        self.assertIs(wallOf(self.reactor), time.time)
        clock = Clock()
        clock.advance(5)
        self.assertEqual(wallOf(clock)(), 5.0)
