# SPDX-License-Identifier: Apache-2.0
"""
C{make bench-compare}, or C{python -m benchmarks.compare}: runs everything, prints the
table of aims, and writes C{docs/performance.md} with its plot.

With C{--only}, C{--quick} or without Java it prints the page and does not write it, unless
C{--page} names a file.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

import txrocket
from benchmarks.compare import page, plot
from benchmarks.compare.brokers import javaMissing
from benchmarks.compare.extras import Extras
from benchmarks.compare.findings import Findings, aims, growth
from benchmarks.compare.interpreters import environment, fastest, found, helperIn
from benchmarks.compare.machine import PageCache, describe
from benchmarks.compare.profiles import profile
from benchmarks.compare.replication import Replicated
from benchmarks.compare.rounds import Fleet, Plan
from benchmarks.compare.scenarios import REPLICATED, SCENARIOS, chosen
from benchmarks.generator import compiled
from tests.interop.programs import ROCKETMQ, ROOT, libraries

_PAGE = ROOT / "docs" / "performance.md"

# Scenarios whose missed aims a profile does not explain.
_UNPROFILED = ("memory", "backlog", "replication", *(each.name for each in REPLICATED))


def options(argv: Sequence[str]) -> argparse.Namespace:
    """
    Parse the command line.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description="txrocket beside Apache RocketMQ, on one machine, in one run.",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="PATTERN",
        help="part of a scenario's name, such as replication",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="of scenarios with an aim")
    parser.add_argument("--seconds", type=float, metavar="S", help="of one measurement")
    parser.add_argument("--backlog", type=int, metavar="M", help="1, 10 or 100 million messages")
    parser.add_argument("--quick", action="store_true", help="only see that it runs")
    parser.add_argument("--no-java", action="store_true", help="only our own broker")
    parser.add_argument("--json", metavar="FILE", help="all that was found")
    parser.add_argument("--page", metavar="FILE", help="where the page is written to")
    return parser.parse_args(argv)


def planned(asked: argparse.Namespace) -> Plan:
    """
    The plan of a run, by the command line.
    """
    plan = Plan.quick() if asked.quick else Plan()
    given = {name: getattr(asked, name) for name in ("rounds", "seconds", "backlog")}
    return attrs.evolve(plan, **{name: value for name, value in given.items() if value})


