# SPDX-License-Identifier: Apache-2.0
"""
Rows as messages: the columns of the sink, and the id of each row.

The id is RocketMQ's unique key, which consumers see as the message id.  It follows from the
place of the row, so that a row that is sent again has the same id::

    20 digits                                   12 digits
    hash of job, micro-batch and partition      the row's number in its partition

It is as long as the ids of clients.  Tools that look up a message by id read a time from
it.  For the first 65,536 rows that time is zero, so the tools begin at the start of the
month.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import txrocket.message
from txrocket.errors import ConfigError, InvalidMessage
from txrocket.message import KEY_SEPARATOR, PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from txrocket.protocol.names import checkSendTopic
from txrocket.protocol.record.fields import encodeProperties

__all__ = ["COLUMNS", "RowIds", "RowMessage", "checkColumns", "rowMessages"]

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

# Columns of the source that the sink ignores.
_IGNORED: Final = {
    *("queueOffset", "msgId", "bornTimestamp", "storeTimestamp", "bornHost", "reconsumeTimes"),
    *("offsetMsgId", "commitLogOffset", "storeHost", "sysFlag"),
}

# RocketMQ's own properties.  Rows that were read from a topic have them.  If they were
# sent, a row of a delayed or half message would become such a message again.
_RESERVED: Final = frozenset(
    value for name, value in vars(txrocket.message).items() if name.startswith("PROPERTY_")
)
_OWN: Final = (PROPERTY_TAGS, PROPERTY_KEYS)


def checkColumns(fields: Iterable[tuple[str, str]], topic: str | None) -> dict[str, str]:
    """
    The columns that the sink uses, and their names in the table.

    @param fields: names and types of the table's columns.
    @param topic: the topic of all rows, if an option sets it.
    @raise ConfigError: if a column does not exist, has a wrong type, or is missing.
    """
    names = {each.lower(): each for each in (*COLUMNS, *_IGNORED)}
    used: dict[str, str] = {}
    problems = []
    for column, kind in fields:
        name = names.get(column.lower())
        if name is None:
            problems.append(f"the sink has no column {column}; it has {', '.join(COLUMNS)}")
        elif name in used:
            problems.append(f"the column {name} is there twice")
        elif name in COLUMNS:
            if kind not in COLUMNS[name]:
                expected = " or ".join(COLUMNS[name])
                problems.append(f"the column {name} must be of type {expected}, not {kind}")
            used[name] = column
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
        @param job: a text that differs from job to job.
        @param batch: the micro-batch of a stream; 0 for a table.
        """
        seed = f"{job}\0{batch}\0{partition}".encode()
        self._prefix = hashlib.blake2b(seed, digest_size=10).hexdigest().upper()

    def of(self, index: int) -> str:
        """
        The id of a row.
        """
        return f"{self._prefix}{index:012X}"


class RowMessage(NamedTuple):
    """
    A row as a message.

    @ivar queueId: the number of the queue to send it to; L{None} for any queue.
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


def rowMessages(
    columns: Mapping[str, list[Any]],
    count: int,
    topic: str | None,
    ids: RowIds,
    first: int = 0,
) -> Iterator[RowMessage]:
    """
    Make messages of some rows.

    @param columns: the values of each column.
    @param count: the number of rows.
    @param topic: the topic of all rows, if it is not a column.
    @param first: the number of the first row in its partition.
    @raise InvalidMessage: if a row cannot be sent; it names the row.
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
            yield RowMessage(
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
