# SPDX-License-Identifier: Apache-2.0
"""
The findings of a run, and the rows of its tables.

Findings of both brokers are dicts with the keys C{"ours"} and C{"java"}, with one figure
for each round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from benchmarks.compare.figures import Aim, Row, Sample
from benchmarks.compare.scenarios import REPLICATED, SCENARIOS, Scenario

__all__ = ["Findings", "Level", "aims", "growth", "of", "tables"]

# The aim for the cost of a message with 1,000 topics, to its cost with one; and with the
# longest backlog, to the shortest.
_GROWTH = Aim(1.2, most=True)

# The aims for start, stop and memory, to RocketMQ's.
_START, _STOP = Aim(0.4, most=True), Aim(0.2, most=True)
_IDLE, _LOADED = Aim(0.25, most=True), Aim(0.1, most=True)


# The aim for a slave's bytes in a second while it catches up, to RocketMQ's.
_CATCH_UP = Aim(1.5)

_ALL = (*SCENARIOS, *REPLICATED)


@attrs.frozen
class Level:
    """
    The figures of a broker with a backlog.

    @ivar millions: the messages of the backlog, in millions.
    @ivar memory: its memory without the pages of files, in MB.
    """

    millions: int
    send: Sequence[Sample]
    pull: Sequence[Sample]
    memory: float


def _both() -> dict[str, list[float]]:
    return {"ours": [], "java": []}


@attrs.define
class Findings:
    """
    All findings of a run.

    @ivar date: the day of the run; C{minutes}: its duration.
    @ivar about: lines about machine, versions and interpreter.
    @ivar samples: by the scenario's name and the broker.
    @ivar windows: the rates of successive windows from the start on.
    @ivar memory: after each scenario, in MB.
    @ivar stops: seconds, of a broker that was only started; C{stopsLoaded}: after load.
    @ivar variants: variants of our broker in the main scenario.
    @ivar instances: messages in a second, by the number of brokers.
    @ivar ceiling: the generator against a server that only answers, by the scenario's name.
    @ivar backlog: by the broker.
    @ivar behind: how many MB an asynchronous master's slave was behind at the end of a round.
    @ivar catchUp: MB in a second of a slave that was far behind, from its first byte on.
    @ivar masterCpu: milliseconds of the master's CPU for a MB of it; C{slaveCpu}: of the
        slave's, which also has its queues and index to write.
    @ivar waits: the seconds from such a slave's start to its first byte.
    @ivar sendsWhile: messages in a second that the master took while a slave caught up;
        C{sendsBefore}: before.
    @ivar threeSlaves: memory of a master with three slaves, one of them stopped, in MB.
    @ivar profiles: by the scenario's name.
    @ivar remarks: texts about omissions and failures.
    """

    date: str = ""
    minutes: float = 0.0
    about: list[str] = attrs.field(factory=list)
    samples: dict[str, dict[str, list[Sample]]] = attrs.field(factory=dict)
    windows: dict[str, list[float]] = attrs.field(factory=_both)
    idle: dict[str, list[float]] = attrs.field(factory=_both)
    memory: dict[str, list[float]] = attrs.field(factory=_both)
    starts: dict[str, list[float]] = attrs.field(factory=_both)
    stops: dict[str, list[float]] = attrs.field(factory=_both)
    stopsLoaded: dict[str, list[float]] = attrs.field(factory=_both)
    variants: dict[str, list[Sample]] = attrs.field(factory=dict)
    instances: dict[str, list[float]] = attrs.field(factory=dict)
    ceiling: dict[str, Sample] = attrs.field(factory=dict)
    backlog: dict[str, list[Level]] = attrs.field(factory=dict)
    behind: dict[str, list[float]] = attrs.field(factory=_both)
    catchUp: dict[str, list[float]] = attrs.field(factory=_both)
    masterCpu: dict[str, list[float]] = attrs.field(factory=_both)
    slaveCpu: dict[str, list[float]] = attrs.field(factory=_both)
    waits: dict[str, list[float]] = attrs.field(factory=_both)
    sendsBefore: dict[str, list[float]] = attrs.field(factory=_both)
    sendsWhile: dict[str, list[float]] = attrs.field(factory=_both)
    threeSlaves: dict[str, list[float]] = attrs.field(factory=_both)
    profiles: dict[str, str] = attrs.field(factory=dict)
    remarks: list[str] = attrs.field(factory=list)

    def figures(self, scenario: str, side: str, of: Callable[[Sample], float]) -> list[float]:
        """
        One figure of each round.
        """
        return [of(each) for each in self.samples.get(scenario, {}).get(side, [])]

    def cold(self, side: str, windows: int = 5) -> float:
        """
        The rate in the first windows after the start.
        """
        first = self.windows[side][:windows]
        return sum(first) / len(first) if first else 0.0


def of(name: str) -> Callable[[Sample], float]:
    """
    A figure of a sample, by its name.
    """
    return lambda sample: float(getattr(sample, name))


def _row(
    findings: Findings, scenario: Scenario, title: str, unit: str, name: str, aim: Aim | None
) -> Row:
    note = []
    for side, called in (("ours", "txrocket"), ("java", "RocketMQ")):
        wrong = sum(each.errors for each in findings.samples.get(scenario.name, {}).get(side, []))
        if wrong:
            note.append(f"{called}: {wrong:,} wrong answers, not counted")
    return Row(
        scenario.name,
        title,
        unit,
        findings.figures(scenario.name, "ours", of(name)),
        findings.figures(scenario.name, "java", of(name)),
        aim,
        "; ".join(note),
    )


def aims(findings: Findings) -> list[Row]:
    """
    A row for each aim.
    """
    rows = []
    measured = [each for each in _ALL if each.name in findings.samples]
    for each in measured:
        if each.rate is not None:
            rows.append(_row(findings, each, each.title, "/s", "rate", each.rate))
    for each in measured:
        if each.cpu is not None:
            title = f"server CPU per message: {each.title}"
            rows.append(_row(findings, each, title, "us", "cpu", each.cpu))
    for each in measured:
        if each.p99 is not None:
            rows.append(_row(findings, each, f"p99: {each.title}", "ms", "p99", each.p99))
    if findings.catchUp["ours"]:
        title = "catching up: a slave far behind, from its first byte on"
        caught = findings.catchUp
        rows.append(Row("replication", title, "MB/s", caught["ours"], caught["java"], _CATCH_UP))
    if findings.idle["ours"]:
        idle, memory = findings.idle, findings.memory
        title = "memory of its own (RssAnon), idle"
        rows.append(Row("memory", title, "MB", idle["ours"], idle["java"], _IDLE))
        if memory["ours"] and memory["java"]:
            title = "memory of its own (RssAnon), the most after any load"
            most = {side: [max(memory[side])] for side in memory}
            rows.append(Row("memory", title, "MB", most["ours"], most["java"], _LOADED))
        starts, stops = findings.starts, findings.stops
        title = "start-up, until a first send is answered"
        rows.append(Row("start", title, "s", starts["ours"], starts["java"], _START))
        rows.append(Row("stop", "stop", "s", stops["ours"], stops["java"], _STOP))
    return rows


def growth(findings: Findings) -> list[Row]:
    """
    Rows for the cost of a message with many topics or messages, to its cost with few.
    They compare a broker with itself.
    """
    rows = []
    for side, called in (("ours", "txrocket"), ("java", "RocketMQ")):
        aim = _GROWTH if side == "ours" else None
        few = findings.figures("topics-1", side, of("cpu"))
        many = findings.figures("topics-1000", side, of("cpu"))
        if few and many:
            title = f"{called}: CPU per send, 1,000 topics to 1"
            rows.append(Row("topics-1000", title, "us", many, few, aim))
        levels = findings.backlog.get(side, [])
        if len(levels) > 1:
            first, last = levels[0], levels[-1]
            between = f"{last.millions} million messages to {first.millions}"
            for name, much, little in (
                ("send", last.send, first.send),
                ("pull of 32", last.pull, first.pull),
            ):
                costs = [each.cpu for each in much], [each.cpu for each in little]
                title = f"{called}: CPU per {name}, {between}"
                rows.append(Row("backlog", title, "us", *costs, aim))
    return rows


def tables(findings: Findings, group: str) -> Iterable[tuple[Scenario, dict[str, list[Sample]]]]:
    """
    The scenarios of a group that were measured.
    """
    for each in _ALL:
        if each.group == group and each.name in findings.samples:
            yield each, findings.samples[each.name]