class Comparison:
    """
    One run of all scenarios.
    """

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._java = not asked.no_java
        self._plan = planned(asked)
        self._began = time.monotonic()
        self.findings = Findings(date=datetime.date.today().isoformat())

    def _say(self, text: str) -> None:
        spent = time.monotonic() - self._began
        print(f"{int(spent) // 60:3}:{int(spent) % 60:02}  {text}", flush=True)

    def _left(self) -> float:
        return self._plan.budget - (time.monotonic() - self._began)

    def _about(self) -> tuple[str, str]:
        there = found()
        best = fastest(there)
        python = environment(best)
        base = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
        own = next((each for each in there if each.path == base), best)
        helper = "with" if helperIn(python) else "without"
        twisted = importlib.metadata.version("twisted")
        lines = [
            describe(),
            f"txrocket {txrocket.__version__} {helper} its compiled helper, Twisted {twisted}",
            (
                f"our interpreter: {best.describe()}; the fastest of {len(there)} on the machine in"
                f" a loop of 0.1 s, {best.speed / own.speed:.2f} times the one of the checkout's"
                " environment (packages of distributions may be built with profile-guided"
                " optimisation by rules of their own, which the flags do not tell)"
            ),
            self._plan.describe(),
        ]
        if self._java:
            told = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
            number = re.search(r'"([^"]+)"', told)
            lines.append(f"Apache RocketMQ {ROCKETMQ}, Java {number[1] if number else '?'}")
        self.findings.about = lines
        for each in lines:
            self._say(each)
        return python, sys.executable if own is not best else ""

    def _try(self, name: str, job: Callable[[], None]) -> None:
        if not chosen(self._asked.only, name):
            return
        try:
            job()
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            told = str(error).replace(str(ROOT), "")[:300]
            self._say(f"{name} failed: {told}")
            self.findings.remarks.append(f"{name} failed: {told}")

    def run(self) -> None:
        """
        Measure all scenarios.
        """
        compiled()
        python, other = self._about()
        plan, findings = self._plan, self.findings
        pages = PageCache(ROOT / ".bench-pages")
        fill = (lambda: 0.0) if self._asked.quick else pages.fill
        try:
            self._measure(Fleet(python, plan, findings, self._say, fill), python, other)
        finally:
            pages.close()
        self._profiles(python)
        findings.minutes = (time.monotonic() - self._began) / 60

    def _measure(self, fleet: Fleet, python: str, other: str) -> None:
        plan, findings = self._plan, self.findings
        extras = Extras(fleet, plan, findings, self._say, self._left)
        try:
            self._try("generator", extras.ceiling)
            self._try("start", lambda: extras.starts(self._java))
            for each in SCENARIOS:
                self._try(each.name, lambda each=each: fleet.run(each, self._java))  # type: ignore[misc]
        finally:
            fleet.close()
        self._try("pure", lambda: extras.variant("without the compiled helper", python, True))
        if other:
            title = "with the interpreter of the checkout's environment"
            self._try("interpreter", lambda: extras.variant(title, other, False))
        self._try("instances", extras.instances)
        self._replication(Replicated(fleet, plan, findings, self._say))
        if self._java:
            # RocketMQ's broker skips the longest backlog, because filling it takes minutes.
            self._try("backlog", lambda: extras.backlog("java", min(10, plan.backlog)))
            if plan.backlog > 10:
                findings.remarks.append(
                    "RocketMQ with 100 million messages: left out, filling it takes minutes, and"
                    " the aim is about our own growth."
                )
        self._try("backlog", lambda: extras.backlog("ours", plan.backlog))

    def _replication(self, replicated: Replicated) -> None:
        for each in REPLICATED:
            self._try(each.name, lambda each=each: replicated.run(each, self._java))  # type: ignore[misc]
        for side in self._sides:
            self._try("replication-catchup", lambda side=side: replicated.catchUp(side))  # type: ignore[misc]
        for side in self._sides:
            self._try("replication-memory", lambda side=side: replicated.memory(side))  # type: ignore[misc]

    @property
    def _sides(self) -> tuple[str, ...]:
        return ("ours", "java") if self._java else ("ours",)

    def _profiles(self, python: str) -> None:
        missed = [row for row in (*aims(self.findings), *growth(self.findings)) if row.met is False]
        names = dict.fromkeys(
            row.scenario
            for row in missed
            if row.scenario not in _UNPROFILED and not row.title.startswith("RocketMQ")
        )
        for name in names:
            self._say(f"an aim of {name} is missed: profiling it")
            self._try(name, lambda name=name: self._profile(python, name))  # type: ignore[misc]

    def _profile(self, python: str, name: str) -> None:
        self.findings.profiles[name] = profile(python, name)

    def write(self) -> None:
        """
        Write the page and its plot.  After a partial run, only print the page.
        """
        whole = self._java and not self._asked.only and not self._asked.quick
        path = Path(self._asked.page) if self._asked.page else _PAGE if whole else None
        rows = page.rates(self.findings, "send", "receive", "topics", "connections")
        if path is None:
            print(page.write(self.findings, "performance.svg"))
        else:
            drawn = path.with_suffix(".svg")
            drawn.write_text(plot.draw(rows))
            text = page.write(self.findings, drawn.name)
            path.write_text(text)
            print(text.partition("\n## Sending")[0])
            print(f"\nwritten to {path}")
        if self._asked.json:
            Path(self._asked.json).write_text(json.dumps(attrs.asdict(self.findings), indent=1))


def main(argv: Sequence[str]) -> int:
    """
    @return: the exit code.
    """
    asked = options(argv)
    lacking = javaMissing()
    if lacking and not asked.no_java:
        print(
            f"{' and '.join(lacking)} not found: Apache RocketMQ needs a JDK 17 and Maven. With"
            " --no-java only txrocket is measured.",
            file=sys.stderr,
        )
        return 2
    # Ten thousand connections need that many files, at both ends.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != soft else soft, hard))
    if not asked.no_java:
        try:
            libraries()
        except subprocess.CalledProcessError:
            print("Maven could not get Apache RocketMQ; see above.", file=sys.stderr)
            return 2
    comparison = Comparison(asked)
    comparison.run()
    comparison.write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
