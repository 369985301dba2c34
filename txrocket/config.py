# SPDX-License-Identifier: Apache-2.0
"""
Settings by RocketMQ's own names, from a Java .properties file and from options.

A section is a frozen attrs class that its owner declares.  Each attribute is a
setting, with its type, its default and its check::

    @attrs.frozen
    class PullSettings:
        longPollingEnable: bool = attrs.field(default=True, metadata={"live": True})
        shortPollingTimeMills: int = attrs.field(default=1000, validator=atLeast(1))

- The type is bool, int, float, str or an Enum (by its values), perhaps
  C{| None}, and then what is empty is L{None}.
- A validator looks at its own value only and raises a ValueError that says what
  was expected.  What concerns several settings of a section is checked in
  C{__attrs_post_init__}.
- C{metadata} has C{key}, if the setting's name is no name in Python
  (C{tls.server.mode}); C{live}, if it may be changed while the server runs;
  C{secret}, if it is not to be shown.

Only what is C{live} is changed from afar, and text only where a validator says
what it may be: no request sets a path or an address, or has a program started.
In Java every setting can be changed but for two paths of the name server.
"""

from __future__ import annotations

import difflib
import math
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from itertools import count
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, cast

import attrs

from txrocket.errors import ConfigError
from txrocket.model import DataVersion
from txrocket.propertiesfile import PropertiesFile
from txrocket.protocol.properties import Properties

__all__ = ["Configuration", "atLeast", "between"]

T = TypeVar("T")
_Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]

_KINDS = (bool, int, float, str, Enum)

# More of a key or a value in a message would hide what the message says.
_SHOWN = 100

# How many names are looked for that are like those of a request: each takes half a
# millisecond.
_HINTS = 16


