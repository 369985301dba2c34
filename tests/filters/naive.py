# SPDX-License-Identifier: Apache-2.0
"""
A slow evaluator of SQL92 expressions, like RocketMQ's expression classes: it walks the
tree for every message, and determines the types of values at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from txrocket.filters.sql92.javanumbers import compareDoubles, readDouble, readInt, readLong
from txrocket.filters.sql92.syntax import (
    NUMBERS,
    AllOf,
    AnyOf,
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


class Value(NamedTuple):
    """
    A value and what it is in Java.
    """

    kind: Kind
    value: str | bool | int | float | None


NULL = Value(Kind.NOTHING, None)


def truth(value: bool | None) -> Value:
    """
    Evaluate a condition.
    """
    return NULL if value is None else Value(Kind.BOOLEAN, value)


def text(value: str | None) -> Value:
    """
    A property's value.
    """
    return NULL if value is None else Value(Kind.STRING, value)


def evaluate(node: Expression, properties: Mapping[str, str]) -> Value:
    """
    The value of a tree.

    @raise ValueError: where Java throws.
    """
    match node:
        case Constant():
            return Value(node.kind, node.value)
        case Property():
            return text(properties.get(node.name))
        case Negative():
            operand = evaluate(node.operand, properties)
            if operand.kind not in NUMBERS:
                return NULL
            assert isinstance(operand.value, int | float)
            return Value(operand.kind, -operand.value)
        case Cast():
            there = properties.get(node.name)
            return NULL if there is None else truth(False)
        case Not():
            operand = evaluate(node.operand, properties)
            return NULL if operand == NULL else truth(not operand.value)
        case Within():
            there = properties.get(node.name)
            return NULL if there is None else truth((there in node.values) != node.negated)
        case Search():
            return truth(search(node, properties))
        case AllOf():
            return connected(node.parts, properties, decisive=False)
        case AnyOf():
            return connected(node.parts, properties, decisive=True)
        case Equal():
            return equal(evaluate(node.left, properties), evaluate(node.right, properties))
        case Ordered():
            return ordered(node, properties)


def connected(
    parts: tuple[Expression, ...], properties: Mapping[str, str], *, decisive: bool
) -> Value:
    """
    AND and OR, evaluated in pairs from the left.
    """
    left = evaluate(parts[0], properties)
    for part in parts[1:]:
        if left.value is decisive:
            return left
        right = evaluate(part, properties)
        if right.value is decisive or right == NULL:
            left = right
    return left


def search(node: Search, properties: Mapping[str, str]) -> bool:
    """
    CONTAINS, STARTSWITH and ENDSWITH.
    """
    if not node.text:
        return False
    operand = evaluate(node.operand, properties)
    if not isinstance(operand.value, str):
        return False
    found = {
        "CONTAINS": node.text in operand.value,
        "STARTSWITH": operand.value.startswith(node.text),
        "ENDSWITH": operand.value.endswith(node.text),
    }[node.how]
    return found != node.negated


def equal(left: Value, right: Value) -> Value:
    """
    C{=}.
    """
    if left == NULL:
        return truth(True if right == NULL else None)
    if right == NULL:
        return truth(False)
    return truth(left == right or compare(left, right) == 0)


def ordered(node: Ordered, properties: Mapping[str, str]) -> Value:
    """
    C{<} and the like.
    """
    left = evaluate(node.left, properties)
    if left == NULL:
        return NULL
    right = evaluate(node.right, properties)
    if right == NULL:
        return NULL
    if left.kind is right.kind is Kind.STRING:
        left, right = double(left), double(right)
    order = compare(left, right)
    return truth({"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[node.symbol])


def double(value: Value) -> Value:
    """
    Convert a value to a double.
    """
    if isinstance(value.value, str):
        return Value(Kind.DOUBLE, readDouble(value.value))
    assert value.value is not None
    return Value(Kind.DOUBLE, float(value.value))


def converted(value: Value, kind: Kind) -> Value:
    """
    Convert a string to the type of the other operand.
    """
    assert isinstance(value.value, str)
    if kind is Kind.BOOLEAN:
        return truth(value.value.lower() == "true")
    read = {Kind.INTEGER: readInt, Kind.LONG: readLong, Kind.DOUBLE: readDouble}[kind]
    return Value(kind, read(value.value))


def compare(left: Value, right: Value) -> int:
    """
    C{ComparisonExpression.__compare}: less than 0, 0, or greater.
    """
    if left.kind is Kind.BOOLEAN and right.kind is Kind.STRING:
        raise ValueError("a Boolean is no String")
    if left.kind is Kind.STRING and right.kind is not Kind.STRING:
        left = converted(left, right.kind)
    elif right.kind is Kind.STRING and left.kind is not Kind.STRING:
        right = converted(right, left.kind)
    if left.kind is not right.kind and Kind.BOOLEAN in (left.kind, right.kind):
        return -1
    if Kind.DOUBLE in (left.kind, right.kind):
        left, right = double(left), double(right)
        assert isinstance(left.value, float)
        assert isinstance(right.value, float)
        return compareDoubles(left.value, right.value)
    return (left.value > right.value) - (left.value < right.value)  # type: ignore[operator]
