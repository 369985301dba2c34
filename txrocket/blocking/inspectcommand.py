# SPDX-License-Identifier: Apache-2.0
"""
The command txrocket-inspect::

    txrocket-inspect locks                    queue locks of orderly consumers
    txrocket-inspect halves                   undecided half messages
    txrocket-inspect subscriptions            groups with different subscriptions

C{-b host:port} names a broker.  Without it, the command asks all masters that the name
servers of C{-n host:port}, or of NAMESRV_ADDR, know.  The exit code is 0 if all brokers
answered, 1 if one did not, and 2 if an argument is not valid.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TextIO

from txrocket.blocking.inspector import Inspector
from txrocket.errors import ConfigError, RequestCodeNotSupported, RocketError
from txrocket.protocol.addresses import parseAddresses

__all__ = ["main"]

ALL, SOME, WRONG = range(3)

# The widest column, but for the last one, which has no limit.
_WIDEST: Final = 60


class _Look(NamedTuple):
    """
    One of the tables that the command prints.

    @ivar titles: the titles of its columns.
    @ivar rows: called with an inspector, a broker's address and a group; gives the rows.
    """

    titles: tuple[str, ...]
    rows: Callable[[Inspector, str, str | None], Iterator[tuple[Any, ...]]]


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """
    Run the command.

    @return: the exit code.
    """
    options = _parser().parse_args(arguments)
    out = out or sys.stdout
    look = _LOOKS[options.what]
    with Inspector(timeout=options.timeout) as inspector:
        try:
            if options.broker:
                brokers = {each: each for each in parseAddresses(options.broker)}
            else:
                brokers = inspector.masters(options.namesrv)
        except (ConfigError, ValueError) as error:
            return _say(f"{error}", WRONG)
        except RocketError as error:
            return _say(f"{error}", SOME)
        code = ALL
        found: list[tuple[Any, ...]] = []
        for name, address in brokers.items():
            try:
                found += [(name, *each) for each in look.rows(inspector, address, options.group)]
            except RequestCodeNotSupported:
                code = _say(f"{name}: this broker cannot be inspected", SOME)
            except RocketError as error:
                code = _say(f"{name}: {error}", SOME)
    _print(("BROKER", *look.titles), found, out)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="txrocket-inspect", description="Look at brokers.")
    parser.add_argument("what", choices=sorted(_LOOKS))
    parser.add_argument("-b", "--broker", metavar="HOST:PORT", help="the broker to look at")
    parser.add_argument(
        "-n", "--namesrv", metavar="HOST:PORT", help="name servers, whose masters are looked at"
    )
    parser.add_argument("-g", "--group", help="this consumer group alone; not for halves")
    parser.add_argument("-t", "--timeout", type=float, default=3.0, help="in seconds")
    return parser


def _say(problem: str, code: int) -> int:
    print(f"txrocket-inspect: {problem}", file=sys.stderr)
    return code


# --- the tables ------------------------------------------------------------------


def _locks(inspector: Inspector, address: str, group: str | None) -> Iterator[tuple[Any, ...]]:
    answer = inspector.locks(address, group)
    for each in answer.locks:
        queue = f"{each.queue.topic}/{each.queue.queueId}"
        yield each.group, queue, each.clientId, _seconds(each.held), _seconds(each.silent)
    if answer.more:
        yield (f"... {answer.more} more",)


def _halves(inspector: Inspector, address: str, group: str | None) -> Iterator[tuple[Any, ...]]:
    for each in inspector.halves(address):
        yield each.topic, each.group, each.checks, _seconds(each.age), each.msgId, each.offsetMsgId


def _subscriptions(
    inspector: Inspector, address: str, group: str | None
) -> Iterator[tuple[Any, ...]]:
    answer = inspector.subscriptions(address, group)
    for each in answer.groups:
        since = datetime.fromtimestamp(each.since / 1000, UTC).isoformat(" ", "seconds")
        for difference in each.differences:
            for view in difference.views:
                wanted = "(nothing)" if view.expression is None else view.expression
                ids = ", ".join(view.clientIds)
                if view.members > len(view.clientIds):
                    ids += ", ..."
                yield each.group, since, difference.topic, wanted, view.members, ids
        if each.more:
            yield each.group, since, f"... {each.more} topics more"
    if answer.more:
        yield (f"... {answer.more} groups more",)


_LOOKS: Final = {
    "locks": _Look(("GROUP", "QUEUE", "HOLDER", "HELD", "SILENT"), _locks),
    "halves": _Look(("TOPIC", "GROUP", "CHECKS", "AGE", "ID", "BROKER'S ID"), _halves),
    "subscriptions": _Look(
        ("GROUP", "SINCE (UTC)", "TOPIC", "EXPRESSION", "MEMBERS", "CLIENTS"), _subscriptions
    ),
}


# --- printing -----------------------------------------------------------------------


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"


def _print(titles: tuple[str, ...], rows: Iterable[tuple[Any, ...]], out: TextIO) -> None:
    table = [titles, *(tuple(map(_printable, each)) for each in rows)]
    widths = [
        min(_WIDEST, max(len(row[column]) for row in table if len(row) > column))
        for column in range(len(titles))
    ]
    for row in table:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=False))
        print("  ".join(cells).rstrip(), file=out)


def _printable(cell: Any) -> str:
    # Names come from clients, and their control characters must not reach the terminal.
    return "".join(each if each.isprintable() else "?" for each in str(cell))
