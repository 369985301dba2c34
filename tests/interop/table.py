# SPDX-License-Identifier: Apache-2.0
"""
What became of each scenario in each pairing, as text.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence

from tests.interop.cells import Pairing, Scenario
from tests.interop.replicationfinding import Finding
from tests.interop.replicationpair import Kinds

__all__ = [
    "FAIL",
    "LACKING",
    "NONE",
    "PASS",
    "Notes",
    "document",
    "pairsTable",
    "storesTable",
    "table",
    "weaknessTable",
]

PASS = "pass"
FAIL = "**FAIL**"
# A client, or RocketMQ's broker, cannot do it.
NONE = "not offered"
# A runtime is missing.
LACKING = "not here"

_SERVERS = {
    ("ours", "ours"): "Our name server and broker",
    ("java", "java"): "RocketMQ's name server and broker",
    ("ours", "java"): "Our name server, RocketMQ's broker",
    ("java", "ours"): "RocketMQ's name server, our broker",
}

_BROKERS = {"ours": "our broker", "java": "RocketMQ's broker"}

Results = Mapping[tuple[str, Pairing], str]


class Notes:
    """
    Why some cells are empty: each reason has a number.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, reasons: Iterable[str]) -> str:
        """
        The numbers of reasons.
        """
        numbers = {self._numbers.setdefault(each, len(self._numbers) + 1) for each in reasons}
        return f"[{', '.join(map(str, sorted(numbers)))}]"

    def __str__(self) -> str:
        return "\n".join(f"{number}. {reason}" for reason, number in self._numbers.items())


def table(
    scenarios: Sequence[Scenario], pairings: Sequence[Pairing], results: Results, notes: Notes
) -> str:
    """
    A table for each kind of servers.
    """

    def shown(scenario: Scenario, pairing: Pairing) -> str:
        result = results.get((scenario.title, pairing), "")
        return f"{NONE} {notes.mark(scenario.hindrances(pairing))}" if result == NONE else result

    parts = []
    for kinds, title in _SERVERS.items():
        columns = [each for each in pairings if each.kinds == kinds]
        rows = [[each.title, *(shown(each, pairing) for pairing in columns)] for each in scenarios]
        rows = [row for row in rows if any(row[1:])]
        if columns and rows:
            head = ["", *(each.title for each in columns)]
            parts.append(f"## {title}\n\n{_markdown([head, *rows])}")
    return "\n".join(parts)


def storesTable(scenarios: Sequence[Scenario], results: Results) -> str:
    """
    A table of those scenarios in which brokers take turns.
    """
    if not scenarios:
        return ""
    columns = scenarios[0].pairings or ()
    head = ["", *(f"{_BROKERS[each.broker]} begins" for each in columns)]
    rows = [
        [each.title, *(results.get((each.title, pairing), "") for pairing in columns)]
        for each in scenarios
    ]
    return _markdown([head, *rows])


def pairsTable(results: Mapping[Kinds, str]) -> str:
    """
    A table of masters and slaves.
    """
    modes = list(dict.fromkeys((each.role, each.flush) for each in results))
    pairs = list(dict.fromkeys((each.master, each.slave) for each in results))
    head = ["", *(f"{role}, {flush}" for role, flush in modes)]
    rows = [
        [
            f"{_BROKERS[master]} as master, {_BROKERS[slave]} as slave",
            *(results.get(Kinds(master, slave, *mode), "") for mode in modes),
        ]
        for master, slave in pairs
    ]
    return _markdown([head, *rows])


def weaknessTable(titles: Mapping[str, str], findings: Mapping[tuple[str, str], Finding]) -> str:
    """
    A table of weaknesses, and what scripts saw of each.
    """

    def shown(number: str, kind: str) -> str:
        found = findings.get((number, kind))
        if found is None:
            return LACKING
        return f"**{'yes' if found.isWeak else 'no'}**: {found.seen}"

    rows = [
        [f"{number}. {title}", shown(number, "java"), shown(number, "ours")]
        for number, title in titles.items()
    ]
    return _markdown([["", "RocketMQ's", "ours"], *rows])


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def document(
    tables: str,
    notes: Notes,
    versions: Iterable[str],
    stores: str,
    replication: str,
    today: datetime.date,
    summary: str,
) -> str:
    """
    The page.
    """
    named = "\n".join(f"- {each}" for each in versions)
    return f"""# Interoperability

Written by `make interop` on {today.isoformat()}; edit nothing here. {summary}

{named}

A column names the client that sends and, if it is another, the one that receives. `{NONE}`: a
client, or RocketMQ's broker, does not do that; the numbers are those of the reasons below the
tables. `{LACKING}`: its runtime was missing where this was written. No cell is tried twice. How the
scenarios are run, and how to add one, is in `CONTRIBUTING.rst`.

{tables}
## What is not offered

{notes}

## Stores

{stores}

## Replication

{replication}"""
