# SPDX-License-Identifier: Apache-2.0
"""
Messages for scenarios, and what is to be seen of them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tests.interop.driver import Shown

__all__ = ["PROPERTIES", "bodies", "check", "checkResults", "many", "noise"]

# Those that all messages have which are made here.
PROPERTIES = ["number", "colour"]

_COLOURS = ("red", "green", "blue")


def many(topic: str, count: int, start: int = 0, **more: Any) -> list[Shown]:
    """
    Messages, each unlike the others.
    """
    return [
        {
            "topic": topic,
            "body": b"body %d" % number,
            "tags": f"Tag{number % 3}",
            "keys": [f"{topic}-key{number}", f"{topic}-even{number % 2}"],
            "properties": {"number": str(number), "colour": _COLOURS[number % 3]},
            **more,
        }
        for number in range(start, start + count)
    ]


def noise(size: int, seed: int = 1) -> bytes:
    """
    A body that cannot be compressed, without zero bytes: the C++ client stops at one.
    """
    chance = random.Random(seed)
    return chance.randbytes(size).replace(b"\0", b"\1")


def bodies(messages: Iterable[Shown]) -> list[bytes]:
    """
    The bodies of messages, sorted.
    """
    return sorted(each["body"] for each in messages)


def _seen(message: Shown, names: Iterable[str]) -> tuple[Any, ...]:
    properties = message.get("properties", {})
    return (
        message["topic"],
        message["body"],
        message.get("tags", ""),
        tuple(message.get("keys", ())),
        tuple((name, properties.get(name)) for name in names),
    )


def check(sent: Sequence[Shown], got: Sequence[Shown], names: Iterable[str] = PROPERTIES) -> None:
    """
    Each message came once, as it was sent.

    @param names: of the properties that are looked at.
    """
    before = Counter(_seen(each, names) for each in sent)
    after = Counter(_seen(each, names) for each in got)
    missing, more = before - after, after - before
    assert not missing and not more, (
        f"{len(sent)} sent, {len(got)} received;"
        f" missing {_some(missing)}; not expected {_some(more)}"
    )


def _some(messages: Counter[Any]) -> str:
    shown = ", ".join(str(each)[:300] for each in list(messages)[:2])
    return f"{messages.total()}: {shown}" if messages else "none"


def checkResults(sent: Sequence[Shown], results: Sequence[Shown], got: Sequence[Shown]) -> None:
    """
    What the producer was told of each message is what the consumer sees.
    """
    found = {each["body"]: each for each in got}
    for message, result in zip(sent, results, strict=True):
        seen = found[message["body"]]
        # A client may keep to itself which queue it was, or the broker's own id.
        for name in ("msgId", "offsetMsgId", "queueId", "queueOffset"):
            told, shown = result.get(name), seen.get(name)
            if told is not None and shown is not None:
                assert told == shown, f"{name}: the producer was told {told}, not {shown}"
