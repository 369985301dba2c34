# SPDX-License-Identifier: Apache-2.0
"""
C{docs/performance.md}, written from what a run found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.compare.figures import Row, Sample, Spread, ratio
from benchmarks.compare.findings import Findings, aims, growth, of, tables
from benchmarks.compare.scenarios import MAIN

__all__ = ["figure", "rates", "table", "write"]

_HOW = """\
How it was measured:

- A C program (`benchmarks/generator/load.c`) loads the brokers over loopback. It checks every
  answer: only code 0 counts, and a pull only with all of its 32 messages. Oneway sends are counted
  by what the queues have more of afterwards. "4 x 16" is 4 connections with 16 requests in flight
  on each.
- The brokers take turns, round by round; while one is measured the other is idle, or not there.
  Both may use all cores, which the generator shares with them. Both have their own defaults, but
  for where they listen and keep their files. RocketMQ's has a heap of 2 GiB (G1), which is not
  touched before it is needed, and writes no log.
- Before a broker is started, free memory is filled with pages of a file that nobody needs, as that
  of a machine that has run for a while is: on a virtual machine the first write to free memory
  may have to wait for the host, which would be charged to whoever stores most.
- RocketMQ's broker is loaded until its rate stands still: three successive windows that differ by
  5 % at most. Each scenario that is new to it is run likewise before it is measured. What that
  takes is in the line about this run.
- Where there are many topics, they are made before, and a broker has 3 s for their files.
- A cell is the median of the rounds, with the lowest and the highest in brackets. A ratio is that
  of the medians, with the lowest and highest of the rounds' own. What was measured once has no
  brackets.
- CPU is user and system time of all threads of the broker, for a message; for a pull, it is that
  of the pull of 32. Memory is `RssAnon`: without the pages of files.
"""

_REPLICATION = """\
Master and slave are of one kind and share the machine with the generator. With SYNC_MASTER, only
SEND_OK counts: the slave has the message. CPU is the master's."""


def figure(value: float) -> str:
    """
    A number, with as many digits as are worth something.
    """
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    spread = Spread.of(values)
    return figure(spread.median) + _brackets(spread, len(values))


def _brackets(spread: Spread, count: int) -> str:
    return f" ({figure(spread.low)}–{figure(spread.high)})" if count > 1 else ""


def _ratio(row: Row) -> str:
    found = row.ratio
    if found is None:
        return "–"
    return figure(found.median) + _brackets(found, min(len(row.ours), len(row.theirs)))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """
    A table that is readable as it stands, too.
    """
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    ruled = [lines[0], tuple("-" * width for width in widths), *lines[1:]]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in ruled
    )


def _aimed(rows: Sequence[Row], ours: str = "txrocket", theirs: str = "RocketMQ") -> str:
    head = ("", "unit", ours, theirs, "ratio", "aim", "")
    return table(
        head,
        (
            (
                row.title,
                {"us": "µs"}.get(row.unit, row.unit),
                _spread(row.ours),
                _spread(row.theirs),
                _ratio(row),
                "" if row.aim is None else str(row.aim),
                {True: "met", False: "**missed**", None: ""}[row.met],
            )
            for row in rows
        ),
    )


def rates(findings: Findings, *groups: str) -> list[Row]:
    """
    The rows of throughput, for the plot.
    """
    return [
        Row(
            scenario.name,
            scenario.title,
            "/s",
            [each.rate for each in samples["ours"]],
            [each.rate for each in samples["java"]],
            scenario.rate,
        )
        for group in groups
        for scenario, samples in tables(findings, group)
        if samples["ours"]
    ]


def _quantity(findings: Findings, group: str, name: str) -> str:
    rows = []
    for scenario, samples in tables(findings, group):
        ours, theirs = ([of(name)(each) for each in samples[side]] for side in ("ours", "java"))
        rows.append(
            (
                scenario.title,
                _spread(ours),
                _spread(theirs),
                _ratio(Row(scenario.name, "", "", ours, theirs)),
            )
        )
    return table(("", "txrocket", "RocketMQ", "ratio"), rows)


def _latencies(findings: Findings, group: str) -> str:
    rows = []
    for scenario, samples in tables(findings, group):
        if any(each.p99 for side in samples for each in samples[side]):
            cells = [
                _spread([of(name)(each) for each in samples[side]])
                for name in ("p50", "p99", "p999")
                for side in ("ours", "java")
            ]
            rows.append((scenario.title, *cells))
    head = [
        f"{name} {side}" for name in ("p50", "p99", "p99.9") for side in ("txrocket", "RocketMQ")
    ]
    return table(("", *head), rows)


