# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{benchmarks.compare.trees}.  No timing decides any of them.
"""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.compare import trees
from benchmarks.compare.figures import Sample
from benchmarks.compare.scenarios import ASYNC, SYNC
from benchmarks.compare.trees import TREE_SCENARIOS, Pair, check, rows, select, table

ROOT = Path(__file__).resolve().parents[1]


def sampleOf(rate: float) -> Sample:
    """
    A measurement with a rate; a message's CPU is all that a core has.
    """
    return Sample(rate, 1e6 / rate, 0.0, 0.0, 0.1, 0.5, 0.9)


class FakeBroker:
    """
    A broker that tells when it is closed.
    """

    def __init__(self, side: str, log: list[str]) -> None:
        self.side = side
        self._log = log

    def close(self) -> None:
        self._log.append(f"close {self.side}")


class PairTests(SynchronousTestCase):
    """
    L{Pair}.
    """

    def pair(self, log: list[str], rates: dict[str, float]) -> Pair:
        """
        One whose brokers have fixed rates.
        """

        def start(side: str, flush: str) -> Any:
            log.append(f"start {side} {flush}")
            return FakeBroker(side, log)

        def load(broker: Any, scenario: Any) -> Sample:
            log.append(f"{scenario.name} {broker.side}")
            return sampleOf(rates[broker.side])

        return Pair(start, load, lambda text: None)

    def test_sidesChangeOrderFromRoundToRound(self) -> None:
        """
        Every round starts both brokers anew and measures them in turn, in the other order
        than the round before.
        """
        log: list[str] = []
        pair = self.pair(log, {"before": 100.0, "after": 110.0})
        pair.run(select("send-4x16"), 2)
        sides = [("before", "after"), ("after", "before")]
        expected: list[str] = []
        for first, second in sides:
            expected += [f"start {first} {ASYNC}", f"start {second} {ASYNC}"]
            expected += [f"send-4x16 {first}", f"send-4x16 {second}"]
            expected += [f"close {first}", f"close {second}"]
        self.assertEqual(log, expected)
        self.assertEqual(len(pair.samples["send-4x16"]["before"]), 2)

    def test_syncScenariosGetBrokersOfTheirOwn(self) -> None:
        """
        Scenarios that flush alike share their brokers; other ones get new brokers.
        """
        log: list[str] = []
        self.pair(log, {"before": 1.0, "after": 1.0}).run(select("send-4x16,sync-*"), 1)
        started = [each for each in log if each.startswith("start")]
        self.assertEqual(
            started,
            [f"start {side} {flush}" for flush in (ASYNC, SYNC) for side in ("before", "after")],
        )

    def test_failedLoadClosesBothBrokers(self) -> None:
        """
        If a load fails, no broker is left behind.
        """
        log: list[str] = []
        pair = self.pair(log, {"before": 1.0})
        self.assertRaises(KeyError, pair.run, select("send-4x16"), 1)
        self.assertEqual(log[-2:], ["close before", "close after"])


class TableTests(SynchronousTestCase):
    """
    L{rows}, L{table}, L{select} and L{check}.
    """

    def test_tableHasMediansRatioAndSpread(self) -> None:
        """
        A line has both medians, the ratio of the second to the first, and the lowest and
        highest ratio of the rounds.
        """
        before = [sampleOf(each) for each in (100.0, 200.0, 100.0)]
        after = [sampleOf(each) for each in (110.0, 160.0, 150.0)]
        found = rows({"send-4x16": {"before": before, "after": after}})
        self.assertEqual([row.unit for row in found], ["/s", "us", "ms"])
        heading, rate, cpu, p99 = table(found).splitlines()
        self.assertEqual(
            rate.split(),
            ["send-4x16", "rate,", "/s", "100", "150", "1.500", "0.800", "..", "1.500"],
        )
        self.assertIn("1.000  1.000 .. 1.000", p99)
        self.assertIn("0.667", cpu)
        self.assertEqual(heading.index("before") + len("before"), rate.index("100") + 3)

    def test_onlyTakesNamesAndPatterns(self) -> None:
        """
        Scenarios are selected by name or pattern, in the order given and once each; an
        unknown name is an error that lists the known ones.
        """
        names = [each.name for each in select("sync-64x1,send-*,send-8x64")]
        self.assertEqual(names, ["sync-64x1", "send-4x16", "send-8x64", "send-64x1"])
        self.assertEqual(len(select("")), 9)
        self.assertEqual({each.name for each in select("")}, set(TREE_SCENARIOS))
        error = self.assertRaises(ValueError, select, "send-3x3")
        self.assertIn("send-3x3 is not one of send-4x16", str(error))

    def test_folderThatIsNoTreeIsRefused(self) -> None:
        """
        A folder without txrocket is not measured, since an installed txrocket would be
        measured in its place.
        """
        self.assertIsInstance(check(ROOT, sys.executable), bool)
        error = self.assertRaises(RuntimeError, check, ROOT / "docs", sys.executable)
        self.assertIn("does not import txrocket from", str(error))
        said = StringIO()
        self.patch(sys, "stderr", said)
        self.assertEqual(trees.main([str(ROOT / "docs"), str(ROOT)]), 2)
        self.assertIn("does not import txrocket from", said.getvalue())
