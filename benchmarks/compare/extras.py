# SPDX-License-Identifier: Apache-2.0
"""
Measurements that are not loads in rounds: start and stop, our broker without its compiled
helper or with another interpreter, two brokers on two cores, a long backlog, and the load
generator alone.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.compare.brokers import OurBroker, Running, freePort
from benchmarks.compare.figures import settle
from benchmarks.compare.findings import Findings, Level
from benchmarks.compare.machine import freeBytes
from benchmarks.compare.rounds import Fleet, Plan, measure, sample
from benchmarks.compare.scenarios import MAIN, SCENARIOS, Scenario
from benchmarks.generator import compiled, run
from tests.interop.programs import ROOT

__all__ = ["Extras"]

# The disk space of a message of the backlog (a record of 160 bytes, a queue entry and an
# index entry), and the space that must stay free.
_MESSAGE = 220
_RESERVE = 12 << 30

# The messages of the backlog that are sent between two checks.
_CHUNK = 2_000_000
_BATCH = 100

_FILL = {"connections": 4, "inflight": 8, "body": 10, "batch": _BATCH, "topic": "backlog"}

_PULL = Scenario(
    "backlog-pull",
    "pull of 32",
    "pull",
    {"topic": "backlog", "span": 100_000},
    each=32,
)
_SEND = Scenario("backlog-send", "send", load={"topic": "backlog"})


class Extras:
    """
    Each method measures one of them.
    """

    def __init__(
        self,
        fleet: Fleet,
        plan: Plan,
        findings: Findings,
        say: Callable[[str], None],
        left: Callable[[], float],
    ) -> None:
        """
        @param left: returns the seconds that are left of the budget.
        """
        self._fleet = fleet
        self._plan = plan
        self._findings = findings
        self._say = say
        self._left = left

    def starts(self, java: bool) -> None:
        """
        Measure start and stop, and the memory of an idle broker.
        """
        findings = self._findings
        for _ in range(self._plan.rounds):
            for side in ("ours", "java") if java else ("ours",):
                broker = self._fleet.start(side)
                try:
                    findings.starts[side].append(broker.startSeconds)
                    findings.idle[side].append(broker.memory())
                    findings.stops[side].append(broker.stop())
                finally:
                    broker.close()
                self._say(
                    f"{broker.name}: start {broker.startSeconds:.2f} s,"
                    f" {findings.idle[side][-1]:.0f} MB, stop {findings.stops[side][-1]:.2f} s"
                )

    def variant(self, title: str, python: str, pure: bool) -> None:
        """
        Measure a variant of our broker in the main scenario.
        """
        broker = OurBroker(freePort(), python=python, pure=pure)
        plan, kept = self._plan, self._findings.variants.setdefault(title, [])
        try:
            for _ in range(plan.others):
                kept.append(measure(broker, MAIN, plan.seconds, plan.warm + plan.window / 2))
        finally:
            broker.close()
        self._say(f"{title}: {kept[-1].rate:,.0f}/s, {kept[-1].cpu:.2f} us")

    def ceiling(self) -> None:
        """
        Measure the generator against a server that only answers.
        """
        port = freePort()
        with subprocess.Popen([str(compiled("sink")), str(port)]) as sink:
            try:
                time.sleep(0.2)
                for each in SCENARIOS:
                    if each.name in ("send-4x16", "send-8x64", "send-64x1"):
                        done = run(port, "send", pid=sink.pid, seconds=1, warm=0.2, **each.load)
                        self._findings.ceiling[each.name] = sample(done)
            finally:
                sink.kill()

    def instances(self) -> None:
        """
        Measure one broker, and two of one cluster, under the same two loads.
        """
        plan = self._plan
        brokers: list[Running] = []
        try:
            for name in ("one", "two"):
                brokers.append(self._fleet.start("ours", brokerName=name))
            for _ in range(plan.others):
                for title, those in (("1", brokers[:1] * 2), ("2", brokers)):
                    with ThreadPoolExecutor() as threads:
                        rates = list(threads.map(self._loaded, those))
                    self._findings.instances.setdefault(title, []).append(sum(rates))
                    self._say(f"{title} of our brokers: {sum(rates):,.0f}/s")
        finally:
            for each in brokers:
                each.close()

    def _loaded(self, broker: Running) -> float:
        options = {"connections": 4, "inflight": 64}
        plan = self._plan
        return sample(run(broker.port, "send", seconds=plan.seconds, warm=1, **options)).rate

    def backlog(self, side: str, most: int) -> None:
        """
        Measure sends and pulls with more and more messages in the store.

        @param most: the most millions of messages.
        """
        plan = self._plan
        levels = [each for each in (1, 10, 100) if each <= most]
        broker, _ = self._fleet.settled(side)
        kept = self._findings.backlog.setdefault(side, [])
        held = 0
        try:
            for level in levels:
                if not self._affordable(broker, level, held):
                    break
                held = self._fill(broker, level, held)
                if held < level * 1_000_000:
                    break
                for each in (_PULL, _SEND):
                    again = plan.againMost if side == "java" and level == 1 else 1
                    settle(
                        lambda each=each: measure(broker, each, plan.window / 2, 0).rate,  # type: ignore[misc]
                        again,
                        again,
                    )
                pulls, sends = (
                    [
                        measure(broker, each, plan.otherSeconds, plan.warm)
                        for _ in range(plan.others)
                    ]
                    for each in (_PULL, _SEND)
                )
                kept.append(Level(level, sends, pulls, broker.memory()))
                self._say(
                    f"{broker.name} with {level} million: {sends[-1].cpu:.2f} us a send,"
                    f" {pulls[-1].cpu:.2f} us a pull"
                )
        finally:
            broker.close()

    def _affordable(self, broker: Running, level: int, held: int) -> bool:
        wanted = (level * 1_000_000 - held) * _MESSAGE
        there = freeBytes(ROOT) - _RESERVE
        if wanted > there:
            self._findings.remarks.append(
                f"{broker.name} with {level} million messages: left out, that takes"
                f" {wanted / 1e9:.0f} GB and {max(0, there) / 1e9:.0f} are to spare."
            )
            return False
        return True

    def _fill(self, broker: Running, level: int, held: int) -> int:
        """
        @return: the number of messages; fewer than asked for if the time is over.
        """
        wanted, began, first = level * 1_000_000, time.monotonic(), held
        while held < wanted:
            total = min(_CHUNK, wanted - held) // _BATCH
            done = run(broker.port, "batch", warm=0, total=total, **_FILL)
            held += done.messages
            if not done.messages:
                raise RuntimeError(f"{broker.name} takes no messages: {done.error}")
            rate = (held - first) / (time.monotonic() - began)
            # Measuring and ending take their time, too.
            if (wanted - held) / rate > self._left() - 60:
                self._findings.remarks.append(
                    f"{broker.name} with {level} million messages: left out, at {rate:,.0f}"
                    " messages/s there was no time for it."
                )
                return held
        return held
