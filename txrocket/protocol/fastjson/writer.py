# SPDX-License-Identifier: Apache-2.0
"""
Write values in fastjson's dialect, or in the standard JSON of newer name servers; see
L{txrocket.protocol.fastjson}.
"""

from __future__ import annotations

import enum
import functools
import math
import re
from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["write", "writeKey"]

_SPECIAL = re.compile('[\x00-\x1f"\\\\\x7f-\x9f\u2028\u2029]')
_SPECIAL_STANDARD = re.compile('[\x00-\x1f"\\\\/\x7f-\U0010ffff]')
_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def write(value: Any, standard: bool = False) -> bytes:
    """
    Write one value.

    @param value: a L{msgspec.Struct}, dict, list, tuple, set, str, int, float, bool,
        enum member or None, nested as needed.  The elements of a set are sorted by their
        text.
    @param standard: whether to write standard JSON.
    @return: UTF-8 text.  A lone surrogate is written as C{?}, as in Java.
    """
    return _text(value, standard).encode("utf-8", "replace")


def writeKey(key: Any, standard: bool = False) -> bytes:
    """
    Write a key of a map; see L{write}.
    """
    return _key(key, standard).encode("utf-8", "replace")


def _text(value: Any, standard: bool) -> str:
    kind = type(value)
    if kind is str:
        return _string(value, standard)
    if kind is int:
        return str(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return _double(value)
    if isinstance(value, msgspec.Struct):
        return _struct(value, standard)
    if isinstance(value, dict):
        return _map(value, standard)
    if isinstance(value, (list, tuple)):
        return _array(_text(each, standard) for each in value)
    if isinstance(value, (set, frozenset)):
        return _array(sorted(_text(each, standard) for each in value))
    if isinstance(value, enum.Enum):
        return _string(value.name, standard)
    raise TypeError(f"{value!r} cannot be written as JSON")


def _array(items: Iterable[str]) -> str:
    return f"[{','.join(items)}]"


@functools.cache
def _members(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((name, f'"{name}":') for name in sorted(kind.__struct_fields__))


def _struct(value: msgspec.Struct, standard: bool) -> str:
    parts = [
        label + _text(member, standard)
        for name, label in _members(type(value))
        if (member := getattr(value, name)) is not None
    ]
    return f"{{{','.join(parts)}}}"


def _map(value: dict[Any, Any], standard: bool) -> str:
    items: Iterable[tuple[Any, Any]] = value.items()
    if standard:
        items = sorted(items, key=lambda item: item[0])
    parts = [f"{_key(key, standard)}:{_text(item, standard)}" for key, item in items]
    return f"{{{','.join(parts)}}}"


def _key(key: Any, standard: bool) -> str:
    if type(key) is str:
        return _string(key, standard)
    return _string(_text(key, False), True) if standard else _text(key, False)


def _string(text: str, standard: bool) -> str:
    special = _SPECIAL_STANDARD if standard else _SPECIAL
    if special.search(text) is not None:
        text = special.sub(_escape, text)
    return f'"{text}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    short = _ESCAPES.get(character)
    if short is not None:
        return short
    units = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _double(number: float) -> str:
    if not math.isfinite(number):
        return "null"
    if number == 0.0:
        return "-0.0" if math.copysign(1.0, number) < 0 else "0.0"
    if 1e-3 <= abs(number) < 1e7:
        return repr(number)  # without an exponent in this range
    if abs(number) == 5e-324:
        # Java prints at least two digits, and 4.9 is nearer to the number than 5.0.
        return "-4.9E-324" if number < 0 else "4.9E-324"
    mantissa, _, exponent = _scientific(number).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


def _scientific(number: float) -> str:
    # repr prints the fewest digits that identify the number, but with an exponent only
    # from 1e16 on.
    digits = repr(number)
    if "e" in digits:
        return digits
    count = sum(each.isdigit() for each in digits.replace(".", "").lstrip("-0").rstrip("0"))
    return f"{number:.{max(count - 1, 0)}e}"
