# SPDX-License-Identifier: Apache-2.0
"""
Figures from measurements: a median with its spread, the ratio of two brokers with its own
spread, and whether an aim is met.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import attrs

__all__ = ["Aim", "Row", "Sample", "Spread", "ratio", "settle", "still"]


@attrs.frozen
class Sample:
    """
    One measurement of one broker.

    @ivar rate: messages in a second.
    @ivar cpu: microseconds of the server's CPU for a message.
    @ivar generator: microseconds of the load generator's CPU for a message.
    @ivar share: the share of one core that the load generator took.
    @ivar p50: milliseconds from request to answer, or from send to receive.
    @ivar errors: the number of wrong answers, which do not count.
    @ivar error: the text of the first one.
    """

    rate: float
    cpu: float
    generator: float
    share: float
    p50: float
    p99: float
    p999: float
    errors: int = 0
    error: str = ""


@attrs.frozen
class Spread:
    """
    The median, lowest and highest of several figures.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """
        @raise ValueError: if there are no figures.
        """
        if not values:
            raise ValueError("nothing was measured")
        return cls(statistics.median(values), min(values), max(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """
    The ratio of ours to theirs: of the medians, with the lowest and highest ratio of the
    single rounds.
    """
    rounds = [a / b for a, b in zip(ours, theirs, strict=False) if b]
    middle = Spread.of(theirs).median
    if not rounds or not middle:
        raise ValueError("nothing to compare with")
    return Spread(Spread.of(ours).median / middle, min(rounds), max(rounds))


@attrs.frozen
class Aim:
    """
    A limit that a ratio should meet.

    @ivar most: whether the limit is an upper one; else it is a lower one.
    """

    limit: float
    most: bool = False

    def met(self, value: float) -> bool:
        """
        Whether a ratio meets the limit.
        """
        return value <= self.limit if self.most else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.most else '≥'} {self.limit:g}"


@attrs.frozen
class Row:
    """
    A line of a table: one quantity, of both brokers or of one.

    @ivar scenario: the name of the scenario, for C{--only}.
    @ivar unit: C{/s}, C{us}, C{ms}, C{MB} or C{s}.
    @ivar note: a remark for the table.
    """

    scenario: str
    title: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float] = ()
    aim: Aim | None = None
    note: str = ""

    @property
    def ratio(self) -> Spread | None:
        """
        Ours to theirs, if both were measured.
        """
        if not self.ours or not self.theirs or not any(self.theirs):
            return None
        return ratio(self.ours, self.theirs)

    @property
    def met(self) -> bool | None:
        """
        Whether the aim is met; unknown without one, or without a ratio.
        """
        found = self.ratio
        return None if self.aim is None or found is None else self.aim.met(found.median)


def still(rates: Sequence[float], within: float = 0.05) -> bool:
    """
    Whether a rate has settled: the last three differ by at most C{within} of the highest.
    """
    last = rates[-3:]
    return len(last) == 3 and max(last) - min(last) <= within * max(last)


def settle(measure: Callable[[], float], least: int, most: int) -> list[float]:
    """
    Measure until the rate has settled.

    @param least: the fewest measurements.
    @param most: the most measurements, because on a busy machine a rate may never settle.
    @return: the rates.
    """
    rates: list[float] = []
    while len(rates) < most and (len(rates) < least or not still(rates)):
        rates.append(measure())
    return rates
