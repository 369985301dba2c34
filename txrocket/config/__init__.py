# SPDX-License-Identifier: Apache-2.0
"""
Settings under RocketMQ's names, from a Java .properties file and from options.

A section is a frozen attrs class of the part that uses it.  Each attribute is a
setting, with a type, a default and a validator::

    @attrs.frozen
    class PullSettings:
        longPollingEnable: bool = attrs.field(default=True, metadata={"live": True})
        shortPollingTimeMills: int = attrs.field(default=1000, validator=atLeast(1))

- The type is bool, int, float, str or an Enum (by its values).  With C{| None}, an
  empty text is L{None}.
- A validator checks one value, and raises a ValueError that says what was expected.
  C{__attrs_post_init__} checks rules about several settings of a section.
- C{metadata} may have C{key}, if the setting's name is not a Python name
  (C{tls.server.mode}); C{live}, if a request may change it while the server runs;
  C{secret}, if no response or error may show it.

A request can change only C{live} settings, and a live text setting must have a
validator.  So no request can set a path or an address, or start a program.  In Java a
request can change every setting except two paths of the name server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar, cast

import attrs

from txrocket.config.live import Live
from txrocket.config.propertiesfile import PropertiesFile
from txrocket.config.sections import (
    Setting,
    SettingText,
    bySection,
    convertAll,
    settingsOf,
    shown,
    unknownKey,
    writeValue,
)
from txrocket.errors import ConfigError
from txrocket.model import DataVersion
from txrocket.protocol.configtext import ConfigText

__all__ = ["Configuration", "Live", "atLeast", "between"]

T = TypeVar("T")
_Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]

# The maximum number of suggestions for unknown keys of one request, because the search
# for similar keys is slow.
_HINTS = 16


def atLeast(least: float) -> _Validator:
    """
    Create a validator for numbers with a lower bound, which is allowed.
    """

    def validate(section: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value < least:
            raise ValueError(f"{least} or more was expected")

    return validate


def between(least: float, most: float) -> _Validator:
    """
    Create a validator for numbers with two bounds, which are allowed.
    """

    def validate(section: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not least <= value <= most:
            raise ValueError(f"{least} to {most} was expected")

    return validate


class Configuration:
    """
    The sections of one server.

    @ivar warnings: lines for the operator, such as a list of settings without effect.
    @ivar version: the number of updates since the start, and the time of the last one.
    """

    def __init__(
        self,
        sections: dict[type, Any],
        settings: Mapping[str, Setting],
        notNeeded: Collection[str],
        file: PropertiesFile | None,
        warnings: list[str],
    ) -> None:
        """
        Use L{Configuration.read} instead.
        """
        self._sections = {section: Live(value) for section, value in sections.items()}
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

        @param notNeeded: keys of RocketMQ.  A key that is here but in no section has no
            effect, and a warning names it.
        @param path: a .properties file.
        @param given: settings from the command line, which override those of the file.
        @raise ConfigError: if settings are not valid; the error names all of them.
        """
        settings = settingsOf(sections)
        file = None if path is None else PropertiesFile(path)
        texts = {} if file is None else _textsOf(file)
        texts |= {key: SettingText(f"--set {shown(key)}", text) for key, text in given.items()}
        idle = [key for key in texts if key not in settings and key in notNeeded]
        values, problems = convertAll(
            {key: each for key, each in texts.items() if key not in idle},
            settings,
            lambda key: unknownKey(key, {*settings, *notNeeded}),
        )
        prefix = "" if path is None else f"{path}: "
        required = {key for key, each in settings.items() if each.required}
        problems += [f"{prefix}{key} is not set" for key in sorted(required - texts.keys())]
        # Do not build a section that lacks a value, because it would report that again.
        lacking = {settings[key].section for key in {*texts, *required} & {*settings} - {*values}}
        built = {}
        grouped = bySection(values, settings)
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
        The current values of a section.
        """
        return cast(T, self._sections[section].now)

    def live(self, section: type[T]) -> Live[T]:
        """
        The cell that always holds a section as it is now.
        """
        return cast("Live[T]", self._sections[section])

    def properties(self) -> ConfigText:
        """
        The current values of all settings, except secret ones.
        """
        return ConfigText(
            {
                key: writeValue(self._value(key))
                for key, each in self._settings.items()
                if not each.secret
            }
        )

    def follow(self, section: type[T], take: Callable[[T], None]) -> None:
        """
        Call a function with a section's new values after each change.
        """
        self._followers.setdefault(section, []).append(take)

    def update(self, changes: Mapping[str, str], now: int) -> frozenset[str]:
        """
        Change settings while the server runs: all of them, or none.  If there is a file,
        the changes are written to it, so that they last.

        @param now: the time, in milliseconds.
        @return: the keys whose values have changed.
        @raise ConfigError: if settings cannot be changed to these values; the error names
            all of them.
        """
        if len(changes) > len(self._settings):
            # Refuse first, because checking a million keys would block the server.
            raise ConfigError(f"{len(changes)} settings: only {len(self._settings)} exist")
        asked = count()
        values, problems = convertAll(
            {key: SettingText(shown(key), text) for key, text in changes.items()},
            {key: each for key, each in self._settings.items() if each.live},
            lambda key: self._notLive(key, hint=next(asked) < _HINTS),
        )
        if problems:
            raise ConfigError(*problems)
        changed = {key: value for key, value in values.items() if value != self._value(key)}
        if not changed:
            return frozenset()
        fresh = {}
        for section, own in bySection(changed, self._settings).items():
            try:
                fresh[section] = attrs.evolve(self._sections[section].now, **own)
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise ConfigError(*problems)
        if self._file is not None:
            self._file.amend({key: writeValue(value) for key, value in changed.items()})
        for section, value in fresh.items():
            self._sections[section].now = value
        self.version = DataVersion(now, self.version.counter + 1)
        for section, value in fresh.items():
            for take in self._followers.get(section, ()):
                take(value)
        return frozenset(changed)

    def _value(self, key: str) -> Any:
        setting = self._settings[key]
        return getattr(self._sections[setting.section].now, setting.attribute.name)

    def _notLive(self, key: str, *, hint: bool) -> str:
        """
        The reason why a setting cannot be changed.

        @param hint: whether to suggest a similar key.
        """
        if key in self._settings:
            where = "its options" if self._file is None else self._file.path
            return f"needs a restart: change it in {where} and restart the server"
        if key in self._notNeeded:
            return "has no effect here"
        if not hint:
            return "unknown"
        return unknownKey(key, {key for key, each in self._settings.items() if each.live})


def _textsOf(file: PropertiesFile) -> dict[str, SettingText]:
    """
    The settings of a file, each with its line number.

    @raise ConfigError: if the file cannot be read.
    """
    return {
        each.key: SettingText(f"{file.path}:{each.first}: {shown(each.key)}", each.value)
        for each in file.entries()
    }
