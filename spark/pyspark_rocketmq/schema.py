# SPDX-License-Identifier: Apache-2.0
"""
The columns of a message.

Spark does not tell a source in Python which columns a query needs, but it hands on the
schema that a user gives: so that is the projection.  What is not in it is not carried,
and what it would cost to make it is not paid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from txrocket.errors import ConfigError

__all__ = ["COLUMNS", "FURTHER", "defaultSchema", "projection"]

_MAP: Final = "map<string,string>"

#: The columns that there are if no schema is given, and their types.
COLUMNS: Final = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "msgId": "string",
    "tags": "string",
    "keys": "string",
    "properties": _MAP,
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "bornHost": "string",
    "reconsumeTimes": "int",
    "body": "binary",
}

#: Those that a schema may have as well.
FURTHER: Final = {
    "offsetMsgId": "string",
    "commitLogOffset": "bigint",
    "storeHost": "string",
    "flag": "int",
    "sysFlag": "int",
}

_ALL: Final = {**COLUMNS, **FURTHER}
_NAMES: Final = {each.lower(): each for each in _ALL}


def defaultSchema(*, properties: bool = True) -> str:
    """
    The schema where none is given, as Spark reads it.

    @param properties: whether the map of properties is in it.
    """
    return ", ".join(
        f"{name} {kind}" for name, kind in COLUMNS.items() if properties or name != "properties"
    )


def projection(fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """
    The columns of a schema, by our names for them.

    @param fields: names, in which letters' case does not count, and types.
    @raise ConfigError: naming all that are not ours, or of other types.
    """
    names, problems = [], []
    for given, kind in fields:
        name = _NAMES.get(given.lower())
        if name is None:
            problems.append(f"there is no column {given}; there are {', '.join(_ALL)}")
        elif kind != _ALL[name]:
            problems.append(f"the column {name} is of type {_ALL[name]}, not {kind}")
        elif name in names:
            problems.append(f"the column {name} is there twice")
        else:
            names.append(name)
    if not names and not problems:
        problems.append("the schema has no column")
    if problems:
        raise ConfigError(*problems)
    return tuple(names)
