# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{pyspark_rocketmq.jobs.htmlchart} and L{pyspark_rocketmq.jobs.command}, as far as they
need no Spark.
"""

from __future__ import annotations

import contextlib
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pyspark_rocketmq.jobs.command import JOBS, _reason, main
from pyspark_rocketmq.jobs.htmlchart import Chart, page, ticks
from twisted.trial.unittest import SynchronousTestCase

SUBMITTED = Path(__file__).parents[2] / "spark" / "jobs"


class PlotTests(SynchronousTestCase):
    """
    Pages with lines.
    """

    def parse(self, *charts: Chart) -> ElementTree.Element:
        """
        A page, which is XML but for its first line.
        """
        text = page("A & B", charts)
        first, rest = text.split("\n", 1)
        self.assertEqual(first, "<!DOCTYPE html>")
        return ElementTree.fromstring(rest.replace('<meta charset="utf-8">', ""))

    def test_linesLieWithinPicture(self) -> None:
        """
        Each line has its points, within the picture, and its name; names are text and
        not markup.
        """
        chart = Chart("<T>", "m", {"a<b": [(0, 5), (60, 10)], "c": [(30, 2.5)]})
        tree = self.parse(chart)
        lines = [each.get("points", "").split() for each in tree.iter("polyline")]
        self.assertEqual([len(each) for each in lines], [2, 1])
        for point in (point for line in lines for point in line):
            x, y = map(float, point.split(","))
            self.assertTrue(0 <= x <= 900 and 0 <= y <= 260)
        (first, second) = lines[0]
        self.assertLess(float(first.split(",")[0]), float(second.split(",")[0]))
        # Downwards, as in all pictures.
        self.assertGreater(float(first.split(",")[1]), float(second.split(",")[1]))
        text = "".join(tree.itertext())
        for each in ("A & B", "<T>", "a<b", "2.5", "00:00:00", "00:01:00"):
            self.assertIn(each, text)

    def test_greatestLinesAreDrawn(self) -> None:
        """
        Of very many lines the greatest are drawn, and the others counted.
        """
        tree = self.parse(Chart("T", "m", {f"n{each}": [(0, each)] for each in range(20)}))
        self.assertEqual(len(list(tree.iter("polyline"))), 7)
        text = "".join(tree.itertext())
        self.assertIn("n19", text)
        self.assertIn("and 13 more", text)

    def test_emptyChartSaysSo(self) -> None:
        """
        Without points it says so; all at zero, and one moment only, are drawn.
        """
        self.assertIn("nothing to show", "".join(self.parse(Chart("T", "m", {})).itertext()))
        tree = self.parse(Chart("T", "m", {"a": [(5.0, 0.0)]}), Chart("U", "m", {"b": []}))
        self.assertEqual(len(list(tree.iter("polyline"))), 1)
        days = self.parse(Chart("T", "m", {"a": [(0, 1), (200_000, 1)]}))
        self.assertIn("1970-01-03", "".join(days.itertext()))

    @given(st.floats(1e-6, 1e15), st.integers(1, 10))
    def test_ticksAreFewAndEven(self, high: float, most: int) -> None:
        """
        Ticks reach what is shown, are few, and equally far apart.
        """
        found = ticks(high, most)
        self.assertGreaterEqual(found[-1], high * (1 - 1e-6))
        self.assertLessEqual(len(found), most + 1)
        self.assertGreaterEqual(len(found), 2)
        self.assertEqual(found[0], 0)
        self.assertEqual(ticks(10, 5), [0, 2, 4, 6, 8, 10])


class CommandTests(SynchronousTestCase):
    """
    The command line.
    """

    def said(self, *given_: str) -> str:
        """
        What is said before it ends.
        """
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            self.assertRaises(SystemExit, main, list(given_))
        return printed.getvalue()

    def test_everyJobHasHelpAndFile(self) -> None:
        """
        Each job is named, and says what it takes; each has a file for spark-submit.
        """
        overview = self.said("--help")
        files = {each.stem.replace("_", "-") for each in SUBMITTED.glob("*.py")}
        self.assertEqual(files, set(JOBS))
        for job, (does, _, _) in JOBS.items():
            self.assertIn(job, overview)
            self.assertIn(does, " ".join(self.said(job, "--help").split()))
            self.assertIn(f'main(["{job}"', (SUBMITTED / f"{job}.py".replace("-", "_")).read_text())

    def test_invalidArgumentsAreNamed(self) -> None:
        """
        Missing and malformed arguments are named.
        """
        for given_, says in (
            (["archive", "--topics", "T"], "--folder"),
            (["compact", "--folder", "x"], "--topics"),
            (["replay", "--archive", "x", "--parquet", "y"], "not allowed with"),
            (["dead-letters", "--set", "x"], "'x' is not NAME=VALUE"),
            (["nothing"], "invalid choice"),
        ):
            self.assertIn(says, self.said(*given_))

    def test_reasonIsTakenFromSparkError(self) -> None:
        """
        Of what Spark tells of a worker, the error itself is taken.
        """
        text = (
            "[PYTHON_EXCEPTION] An exception was thrown:\nTraceback (most recent call last):\n"
            '  File "x.py", line 1, in f\n    raise\n'
            "txrocket.errors.client.ConfigError: option a: wrong\noption b: wrong\n"
            " SQLSTATE: 38000\n"
        )
        self.assertEqual(_reason(text), "option a: wrong\noption b: wrong")
        self.assertEqual(_reason("pyspark_rocketmq.read.offsets.DataLost: gone"), "gone")
        self.assertIsNone(_reason("java.lang.RuntimeException: x\nKeyError: 'y'"))
