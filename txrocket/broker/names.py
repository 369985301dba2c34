# SPDX-License-Identifier: Apache-2.0
"""
The names of topics and groups: valid ones, and the broker's own.

L{txrocket.protocol.names} has the characters of a name.  A topic's name, and a group's with
a prefix, is the name of a folder in the store; without dots and slashes it cannot lead out of
the store.

    %RETRY%group    messages that a group gets again
    %DLQ%group      dead letters: messages after their last retry
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

#: Topics that every broker has for itself.  The topics of a broker's name and cluster, and
#: its reply topic, are its own as well, and are not in this set.
SYSTEM_TOPICS: Final = NOT_SENT_TO | {AUTO_CREATE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}

_SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


def checkTopic(name: str | None) -> str:
    """
    Refuse a topic name that is not valid.

    @return: the name.
    @raise RemoteSystemError: as Java answers, with what is wrong.
    """
    return _valid(name, topicFault(name))


def checkGroup(name: str | None) -> str:
    """
    Refuse a group name that is not valid.

    @return: the name.
    @raise RemoteSystemError: with what is wrong.
    """
    return _valid(name, groupFault(name))


def _valid(name: str | None, fault: str | None) -> str:
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
    The topic of a group's retried messages.
    """
    return RETRY_PREFIX + group
