# SPDX-License-Identifier: Apache-2.0
"""
Which names topics and groups may have, and which have a meaning of their own.

What a name is made of is in L{txrocket.protocol.names}.  A topic's name becomes
the name of a folder in the store, and so does a group's with a prefix; without a
dot and a slash among the characters none leaves it.

    %RETRY%group    messages that a group could not consume, to be tried again
    %DLQ%group      those that were tried often enough
    rmq_sys_...     the broker's own topics, beside those of SYSTEM_TOPICS
    CID_RMQ_SYS_... the broker's own groups
"""

from __future__ import annotations

from typing import Final

from txrocket.errors import NoPermission, RemoteSystemError
from txrocket.protocol.names import (
    AUTO_CREATE_TOPIC,
    GROUP_LIMIT,
    NOT_SENT_TO,
    RETRY_PREFIX,
    groupFault,
    topicFault,
)

__all__ = [
    "AUTO_CREATE_TOPIC",
    "DLQ_PREFIX",
    "GROUP_LIMIT",
    "NOT_SENT_TO",
    "RETRY_PREFIX",
    "SYSTEM_TOPICS",
    "checkGroup",
    "checkNotSystem",
    "checkSendable",
    "checkTopic",
    "isSystemGroup",
    "isSystemTopic",
    "retryTopic",
]

DLQ_PREFIX: Final = "%DLQ%"

#: Topics that every broker has for itself.  A broker's own name, its cluster's
#: and its reply topic's are so too at that broker, and in none of these sets.
SYSTEM_TOPICS: Final = NOT_SENT_TO | {AUTO_CREATE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}

_SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


def checkTopic(name: str | None) -> str:
    """
    Refuse what cannot be a topic's name.

    @return: the name.
    @raise RemoteSystemError: as Java answers, with what is wrong.
    """
    return _sound(name, topicFault(name))


def checkGroup(name: str | None) -> str:
    """
    Refuse what cannot be a group's name.

    @return: the name.
    @raise RemoteSystemError: with what is wrong.
    """
    return _sound(name, groupFault(name))


def _sound(name: str | None, fault: str | None) -> str:
    if name is None or fault is not None:
        raise RemoteSystemError(fault or "")
    return name


def isSystemTopic(name: str) -> bool:
    """
    Whether every broker has this topic for itself.
    """
    return name in SYSTEM_TOPICS or name.startswith(_SYSTEM_TOPIC_PREFIX)


def isSystemGroup(name: str) -> bool:
    """
    Whether this group is a broker's own, which exists without being created.
    """
    return name.startswith(_SYSTEM_GROUP_PREFIX)


def checkNotSystem(topic: str) -> None:
    """
    Refuse to let an operator create or delete a topic that is the broker's own.

    @raise RemoteSystemError: as Java answers.
    """
    if isSystemTopic(topic):
        raise RemoteSystemError(f"the topic {topic} is one of the broker's own")


def checkSendable(topic: str) -> None:
    """
    Refuse a message to a topic that only the broker itself writes to.

    @raise NoPermission: as Java answers.
    """
    if topic in NOT_SENT_TO:
        raise NoPermission(f"only the broker itself sends to the topic {topic}")


def retryTopic(group: str) -> str:
    """
    The topic of a group's messages that are to be tried again.
    """
    return RETRY_PREFIX + group
