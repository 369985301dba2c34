# SPDX-License-Identifier: Apache-2.0
"""
Rows as messages: which columns say what, and the id of each row.

An id is what RocketMQ calls a unique key, and every consumer sees as a message's id.  It
follows from where the row is, so that a row that is sent again has the id that it had::

    20 digits                                   12 digits
    hash of job, micro-batch and partition      the row's number in its partition

It is as long as those of clients, and where they have a time there are zeros for the first
65,536 rows: tools that look messages up by id begin to look there, which is the beginning
of the month.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import txrocket.message
from txrocket.errors import ConfigError, InvalidMessage
from txrocket.message import KEY_SEPARATOR, PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from txrocket.protocol.names import checkSendTopic
from txrocket.protocol.parts import encodeProperties

__all__ = ["COLUMNS", "Outgoing", "RowIds", "checkColumns", "outgoing"]

#: The columns of the sink, and the types that each may have.
COLUMNS: Final = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "queueId": ("int",),
    "brokerName": ("string",),
    "delayLevel": ("int",),
    "flag": ("int",),
}

# Columns of the source that the sink has no use for.
_IGNORED: Final = {
    *("queueOffset", "msgId", "bornTimestamp", "storeTimestamp", "bornHost", "reconsumeTimes"),
    *("offsetMsgId", "commitLogOffset", "storeHost", "sysFlag"),
}

# Properties by which RocketMQ itself says something.  Rows that were read from a topic
# have them: to send those of a delayed or half message again would make it one again.
_RESERVED: Final = frozenset(
    value for name, value in vars(txrocket.message).items() if name.startswith("PROPERTY_")
)
_OWN: Final = (PROPERTY_TAGS, PROPERTY_KEYS)


def checkColumns(fields: Iterable[tuple[str, str]], topic: str | None) -> dict[str, str]:
    """
    The columns that are used, and what they are called in the table.

    @param fields: names and types of the table's columns.
    @param topic: the topic of all rows, if it is said by an option.
    @raise ConfigError: naming all that are not ours, of other types, or missing.
    """
    names = {each.lower(): each for each in (*COLUMNS, *_IGNORED)}
    used: dict[str, str] = {}
    problems = []
    for given, kind in fields:
        name = names.get(given.lower())
        if name is None:
            problems.append(f"the sink has no column {given}; it has {', '.join(COLUMNS)}")
        elif name in used:
            problems.append(f"the column {name} is there twice")
        elif name in COLUMNS:
            if kind not in COLUMNS[name]:
                expected = " or ".join(COLUMNS[name])
                problems.append(f"the column {name} must be of type {expected}, not {kind}")
            used[name] = given
    if "body" not in used:
        problems.append("the column body is missing")
    if topic is None and "topic" not in used:
        problems.append("the column topic is missing: have one, or give the option topic")
    if problems:
        raise ConfigError(*problems)
    if topic is not None:
        used.pop("topic", None)
    return used


class RowIds:
    """
    The ids of a partition's rows.
    """

    def __init__(self, job: str, batch: int, partition: int) -> None:
        """
        @param job: what tells a job from others.
        @param batch: the micro-batch of a stream; 0 for a table.
        """
        seed = f"{job}\0{batch}\0{partition}".encode()
        self._prefix = hashlib.blake2b(seed, digest_size=10).hexdigest().upper()

    def of(self, index: int) -> str:
        """
        The id of a row.
        """
        return f"{self._prefix}{index:012X}"


class Outgoing(NamedTuple):
    """
    A row as it is sent.

    @ivar queueId: of the queue that it is for, or L{None}.
    @ivar properties: encoded, the id among them.
    """

    topic: str
    brokerName: str | None
    queueId: int | None
    delayLevel: int
    flag: int
    body: bytes
    properties: bytes
    msgId: str


def outgoing(
    columns: Mapping[str, list[Any]],
    count: int,
    topic: str | None,
    ids: RowIds,
    first: int = 0,
) -> Iterator[Outgoing]:
    """
    The messages of some rows.

    @param columns: the values of each column that there is.
    @param count: how many rows there are.
    @param topic: the topic of all, if it is not a column.
    @param first: the number of the first row in its partition.
    @raise InvalidMessage: naming the row that cannot be sent.
    """
    empty = [None] * count
    rows = zip(*(columns.get(name, empty) for name in COLUMNS), strict=True)
    for index, row in enumerate(rows, first):
        body, own, tags, keys, properties, queueId, brokerName, delay, flag = row
        try:
            msgId = ids.of(index)
            name = topic or own
            if not name:
                raise InvalidMessage("the topic is null or empty")
            checkSendTopic(name)
            if not body:
                raise InvalidMessage("the body is null or empty")
            yield Outgoing(
                name,
                brokerName,
                queueId,
                delay or 0,
                flag or 0,
                body if isinstance(body, bytes) else body.encode(),
                _properties(msgId, tags, keys, properties),
                msgId,
            )
        except InvalidMessage as error:
            raise InvalidMessage(f"row {index} of the partition cannot be sent: {error}") from None


def _properties(
    msgId: str, tags: str | None, keys: str | list[str] | None, more: Any | None
) -> bytes:
    table = {PROPERTY_UNIQ_KEY: msgId}
    # A map's value is a list of pairs in Arrow.
    for name, value in more or ():
        if value and (name in _OWN or name not in _RESERVED):
            table[name] = value
    if tags:
        table[PROPERTY_TAGS] = tags
    if keys:
        joined = keys if isinstance(keys, str) else KEY_SEPARATOR.join(filter(None, keys))
        table[PROPERTY_KEYS] = joined
    return encodeProperties(table)
