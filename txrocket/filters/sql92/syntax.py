# SPDX-License-Identifier: Apache-2.0
"""
The trees of SQL92 expressions, and the checks of their operands, which RocketMQ has in
the C{create} methods of its expression classes::

    a BETWEEN 1 AND 5 OR NOT b      AnyOf
                                    |-- AllOf
                                    |   |-- Ordered a >= 1
                                    |   \\-- Ordered a <= 5
                                    \\-- Not
                                        \\-- Cast b

As in Java, some operators are built from others: C{x <> y} is Not of Equal, and
C{IS NULL} is Equal with NULL.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

import attrs

from txrocket.errors import SubscriptionParseFailed
from txrocket.filters.sql92.javanumbers import INT_MAX, LONG_MAX

__all__ = [
    "NUMBERS",
    "AllOf",
    "AnyOf",
    "BadExpression",
    "Boolean",
    "Cast",
    "Constant",
    "Equal",
    "Expression",
    "Kind",
    "Negative",
    "Not",
    "Ordered",
    "Property",
    "Search",
    "Within",
    "asBoolean",
    "between",
    "decimalNumber",
    "equal",
    "floatingNumber",
    "notBetween",
    "ordered",
    "shortened",
    "within",
]


class BadExpression(Exception):
    """
    A problem of an expression and its place.

    @ivar at: the number of characters before it.
    """

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at = at

    def inText(self, text: str) -> SubscriptionParseFailed:
        """
        Create the error for the subscriber, with line and column.
        """
        line = text.count("\n", 0, self.at) + 1
        column = self.at - text.rfind("\n", 0, self.at)
        return SubscriptionParseFailed(f"SQL92 expression, line {line}, column {column}: {self}")


class Kind(Enum):
    """
    The type of a value in Java.
    """

    STRING = "a string"
    BOOLEAN = "true or false"
    INTEGER = "an int"
    LONG = "a long"
    DOUBLE = "a double"
    NOTHING = "null"


NUMBERS: Final = (Kind.INTEGER, Kind.LONG, Kind.DOUBLE)


@attrs.frozen
class Constant:
    """
    A literal.
    """

    at: int
    kind: Kind
    value: str | bool | int | float | None


@attrs.frozen
class Property:
    """
    A property of the message: a string, or null.
    """

    at: int
    name: str


@attrs.frozen
class Negative:
    """
    A minus, which converts every operand but a number constant to null.
    """

    at: int
    operand: Expression


@attrs.frozen
class Ordered:
    """
    C{<}, C{<=}, C{>} and C{>=}.

    @ivar symbol: one of these.
    """

    at: int
    symbol: str
    left: Expression
    right: Expression


@attrs.frozen
class Equal:
    """
    C{=}.
    """

    at: int
    left: Expression
    right: Expression


@attrs.frozen
class Within:
    """
    C{IN} and C{NOT IN}.
    """

    at: int
    name: str
    values: frozenset[str]
    negated: bool


@attrs.frozen
class Search:
    """
    A search in a string, which RocketMQ has since 5.1.

    @ivar how: C{CONTAINS}, C{STARTSWITH} or C{ENDSWITH}.
    """

    at: int
    how: str
    operand: Expression
    text: str
    negated: bool


@attrs.frozen
class Cast:
    """
    A property in place of a boolean.  Since its value is a string, it is false, or null
    without a value.
    """

    at: int
    name: str


@attrs.frozen
class Not:
    """
    C{NOT}.
    """

    at: int
    operand: Boolean


@attrs.frozen
class AllOf:
    """
    C{AND}.
    """

    at: int
    parts: tuple[Boolean, ...]


@attrs.frozen
class AnyOf:
    """
    C{OR}.
    """

    at: int
    parts: tuple[Boolean, ...]


#: A node whose value is true, false or null.  Of constants, only TRUE, FALSE and NULL.
Boolean: TypeAlias = Ordered | Equal | Within | Search | Cast | Not | AllOf | AnyOf | Constant

Expression: TypeAlias = Boolean | Property | Negative


def decimalNumber(at: int, text: str) -> Constant:
    """
    C{5}, C{5L}: an int if it fits, regardless of the suffix, else a long.
    """
    digits = text.rstrip("lL")
    value = int(digits) if len(digits) < 20 else LONG_MAX + 1
    if value > LONG_MAX:
        raise BadExpression(at, f"{shortened(text)} is greater than {LONG_MAX}")
    return Constant(at, Kind.INTEGER if value <= INT_MAX else Kind.LONG, value)


def floatingNumber(at: int, text: str) -> Constant:
    """
    C{5.5}, C{5.}, C{.5}, C{5E3}.  Zero is refused, because Java refuses literals below
    C{Double.MIN_VALUE}.
    """
    value = float(text)
    if value == float("inf"):
        raise BadExpression(at, f"{shortened(text)} is greater than any double")
    if value == 0:
        raise BadExpression(at, f"{shortened(text)} is less than the least double; write 0")
    return Constant(at, Kind.DOUBLE, value)


def asBoolean(value: Expression) -> Boolean:
    """
    Check an operand that has to be a boolean, and convert a property to L{Cast}.
    """
    if isinstance(value, Property):
        return Cast(value.at, value.name)
    if isinstance(value, Negative) or (
        isinstance(value, Constant) and value.kind not in (Kind.BOOLEAN, Kind.NOTHING)
    ):
        raise BadExpression(value.at, "this is neither true nor false")
    return value


def equal(left: Expression, right: Expression) -> Equal:
    """
    C{left = right}.
    """
    for each in (left, right):
        if isinstance(each, Constant) and each.kind is Kind.NOTHING:
            raise BadExpression(each.at, "NULL is equal to nothing; write IS NULL")
    if (
        isinstance(left, Constant)
        and isinstance(right, Constant)
        and left.kind is Kind.BOOLEAN is not right.kind
    ):
        raise BadExpression(left.at, f"TRUE and FALSE cannot be compared with {right.kind.value}")
    return Equal(left.at, left, right)


def ordered(symbol: str, left: Expression, right: Expression) -> Ordered:
    """
    C{left < right} and the like.
    """
    for each in (left, right):
        if isinstance(each, Constant):
            if each.kind not in NUMBERS:
                raise _notOrdered(each, each.kind)
        elif not isinstance(each, Property | Negative):
            raise _notOrdered(each, Kind.BOOLEAN)
    return Ordered(left.at, symbol, left, right)


def _notOrdered(value: Expression, kind: Kind) -> BadExpression:
    return BadExpression(value.at, f"{kind.value} is neither less nor greater; numbers are")


def between(value: Expression, low: Expression, high: Expression) -> AllOf:
    """
    C{value BETWEEN low AND high}.
    """
    made = AllOf(value.at, (ordered(">=", value, low), ordered("<=", value, high)))
    if (
        isinstance(low, Constant)
        and isinstance(high, Constant)
        and isinstance(low.value, int | float)
        and isinstance(high.value, int | float)
        and _comparable(high, low) < _comparable(low, high)
    ):
        raise BadExpression(low.at, f"BETWEEN {low.value} AND {high.value} is the wrong way round")
    return made


def _comparable(one: Constant, other: Constant) -> int | float:
    """
    The value of a number for the comparison with another: if one is a double, both are.
    """
    assert isinstance(one.value, int | float)
    return float(one.value) if Kind.DOUBLE in (one.kind, other.kind) else one.value


def notBetween(value: Expression, low: Expression, high: Expression) -> AnyOf:
    """
    C{value NOT BETWEEN low AND high}.  Java does not check the order of the bounds here.
    """
    return AnyOf(value.at, (ordered("<", value, low), ordered(">", value, high)))


def within(value: Expression, values: frozenset[str], *, negated: bool) -> Within:
    """
    C{value IN (values)} or C{value NOT IN (values)}.
    """
    if not isinstance(value, Property):
        raise BadExpression(value.at, "only a property can be IN a list")
    return Within(value.at, value.name, values, negated)


def shortened(text: str) -> str:
    """
    A part of an expression for an error text, shortened.
    """
    return text if len(text) <= 40 else f"{text[:40]}..."
