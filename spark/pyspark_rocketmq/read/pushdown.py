# SPDX-License-Identifier: Apache-2.0
"""
Filters of a query that Spark pushes down, so that less is read.

A filter on topic, broker, queue or offset leaves out queues, or parts of them.  A filter on
the store time leaves out the messages before and behind it.  That is right as long as the
broker's clock is not set back, because a queue is in the order of its store times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from pyspark_rocketmq.read.planning import Range
from txrocket.model import MessageQueue

__all__ = ["PushedFilters"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# By Spark's name for a filter, its lower and upper limit, both inclusive.
_LIMITS: Final[dict[str, Callable[[int], tuple[int | None, int | None]]]] = {
    "EqualTo": lambda value: (value, value),
    "EqualNullSafe": lambda value: (value, value),
    "GreaterThan": lambda value: (value + 1, None),
    "GreaterThanOrEqual": lambda value: (value, None),
    "LessThan": lambda value: (None, value - 1),
    "LessThanOrEqual": lambda value: (None, value),
}
_EQUAL: Final = ("EqualTo", "EqualNullSafe")


@attrs.frozen
class Interval:
    """
    Numbers between two limits, both inclusive; L{None} is no limit.
    """

    low: int | None = None
    high: int | None = None

    def intersect(self, low: int | None, high: int | None) -> Interval:
        """
        The numbers of this interval that are between two further limits as well.
        """
        lows = [each for each in (self.low, low) if each is not None]
        highs = [each for each in (self.high, high) if each is not None]
        return Interval(max(lows, default=None), min(highs, default=None))


@attrs.frozen
class PushedFilters:
    """
    The messages that may match all filters of a query.

    @ivar names: by text column, the texts that may match; without an entry all may.
    @ivar numbers: by column of numbers, or of times in milliseconds, the interval.
    """

    names: dict[str, frozenset[str]] = attrs.field(factory=dict)
    numbers: dict[str, Interval] = attrs.field(factory=dict)

    def add(self, wanted: Any) -> PushedFilters:
        """
        These filters with one more.  A filter of an unknown kind changes nothing.

        @param wanted: a filter of C{pyspark.sql.datasource}.
        """
        kind = type(wanted).__name__
        path: tuple[str, ...] = getattr(wanted, "attribute", ())
        column = path[0].lower() if len(path) == 1 else ""
        value = getattr(wanted, "value", None)
        if column in ("topic", "brokername"):
            return self._named(column, kind, value)
        if column in ("queueid", "queueoffset", "storetimestamp"):
            return self._numbered(column, kind, value)
        return self

    def _named(self, column: str, kind: str, value: Any) -> PushedFilters:
        values = value if kind == "In" else (value,) if kind in _EQUAL else None
        if values is None or not all(isinstance(each, str) for each in values):
            return self
        left = frozenset(values) & self.names.get(column, frozenset(values))
        return attrs.evolve(self, names={**self.names, column: left})

    def _numbered(self, column: str, kind: str, value: Any) -> PushedFilters:
        if kind == "In" and value:
            limits = [_limits(each, "EqualTo", column) for each in value]
            if None in limits:
                return self
            low = min(each[0] for each in limits if each)  # type: ignore[type-var]
            found = low, max(each[1] for each in limits if each)  # type: ignore[type-var]
        elif (known := _limits(value, kind, column)) is not None:
            found = known
        else:
            return self
        interval = self.numbers.get(column, Interval()).intersect(*found)
        return attrs.evolve(self, numbers={**self.numbers, column: interval})

    def apply(
        self, found: Sequence[Range], firstAt: Callable[[MessageQueue, int, int, int], int]
    ) -> list[Range]:
        """
        The parts of some ranges that may match.

        @param firstAt: called with a queue, a time and two offsets; returns the offset of
            the first message between them that was stored at that time or later.
        """
        left = []
        for each in found:
            if self._wants(each.queue):
                queue, start, end = each.queue, each.start, each.end
                offsets = self.numbers.get("queueoffset", Interval())
                if offsets.low is not None:
                    start = max(start, offsets.low)
                if offsets.high is not None:
                    end = min(end, offsets.high + 1)
                times = self.numbers.get("storetimestamp", Interval())
                if times.low is not None and start < end:
                    start = firstAt(queue, times.low, start, end)
                if times.high is not None and start < end:
                    end = firstAt(queue, times.high + 1, start, end)
                if start < end:
                    left.append(Range(queue, start, end))
        return left

    def _wants(self, queue: MessageQueue) -> bool:
        for column, text in (("topic", queue.topic), ("brokername", queue.brokerName)):
            if column in self.names and text not in self.names[column]:
                return False
        numbers = self.numbers.get("queueid", Interval())
        return (numbers.low is None or numbers.low <= queue.queueId) and (
            numbers.high is None or queue.queueId <= numbers.high
        )


def _limits(value: Any, kind: str, column: str) -> tuple[int | None, int | None] | None:
    if kind not in _LIMITS:
        return None
    if column == "storetimestamp":
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        # Store times are whole milliseconds, so a limit between two is rounded inwards.
        low, high = _LIMITS[kind](_microseconds(value))
        return (None if low is None else -(-low // 1000)), (None if high is None else high // 1000)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return _LIMITS[kind](value)


def _microseconds(when: datetime) -> int:
    passed = when - _EPOCH
    return (passed.days * 86400 + passed.seconds) * 1_000_000 + passed.microseconds
