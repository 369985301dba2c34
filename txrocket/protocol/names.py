# SPDX-License-Identifier: Apache-2.0
"""
Which names topics and groups may have: RocketMQ's C{TopicValidator} and, at the
client, C{Validators}::

    topic    1 to 127 of   A-Z a-z 0-9 _ - % |
    group    1 to 255 of   the same

    %RETRY%group    the topic of messages that a group could not consume, to be tried again
    TBW102          whose queues and permissions a topic inherits that is made by a send

Some topics are for brokers alone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from txrocket.errors import InvalidMessage
from txrocket.protocol.parts import TOPIC_LIMIT

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

#: The topic whose queues and permissions a topic inherits that is made by a send.
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

# \Z and not $, which would let a line feed pass at the end.
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z").match

# How much of a bad name is quoted back.
_QUOTED: Final = 60


def topicFault(name: str | None) -> str | None:
    """
    Why something cannot be a topic's name, or L{None} if it can.
    """
    return _fault("topic", name, TOPIC_LIMIT)


def groupFault(name: str | None) -> str | None:
    """
    Why something cannot be a group's name, or L{None} if it can.
    """
    return _fault("group", name, GROUP_LIMIT)


def checkTopicName(name: str) -> None:
    """
    Refuse what cannot be a topic's name.

    @raise InvalidMessage: with what is wrong.
    """
    if (fault := topicFault(name)) is not None:
        raise InvalidMessage(fault)


# A producer sends to few topics, and checks each time.
@lru_cache(1024)
def checkSendTopic(name: str) -> None:
    """
    Refuse what messages cannot be sent to.

    @raise InvalidMessage: with what is wrong.
    """
    checkTopicName(name)
    if name in NOT_SENT_TO:
        raise InvalidMessage(f"only brokers send to the topic {name}")


def checkGroupName(name: str) -> None:
    """
    Refuse what cannot be a group's name.

    @raise InvalidMessage: with what is wrong.
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
    The topic of replies at all brokers of a cluster.
    """
    return f"{cluster}_REPLY_TOPIC"
