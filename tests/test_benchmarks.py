# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{benchmarks}: what it measures is there to be measured.
"""

from __future__ import annotations

import contextlib
import io
import os
import re

from twisted.trial.unittest import SynchronousTestCase

from benchmarks import broker, spark, timers, turns
from benchmarks.crowd import Crowd


class BrokerTests(SynchronousTestCase):
    """
    L{benchmarks.broker}.
    """

    if not os.path.exists("/proc/self/smaps_rollup"):
        skip = "only Linux tells the CPU time and the memory of other processes"

    def test_tinyBenchmarkPrintsFigures(self) -> None:
        """
        All of it runs, with next to nothing to do, and prints a figure in each line.
        """
        size = broker.Size(
            starts=1, rounds=1, requests=128, pulls=64, arrivals=3, held=20, idle=0.01
        )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            broker.main(size)
        heading, *lines = printed.getvalue().splitlines()
        self.assertIn("CPU us per request", heading)
        self.assertEqual(15, len(lines))
        for line in lines:
            self.assertRegex(line, re.compile(r"\S {2,}\d+\.\d+"))


class SparkTests(SynchronousTestCase):
    """
    L{benchmarks.spark}; C{make test-spark} runs it.
    """

    def test_missingSparkIsReported(self) -> None:
        """
        Without Spark it says what is missing, and nothing is started.
        """
        self.patch(spark, "NEEDED", ("json", "no_such_package"))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            spark.main()
        self.assertIn("no_such_package not installed", printed.getvalue())


class TimerTests(SynchronousTestCase):
    """
    L{benchmarks.timers}.
    """

    skip = getattr(BrokerTests, "skip", None)

    def test_tinyBenchmarkDelivers(self) -> None:
        """
        All of it runs, and the messages that are due come.
        """
        size = timers.Size(pending=200, soon=20, spread=0.1, burst=20, ahead=0.5)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            timers.main(size)
        lines = printed.getvalue().splitlines()
        self.assertEqual(10, len(lines))
        for line in lines:
            self.assertRegex(line, re.compile(r"\S {2,}\d+\.\d+"))


class TurnTests(SynchronousTestCase):
    """
    L{benchmarks.turns}.
    """

    def test_tinyBenchmarkPrintsLongestTurns(self) -> None:
        """
        All of it runs with few topics and groups, and prints the longest turn of each code.
        """
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            turns.main(Crowd(topics=20, groups=20, members=2))
        for code in ("HEART_BEAT (34)", "REGISTER_BROKER (103)", "a collection of garbage"):
            self.assertRegex(printed.getvalue(), re.escape(code) + r" +\d+\.\d+ ")
