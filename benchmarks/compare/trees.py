# SPDX-License-Identifier: Apache-2.0
"""
The broker of one source tree beside the broker of another, on one machine, in one run::

    python -m benchmarks.compare.trees BEFORE AFTER [--rounds N] [--only send-8x64,sync-64x1]

Run it in the tree whose load generator and scenarios shall measure; both trees need their
compiled helper built in place (C{python setup.py build_ext --inplace}), or neither::

    round 1   start BEFORE, AFTER   send-4x16: BEFORE, AFTER   send-8x64: BEFORE, AFTER ...
    round 2   start AFTER, BEFORE   send-4x16: AFTER, BEFORE   ...

Each round starts new processes, because two runs of one program differ by their hash seed
and memory layout.  The order changes from round to round, so that neither tree always
finds the machine cooler or its disk emptier.  The table has the medians of both, their
ratio, and the lowest and highest ratio of the rounds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

import attrs

from benchmarks.compare.brokers import OurBroker, Running, freePort
from benchmarks.compare.figures import Row, Sample, Spread
from benchmarks.compare.machine import describe
from benchmarks.compare.rounds import measure, prepare
from benchmarks.compare.scenarios import SCENARIOS, Scenario
from benchmarks.generator import compiled

__all__ = ["TREE_SCENARIOS", "Pair", "TreeBroker", "main", "rows", "select", "table"]

_NAMES = (
    *("send-4x16", "send-8x64", "send-64x1", "batch-32", "batch-100", "pull-32"),
    *("sync-flush-4x16", "sync-flush-8x64", "sync-flush-64x1"),
)

# Under short names, and with the CPU of a pull counted for each of its messages.
TREE_SCENARIOS: Mapping[str, Scenario] = {
    name: attrs.evolve(scenario, name=name, each=1)
    for scenario in SCENARIOS
    if scenario.name in _NAMES
    for name in [scenario.name.replace("-flush", "")]
}

# The two sides, in the order of the command line.
_SIDES = ("before", "after")

# Prints the folder that a tree's broker would be imported from.
_WHERE = "import os, txrocket; print(os.path.dirname(os.path.dirname(txrocket.__file__)))"


class TreeBroker(OurBroker):
    """
    C{twistd rocket-broker} of a source tree, whatever its modules are called.
    """

    def __init__(self, port: int, tree: Path, python: str, **settings: object) -> None:
        self._tree = tree
        super().__init__(port, python, pure=False, **settings)

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "PYTHONPATH": str(self._tree)}


def check(tree: Path, python: str) -> bool:
    """
    Look whether an interpreter imports txrocket from this tree and from no other.

    @return: whether the tree has a compiled helper for the interpreter that runs this.
    @raise RuntimeError: if the interpreter imports another tree.
    """
    done = subprocess.run(
        [python, "-c", _WHERE],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd="/",
    )
    if done.returncode or Path(done.stdout.strip()).resolve() != tree:
        told = done.stdout.strip() or done.stderr.strip()[-300:]
        raise RuntimeError(f"{python} does not import txrocket from {tree}: {told}")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return any((tree / "txrocket").rglob(f"*{suffix}"))


def select(only: str) -> list[Scenario]:
    """
    The scenarios of C{--only}: names or patterns, with commas between them.

    @raise ValueError: if one of them matches no scenario.
    """
    chosen: list[Scenario] = []
    for pattern in only.split(",") if only else ["*"]:
        matching = [each for name, each in TREE_SCENARIOS.items() if fnmatch(name, pattern)]
        if not matching:
            raise ValueError(f"{pattern} is not one of {', '.join(TREE_SCENARIOS)}")
        chosen += [each for each in matching if each not in chosen]
    return chosen


class Pair:
    """
    The brokers of both trees and all that was measured of them.

    @ivar samples: for each scenario's name and each side, one measurement per round.
    """

    def __init__(
        self,
        start: Callable[[str, str], Running],
        load: Callable[[Running, Scenario], Sample],
        say: Callable[[str], None],
    ) -> None:
        """
        @param start: called with a side and how its broker flushes.
        """
        self._start = start
        self._load = load
        self._say = say
        self.samples: dict[str, dict[str, list[Sample]]] = {}

    def run(self, scenarios: Sequence[Scenario], rounds: int) -> None:
        """
        Measure all scenarios in each round.
        """
        for number in range(rounds):
            sides = _SIDES if number % 2 == 0 else _SIDES[::-1]
            for flush in dict.fromkeys(each.flush for each in scenarios):
                alike = [each for each in scenarios if each.flush == flush]
                self._round(number, sides, flush, alike)

    def _round(
        self, number: int, sides: Sequence[str], flush: str, scenarios: Iterable[Scenario]
    ) -> None:
        brokers: dict[str, Running] = {}
        try:
            for side in sides:
                brokers[side] = self._start(side, flush)
            for scenario in scenarios:
                for side in sides:
                    found = self._load(brokers[side], scenario)
                    kept = self.samples.setdefault(scenario.name, {name: [] for name in _SIDES})
                    kept[side].append(found)
                    self._say(
                        f"round {number + 1} {scenario.name:10} {side:7} {found.rate:11,.0f}/s"
                        f" {found.cpu:8.2f} us {found.p99:8.2f} ms p99 {found.error}"
                    )
        finally:
            for broker in brokers.values():
                broker.close()


def rows(samples: Mapping[str, Mapping[str, Sequence[Sample]]]) -> list[Row]:
    """
    Three lines for each scenario.
    """
    figures: Sequence[tuple[str, str, Callable[[Sample], float]]] = (
        ("rate", "/s", lambda sample: sample.rate),
        ("CPU per message", "us", lambda sample: sample.cpu),
        ("p99", "ms", lambda sample: sample.p99),
    )
    return [
        Row(name, title, unit, [*map(get, both["after"])], [*map(get, both["before"])])
        for name, both in samples.items()
        for title, unit, get in figures
    ]


def table(found: Iterable[Row]) -> str:
    """
    The medians of both trees, their ratio, and its lowest and highest of the rounds.
    """
    sides = f"{'before':>12}  {'after':>12}  {'after/before':>12}"
    lines = [f"{'scenario':10}  {'figure':19}  {sides}  of the rounds"]
    for row in found:
        before, after = (_median(values, row.unit) for values in (row.theirs, row.ours))
        both = row.ratio
        told = "" if both is None else f"{both.median:12.3f}  {both.low:.3f} .. {both.high:.3f}"
        title = f"{row.title}, {row.unit}"
        lines.append(f"{row.scenario:10}  {title:19}  {before:>12}  {after:>12}  {told}".rstrip())
    return "\n".join(lines)


def _median(values: Sequence[float], unit: str) -> str:
    middle = Spread.of(values).median
    return f"{middle:,.0f}" if unit == "/s" else f"{middle:.3f}"


def options(argv: Sequence[str]) -> argparse.Namespace:
    """
    The command line's options.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare.trees",
        description="The brokers of two source trees, in turn, on one machine.",
    )
    parser.add_argument("before", type=Path, help="the source tree to compare with")
    parser.add_argument("after", type=Path, help="the source tree that is measured")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="default: 3")
    parser.add_argument("--warm", type=float, default=1.0, metavar="S", help="default: 1")
    parser.add_argument("--only", default="", metavar="NAMES", help=", ".join(TREE_SCENARIOS))
    parser.add_argument("--python", default=sys.executable, help="the brokers' interpreter")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """
    @return: the exit code; 1 if a broker gave a wrong answer, 2 if nothing can be measured.
    """
    asked = options(argv)
    trees = {"before": asked.before.resolve(), "after": asked.after.resolve()}
    try:
        scenarios = select(asked.only)
        helpers = {side: check(tree, asked.python) for side, tree in trees.items()}
        compiled()
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    print(describe())
    for side, tree in trees.items():
        print(f"{side}: {tree}, {'with' if helpers[side] else 'WITHOUT'} a compiled helper")

    def start(side: str, flush: str) -> Running:
        return TreeBroker(freePort(), trees[side], asked.python, flushDiskType=flush)

    def load(broker: Running, scenario: Scenario) -> Sample:
        prepare(broker, scenario)
        return measure(broker, scenario, asked.seconds, asked.warm)

    pair = Pair(start, load, lambda text: print(text, flush=True))
    pair.run(scenarios, asked.rounds)
    print()
    print(table(rows(pair.samples)))
    each = (sample for both in pair.samples.values() for of in both.values() for sample in of)
    return int(any(sample.errors for sample in each))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
