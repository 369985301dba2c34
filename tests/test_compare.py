# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{benchmarks.compare}: what is made of measurements.  No timing decides any of
them.
"""

from __future__ import annotations

import os
import sys
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from benchmarks.compare import __main__ as command
from benchmarks.compare import page, plot
from benchmarks.compare.__main__ import options, planned
from benchmarks.compare.figures import Aim, Row, Sample, Spread, ratio, settle, still
from benchmarks.compare.findings import Findings, Level, aims, growth
from benchmarks.compare.interpreters import Interpreter, candidates, fastest
from benchmarks.compare.machine import (
    PageCache,
    describe,
    freeBytes,
    freeMemory,
    processor,
    residentOwn,
    sizeOf,
    totalMemory,
)
from benchmarks.compare.profiles import cut
from benchmarks.compare.rounds import Plan, sample
from benchmarks.compare.scenarios import SCENARIOS, SYNC, chosen
from benchmarks.generator import Result

POSITIVE = st.lists(st.floats(0.001, 1e9), min_size=1, max_size=9)


class FiguresTests(SynchronousTestCase):
    """
    L{benchmarks.compare.figures}.
    """

    def test_spreadHasMedianAndExtremes(self) -> None:
        """
        Several figures are told by their median, the lowest and the highest.
        """
        self.assertEqual(Spread.of([3.0, 1.0, 8.0]), Spread(3.0, 1.0, 8.0))
        self.assertEqual(Spread.of([1.0, 2.0]).median, 1.5)
        self.assertRaises(ValueError, Spread.of, [])

    def test_ratioIsOfMedians(self) -> None:
        """
        A ratio is that of the medians; its spread is of rounds with their partners.
        """
        self.assertEqual(ratio([10.0, 20.0, 60.0], [10.0, 5.0, 10.0]), Spread(2.0, 1.0, 6.0))
        self.assertRaises(ValueError, ratio, [1.0], [0.0])

    @given(POSITIVE)
    def test_ratioToItselfIsOne(self, values: list[float]) -> None:
        """
        Whatever is compared with itself is 1, without a spread.
        """
        self.assertEqual(ratio(values, values), Spread(1.0, 1.0, 1.0))

    @given(POSITIVE, st.floats(0.1, 10))
    def test_limitMeetsBothAims(self, values: list[float], limit: float) -> None:
        """
        Of two aims with one limit, from above and from below, a ratio misses at most
        one; the limit itself meets both.
        """
        value = Spread.of(values).median
        self.assertTrue(Aim(limit).met(value) or Aim(limit, most=True).met(value))
        self.assertTrue(Aim(limit).met(limit) and Aim(limit, most=True).met(limit))

    def test_rowMeetsAimByMedians(self) -> None:
        """
        A row meets its aim by the ratio of the medians; without an aim, or without
        anything to compare with, it neither meets nor misses.
        """
        self.assertIs(Row("a", "a", "/s", [4.0], [2.0], Aim(2.0)).met, True)
        self.assertIs(Row("a", "a", "/s", [3.9], [2.0], Aim(2.0)).met, False)
        self.assertIs(Row("a", "a", "us", [1.0], [2.0], Aim(0.4, most=True)).met, False)
        self.assertIsNone(Row("a", "a", "/s", [4.0], [2.0]).met)
        self.assertIsNone(Row("a", "a", "/s", [4.0], [], Aim(2.0)).met)
        self.assertIsNone(Row("a", "a", "/s", [4.0], [0.0], Aim(2.0)).met)

    def test_stillNeedsThreeCloseRates(self) -> None:
        """
        A rate stands still if the last three are within the share of the highest.
        """
        self.assertTrue(still([1.0, 96.0, 100.0, 98.0]))
        self.assertFalse(still([100.0, 94.0, 98.0]))
        self.assertFalse(still([100.0, 100.0]))

    def test_settleMeasuresUntilStill(self) -> None:
        """
        It is measured until the rate stands still, not less than so often, and not
        for ever.
        """
        rising = iter([10.0, 50.0, 90.0, 99.0, 100.0, 100.0, 7.0])
        rates = settle(lambda: next(rising), 2, 20)
        self.assertEqual(rates, [10.0, 50.0, 90.0, 99.0, 100.0, 100.0])
        self.assertEqual(len(settle(lambda: 1.0, 7, 20)), 7)
        jumping = iter([1.0, 2.0] * 10)
        self.assertEqual(len(settle(lambda: next(jumping), 2, 9)), 9)

    def test_sampleCountsCpuPerMessage(self) -> None:
        """
        CPU is told for a message, or for a pull of several; latencies in milliseconds.
        """
        result = Result(10, 320, 0, 2.0, 0.5, 1.0, 1500.0, 2000.0, 3000.0, "")
        found = sample(result, 32)
        self.assertEqual((found.rate, found.cpu, found.generator), (160.0, 100000.0, 50000.0))
        self.assertEqual((found.share, found.p50, found.p999), (0.25, 1.5, 3.0))
        self.assertEqual(sample(result).cpu, 3125.0)

    def test_loadWithoutAnswersIsError(self) -> None:
        """
        A load without a right answer is an error, with what was answered.
        """
        result = Result(0, 0, 5, 2.0, 0.5, 1.0, 0.0, 0.0, 0.0, "refused: busy")
        error = self.assertRaises(RuntimeError, sample, result)
        self.assertEqual(str(error), "refused: busy")


class MachineTests(SynchronousTestCase):
    """
    L{benchmarks.compare.machine}.
    """

    def test_memoryIsRssAnon(self) -> None:
        """
        Memory of its own is RssAnon, not what files take; a process that has ended
        has none.
        """
        status = "VmRSS:\t  9000 kB\nRssAnon:\t    2048 kB\nRssFile:\t 6952 kB\n"
        self.assertEqual(residentOwn(status), 2.0)
        self.assertRaises(ValueError, residentOwn, "State:\tZ (zombie)\n")
        self.assertTrue(residentOwn(Path("/proc/self/status").read_text()) > 1)

    def test_processorAndMemoryAreRead(self) -> None:
        """
        Processor and memory are read where they are, on ARM as well.
        """
        self.assertEqual(processor("processor\t: 0\nmodel name\t: EPYC: 7\n"), "EPYC: 7")
        self.assertEqual(processor("processor\t: 0\nModel\t\t: Pi 5\n"), "Pi 5")
        self.assertEqual(processor(""), "unknown")
        self.assertEqual(totalMemory("MemFree: 5 kB\nMemTotal:  2097152 kB\n"), 2.0)
        self.assertEqual(freeMemory("MemFree: 1048576 kB\nMemTotal:  2097152 kB\n"), 1.0)
        self.assertRaises(ValueError, totalMemory, "")

    def test_fullCacheReadsFurtherEachTime(self) -> None:
        """
        Pages are read until hardly any memory is free, further on each time; the file takes
        no room, and goes away.
        """
        path = Path(self.mktemp())
        free = iter([3.0, 2.0, 0.4, 3.0, 0.4])
        pages = PageCache(path, lambda: next(free))
        self.assertEqual([pages.fill(), pages.fill()], [0.125, 0.0625])
        self.assertEqual(path.stat().st_blocks, 0)
        pages.close()
        self.assertFalse(path.exists())
        self.assertIn(" cores, ", describe())

    def test_sizeOmitsHoles(self) -> None:
        """
        A folder's size is what it takes on the disk: holes take nothing.
        """
        folder = Path(self.mktemp())
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "full").write_bytes(os.urandom(200000))
        with (folder / "hole").open("wb") as hole:
            hole.truncate(1 << 30)
        self.assertTrue(100000 < sizeOf(folder) < 1 << 25)
        self.assertTrue(freeBytes(folder) > 0)


def interpreter(path: str, speed: float, **other: Any) -> Interpreter:
    """
    An interpreter as good as any.
    """
    usual = Interpreter(path, (3, 11, 2), "CPython", "GCC 12", "", speed)
    return attrs.evolve(usual, **other)


class InterpretersTests(SynchronousTestCase):
    """
    L{benchmarks.compare.interpreters}.
    """

    def test_fastestSupportedIsChosen(self) -> None:
        """
        The fastest is taken, of those that txrocket runs on.
        """
        those = [
            interpreter("slow", 1.0),
            interpreter("best", 2.0),
            interpreter("old", 3.0, version=(3, 10, 9)),
            interpreter("other", 4.0, kind="PyPy"),
            interpreter("free", 5.0, free=True),
        ]
        self.assertEqual(fastest(those).path, "best")
        self.assertRaises(ValueError, fastest, those[2:])

    def test_descriptionOmitsPath(self) -> None:
        """
        How it was built is told, and not where it lies.
        """
        built = interpreter(
            "/home/me/python", 1.0, arguments="'--enable-optimizations' '--with-lto'"
        )
        self.assertEqual(
            built.describe(),
            "CPython 3.11.2 (GCC 12), configured with --enable-optimizations and --with-lto",
        )
        self.assertIn("without --enable-optimizations", interpreter("x", 1.0).describe())

    def test_interpretersAreFoundByName(self) -> None:
        """
        Interpreters are found by their names, each once; a file that cannot be run, or is
        another of their programs, does not count.
        """
        folder = Path(self.mktemp())
        folder.mkdir()
        for name, mode in (
            ("python3", 0o755),
            ("python3.11", 0o755),
            ("python3.11-config", 0o755),
            ("python3.12", 0o644),
            ("python2.7", 0o755),
        ):
            (folder / name).touch(mode)
            (folder / name).chmod(mode)
        found = candidates([str(folder), str(folder / "none"), str(folder)])
        self.assertEqual([Path(each).name for each in found], ["python3", "python3.11"])


def made(ours: float = 4.0, theirs: float = 2.0) -> Findings:
    """
    What a run might have found: every scenario with one figure for all that is measured.
    """

    def samples(value: float, errors: int = 0) -> list[Sample]:
        return [
            Sample(each, each, 0.5, 0.2, each, each, each, errors, "refused" if errors else "")
            for each in (value, value * 2, value / 2)
        ]

    found = Findings(date="2026-01-02", minutes=3.0, about=["a machine"])
    for each in SCENARIOS:
        found.samples[each.name] = {"ours": samples(ours), "java": samples(theirs)}
    for kept in (found.idle, found.memory, found.starts, found.stops, found.stopsLoaded):
        kept["ours"], kept["java"] = [ours, ours * 2], [theirs, theirs * 2]
    found.windows = {"ours": [7.0] * 5, "java": [1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 9000.0]}
    found.variants["without the compiled helper"] = samples(3.0)
    found.instances = {"1": [10.0, 12.0], "2": [20.0, 22.0]}
    found.ceiling["send-4x16"] = samples(1234567.0)[0]
    for who, cost in (("ours", ours), ("java", theirs)):
        found.backlog[who] = [
            Level(1, samples(cost), samples(cost), 50.0),
            Level(10, samples(cost), samples(cost * 1.5), 51.0),
        ]
    found.profiles["pull-32"] = "1 function call"
    found.remarks.append("RocketMQ with 100 million messages: left out.")
    return found


class PageTests(SynchronousTestCase):
    """
    L{benchmarks.compare.page}, L{benchmarks.compare.findings} and
    L{benchmarks.compare.plot}.
    """

    def rows(self, found: Findings) -> dict[str, Row]:
        """
        The aims, by their titles.
        """
        return {row.title: row for row in (*aims(found), *growth(found))}

    def test_aimsAreThoseSet(self) -> None:
        """
        The aims are those that were set.
        """
        told = {title: str(row.aim) for title, row in self.rows(made()).items()}
        for title, aim in (
            ("async send, 1 KiB, 4 x 16", "≥ 2"),
            ("async send, 1 KiB, 8 x 64", "≥ 2"),
            ("SYNC_FLUSH, async send, 4 x 16", "≥ 2"),
            ("SYNC_FLUSH, async send, 8 x 64", "≥ 2"),
            ("sync send, 1 KiB, 64 x 1", "≥ 1.2"),
            ("batches of 32 x 100 B, 4 x 16", "≥ 1.5"),
            ("batches of 100 x 100 B, 4 x 16", "≥ 1.5"),
            ("pull of 32 x 1 KiB, 4 x 16", "≥ 1.5"),
            ("server CPU per message: async send, 1 KiB, 4 x 16", "≤ 0.4"),
            ("p99: async send, 1 KiB, 4 x 16", "≤ 1"),
            ("p99: long poll, 1 KiB, send to receive", "≤ 1"),
            ("memory of its own (RssAnon), idle", "≤ 0.25"),
            ("memory of its own (RssAnon), the most after any load", "≤ 0.1"),
            ("start-up, until a first send is answered", "≤ 0.4"),
            ("stop", "≤ 0.2"),
            ("txrocket: CPU per send, 1,000 topics to 1", "≤ 1.2"),
            ("txrocket: CPU per send, 10 million messages to 1", "≤ 1.2"),
            ("txrocket: CPU per pull of 32, 10 million messages to 1", "≤ 1.2"),
        ):
            self.assertEqual(told.get(title), aim, title)

    def test_costAndRateAreJudgedApart(self) -> None:
        """
        Twice as many messages at twice the cost meet the aims for rates and miss those
        for costs; how our own growth is judged does not depend on the other.
        """
        rows = self.rows(made())
        for title, row in rows.items():
            if title.startswith("RocketMQ"):
                self.assertIsNone(row.met, title)
            elif title.startswith("txrocket"):
                self.assertEqual(row.met, "pull" not in title, title)
            elif row.unit == "/s":
                self.assertTrue(row.met, title)
            else:
                self.assertFalse(row.met, title)

    def test_memoryIsMaximum(self) -> None:
        """
        Memory after load is the most that there was at any time.
        """
        row = self.rows(made())["memory of its own (RssAnon), the most after any load"]
        self.assertEqual((row.ours, row.theirs), ([8.0], [4.0]))

    def test_pageShowsEverything(self) -> None:
        """
        The page tells date, machine, every scenario, whether aims are met, the cold
        start, what was left out, and the profiles of what was missed.
        """
        found = made()
        text = page.write(found, "plot.svg")
        judged = [row.met for row in self.rows(found).values() if row.met is not None]
        for each in (
            "on 2026-01-02;",
            f"{judged.count(True)} aims were met, {judged.count(False)} missed.",
            "- a machine",
            "| async send, 1 KiB, 4 x 16 ",
            "4.00 (2.00–8.00)",
            "**missed**",
            "![ratios of throughput](plot.svg)",
            "| RocketMQ | 3,000 ",
            "| without the compiled helper ",
            "| 2       | 21.0 (20.0–22.0) | 1.91 (1.83–2.00) |",
            "1,234,567",
            "- RocketMQ with 100 million messages: left out.",
            "```text\n1 function call\n```",
        ):
            self.assertIn(each, text)
        for scenario in SCENARIOS:
            self.assertIn(f"| {scenario.title} ", text)

    def test_wrongAnswersAreReported(self) -> None:
        """
        Wrong answers are told, with the first of them.
        """
        found = made()
        kept = found.samples["pull-32"]["java"]
        kept[0] = attrs.evolve(kept[0], errors=7, error="refused: busy")
        text = page.write(found, "plot.svg")
        self.assertIn("RocketMQ, pull-32: 7 answers were wrong", text)
        self.assertIn("`refused: busy`", text)

    def test_partialRunHasPage(self) -> None:
        """
        Whatever part was measured, there is a page of it: without RocketMQ, of one
        scenario, of nothing.
        """
        found = made()
        for samples in found.samples.values():
            samples["java"] = []
        for kept in (found.idle, found.memory, found.starts, found.stops, found.stopsLoaded):
            kept["java"] = []
        found.windows["java"] = []
        del found.backlog["java"]
        self.assertIn("| async send, 1 KiB, 4 x 16 ", page.write(found, "plot.svg"))
        one = Findings(samples={"arrival": made().samples["arrival"]})
        self.assertIn("| p99: long poll", page.write(one, "plot.svg"))
        self.assertIn("0 aims were met, 0 missed", page.write(Findings(), "plot.svg"))

    def test_tableColumnsAlign(self) -> None:
        """
        A table's columns stand below each other.
        """
        text = page.table(("", "b"), [("long", "1"), ("x", "22")])
        self.assertEqual(text, "|      | b  |\n| ---- | -- |\n| long | 1  |\n| x    | 22 |")

    def test_figureHasThreeDigits(self) -> None:
        """
        A number has three digits that count, and all before the point.
        """
        for value, text in (
            (1234567.8, "1,234,568"),
            (123.4, "123"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.0, "0.00"),
        ):
            self.assertEqual(page.figure(value), text)

    def test_plotMarksMissedAims(self) -> None:
        """
        The plot is an image with a bar for each throughput, one of another colour where
        an aim is missed.
        """
        found = made()
        found.samples["pull-32"]["ours"] = found.samples["pull-32"]["java"]
        rows = page.rates(found, "send", "receive")
        drawn = plot.draw([*rows, Row("x", "a < b", "/s", [1.0], [])])
        ElementTree.fromstring(drawn)
        self.assertEqual(drawn.count("<rect"), 1 + len(rows))
        self.assertEqual(drawn.count('fill="#d98324"'), 1)
        ElementTree.fromstring(plot.draw([]))


class ScenariosTests(SynchronousTestCase):
    """
    L{benchmarks.compare.scenarios} and the command line.
    """

    def test_scenariosAreGroupedByFlush(self) -> None:
        """
        Scenarios that flush alike stand together, and no two have one name.
        """
        flushes = [each.flush for each in SCENARIOS]
        self.assertEqual(flushes, sorted(flushes))
        self.assertIn(SYNC, flushes)
        self.assertEqual(len({each.name for each in SCENARIOS}), len(SCENARIOS))

    def test_patternSelectsScenario(self) -> None:
        """
        A scenario is wanted by a part of its name, by a pattern, or if all are.
        """
        self.assertTrue(chosen("", "pull-32"))
        self.assertTrue(chosen("pull", "pull-32"))
        self.assertTrue(chosen("send-*", "send-4x16"))
        self.assertFalse(chosen("send-*", "pull-32"))

    def test_optionsReplacePlan(self) -> None:
        """
        Options replace the plan, quick or not, and a quick run says that its figures are
        worth nothing.
        """
        plan = planned(options(["--rounds", "5", "--seconds", "0.5", "--backlog", "10"]))
        self.assertEqual((plan.rounds, plan.seconds, plan.backlog), (5, 0.5, 10))
        self.assertEqual(plan.others, Plan().others)
        quick = planned(options(["--quick", "--rounds", "2"]))
        self.assertEqual((quick.rounds, quick.seconds), (2, Plan.quick().seconds))
        self.assertIn("too short", quick.describe())
        self.assertNotIn("too short", plan.describe())

    def test_missingJavaIsReported(self) -> None:
        """
        Without Java or Maven a message says what is missing, and how to do without.
        """
        said = StringIO()
        self.patch(command, "javaMissing", lambda: ["java", "mvn"])
        self.patch(sys, "stderr", said)
        self.assertEqual(command.main([]), 2)
        self.assertIn("java and mvn not found", said.getvalue())
        self.assertIn("--no-java", said.getvalue())

    def test_profileOmitsPathAndBlankLines(self) -> None:
        """
        Of a profile neither the name of its file nor empty lines are kept.
        """
        printed = "Mon  /home/me/profile\n\n   3 function calls in 1 s\n\n  ncalls\n  3 x  \n\n"
        self.assertEqual(cut(printed), "   3 function calls in 1 s\n  ncalls\n  3 x")
