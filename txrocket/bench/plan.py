# SPDX-License-Identifier: Apache-2.0
"""
The plan of a run: the command line of C{txrocket bench}, parsed and checked.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence

import attrs

from txrocket.bench.timestamp import STAMP_SIZE

__all__ = ["Plan", "readPlan"]

# The most requests in flight on one connection.
_INFLIGHT = 65_535

_SECONDS = 10.0


@attrs.frozen
class Plan:
    """
    What a run sends and receives, and when it ends.

    @ivar produces: whether to send.
    @ivar consumes: whether to receive.
    @ivar size: the bytes of a body.
    @ivar seconds: the seconds after which to end; L{None} for no limit.
    @ivar count: the messages after which to end; L{None} for no limit.
    @ivar inflight: the most requests in flight.
    @ivar batch: the messages of a request.
    @ivar rate: messages in a second; L{None} for no limit.
    @ivar keys: whether each message has a key.
    @ivar fromFirst: whether a new group begins with the messages that exist already.
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
        The word of the command line for what it does.
        """
        if self.produces and self.consumes:
            return "both"
        return "produce" if self.produces else "consume"


def _number(least: float, most: float = math.inf, kind: type = int) -> Callable[[str], float]:
    """
    A parser for an argument that is a number.
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
    Parse a command line.

    @raise SystemExit: with 2 if it is not valid, and with 0 after C{--help}.
    """
    parser = _parser(prog)
    read = parser.parse_args(arguments)
    if read.nameserver is None:
        parser.error("which cluster? give -n HOST:PORT, or set NAMESRV_ADDR")
    if read.oneway and read.batch > 1:
        parser.error("--oneway and --batch do not go together")
    if read.mode != "consume" and "|" in read.tags:
        parser.error("--tags: a message has one tag; several can only be received")
    if read.seconds is None and read.count is None:
        read.seconds = _SECONDS
    return Plan(
        nameServers=read.nameserver,
        topic=read.topic,
        group=read.group,
        produces=read.mode != "consume",
        consumes=read.mode != "produce",
        size=read.size,
        seconds=read.seconds,
        count=read.count,
        inflight=read.inflight,
        batch=read.batch,
        oneway=read.oneway,
        rate=read.rate,
        tags=read.tags,
        keys=read.keys,
        fromFirst=read.from_first,
        tls=read.tls,
        json=read.json,
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
        help="name servers, with ; between them (default: NAMESRV_ADDR)",
    )
    add(
        "-t", "--topic", default="txrocket-bench", help="created if it does not exist (%(default)s)"
    )
    add("-g", "--group", default="txrocket-bench", help="of producer and consumer (%(default)s)")
    add("--size", type=_number(STAMP_SIZE), default=1024, help="of a body in bytes (%(default)s)")
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
    add("--rate", type=_number(0.1, kind=float), help="messages in a second (no limit)")
    add("--tags", default="", help="the tag to send; the tags to receive, as 'a || b'")
    add("--keys", action="store_true", help="give each message a key")
    add(
        "--from-first",
        action="store_true",
        help="consume: a new group begins with the first message",
    )
    add("--tls", action="store_true", help="use TLS, and accept every certificate")
    add("--json", action="store_true", help="print one JSON object")
    return parser
