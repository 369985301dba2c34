# SPDX-License-Identifier: Apache-2.0
"""
Rules for the names of topics and groups: RocketMQ's C{TopicValidator} and, in the
client, C{Validators}::

    topic    1 to 127 of   A-Z a-z 0-9 _ - % |
    group    1 to 255 of   the same

    %RETRY%group    the topic of messages that a group failed to consume and will retry
    TBW102          the topic whose queues and permissions an auto-created topic inherits

Only brokers may send to some of the system topics.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from txrocket.errors import InvalidMessage
from txrocket.protocol.record.fields import TOPIC_LIMIT

__all__ = [
    "AUTO_CREATE_TOPIC",
    "GROUP_LIMIT",
    "NOT_SENT_TO",
    "RETRY_PREFIX",
    "checkGroupName",
    "checkSendTopic",
    "checkTopicName",
    "groupFault",
    "replyTopic",
    "topicFault",
]

GROUP_LIMIT: Final = 255

RETRY_PREFIX: Final = "%RETRY%"

#: The topic whose queues and permissions an auto-created topic inherits.
AUTO_CREATE_TOPIC: Final = "TBW102"

#: Topics that no client may send to.
NOT_SENT_TO: Final = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)

# \Z instead of $, because $ accepts a line feed at the end.
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z").match

# Characters of a name that is not valid, in an error.
_QUOTED: Final = 60


def topicFault(name: str | None) -> str | None:
    """
    The reason why a topic name is not valid; L{None} if it is valid.
    """
    return _fault("topic", name, TOPIC_LIMIT)


def groupFault(name: str | None) -> str | None:
    """
    The reason why a group name is not valid; L{None} if it is valid.
    """
    return _fault("group", name, GROUP_LIMIT)


def checkTopicName(name: str) -> None:
    """
    Check a topic name.

    @raise InvalidMessage: if the name is not valid.
    """
    if (fault := topicFault(name)) is not None:
        raise InvalidMessage(fault)


# Cached, because a producer checks the topic of each message and has few topics.
@lru_cache(1024)
def checkSendTopic(name: str) -> None:
    """
    Check that a client may send to a topic.

    @raise InvalidMessage: if the name is not valid, or only brokers send to the topic.
    """
    checkTopicName(name)
    if name in NOT_SENT_TO:
        raise InvalidMessage(f"only brokers send to the topic {name}")


def checkGroupName(name: str) -> None:
    """
    Check a group name.

    @raise InvalidMessage: if the name is not valid.
    """
    if (fault := groupFault(name)) is not None:
        raise InvalidMessage(fault)


def _fault(what: str, name: str | None, limit: int) -> str | None:
    if not name or name.isspace():
        return f"the {what} is blank"
    if len(name) > limit:
        return (
            f"the {what} that begins with {name[:_QUOTED]!r} has {len(name)} characters, "
            f"at most {limit} are allowed"
        )
    if _LEGAL(name) is None:
        return f"the {what} {name[:_QUOTED]!r} holds characters other than letters, digits and _-%|"
    return None


def replyTopic(cluster: str) -> str:
    """
    The name of the topic that receives replies, at each broker of a cluster.
    """
    return f"{cluster}_REPLY_TOPIC"
