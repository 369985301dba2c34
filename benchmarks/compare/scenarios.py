# SPDX-License-Identifier: Apache-2.0
"""
The scenarios as data: a load, the broker's flush type, and the aims.

The options of a load are those of C{benchmarks/generator/load.c}.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch

import attrs

from benchmarks.compare.figures import Aim

__all__ = ["ASYNC", "MAIN", "REPLICATED", "SCENARIOS", "SYNC", "Scenario", "chosen"]

ASYNC = "ASYNC_FLUSH"
SYNC = "SYNC_FLUSH"

# The aims of all sends for the server's CPU and the 99th percentile.
_CPU = Aim(0.4, most=True)
_P99 = Aim(1.0, most=True)


@attrs.frozen
class Scenario:
    """
    A load on a broker, and its aims.

    @ivar group: the table of the page that shows it.
    @ivar mode: the mode of the load generator.
    @ivar load: the options of the load generator.
    @ivar rate: the aim for messages in a second; C{cpu} and C{p99} likewise.
    @ivar each: the number of messages that the CPU figures are for.
    @ivar fill: the number of messages that its topic needs before.
    @ivar role: the broker's role; where it is set, the broker has a slave.
    """

    name: str
    title: str
    mode: str = "send"
    load: Mapping[str, object] = attrs.field(factory=dict)
    flush: str = ASYNC
    group: str = "more"
    rate: Aim | None = None
    cpu: Aim | None = None
    p99: Aim | None = None
    each: int = 1
    fill: int = 0
    role: str = ""

    @property
    def aimed(self) -> bool:
        """
        Whether it has an aim.
        """
        return any((self.rate, self.cpu, self.p99))


def _send(name: str, title: str, connections: int, inflight: int, **more: object) -> Scenario:
    flush, rate = str(more.pop("flush", ASYNC)), more.pop("rate", None)
    assert rate is None or isinstance(rate, float)
    return Scenario(
        name,
        title,
        load={"connections": connections, "inflight": inflight, "body": 1024, **more},
        flush=flush,
        group="send",
        rate=None if rate is None else Aim(rate),
        cpu=None if rate is None else _CPU,
        p99=None if rate is None else _P99,
    )


def _batch(count: int) -> Scenario:
    return Scenario(
        f"batch-{count}",
        f"batches of {count} x 100 B, 4 x 16",
        "batch",
        {"batch": count, "body": 100},
        group="send",
        rate=Aim(1.5),
        cpu=_CPU,
        p99=_P99,
    )


MAIN = _send("send-4x16", "async send, 1 KiB, 4 x 16", 4, 16, rate=2.0)

# Scenarios with the same flush type stand together, so that few brokers are started.
SCENARIOS = (
    MAIN,
    _send("send-8x64", "async send, 1 KiB, 8 x 64", 8, 64, rate=2.0),
    _send("send-64x1", "sync send, 1 KiB, 64 x 1", 64, 1, rate=1.2),
    _batch(32),
    _batch(100),
    Scenario(
        "pull-32",
        "pull of 32 x 1 KiB, 4 x 16",
        "pull",
        {"topic": "pulled"},
        group="receive",
        rate=Aim(1.5),
        each=32,
        fill=40000,
    ),
    Scenario(
        "arrival",
        "long poll, 1 KiB, send to receive",
        "arrival",
        {"topic": "arrives", "delay": 2},
        group="receive",
        p99=_P99,
    ),
    Scenario(
        "both",
        "end to end, 1 KiB, 4 x 16 and 4 consumers",
        "both",
        {"topic": "through"},
        group="receive",
    ),
    _send("send-4x64", "async send, 1 KiB, 4 x 64", 4, 64),
    _send("send-8x64-binary", "async send, 1 KiB, 8 x 64, binary header", 8, 64, binary=True),
    _send("send-100B", "async send, 100 B, 4 x 16", 4, 16, body=100),
    _send("send-16K", "async send, 16 KiB, 4 x 16", 4, 16, body=16384),
    Scenario(
        "oneway", "oneway send, 1 KiB, 4 connections", "oneway", {"topic": "oneway"}, group="send"
    ),
    *(
        Scenario(
            f"topics-{count}",
            f"{count:,} topic{'s' if count > 1 else ''}, async send, 1 KiB, 4 x 16",
            load={"topics": count, "topic": f"of{count}_"},
            group="topics",
        )
        for count in (1, 16, 1000)
    ),
    *(
        Scenario(
            f"connections-{count}",
            f"{count:,} connections in turn, 10 sends of 1 KiB in flight in all",
            load={"connections": count, "window": 10},
            group="connections",
        )
        for count in (10, 1000, 10000)
    ),
    _send("sync-flush-4x16", "SYNC_FLUSH, async send, 4 x 16", 4, 16, flush=SYNC, rate=2.0),
    _send("sync-flush-8x64", "SYNC_FLUSH, async send, 8 x 64", 8, 64, flush=SYNC, rate=2.0),
    _send("sync-flush-64x1", "SYNC_FLUSH, sync send, 64 x 1", 64, 1, flush=SYNC),
)


# Sends to a master that has a slave; L{benchmarks.compare.replication} runs them.
REPLICATED = tuple(
    Scenario(
        f"replication-{short}-{connections}x{inflight}",
        f"{role} with a slave, async send, 1 KiB, {connections} x {inflight}",
        load={"connections": connections, "inflight": inflight, "body": 1024},
        group="replication",
        rate=Aim(2.0),
        role=role,
    )
    for short, role in (("sync", "SYNC_MASTER"), ("async", "ASYNC_MASTER"))
    for connections, inflight in ((4, 16), (8, 64))
)


def chosen(pattern: str, name: str) -> bool:
    """
    Whether a pattern selects a scenario, by a part of its name or with wildcards.
    """
    return not pattern or pattern in name or fnmatch(name, pattern)
