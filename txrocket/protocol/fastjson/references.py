# SPDX-License-Identifier: Apache-2.0
"""
References of fastjson's dialect: C{{"$ref": path}} stands for another value of the same
text, and is replaced by a copy of it::

    {"a":{"x":1},"b":{"$ref":"$.a"}}   ->   {"a":{"x":1},"b":{"x":1}}
"""

from __future__ import annotations

import re
from typing import Any, Final

from txrocket.errors import MalformedBody
from txrocket.protocol.fastjson.gradual import Gradual

__all__ = ["MAX_DEPTH", "STEP", "Reference", "Unfolding"]

#: The maximum depth of a value.  RocketMQ's bodies are less than ten levels deep.
MAX_DEPTH: Final = 64

#: The number of values or escapes between two yields.
STEP: Final = 128

# The longest path of a reference: RocketMQ's have less than a hundred characters.
_PATH_LIMIT: Final = 1024

_SEGMENT = re.compile(r"\.((?:\\.|[^\\.\[])+)|\[([0-9]{1,10})\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class Reference:
    """
    A C{{"$ref": path}} that is not yet resolved.
    """

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


class Unfolding:
    """
    Replaces the references in a value.  The value of a reference is copied, so the
    result has neither shared values nor cycles.
    """

    def __init__(self, root: Any, room: int) -> None:
        """
        @param room: the maximum number of values in the result.
        """
        self.root = root
        self.room = room
        self.found: dict[str, Any] = {}

    def unfold(self, value: Any, depth: int) -> Gradual[Any]:
        """
        Copy a value and replace its references.
        """
        self.room -= 1
        if self.room % STEP == 0:
            yield
        if self.room < 0:
            raise MalformedBody("references unfold to too many values")
        if depth > MAX_DEPTH:
            # "$", "@" and ".." refer to a value that contains the reference: no body of
            # RocketMQ has that.
            raise MalformedBody(f"references nest deeper than {MAX_DEPTH}")
        if isinstance(value, dict):
            members = {}
            for key, item in value.items():
                members[key] = yield from self.unfold(item, depth + 1)
            return members
        if isinstance(value, list):
            items = []
            for item in value:
                items.append((yield from self.unfold(item, depth + 1)))
            return items
        if isinstance(value, Reference):
            return (yield from self.unfold(self.find(value.path, depth + 1), depth + 1))
        return value

    def find(self, path: str, depth: int) -> Any:
        """
        Find the value at a path.
        """
        if path in self.found:
            return self.found[path]
        if depth > MAX_DEPTH:
            raise MalformedBody(f"references nest deeper than {MAX_DEPTH}")
        if len(path) > _PATH_LIMIT:
            raise MalformedBody(f"reference of {len(path)} characters: the limit is {_PATH_LIMIT}")
        if not path.startswith("$"):
            raise MalformedBody(f"reference {path[:80]!r} refers to a value that contains it")
        value, at = self.root, 1
        while at < len(path):
            match = _SEGMENT.match(path, at)
            if isinstance(value, Reference):
                value = self.find(value.path, depth + 1)
            try:
                if match is None:
                    raise KeyError
                value = _step(value, match)
            except (LookupError, TypeError):
                raise MalformedBody(f"reference {path[:80]!r} does not exist") from None
            at = match.end()
        self.found[path] = value
        return value


def _step(value: Any, match: re.Match[str]) -> Any:
    if match.group(1) is None:
        return value[int(match.group(2))]
    name = _ESCAPED.sub(r"\1", match.group(1))
    return value[name]
