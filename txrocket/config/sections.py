# SPDX-License-Identifier: Apache-2.0
"""
The settings of sections: their keys, their types, and conversion between text and
value.

::

    section (attrs class)  --settingsOf-->  key -> Setting
    key -> text            --convertAll-->  key -> value, and problems
    value                  --writeValue-->  text
"""

from __future__ import annotations

import difflib
import functools
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, NamedTuple

import attrs

__all__ = [
    "Setting",
    "SettingText",
    "bySection",
    "convertAll",
    "settingsOf",
    "shown",
    "unknownKey",
    "writeValue",
]

_KINDS = (bool, int, float, str, Enum)

# The maximum length of a key or value in an error text.
_SHOWN = 100


class Setting(NamedTuple):
    """
    An attribute of a section.

    @ivar kind: its type, without C{| None}.
    @ivar optional: whether it may be L{None}.
    """

    section: type
    attribute: attrs.Attribute[Any]
    kind: type
    optional: bool

    @property
    def live(self) -> bool:
        return bool(self.attribute.metadata.get("live"))

    @property
    def secret(self) -> bool:
        return bool(self.attribute.metadata.get("secret"))

    @property
    def required(self) -> bool:
        return self.attribute.default is attrs.NOTHING

    def convert(self, text: str) -> Any:
        """
        Convert a text to a value of this setting.

        @raise ValueError: if the text is not valid; the error says what was expected.
        """
        value = None if self.optional and not text else _convert(self.kind, text)
        if self.attribute.validator is not None and value is not None:
            self.attribute.validator(None, self.attribute, value)
        return value


class SettingText(NamedTuple):
    """
    A value as text, as it is in a file, an option or a request.

    @ivar where: its place and key, for errors.
    """

    where: str
    text: str


# A process with many servers asks again and again.
_hints = functools.cache(typing.get_type_hints)


def settingsOf(sections: Iterable[type]) -> dict[str, Setting]:
    """
    List the settings of all sections by their keys.

    @raise TypeError: if an attribute's type is not supported, if a live text setting has
        no validator, or if two settings have the same key.
    """
    settings: dict[str, Setting] = {}
    for section in sections:
        hints = _hints(section)
        for attribute in attrs.fields(section):
            hint = hints[attribute.name]
            kinds = typing.get_args(hint) if isinstance(hint, UnionType) else (hint,)
            kind, *others = [each for each in kinds if each is not NoneType]
            key = attribute.metadata.get("key", attribute.name)
            setting = Setting(section, attribute, kind, NoneType in kinds)
            if others or not (isinstance(kind, type) and issubclass(kind, _KINDS)):
                raise TypeError(f"{section.__name__}.{attribute.name}: {hint} is not supported")
            if setting.live and kind is str and attribute.validator is None:
                raise TypeError(
                    f"{section.__name__}.{attribute.name}: a live text setting needs a validator"
                )
            if key in settings:
                raise TypeError(f"{key} is in two sections")
            settings[key] = setting
    return settings


def bySection(values: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[type, Any]:
    """
    Group values by section, then by attribute name.
    """
    grouped: dict[type, dict[str, Any]] = {}
    for key, value in values.items():
        setting = settings[key]
        grouped.setdefault(setting.section, {})[setting.attribute.name] = value
    return grouped


def convertAll(
    texts: Mapping[str, SettingText], settings: Mapping[str, Setting], refuse: Callable[[str], str]
) -> tuple[dict[str, Any], list[str]]:
    """
    Convert texts to values.

    @param refuse: returns the problem of a key that is not in C{settings}.
    @return: the values by their keys, and the problems of the other texts.
    """
    values: dict[str, Any] = {}
    problems = []
    for key, (where, text) in texts.items():
        setting = settings.get(key)
        if setting is None:
            problems.append(f"{where}: {refuse(key)}")
            continue
        # Java does not strip blanks after a value, and then fails to parse a number.
        text = text.strip()
        try:
            values[key] = setting.convert(text)
        except ValueError as error:
            given = "" if setting.secret else f"={shown(text)}"
            # Only the first argument: validators of attrs add others.
            problems.append(f"{where}{given}: {error.args[0]}")
    return values, problems


_INT = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _convert(kind: type, text: str) -> Any:
    """
    @raise ValueError: if the text is not valid; the error says what was expected.
    """
    if kind is str:
        return text
    if kind is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise ValueError("true or false was expected")
    if kind is int:
        if _INT.fullmatch(text) and -(2**63) <= int(text) < 2**63:
            return int(text)
        raise ValueError("a whole number was expected")
    if kind is float:
        if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
        raise ValueError("a number was expected")
    assert issubclass(kind, Enum)
    for member in kind:
        if member.value.lower() == text.lower():
            return member
    raise ValueError(f"{' or '.join(each.value for each in kind)} was expected")


def writeValue(value: Any) -> str:
    """
    Convert a value to text; the inverse of L{Setting.convert}.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value if isinstance(value, Enum) else value)


def unknownKey(key: str, known: Iterable[str]) -> str:
    """
    The problem of an unknown key, with the most similar known key as a suggestion.
    """
    names = {each.lower(): each for each in known}
    nearest = difflib.get_close_matches(key[:_SHOWN].lower(), names, 1)
    return f"unknown; did you mean {names[nearest[0]]}?" if nearest else "unknown"


def shown(text: str) -> str:
    """
    A key or value for an error text: shortened, and escaped if it is not printable.
    """
    return text if len(text) <= _SHOWN and text.isprintable() else ascii(text[:_SHOWN])