def atLeast(least: float) -> _Validator:
    """
    A validator for numbers.
    """

    def validate(section: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value < least:
            raise ValueError(f"{least} or more was expected")

    return validate


def between(least: float, most: float) -> _Validator:
    """
    A validator for numbers.  Both bounds are allowed.
    """

    def validate(section: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not least <= value <= most:
            raise ValueError(f"{least} to {most} was expected")

    return validate


class Configuration:
    """
    The sections of one server.

    @ivar warnings: a line for the operator, if settings have no effect.
    @ivar version: how often settings were changed since the start, and when last.
    """

    def __init__(
        self,
        sections: dict[type, Any],
        settings: Mapping[str, _Setting],
        notNeeded: Collection[str],
        file: PropertiesFile | None,
        warnings: list[str],
    ) -> None:
        """
        Use L{Configuration.read}.
        """
        self._sections = sections
        self._settings = settings
        self._notNeeded = notNeeded
        self._file = file
        self._followers: dict[type, list[Callable[[Any], None]]] = {}
        self.warnings = warnings
        self.version = DataVersion()

    @classmethod
    def read(
        cls,
        sections: Sequence[type],
        notNeeded: Collection[str],
        path: str | None,
        given: Mapping[str, str],
    ) -> Configuration:
        """
        Read and check all settings.

        @param notNeeded: settings that RocketMQ has.  Those that are in no section
            have no effect, and a warning names them.
        @param path: a .properties file.
        @param given: settings from the command line; they override the file's.
        @raise ConfigError: naming all that is wrong.
        """
        settings = _settings(sections)
        file = None if path is None else PropertiesFile(path)
        texts = {} if file is None else _inFile(file)
        texts |= {key: _Text(f"--set {_shown(key)}", text) for key, text in given.items()}
        idle = [key for key in texts if key not in settings and key in notNeeded]
        values, problems = _convertAll(
            {key: each for key, each in texts.items() if key not in idle},
            settings,
            lambda key: _unknown(key, {*settings, *notNeeded}),
        )
        prefix = "" if path is None else f"{path}: "
        required = {key for key, each in settings.items() if each.required}
        problems += [f"{prefix}{key} is not set" for key in sorted(required - texts.keys())]
        # A section that lacks something is not built, lest it complain of that too.
        lacking = {settings[key].section for key in {*texts, *required} & {*settings} - {*values}}
        built = {}
        grouped = _grouped(values, settings)
        for section in sections:
            if section not in lacking:
                try:
                    built[section] = section(**grouped.get(section, {}))
                except ValueError as error:
                    problems.append(f"{prefix}{error}")
        if problems:
            raise ConfigError(*problems)
        warnings = [f"Settings that have no effect here: {', '.join(idle)}"] if idle else []
        return cls(built, settings, notNeeded, file, warnings)

    def __getitem__(self, section: type[T]) -> T:
        """
        A section as it is now.
        """
        return cast(T, self._sections[section])

    def properties(self) -> Properties:
        """
        All settings as they are now, but for secret ones.
        """
        return Properties(
            {
                key: _write(self._value(key))
                for key, each in self._settings.items()
                if not each.secret
            }
        )

    def follow(self, section: type[T], take: Callable[[T], None]) -> None:
        """
        Have a function called with a section each time after it was changed.
        """
        self._followers.setdefault(section, []).append(take)

    def update(self, changes: Mapping[str, str], now: int) -> frozenset[str]:
        """
        Change settings while the server runs: all of them, or none.  They are
        written to the file as well, if there is one, and so outlive the server.

        @param now: the time, in milliseconds.
        @return: those whose values are other than before.
        @raise ConfigError: naming all that may not be changed so.
        """
        if len(changes) > len(self._settings):
            # To look for a name like each of a million would take the server's time.
            raise ConfigError(f"{len(changes)} settings: there are {len(self._settings)}")
        asked = count()
        values, problems = _convertAll(
            {key: _Text(_shown(key), text) for key, text in changes.items()},
            {key: each for key, each in self._settings.items() if each.live},
            lambda key: self._notLive(key, hint=next(asked) < _HINTS),
        )
        if problems:
            raise ConfigError(*problems)
        changed = {key: value for key, value in values.items() if value != self._value(key)}
        if not changed:
            return frozenset()
        fresh = {}
        for section, own in _grouped(changed, self._settings).items():
            try:
                fresh[section] = attrs.evolve(self._sections[section], **own)
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise ConfigError(*problems)
        if self._file is not None:
            self._file.amend({key: _write(value) for key, value in changed.items()})
        self._sections |= fresh
        self.version = DataVersion(now, self.version.counter + 1)
        for section, value in fresh.items():
            for take in self._followers.get(section, ()):
                take(value)
        return frozenset(changed)

    def _value(self, key: str) -> Any:
        setting = self._settings[key]
        return getattr(self._sections[setting.section], setting.attribute.name)

    def _notLive(self, key: str, *, hint: bool) -> str:
        """
        Why a setting cannot be changed.

        @param hint: whether to look for the one that was meant.
        """
        if key in self._settings:
            where = "its options" if self._file is None else self._file.path
            return f"needs a restart: change it in {where} and start the server anew"
        if key in self._notNeeded:
            return "has no effect here"
        if not hint:
            return "unknown"
        return _unknown(key, {key for key, each in self._settings.items() if each.live})


class _Setting(NamedTuple):
    """
    An attribute of a section.

    @ivar kind: its type, but for C{| None}.
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
        The value that a text stands for.

        @raise ValueError: saying what was expected.
        """
        value = None if self.optional and not text else _convert(self.kind, text)
        if self.attribute.validator is not None and value is not None:
            self.attribute.validator(None, self.attribute, value)
        return value


class _Text(NamedTuple):
    """
    A value as it was given.

    @ivar where: its key, after the place that it stands in.
    """

    where: str
    text: str


def _inFile(file: PropertiesFile) -> dict[str, _Text]:
    """
    All settings of a file, and the lines that they stand on.

    @raise ConfigError: if it cannot be read.
    """
    return {
        each.key: _Text(f"{file.path}:{each.first}: {_shown(each.key)}", each.value)
        for each in file.entries()
    }


def _settings(sections: Iterable[type]) -> dict[str, _Setting]:
    """
    The settings of all sections by their keys.

    @raise TypeError: if a section is not what it has to be.
    """
    settings: dict[str, _Setting] = {}
    for section in sections:
        hints = typing.get_type_hints(section)
        for attribute in attrs.fields(section):
            hint = hints[attribute.name]
            kinds = typing.get_args(hint) if isinstance(hint, UnionType) else (hint,)
            kind, *others = [each for each in kinds if each is not NoneType]
            key = attribute.metadata.get("key", attribute.name)
            setting = _Setting(section, attribute, kind, NoneType in kinds)
            if others or not (isinstance(kind, type) and issubclass(kind, _KINDS)):
                raise TypeError(f"{section.__name__}.{attribute.name}: {hint} cannot be read")
            if setting.live and kind is str and attribute.validator is None:
                raise TypeError(f"{section.__name__}.{attribute.name}: any text may be set")
            if key in settings:
                raise TypeError(f"{key}: in two sections")
            settings[key] = setting
    return settings


def _grouped(values: Mapping[str, Any], settings: Mapping[str, _Setting]) -> dict[type, Any]:
    """
    Values by their sections and attributes.
    """
    grouped: dict[type, dict[str, Any]] = {}
    for key, value in values.items():
        setting = settings[key]
        grouped.setdefault(setting.section, {})[setting.attribute.name] = value
    return grouped


def _convertAll(
    texts: Mapping[str, _Text], settings: Mapping[str, _Setting], refuse: Callable[[str], str]
) -> tuple[dict[str, Any], list[str]]:
    """
    Values by their keys, and what is wrong with the others.

    @param refuse: says why a key that is in no section is wrong.
    """
    values: dict[str, Any] = {}
    problems = []
    for key, (where, text) in texts.items():
        setting = settings.get(key)
        if setting is None:
            problems.append(f"{where}: {refuse(key)}")
            continue
        # Java keeps the blanks after a value and then fails to read the number.
        text = text.strip()
        try:
            values[key] = setting.convert(text)
        except ValueError as error:
            shown = "" if setting.secret else f"={_shown(text)}"
            # Validators of attrs have further arguments.
            problems.append(f"{where}{shown}: {error.args[0]}")
    return values, problems


_INT = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _convert(kind: type, text: str) -> Any:
    """
    @raise ValueError: saying what was expected.
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


def _write(value: Any) -> str:
    """
    A value as a text that is read as that value.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value if isinstance(value, Enum) else value)


def _unknown(key: str, known: Iterable[str]) -> str:
    """
    What to say of a key that nobody knows.
    """
    names = {each.lower(): each for each in known}
    nearest = difflib.get_close_matches(key[:_SHOWN].lower(), names, 1)
    return f"unknown; did you mean {names[nearest[0]]}?" if nearest else "unknown"


def _shown(text: str) -> str:
    """
    A key or a value, fit for a message.
    """
    return text if len(text) <= _SHOWN and text.isprintable() else ascii(text[:_SHOWN])
