# SPDX-License-Identifier: Apache-2.0
"""
Which names topics and groups may have: RocketMQ's C{TopicValidator} and, at the
client, C{Validators}::

    topic    1 to 127 of   A-Z a-z 0-9 _ - % |
    group    1 to 255 of   the same
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from txrocket.errors import InvalidMessage
from txrocket.protocol.parts import TOPIC_LIMIT

__all__ = ["GROUP_LIMIT", "checkGroupName", "checkTopicName"]

GROUP_LIMIT: Final = 255

# \\Z and not $, which would let a line feed pass at the end.
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z").match
_QUOTED: Final = 60


# A producer sends to few topics, and checks each time.
@lru_cache(1024)
def checkTopicName(name: str) -> None:
    """
    Refuse what cannot be a topic's name.

    @raise InvalidMessage: with what is wrong.
    """
    _check("topic", name, TOPIC_LIMIT)


def checkGroupName(name: str) -> None:
    """
    Refuse what cannot be a group's name.

    @raise InvalidMessage: with what is wrong.
    """
    _check("group", name, GROUP_LIMIT)


def _check(what: str, name: str, limit: int) -> None:
    if not name or name.isspace():
        raise InvalidMessage(f"the {what} is blank")
    if len(name) > limit:
        raise InvalidMessage(
            f"the {what} that begins with {name[:_QUOTED]!r} has {len(name)} characters, "
            f"at most {limit} are allowed"
        )
    if _LEGAL(name) is None:
        raise InvalidMessage(
            f"the {what} {name[:_QUOTED]!r} holds characters other than letters, digits and _-%|"
        )
