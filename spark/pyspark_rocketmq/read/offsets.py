# SPDX-License-Identifier: Apache-2.0
"""
Offsets of queues as JSON: in Spark's checkpoint and in options.

A checkpoint holds, for each queue, the offset of the next message to be read::

    {"v": 1, "offsets": {"Orders": {"broker-a": {"0": 23, "1": 17}}}}

Topics and brokers are sorted by name, queues by number, so that equal offsets are equal
texts, because Spark compares texts.  Before the queues are known there is no C{offsets}.

Options have the same form without the wrapper.  One value may stand for all queues of a
broker or of a topic; C{-2} is the earliest offset and C{-1} the latest::

    {"Orders": {"broker-a": {"0": 23, "1": -1}, "broker-b": -2}, "Invoices": -1}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from txrocket.errors import ConfigError, RocketError
from txrocket.model import MessageQueue

__all__ = [
    "EARLIEST",
    "LATEST",
    "UNKNOWN",
    "DataLost",
    "Offsets",
    "Position",
    "fromJson",
    "parseQueues",
    "toJson",
]

EARLIEST: Final = -2
LATEST: Final = -1

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_VERSION: Final = 1
# Java's Long.MAX_VALUE.
_GREATEST: Final = 2**63 - 1

#: By queue, the offset of the next message to be read.
Offsets: TypeAlias = dict[MessageQueue, int]

#: The first offsets of a stream, whose queues are not known yet.
UNKNOWN: Final[Mapping[str, Any]] = {"v": _VERSION}


class DataLost(RocketError):
    """
    Messages that were to be read do not exist: they were removed, or never stored.
    """


def toJson(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """
    Offsets in the form of the checkpoint.
    """
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.brokerName, {})[str(queue.queueId)] = offsets[queue]
    return {"v": _VERSION, "offsets": tree}


def fromJson(tree: Mapping[str, Any]) -> Offsets | None:
    """
    Read offsets from the checkpoint; L{None} if no queue was known yet.

    @raise ConfigError: if they cannot be parsed, or are of a later version.
    """
    version = tree.get("v")
    if version != _VERSION:
        raise ConfigError(
            f"the checkpoint's offsets are of version {version!r}, only {_VERSION} can be read:"
            " it was written by another source, or by a later version of this one"
        )
    if "offsets" not in tree:
        return None
    try:
        return {
            MessageQueue(topic, brokerName, int(number)): int(offset)
            for topic, brokers in tree["offsets"].items()
            for brokerName, queues in brokers.items()
            for number, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"the checkpoint's offsets cannot be parsed: {_short(tree)}") from None


@attrs.frozen
class Position:
    """
    Where a read begins in each queue, or where it ends.

    @ivar value: an offset or a time for all, or a table of them by topic, broker and
        queue.
    @ivar byTime: whether values are times, in milliseconds since 1970.
    @ivar option: the option that it comes from, for error texts.
    """

    value: int | Mapping[str, Any]
    byTime: bool = False
    option: str = ""

    @classmethod
    def word(cls, option: str, text: str) -> Position:
        """
        Parse C{earliest}, C{latest} or JSON with offsets.

        @raise ConfigError: if the text is not valid.
        """
        known = _WORDS.get(text.lower())
        if known is not None:
            return cls(known, option=option)
        if not text.startswith("{"):
            raise ConfigError(
                f"option {option}: {_short(text)} is neither earliest nor latest nor JSON by topic,"
                " broker and queue"
            )
        return cls(_table(option, text, EARLIEST), option=option)

    @classmethod
    def times(cls, option: str, text: str) -> Position:
        """
        Parse JSON with times.

        @raise ConfigError: if the text is not valid.
        """
        return cls(_table(option, text, 0), True, option)

    def of(self, queue: MessageQueue) -> int | None:
        """
        The value for a queue; L{None} if the option does not have one.
        """
        value: Any = self.value
        for step in (queue.topic, queue.brokerName, str(queue.queueId)):
            if not isinstance(value, Mapping):
                break
            value = value.get(step)
        return None if isinstance(value, Mapping) else value

    def check(self, queues: Iterable[MessageQueue]) -> None:
        """
        Check that each queue has a value, and that there is no value for another queue.

        @raise ConfigError: if a queue has no value, or a value no queue; it names them.
        """
        there = sorted(queues)
        if missing := [each for each in there if self.of(each) is None]:
            raise ConfigError(f"option {self.option}: has no value for {_names(missing)}")
        paths = {
            path
            for each in there
            for path in ((each.topic,), (each.topic, each.brokerName), _path(each))
        }
        if others := [each for each in _paths(self.value, ()) if each not in paths]:
            named = ", ".join("/".join(each) for each in others)
            raise ConfigError(f"option {self.option}: {named} is not among the queues to be read")


def parseQueues(option: str, text: str) -> tuple[MessageQueue, ...]:
    """
    Parse queues by topic and broker: C{{"Orders": {"broker-a": [0, 1]}}}.

    @raise ConfigError: if the text is not valid.
    """
    tree = _json(option, text)
    queues = []
    for topic, brokers in tree.items():
        if not isinstance(brokers, dict):
            raise ConfigError(f"option {option}: {topic} must have brokers with lists of queues")
        for name, numbers in brokers.items():
            if not isinstance(numbers, list) or not all(map(_isQueue, numbers)):
                raise ConfigError(f"option {option}: {topic}/{name} must have a list of queues")
            queues += [MessageQueue(topic, name, each) for each in numbers]
    if not queues:
        raise ConfigError(f"option {option}: names no queue")
    return tuple(sorted(set(queues)))


def _isQueue(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _path(queue: MessageQueue) -> tuple[str, ...]:
    return queue.topic, queue.brokerName, str(queue.queueId)


def _paths(value: object, before: tuple[str, ...]) -> list[tuple[str, ...]]:
    """
    The paths to all values of a table: topic, or topic and broker, or with the queue.
    """
    if not isinstance(value, Mapping):
        return [before] if before else []
    return [each for key, inner in value.items() for each in _paths(inner, (*before, key))]


def _names(queues: list[MessageQueue]) -> str:
    shown = ", ".join("/".join(_path(each)) for each in queues[:5])
    return shown if len(queues) <= 5 else f"{shown} and {len(queues) - 5} more"


def _table(option: str, text: str, least: int) -> Mapping[str, Any]:
    table = _json(option, text)
    _check(option, table, (), least)
    return table


def _check(option: str, value: object, path: tuple[str, ...], least: int) -> None:
    where = "/".join(path)
    if isinstance(value, dict):
        if len(path) == 3:
            raise ConfigError(f"option {option}: {where} is a queue and must have a number")
        if not value:
            raise ConfigError(f"option {option}: {where or 'it'} is empty")
        for key, inner in value.items():
            if len(path) == 2 and not (key.isascii() and key.isdigit()):
                raise ConfigError(f"option {option}: {where}/{key}: {key!r} is not a queue number")
            _check(option, inner, (*path, key), least)
    elif isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _GREATEST:
        raise ConfigError(f"option {option}: {where}: {value!r} is not a number from {least} on")


def _json(option: str, text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"option {option}: {_short(text)} is not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"option {option}: {_short(text)} is not a JSON object")
    return tree


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
