# SPDX-License-Identifier: Apache-2.0
"""
SQL92 expressions: subscriptions that filter by a message's properties::

    text --> grammar --> tree --> closures, once per subscription
                       (syntax)       |
                   properties of ---> +---> true: delivered
                   a message                false, null, error: not delivered

The semantics are those of RocketMQ 4.9.7's filter module (C{SqlFilter},
C{ComparisonExpression}, C{UnaryExpression}, C{LogicExpression}); C{CONTAINS},
C{STARTSWITH} and C{ENDSWITH} are those of 5.3.3.  Properties are strings.  The other
operand decides whether a property is compared as a string, an int, a long, a double or
a boolean.  So all kinds except null are known at compile time, and a closure converts
no more than needed.

If a string has to be converted to a number and cannot be, the comparison is not null:
the whole evaluation fails.  C{a > 5 OR b = 1} does not match if C{a} is C{x}, with any
C{b}.  In Java this is an exception; here it is a C{ValueError}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from twisted.logger import Logger

from txrocket.errors import SubscriptionParseFailed
from txrocket.filters.expressions import MessageFilter
from txrocket.filters.sql92.grammar import parse
from txrocket.filters.sql92.javanumbers import compareDoubles, readDouble, readInt, readLong
from txrocket.filters.sql92.syntax import (
    NUMBERS,
    AllOf,
    AnyOf,
    BadExpression,
    Boolean,
    Cast,
    Constant,
    Equal,
    Expression,
    Kind,
    Negative,
    Not,
    Ordered,
    Property,
    Search,
    Within,
)
from txrocket.model import SubscriptionData

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "SQL92", "compileSql92", "evaluator", "sql92Filter"]

SQL92: Final = "SQL92"

#: The maximum length of an expression.
MAX_LENGTH: Final = 16_384

#: The maximum depth of nested operators.  A chain of AND or of OR is one level, and
#: parentheses are none.
MAX_DEPTH: Final = 100

# The maximum length of an expression in a log line.
_LOGGED: Final = 200

_log: Final = Logger()

Properties: TypeAlias = Mapping[str, str]

#: Returns true, false, or L{None} for null; raises L{ValueError} where Java throws.
Evaluate: TypeAlias = Callable[[Properties], bool | None]

_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_READ: Final[Mapping[Kind, Callable[[str], int | float]]] = {
    Kind.INTEGER: readInt,
    Kind.LONG: readLong,
    Kind.DOUBLE: readDouble,
}


class _Operand(NamedTuple):
    """
    An operand of a comparison.

    @ivar kind: the type of its value, unless the value is null.
    @ivar get: returns its value.
    @ivar value: its value, if it is a constant.
    """

    kind: Kind
    get: Callable[[Properties], Any]
    value: Any = None


def sql92Filter(subscription: SubscriptionData) -> MessageFilter:
    """
    Compile the filter of a subscription.

    @raise SubscriptionParseFailed: if the expression cannot be parsed; the error names the
        place.
    """
    matches = compileSql92(subscription.subString)
    return MessageFilter(accepts=lambda message: matches(message.properties))


def compileSql92(text: str) -> Callable[[Properties], bool]:
    """
    Compile an expression to a function that tells whether a message's properties match.
    The function never raises.

    @raise SubscriptionParseFailed: if the expression cannot be parsed; the error names the
        place.
    """
    evaluate = evaluator(text)

    def matches(properties: Properties) -> bool:
        try:
            return evaluate(properties) is True
        except ValueError:
            return False

    return matches


def evaluator(text: str) -> Evaluate:
    """
    Compile an expression to a function that returns its value.

    @raise SubscriptionParseFailed: if the expression cannot be parsed; the error names the
        place.
    """
    if len(text) > MAX_LENGTH:
        raise SubscriptionParseFailed(
            f"SQL92 expression of {len(text)} characters: the limit is {MAX_LENGTH}"
        )
    try:
        tree, end = parse(text)
        evaluate = _boolean(tree, 0)
    except BadExpression as error:
        raise error.inText(text) from None
    if end < len(text):
        _log.warn(
            "Of the SQL92 expression {text!r} only {read!r} is used, as in RocketMQ: {rest!r}"
            " cannot follow",
            text=text[:_LOGGED],
            read=text[:end].rstrip()[:_LOGGED],
            rest=text[end : end + 20],
        )
    return evaluate


def _boolean(node: Boolean, depth: int) -> Evaluate:
    """
    Compile a boolean node.

    @param depth: the number of nodes around it.
    """
    if depth == MAX_DEPTH:
        raise BadExpression(node.at, f"operators are nested more than {MAX_DEPTH} deep")
    depth += 1
    match node:
        case Ordered():
            return _ordered(node, depth)
        case Equal():
            return _equal(_operand(node.left, depth), _operand(node.right, depth))
        case Within():
            return _within(node)
        case Search():
            return _search(node, depth)
        case Cast(_, name):
            return lambda properties: None if properties.get(name) is None else False
        case Not():
            return _not(_boolean(node.operand, depth))
        case AllOf():
            return _every([_boolean(each, depth) for each in node.parts])
        case AnyOf():
            return _some([_boolean(each, depth) for each in node.parts])
        case Constant(_, _, value):
            assert value is None or isinstance(value, bool)
            return _always(value)


def _always(value: bool | None) -> Evaluate:
    return lambda properties: value


def _not(evaluate: Evaluate) -> Evaluate:
    def negated(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else not value

    return negated


def _every(parts: list[Evaluate]) -> Evaluate:
    def every(properties: Properties) -> bool | None:
        result: bool | None = True
        for part in parts:
            value = part(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return every


def _some(parts: list[Evaluate]) -> Evaluate:
    def some(properties: Properties) -> bool | None:
        result: bool | None = False
        for part in parts:
            value = part(properties)
            if value:
                return True
            if value is None:
                result = None
        return result

    return some


def _within(node: Within) -> Evaluate:
    name, values, negated = node.name, node.values, node.negated

    def within(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in values) is not negated

    return within


_SEARCHES: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _search(node: Search, depth: int) -> Evaluate:
    operand = _operand(node.operand, depth)
    text, negated, found = node.text, node.negated, _SEARCHES[node.how]
    if not text:
        return _always(False)

    # Without a value the result is false instead of null, even with NOT.
    def search(properties: Properties) -> bool:
        value = operand.get(properties)
        return isinstance(value, str) and found(value, text) is not negated

    return search


# --- operands --------------------------------------------------------------


def _operand(node: Expression, depth: int) -> _Operand:
    match node:
        case Property(_, name):
            return _Operand(Kind.STRING, lambda properties: properties.get(name))
        case Constant(_, kind, value):
            return _Operand(kind, lambda properties: value, value)
        case Negative():
            return _negative(node, depth)
        case _:
            return _Operand(Kind.BOOLEAN, _boolean(node, depth))


def _negative(node: Negative, depth: int) -> _Operand:
    if depth == MAX_DEPTH:
        raise BadExpression(node.at, f"operators are nested more than {MAX_DEPTH} deep")
    operand = _operand(node.operand, depth + 1)
    if operand.kind in NUMBERS:
        value = -operand.value
        return _Operand(operand.kind, lambda properties: value, value)

    def nothing(properties: Properties) -> None:
        # Evaluate it, because its error counts although its value does not.
        operand.get(properties)

    return _Operand(Kind.NOTHING, nothing)


# --- comparisons -----------------------------------------------------------


def _ordered(node: Ordered, depth: int) -> Evaluate:
    left, right = _operand(node.left, depth), _operand(node.right, depth)
    symbol = node.symbol
    if left.kind in NUMBERS and isinstance(node.right, Property):
        return _propertyAgainst(node.right.name, _MIRRORED[symbol], left)
    if right.kind in NUMBERS and isinstance(node.left, Property):
        return _propertyAgainst(node.left.name, symbol, right)
    inOrder = _ORDERS[symbol]
    if left.kind in NUMBERS and right.kind in NUMBERS:
        return _always(inOrder(*_alike(left, right)))

    # Both operands are properties, or one is always null.
    def compared(properties: Properties) -> bool | None:
        first = left.get(properties)
        if first is None:
            return None
        second = right.get(properties)
        if second is None:
            return None
        return inOrder(compareDoubles(readDouble(first), readDouble(second)), 0)

    return compared


def _propertyAgainst(name: str, symbol: str, number: _Operand) -> Evaluate:
    read, inOrder, value = _READ[number.kind], _ORDERS[symbol], number.value

    def compared(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else inOrder(read(text), value)

    def comparedDouble(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else inOrder(compareDoubles(read(text), value), 0)

    return comparedDouble if number.kind is Kind.DOUBLE else compared


def _alike(left: _Operand, right: _Operand) -> tuple[Any, Any]:
    if Kind.DOUBLE in (left.kind, right.kind):
        return float(left.value), float(right.value)
    return left.value, right.value


def _equal(left: _Operand, right: _Operand) -> Evaluate:
    getLeft, getRight, same = left.get, right.get, _same(left, right)

    def equal(properties: Properties) -> bool | None:
        first = getLeft(properties)
        second = getRight(properties)
        if first is None:
            # Two nulls are equal; one null makes the result null.
            return True if second is None else None
        return False if second is None else same(first, second)

    return equal


def _same(left: _Operand, right: _Operand) -> Callable[[Any, Any], bool]:
    """
    Compile the comparison of two values that are not null.
    """
    match left.kind, right.kind:
        case Kind.STRING, Kind.BOOLEAN:
            return lambda first, second: (first.lower() == "true") is second
        case Kind.BOOLEAN, Kind.STRING:
            return _uncomparable
        case Kind.STRING, kind if kind in NUMBERS:
            read = _READ[kind]
            return lambda first, second: read(first) == second
        case kind, Kind.STRING if kind in NUMBERS:
            read = _READ[kind]
            return lambda first, second: read(second) == first
        case one, other if one in NUMBERS and other in NUMBERS:
            value = eq(*_alike(left, right))
            return lambda first, second: value
        case one, other if one is not other:
            return lambda first, second: False
    return eq


def _uncomparable(first: object, second: object) -> NoReturn:
    # Java casts the wrong operand, and throws a ClassCastException.
    raise ValueError("true or false before a string")
