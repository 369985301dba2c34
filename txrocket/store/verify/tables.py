# SPDX-License-Identifier: Apache-2.0
"""
Checking the tables in C{config/} and their C{.bak}: checksum, shape, and range of values.

A table that Java has written has no checksum, so a wrong number of the right kind cannot be
found there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from txrocket.errors import ProtocolError
from txrocket.protocol.fastjson import parse
from txrocket.store.dispatch import SCHEDULE_TOPIC
from txrocket.store.jsontable import checked
from txrocket.store.verify.readonly import Note

__all__ = ["TablesCheck"]

# One past the last queue offset of a topic's queue.
Ends: TypeAlias = Mapping[tuple[str, int], int]

_MOST_QUEUES = 1 << 16


class TablesCheck:
    """
    The tables of a folder.
    """

    def __init__(self, folder: str, ends: Ends, note: Note) -> None:
        self._folder = folder
        self._ends = ends
        self._note = note

    def run(self) -> int:
        """
        Check all.

        @return: how many there are.
        """
        names = sorted(os.listdir(self._folder)) if os.path.isdir(self._folder) else []
        tables = [each for each in names if each.endswith((".json", ".json.bak"))]
        for name in tables:
            path = os.path.join(self._folder, name)
            with open(path, "rb") as table:
                data = table.read()
            try:
                value = parse(checked(data, strict=True), _objectKey)
            except ProtocolError as error:
                kind = "wrong checksum" if "checksum" in str(error) else "does not parse"
                self._note(path, kind, str(error))
                continue
            check = _CHECKS.get(name.removesuffix(".bak"))
            if check is not None:
                for fault in check(value, self._ends):
                    self._note(path, "wrong content", fault)
        return len(tables)


def _objectKey(members: dict[object, object]) -> tuple[str, ...]:
    return tuple(sorted(map(str, members.items())))


def _map(value: Any, name: str) -> tuple[dict[Any, Any], list[str]]:
    found = value.get(name) if isinstance(value, dict) else None
    if isinstance(found, dict):
        return found, []
    return {}, [f"it has no {name}"]


def _number(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _version(value: Any) -> Iterator[str]:
    version = value.get("dataVersion") if isinstance(value, dict) else None
    if version is not None and not (
        isinstance(version, dict)
        and all(_number(each, 0, 1 << 62) for each in version.values())
        and {*version} <= {"counter", "timestamp", "stateVersion"}
    ):
        yield f"its dataVersion is {str(version)[:80]}"


def _topics(value: Any, ends: Ends) -> Iterator[str]:
    table, problems = _map(value, "topicConfigTable")
    yield from problems
    yield from _version(value)
    for name, config in table.items():
        if not isinstance(config, dict) or config.get("topicName", name) != name:
            yield f"topic {name!r} is {str(config)[:80]}"
            continue
        for each, most in (
            ("readQueueNums", _MOST_QUEUES),
            ("writeQueueNums", _MOST_QUEUES),
            ("perm", 7),
            ("topicSysFlag", 3),
        ):
            if each in config and not _number(config[each], 0, most):
                yield f"topic {name!r} has a {each} of {str(config[each])[:80]}"


def _groups(value: Any, ends: Ends) -> Iterator[str]:
    table, problems = _map(value, "subscriptionGroupTable")
    yield from problems
    yield from _version(value)
    for name, config in table.items():
        if not isinstance(config, dict) or config.get("groupName", name) != name:
            yield f"group {name!r} is {str(config)[:80]}"
            continue
        for each, least in (("retryQueueNums", 0), ("retryMaxTimes", -1), ("brokerId", 0)):
            if each in config and not _number(config[each], least, (1 << 31) - 1):
                yield f"group {name!r} has a {each} of {str(config[each])[:80]}"


def _offsets(value: Any, ends: Ends) -> Iterator[str]:
    table, problems = _map(value, "offsetTable")
    yield from problems
    for key, offsets in table.items():
        topic, separator, _ = str(key).partition("@")
        if not separator or not isinstance(offsets, dict):
            yield f"{str(key)[:80]!r} is {str(offsets)[:80]}"
            continue
        for queue, offset in offsets.items():
            # The offsets of groups outlive their topic.
            end = ends.get((topic, _integer(queue)), (1 << 63) - 1)
            if _integer(queue) < 0 or not _number(offset, 0, end):
                yield f"{key!r} has {str(offset)[:80]} in queue {queue}, which ends at {end}"


def _delays(value: Any, ends: Ends) -> Iterator[str]:
    table, problems = _map(value, "offsetTable")
    yield from problems
    for level, offset in table.items():
        end = ends.get((SCHEDULE_TOPIC, _integer(level) - 1), 0)
        if _integer(level) < 1 or not _number(offset, 0, max(end, 0)):
            yield f"level {level} has {str(offset)[:80]}, its queue ends at {end}"


def _filters(value: Any, ends: Ends) -> Iterator[str]:
    table, problems = _map(value, "filterDataByTopic")
    yield from problems
    for topic, each in table.items():
        if not isinstance(each, dict) or each.get("topic", topic) != topic:
            yield f"topic {topic!r} is {str(each)[:80]}"


def _integer(key: Any) -> int:
    """
    The number that a key is; -1 if it is not valid.
    """
    if type(key) is int:
        return key
    return int(key) if isinstance(key, str) and key.isascii() and key.isdigit() else -1


_CHECKS: dict[str, Callable[[Any, Ends], Iterator[str]]] = {
    "topics.json": _topics,
    "subscriptionGroup.json": _groups,
    "consumerOffset.json": _offsets,
    "delayOffset.json": _delays,
    "consumerFilter.json": _filters,
}