def _generator(findings: Findings) -> str:
    rows = []
    for group in ("send", "receive"):
        for scenario, samples in tables(findings, group):
            cells = [
                figure(Spread.of([of(name)(each) for each in samples[side]]).median)
                if samples[side]
                else "–"
                for side in ("ours", "java")
                for name in ("cpu", "generator", "share")
            ]
            ceiling = findings.ceiling.get(scenario.name)
            rows.append((scenario.title, *cells, figure(ceiling.rate) if ceiling else ""))
    head = [
        f"{side}: {name}"
        for side in ("txrocket", "RocketMQ")
        for name in ("server µs", "generator µs", "generator's share of a core")
    ]
    return table(("", *head, "its own limit, /s"), rows)


def _cold(findings: Findings) -> str:
    rows = []
    for side, called in (("ours", "txrocket"), ("java", "RocketMQ")):
        windows = findings.windows[side]
        if windows:
            warm = findings.figures(MAIN.name, side, of("rate"))
            rows.append(
                (
                    called,
                    figure(findings.cold(side)),
                    _spread(warm),
                    ", ".join(f"{each / 1000:.0f}" for each in windows),
                )
            )
    return table(
        ("", "first ten seconds, /s", "warm, /s", "thousands/s in windows of 2 s from the start"),
        rows,
    )


def _variants(findings: Findings) -> str:
    main = findings.samples.get(MAIN.name, {})
    theirs = [each.rate for each in main.get("java", [])]
    rows = []
    usual = {"as in all other tables": main.get("ours", [])}
    for title, samples in {**usual, **findings.variants}.items():
        mine = [each.rate for each in samples]
        found = figure(ratio(mine, theirs).median) if mine and any(theirs) else "–"
        rows.append((title, _spread(mine), _spread([each.cpu for each in samples]), found))
    return table(("", "messages/s", "CPU µs", "to RocketMQ's rate"), rows)


def _instances(findings: Findings) -> str:
    one = findings.instances["1"]
    rows = [
        (each, _spread(values), _ratio(Row("instances", "", "", values, one)))
        for each, values in sorted(findings.instances.items())
    ]
    return table(("brokers", "messages/s", "to one"), rows)


def _backlog(findings: Findings) -> str:
    rows = []
    for side, called in (("ours", "txrocket"), ("java", "RocketMQ")):
        for level in findings.backlog.get(side, []):
            quantities: tuple[tuple[Sequence[Sample], str], ...] = (
                (level.send, "rate"),
                (level.send, "cpu"),
                (level.pull, "rate"),
                (level.pull, "cpu"),
            )
            cells = [_spread([of(name)(each) for each in those]) for those, name in quantities]
            rows.append((called, f"{level.millions} million", *cells, figure(level.memory)))
    head = ("", "messages", "sends/s", "CPU µs a send", "pulled/s", "CPU µs a pull", "RssAnon MB")
    return table(head, rows)


def _replicas(findings: Findings) -> str:
    quantities = (
        ("an asynchronous master's slave, behind at the end of a round, MB", findings.behind),
        ("a slave far behind: MB in a second, from its first byte on", findings.catchUp),
        ("the master's CPU for a MB of it, ms", findings.masterCpu),
        ("the slave's CPU for a MB of it, ms", findings.slaveCpu),
        ("from its start to its first byte, s", findings.waits),
        ("sends in a second before", findings.sendsBefore),
        ("sends in a second while it catches up", findings.sendsWhile),
        ("memory of a master with three slaves, one stopped: RssAnon MB", findings.threeSlaves),
    )
    rows = [
        (title, _spread(found["ours"]), _spread(found["java"]))
        for title, found in quantities
        if any(found.values())
    ]
    return table(("", "txrocket", "RocketMQ"), rows)


def _stops(findings: Findings) -> str:
    told = [
        f"{called} {_spread(findings.stopsLoaded[side])} s"
        for side, called in (("ours", "txrocket"), ("java", "RocketMQ"))
        if findings.stopsLoaded[side]
    ]
    return f"A stop after load, for comparison, takes {', '.join(told)}." if told else ""


