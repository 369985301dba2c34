# SPDX-License-Identifier: Apache-2.0
"""
The report of a run: a progress line, a summary, and a JSON object.
"""

from __future__ import annotations

from typing import Any, Final, TextIO

from txrocket import __version__
from txrocket.bench.counters import ReceiveCounter, SendCounter
from txrocket.bench.histogram import Histogram
from txrocket.bench.run import Outcome

__all__ = ["ProgressLine", "asJson", "summary"]

#: The percentiles of a report.
PERCENTILES: Final = (50, 90, 99, 99.9)

# The seconds between two lines if the stream is not a terminal and keeps all lines.
_SELDOM: Final = 5


class ProgressLine:
    """
    Writes the progress of a run to a stream, over itself on a terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._calls = 0
        self._width = 0
        self._before = 0.0, 0, 0

    def show(
        self, seconds: float, sent: SendCounter | None, received: ReceiveCounter | None
    ) -> None:
        """
        Write the counters; called once a second.
        """
        self._calls += 1
        if not self._terminal and self._calls % _SELDOM:
            return
        messages = sent.messages if sent else 0
        came = received.messages if received else 0
        then, before, cameBefore = self._before
        self._before = seconds, messages, came
        past = max(seconds - then, 1e-6)
        parts = [f"{seconds:4.0f} s"]
        if sent is not None:
            parts.append(f"sent {messages:,}, {(messages - before) / past:,.0f}/s")
            parts.append(f"p50 {_ms(sent.latency, 50)}, p99 {_ms(sent.latency, 99)}")
            if errors := sent.errors.total():
                parts.append(f"{errors:,} errors")
        if received is not None:
            parts.append(f"received {came:,}, {(came - cameBefore) / past:,.0f}/s")
            parts.append(f"p99 {_ms(received.latency, 99)}")
        self._write("  ".join(parts))

    def done(self) -> None:
        """
        End the line.
        """
        if self._width:
            self._stream.write("\n")
            self._width = 0

    def _write(self, line: str) -> None:
        if self._terminal:
            self._stream.write(f"\r{line:{self._width}}")
            self._width = len(line)
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()


def _ms(latency: Histogram, percent: float) -> str:
    return _shown(latency.percentile(percent))


def _shown(microseconds: int) -> str:
    milliseconds = microseconds / 1000
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds:,.0f} ms"


def summary(outcome: Outcome) -> str:
    """
    The result of a run as text.
    """
    plan = outcome.plan
    lines = [f"topic {plan.topic}, {plan.size:,} B, ended by {outcome.reason}"]
    if outcome.sent is not None:
        sent = outcome.sent
        how = "oneway" if plan.oneway else f"{plan.inflight} in flight"
        if plan.batch > 1:
            how += f", batches of {plan.batch}"
        lines.append(
            f"sent      {_flow(sent.messages, sent.messages * plan.size, outcome.seconds)}"
        )
        lines.append(f"  {how}; {_latencies(sent.latency)}")
        lines += [f"  {count:,} x {name}" for name, count in sent.statuses.most_common()]
        lines += [
            f"  {count:,} x {kind}, first: {sent.first[kind]}"
            for kind, count in sent.errors.most_common()
        ]
    if outcome.received is not None:
        received = outcome.received
        lines.append(f"received  {_flow(received.messages, received.bytes, outcome.consumed)}")
        lines.append(f"  from send to receive: {_latencies(received.latency)}")
        if missing := _missing(outcome):
            lines.append(f"  {missing:,} were sent and not received")
        if received.others:
            lines.append(f"  {received.others:,} of other runs were received as well")
    return "\n".join(lines)


def _flow(messages: int, size: int, seconds: float) -> str:
    past = max(seconds, 1e-6)
    return (
        f"{messages:,} messages in {seconds:.2f} s: {messages / past:,.0f}/s,"
        f" {size / past / 1e6:,.2f} MB/s"
    )


def _latencies(latency: Histogram) -> str:
    told = [f"p{percent:g} {_ms(latency, percent)}" for percent in PERCENTILES]
    return ", ".join([*told, f"max {_shown(latency.most)}"])


def _missing(outcome: Outcome) -> int:
    if outcome.sent is None or outcome.received is None:
        return 0
    return max(0, outcome.sent.messages - outcome.received.messages)


def asJson(outcome: Outcome) -> dict[str, Any]:
    """
    The result of a run as JSON; docs/guide/bench.rst describes each member.
    """
    plan, sent, received = outcome.plan, outcome.sent, outcome.received
    return {
        "schema": 1,
        "version": __version__,
        "mode": plan.mode,
        "nameServers": plan.nameServers,
        "topic": plan.topic,
        "group": plan.group,
        "size": plan.size,
        "inflight": plan.inflight,
        "batch": plan.batch,
        "oneway": plan.oneway,
        "targetRate": plan.rate,
        "endedBy": outcome.reason,
        "produced": sent
        and {
            **_flowJson(sent.messages, sent.messages * plan.size, outcome.seconds),
            "requests": sent.requests,
            "statuses": dict(sent.statuses),
            "errors": dict(sent.errors),
            "firstErrors": sent.first,
            "latencyMs": _latencyJson(sent.latency),
        },
        "consumed": received
        and {
            **_flowJson(received.messages, received.bytes, outcome.consumed),
            "missing": _missing(outcome),
            "others": received.others,
            "latencyMs": _latencyJson(received.latency),
        },
    }


def _flowJson(messages: int, size: int, seconds: float) -> dict[str, Any]:
    return {
        "messages": messages,
        "bytes": size,
        "seconds": round(seconds, 6),
        "rate": round(messages / max(seconds, 1e-6), 3),
    }


def _latencyJson(latency: Histogram) -> dict[str, Any]:
    return {
        "count": latency.count,
        "min": latency.least / 1000,
        "mean": round(latency.mean / 1000, 3),
        **{f"p{each:g}": latency.percentile(each) / 1000 for each in PERCENTILES},
        "max": latency.most / 1000,
    }
