# SPDX-License-Identifier: Apache-2.0
"""
What became of each scenario in each pairing, as text.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence

from tests.interop.cells import Pairing, Scenario
from tests.interop.clients import CLIENTS

__all__ = ["FAIL", "LACKING", "NONE", "PASS", "document", "storesTable", "table"]

PASS = "pass"
FAIL = "**FAIL**"
# The client cannot do it.
NONE = "–"
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


def table(scenarios: Sequence[Scenario], pairings: Sequence[Pairing], results: Results) -> str:
    """
    A table for each kind of servers.
    """
    parts = []
    for kinds, title in _SERVERS.items():
        columns = [each for each in pairings if each.kinds == kinds]
        rows = [
            [each.title, *(results.get((each.title, pairing), "") for pairing in columns)]
            for each in scenarios
        ]
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


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def document(
    scenarios: Iterable[Scenario],
    tables: str,
    versions: Iterable[str],
    stores: str,
    today: datetime.date,
    summary: str,
) -> str:
    """
    The page.
    """
    named = "\n".join(f"- {each}" for each in versions)
    excepted = "\n".join(
        f"- {each.title}: not {CLIENTS[client].title} with {_BROKERS[broker]}; {why}"
        for each in scenarios
        for (client, broker), why in each.excepted.items()
    )
    return f"""# Interoperability

Written by `make interop` on {today.isoformat()}; edit nothing here. {summary}

{named}

A column names the client that sends and, if it is another, the one that receives. `{NONE}`: a
client, or RocketMQ's broker, does not offer that. `{LACKING}`: its runtime was missing where this
was written. How the scenarios are run, and how to add one, is in `CONTRIBUTING.rst`. Left out,
though the client offers it:

{excepted}

{tables}
## Stores

{stores}
"""