def _errors(findings: Findings) -> list[str]:
    lines = []
    for name, samples in findings.samples.items():
        for side, called in (("ours", "txrocket"), ("java", "RocketMQ")):
            wrong = [each for each in samples[side] if each.errors]
            if wrong:
                count = sum(each.errors for each in wrong)
                lines.append(
                    f"{called}, {name}: {count:,} answers were wrong and do not count;"
                    f" the first: `{wrong[0].error[:160]}`"
                )
    return lines


def _sections(findings: Findings) -> Iterable[tuple[str, str, Callable[[], str]]]:
    def grouped(name: str) -> bool:
        return any(True for _ in tables(findings, name))

    def three(group: str) -> str:
        return "\n\n".join(
            (
                "Messages in a second:",
                _quantity(findings, group, "rate"),
                "Microseconds of the server's CPU:",
                _quantity(findings, group, "cpu"),
                "Milliseconds:",
                _latencies(findings, group),
            )
        )

    for group, title, text in (
        ("send", "Sending", ""),
        (
            "receive",
            "Receiving",
            """\
Latencies are those of the pull, or from send to receive; end to end they are what four consumers
see while producers send as fast as they can.""",
        ),
        ("topics", "Growth with topics", ""),
        (
            "connections",
            "Connections",
            "Connections send in turn; with 10,000 of them each waits long for its next.",
        ),
    ):
        if grouped(group):
            yield title, text, lambda group=group: three(group)  # type: ignore[misc]
    if grouped("replication"):
        yield "Replication", _REPLICATION, lambda: three("replication")
    if any((*findings.catchUp.values(), *findings.threeSlaves.values())):
        yield "Slaves", "", lambda: _replicas(findings)
    if findings.backlog:
        text = "Messages of 10 B in the files; then sends of 1 KiB, and pulls of the newest."
        yield "Growth with backlog", text, lambda: _backlog(findings)
    if any(findings.windows.values()):
        yield "Cold and warm", f"From the start on: {MAIN.title}.", lambda: _cold(findings)
    if findings.variants:
        yield "Without the compiled helper", f"{MAIN.title}.", lambda: _variants(findings)
    if findings.instances:
        text = """\
Two brokers of one cluster on one machine, 1 KiB, a load of 4 x 64 on each; one has both loads.
They share the cores with the generators."""
        yield "One broker and two", text, lambda: _instances(findings)
    if findings.samples:
        text = """\
The generator's own CPU for a message (for a pull of 32) beside the broker's. Its own limit is its
rate against a server that answers and does nothing else (`benchmarks/generator/sink.c`)."""
        yield "The load generator", text, lambda: _generator(findings)


def write(findings: Findings, plot: str) -> str:
    """
    The page.

    @param plot: the name of the plot's file.
    """
    rows, grown = aims(findings), growth(findings)
    judged = [row for row in (*rows, *grown) if row.met is not None]
    missed = [row for row in judged if not row.met]
    parts = [
        "# Performance",
        (
            f"Written by `make bench-compare` on {findings.date}; edit nothing here. It took"
            f" {findings.minutes:.0f} minutes. {len(judged) - len(missed)} aims were met,"
            f" {len(missed)} missed."
        ),
        "\n".join(f"- {each}" for each in findings.about),
        _HOW.rstrip(),
        "## The aims",
        "Ours to Apache RocketMQ 4.9.7, warm, in the same run.",
        _aimed(rows),
        f"![ratios of throughput]({plot})",
    ]
    if grown:
        parts += [
            "What a message costs with much, to what it costs the same broker with little:",
            _aimed(grown, "much", "little"),
        ]
    parts.append(_stops(findings))
    for title, text, made in _sections(findings):
        parts += [f"## {title}", text, made()]
    remarks = [*findings.remarks, *_errors(findings)]
    if remarks:
        parts += ["## Left out, or not as it should be", "\n".join(f"- {each}" for each in remarks)]
    if findings.profiles:
        parts += [
            "## Profiles",
            """\
Where aims were missed: the 15 functions that took most time themselves, by `cProfile`, which makes
calls of Python dearer than they are.""",
        ]
        for name, text in findings.profiles.items():
            titles = "; ".join(row.title for row in missed if row.scenario == name)
            parts += [f"### {titles or name}", f"```text\n{text}\n```"]
    return "\n\n".join(each for each in parts if each) + "\n"
