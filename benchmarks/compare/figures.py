# SPDX-License-Identifier: Apache-2.0
"""
What is made of measurements: a median with its spread, the ratio of two brokers with its
own, and whether an aim is met.
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
    @ivar share: how much of one core the load generator took.
    @ivar p50: milliseconds from request to answer, or from send to receive.
    @ivar errors: how many answers were wrong; they do not count.
    @ivar error: the first of these.
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
    Several figures of the same thing.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """
        @raise ValueError: if there are none.
        """
        if not values:
            raise ValueError("nothing was measured")
        return cls(statistics.median(values), min(values), max(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """
    Ours to theirs: that of the medians, and the lowest and highest of the rounds, each
    with its own partner.
    """
    rounds = [a / b for a, b in zip(ours, theirs, strict=False) if b]
    middle = Spread.of(theirs).median
    if not rounds or not middle:
        raise ValueError("nothing to compare with")
    return Spread(Spread.of(ours).median / middle, min(rounds), max(rounds))


@attrs.frozen
class Aim:
    """
    What a ratio should be.

    @ivar most: whether it is a limit from above; else it is one from below.
    """

    limit: float
    most: bool = False

    def met(self, value: float) -> bool:
        """
        Whether a ratio is as it should be.
        """
        return value <= self.limit if self.most else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.most else '≥'} {self.limit:g}"


@attrs.frozen
class Row:
    """
    A line of a table: one quantity, of both brokers or of one.

    @ivar scenario: the name of what was run, by which it can be run again.
    @ivar unit: C{/s}, C{us}, C{ms}, C{MB} or C{s}.
    @ivar note: what has to be said about it.
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
    Whether a rate does not move any more: the last three lie so close together, as a
    share of the highest.
    """
    last = rates[-3:]
    return len(last) == 3 and max(last) - min(last) <= within * max(last)


def settle(measure: Callable[[], float], least: int, most: int) -> list[float]:
    """
    Measure until the rate stands still.

    @param least: how many times at least.
    @param most: how many at most: on a machine that others use it may never stand still.
    @return: the rates.
    """
    rates: list[float] = []
    while len(rates) < most and (len(rates) < least or not still(rates)):
        rates.append(measure())
    return rates
