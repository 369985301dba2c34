# SPDX-License-Identifier: Apache-2.0
"""
The settings of RocketMQ 4.9.7 as its own configuration classes have them
(C{fixtures/settings.json}): Java was asked by reflection for the setters and for
what the fields hold in a new object.  A default is left out where it depends on
the machine, such as the number of its processors.
"""

from __future__ import annotations

import functools
import json
import typing
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import attrs

from txrocket.config import Configuration

SETTINGS = Path(__file__).with_name("fixtures") / "settings.json"


class JavaSetting(NamedTuple):
    """
    @ivar type: the type that the setter takes.
    @ivar defaults: the default, as Java writes it; empty where it depends on the
        machine.
    @ivar field: the name of the field, which is what Java writes back.
    """

    type: str
    defaults: tuple[str | None, ...]
    field: str


@functools.cache
def javaSettings(name: str) -> dict[str, JavaSetting]:
    """
    The settings of a class, such as C{BrokerConfig}, by their keys.
    """
    rows: dict[str, dict[str, Any]] = json.loads(SETTINGS.read_text("utf-8"))[name]
    return {
        key: JavaSetting(
            row["type"], (row["default"],) if "default" in row else (), row.get("field", key)
        )
        for key, row in rows.items()
    }


def differences(section: type, *names: str) -> dict[str, str]:
    """
    How a section differs from the Java classes it is made after, by key: a setting
    that none of them has, one of another type, one with another default.  What is
    meant to differ is for the caller to name.

    @param names: of Java's classes.
    """
    java = {key: each for name in names for key, each in javaSettings(name).items()}
    required = {each.name: "-" for each in attrs.fields(section) if each.default is attrs.NOTHING}
    defaults = Configuration.read([section], (), None, required).properties()
    hints = typing.get_type_hints(section)
    found = {}
    for each in attrs.fields(section):
        key = each.metadata.get("key", each.name)
        if key not in java:
            found[key] = "not in RocketMQ"
        elif not _sameType(hints[each.name], java[key].type):
            found[key] = f"{hints[each.name]}, not {java[key].type}"
        elif key in required:
            found[key] = "no default"
        elif java[key].defaults and (defaults[key] or None) != (java[key].defaults[0] or None):
            found[key] = f"{defaults[key]}, not {java[key].defaults[0]}"
    return found


def _sameType(hint: Any, javas: str) -> bool:
    (kind,) = {*(typing.get_args(hint) or (hint,))} - {NoneType}
    if javas == "String":
        return issubclass(kind, (str, Enum))
    return kind is {"boolean": bool, "int": int, "long": int}[javas]
