# SPDX-License-Identifier: Apache-2.0
"""
Rounds of load on the brokers in turn: ours, RocketMQ's, ours, RocketMQ's, ...  While one is
measured, the other is idle.

A broker serves several scenarios, because RocketMQ's needs 20 seconds and more to reach its
full speed.  It is replaced when its files become too large.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping

import attrs

from benchmarks.compare.brokers import JavaBroker, OurBroker, Running, freePort
from benchmarks.compare.figures import Sample, settle, still
from benchmarks.compare.findings import Findings
from benchmarks.compare.scenarios import ASYNC, MAIN, Scenario
from benchmarks.generator import Result, run

__all__ = ["Fleet", "Plan", "measure", "sample"]

# The seconds that a broker gets to create the files of new topics.
_SETTLES = 3.0


@attrs.frozen
class Plan:
    """
    The numbers and durations of measurements.

    @ivar seconds: the seconds of a measurement; C{warm}: of the load before it, on the
        same connections.
    @ivar rounds: the rounds of a scenario with an aim.
    @ivar others: the rounds of other scenarios; C{otherSeconds}: of a measurement there.
    @ivar window: the seconds of a window; rates of windows are compared until they settle.
    @ivar least: the fewest windows after a start; C{most}: the most.
    @ivar again: the fewest windows of a new scenario; C{againMost}: the most.
    @ivar limit: the bytes of files above which a broker is replaced.
    @ivar backlog: the longest backlog, in millions of messages.
    @ivar behind: how many bytes a slave is behind when it begins to catch up.
    @ivar budget: the seconds of the whole run; a remark lists omissions.
    """

    seconds: float = 3.0
    warm: float = 0.5
    rounds: int = 3
    others: int = 2
    otherSeconds: float = 2.0
    window: float = 2.0
    least: int = 10
    most: int = 16
    again: int = 3
    againMost: int = 5
    limit: int = 16 << 30
    backlog: int = 100
    behind: int = 2_000_000_000
    budget: float = 1530.0

    def describe(self) -> str:
        """
        A line about the run, with a warning if it is too short.
        """
        short = "; **far too short for figures that are worth anything**" if self.least < 5 else ""
        return (
            f"this run: {self.rounds} rounds of {self.seconds:g} s where there is an aim,"
            f" {self.others} of {self.otherSeconds:g} s elsewhere; RocketMQ's broker loaded for"
            f" {self.least * self.window:g} to {self.most * self.window:g} s after its start, and"
            f" for {self.again * self.window / 2:g} to {self.againMost * self.window / 2:g} s in"
            f" each new scenario{short}"
        )

    @classmethod
    def quick(cls) -> Plan:
        """
        A plan that only shows that everything runs, without useful figures.
        """
        return cls(
            seconds=0.5,
            warm=0.1,
            rounds=1,
            others=1,
            otherSeconds=0.5,
            window=0.4,
            least=1,
            most=1,
            again=1,
            againMost=1,
            backlog=1,
            behind=50_000_000,
        )


def sample(result: Result, each: int = 1) -> Sample:
    """
    Compute the figures of a load.

    @param each: the number of messages that the CPU figures are for.
    @raise RuntimeError: if no answer was right.
    """
    if not result.messages:
        raise RuntimeError(result.error or "no message was answered")
    count = result.messages / each
    return Sample(
        rate=result.messages / result.seconds,
        cpu=result.server / count * 1e6,
        generator=result.cpu / count * 1e6,
        share=result.cpu / result.seconds,
        p50=result.p50 / 1000,
        p99=result.p99 / 1000,
        p999=result.p999 / 1000,
        errors=result.errors,
        error=result.error,
    )


def measure(broker: Running, scenario: Scenario, seconds: float, warm: float) -> Sample:
    """
    Load a broker once.
    """
    options = {**scenario.load, "pid": broker.pid, "seconds": seconds, "warm": warm}
    return sample(run(broker.port, scenario.mode, **options), scenario.each)


def prepare(broker: Running, scenario: Scenario) -> None:
    """
    Create the topics of a scenario, with the messages that it needs.
    """
    load: Mapping[str, object] = scenario.load
    topics = int(str(load.get("topics", 1)))
    options = {name: load[name] for name in ("topic", "topics") if name in load}
    run(broker.port, "send", warm=0, total=max(scenario.fill, 8 * topics), **options)
    if topics > 1:
        # Creating the files of thousands of queues is not part of the cost of a message.
        time.sleep(_SETTLES)


class Fleet:
    """
    The running brokers: one of ours and one of RocketMQ's, with the same flush type.
    """

    def __init__(
        self,
        python: str,
        plan: Plan,
        findings: Findings,
        say: Callable[[str], None],
        fill: Callable[[], object] = lambda: None,
    ) -> None:
        """
        @param python: the interpreter of our broker.
        @param fill: called before each start of a broker, so that all brokers start with
            the same free memory.
        """
        self._python = python
        self._plan = plan
        self._findings = findings
        self._say = say
        self._up: dict[str, Running] = {}
        self._flush = ASYNC
        self._fill = fill

    def start(self, side: str, **settings: object) -> Running:
        """
        Start a broker, which the caller closes.
        """
        port = freePort()
        if side == "java":
            return JavaBroker(port, **settings)
        return OurBroker(port, python=self._python, **settings)  # type: ignore[arg-type]

    def settled(self, side: str, **settings: object) -> tuple[Running, list[float]]:
        """
        Start a broker, which the caller closes, and load it until its rate has settled.

        @return: the broker, and the rates of the windows.
        """
        self._fill()
        broker, plan = self.start(side, **settings), self._plan
        # Our broker needs no warm-up; its first windows only show that.
        least, most = (plan.least, plan.most) if side == "java" else (1, 1)
        if side == "ours" and not self._findings.windows["ours"]:
            least = most = min(plan.least, 5)
        try:
            rates = settle(lambda: measure(broker, MAIN, plan.window, 0).rate, least, most)
        except BaseException:
            broker.close()
            raise
        self._say(
            f"{broker.name} started in {broker.startSeconds:.2f} s, settled after"
            f" {len(rates) * plan.window:g} s: {rates[0]:,.0f}/s at first, {rates[-1]:,.0f}/s now"
        )
        if least < most == len(rates) and not still(rates):
            last = ", ".join(f"{each:,.0f}" for each in rates[-3:])
            self._findings.remarks.append(
                f"{broker.name}'s rate did not stand still in {most * plan.window:g} s after a"
                f" start; the last windows gave {last} messages/s."
            )
        if not self._findings.windows[side]:
            self._findings.windows[side] = rates
        return broker, rates

    def broker(self, side: str, flush: str) -> Running:
        """
        A settled broker with a flush type.
        """
        if flush != self._flush:
            self.close()
            self._flush = flush
        there = self._up.get(side)
        if there is not None and (not there.alive or there.size() > self._plan.limit):
            self._end(side)
            there = None
        if there is None:
            there = self._up[side] = self.settled(side, flushDiskType=flush)[0]
        return there

    def run(self, scenario: Scenario, java: bool) -> None:
        """
        Run all rounds of a scenario.

        @param java: whether RocketMQ's broker takes part.
        """
        plan, findings = self._plan, self._findings
        kept = findings.samples.setdefault(scenario.name, {"ours": [], "java": []})
        rounds, seconds = plan.others, plan.otherSeconds
        if scenario.aimed:
            rounds, seconds = plan.rounds, plan.seconds
        for turn in range(rounds):
            for side in ("ours", "java") if java else ("ours",):
                broker = self.broker(side, scenario.flush)
                self._prepare(side, broker, scenario)
                found = measure(broker, scenario, seconds, plan.warm)
                kept[side].append(found)
                findings.memory[side].append(broker.memory())
                self._say(
                    f"{scenario.name} {turn + 1} {broker.name:8} {found.rate:11,.0f}/s"
                    f" {found.cpu:7.2f} us {found.p99:8.2f} ms p99 {found.errors or ''}"
                )

    def _prepare(self, side: str, broker: Running, scenario: Scenario) -> None:
        if scenario.name in broker.prepared:
            return
        broker.prepared.add(scenario.name)
        prepare(broker, scenario)
        plan = self._plan
        again = (plan.again, plan.againMost) if side == "java" else (1, 1)
        settle(lambda: measure(broker, scenario, plan.window / 2, 0).rate, *again)

    def _end(self, side: str) -> None:
        broker = self._up.pop(side)
        try:
            if broker.alive:
                self._findings.stopsLoaded[side].append(broker.stop())
        except subprocess.TimeoutExpired as error:
            self._findings.remarks.append(f"{broker.name} did not stop in {error.timeout:g} s.")
        finally:
            broker.close()

    def close(self) -> None:
        """
        End all brokers.
        """
        for side in list(self._up):
            self._end(side)
