# SPDX-License-Identifier: Apache-2.0
"""
The columns of a message.

Spark does not tell a source in Python which columns a query needs, but it passes on the
user's schema.  That schema is the projection: columns outside of it are not made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from txrocket.errors import ConfigError

__all__ = ["COLUMNS", "FURTHER", "defaultSchema", "projection"]

_MAP: Final = "map<string,string>"

#: The columns of a table without a user's schema, and their types.
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

#: Further columns that a schema may have.
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
    The schema of a table without a user's schema, as Spark parses it.

    @param properties: whether it has the map of properties.
    """
    return ", ".join(
        f"{name} {kind}" for name, kind in COLUMNS.items() if properties or name != "properties"
    )


def projection(fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """
    The columns of a schema.

    @param fields: names, without regard to case, and types.
    @raise ConfigError: if a column does not exist, has a wrong type, or is there twice.
    """
    names, problems = [], []
    for column, kind in fields:
        name = _NAMES.get(column.lower())
        if name is None:
            problems.append(f"column {column} does not exist; there are {', '.join(_ALL)}")
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
