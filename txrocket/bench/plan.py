# SPDX-License-Identifier: Apache-2.0
"""
What C{txrocket bench} is to do: its command line, read and checked.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence

import attrs

from txrocket.bench.marks import MARK_SIZE

__all__ = ["Plan", "readPlan"]

# What one connection takes, in requests that wait for their answers.
_INFLIGHT = 65_535

_SECONDS = 10.0


@attrs.frozen
class Plan:
    """
    @ivar produces: whether to send.
    @ivar consumes: whether to receive.
    @ivar size: of a body, in bytes.
    @ivar seconds: after which to end; L{None} is never.
    @ivar count: of messages, after which to end.
    @ivar inflight: how many requests may wait for their answers.
    @ivar batch: messages in a request.
    @ivar rate: messages a second; L{None} is as many as will go.
    @ivar keys: whether each message has a key.
    @ivar fromFirst: whether a group that is new begins with what is there already.
    """

    nameServers: str
    topic: str = "txrocket-bench"
    group: str = "txrocket-bench"
    produces: bool = True
    consumes: bool = False
    size: int = 1024
    seconds: float | None = _SECONDS
    count: int | None = None
    inflight: int = 64
    batch: int = 1
    oneway: bool = False
    rate: float | None = None
    tags: str = ""
    keys: bool = False
    fromFirst: bool = False
    tls: bool = False
    json: bool = False

    @property
    def mode(self) -> str:
        """
        By what word it is asked for.
        """
        if self.produces and self.consumes:
            return "both"
        return "produce" if self.produces else "consume"


def _number(least: float, most: float = math.inf, kind: type = int) -> Callable[[str], float]:
    """
    Reads an argument that is a number.
    """
    span = f"{least:,} to {most:,}" if most < math.inf else f"{least:,} or more"

    def read(text: str) -> float:
        try:
            value: float = kind(text)
        except ValueError:
            value = math.nan
        if not (least <= value <= most and value < math.inf):
            raise argparse.ArgumentTypeError(f"{text!r}: {span} was expected")
        return value

    return read


def readPlan(arguments: Sequence[str], prog: str) -> Plan:
    """
    Read a command line.

    @raise SystemExit: with 2 if it is wrong, and 0 if only help was asked for.
    """
    parser = _parser(prog)
    given = parser.parse_args(arguments)
    if given.nameserver is None:
        parser.error("which cluster? give -n HOST:PORT, or set NAMESRV_ADDR")
    if given.oneway and given.batch > 1:
        parser.error("--oneway and --batch do not go together")
    if given.mode != "consume" and "|" in given.tags:
        parser.error("--tags: a message has one tag; several can only be received")
    if given.seconds is None and given.count is None:
        given.seconds = _SECONDS
    return Plan(
        nameServers=given.nameserver,
        topic=given.topic,
        group=given.group,
        produces=given.mode != "consume",
        consumes=given.mode != "produce",
        size=given.size,
        seconds=given.seconds,
        count=given.count,
        inflight=given.inflight,
        batch=given.batch,
        oneway=given.oneway,
        rate=given.rate,
        tags=given.tags,
        keys=given.keys,
        fromFirst=given.from_first,
        tls=given.tls,
        json=given.json,
    )


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, description="Measure a cluster by sending and receiving messages."
    )
    add = parser.add_argument
    add("mode", choices=("produce", "consume", "both"))
    add(
        *("-n", "--nameserver"),
        metavar="HOST:PORT",
        default=os.environ.get("NAMESRV_ADDR") or None,
        help="name servers, divided by ;  (NAMESRV_ADDR if not given)",
    )
    add("-t", "--topic", default="txrocket-bench", help="made if it is not there (%(default)s)")
    add("-g", "--group", default="txrocket-bench", help="of producer and consumer (%(default)s)")
    add("--size", type=_number(MARK_SIZE), default=1024, help="of a body in bytes (%(default)s)")
    add("--seconds", type=_number(0.1, kind=float), help="when to end (10, unless --count)")
    add("--count", type=_number(1), help="messages after which to end")
    add(
        "--inflight",
        type=_number(1, _INFLIGHT),
        default=64,
        help="requests that wait for an answer (%(default)s)",
    )
    add("--batch", type=_number(1, 10_000), default=1, help="messages in a request (%(default)s)")
    add("--oneway", action="store_true", help="wait for no answers")
    add("--rate", type=_number(0.1, kind=float), help="messages a second (as many as will go)")
    add("--tags", default="", help="of what is sent; which to receive, as 'a || b'")
    add("--keys", action="store_true", help="give each message a key")
    add("--from-first", action="store_true", help="consume: a new group begins with what is there")
    add("--tls", action="store_true", help="speak TLS, and believe every certificate")
    add("--json", action="store_true", help="print one JSON object")
    return parser
