# SPDX-License-Identifier: Apache-2.0
"""
Retries and dead letters: how often a group gets a message again, and where the message goes
after the last time.  C{asyncConsumerSendMsgBack} and C{handleRetryAndDLQ} of Java's
C{SendMessageProcessor} share these rules::

    sent back, or sent to %RETRY%group --> retries left: %RETRY%group, after a delay
                                     \\--> none left: %DLQ%group
"""

from __future__ import annotations

from typing import Final

from txrocket.broker.names import DLQ_PREFIX, RETRY_PREFIX
from txrocket.broker.tables.groups import Groups
from txrocket.broker.tables.topics import Topics
from txrocket.errors import SubscriptionGroupNotExist
from txrocket.model import SubscriptionGroupConfig, TopicConfig

__all__ = ["Retries"]

# The ordinal of V3_4_9: older clients do not send their maximum of retries.
_SAYS_TIMES: Final = 121

# Queues of a topic of dead letters, as in Java.
_DEAD_QUEUES: Final = 1


class Retries:
    """
    The rules of retries.
    """

    def __init__(self, topics: Topics, groups: Groups) -> None:
        self._topics = topics
        self._groups = groups

    def group(self, name: str) -> SubscriptionGroupConfig:
        """
        The group that retries a message.

        @raise ResponseError: if it does not exist.
        """
        config = self._groups.find(name)
        if config is None:
            raise SubscriptionGroupNotExist(
                f"consumer group {name} does not exist, and autoCreateSubscriptionGroup is false"
            )
        return config

    def isDead(
        self, config: SubscriptionGroupConfig, times: int, wanted: int | None, version: int
    ) -> bool:
        """
        Whether a message has had all of its retries.

        @param times: how often it was retried.
        @param wanted: the maximum that the client asks for, if any.
        @param version: the client's.
        """
        most = config.retryMaxTimes if wanted is None or version < _SAYS_TIMES else wanted
        return times >= most

    def dead(self, topic: str, times: int, wanted: int | None, version: int) -> str | None:
        """
        The topic of dead letters for a message that a client sends to a retry topic;
        L{None} if it has retries left.

        @param topic: C{%RETRY%} and the group.
        @raise ResponseError: if the group does not exist.
        """
        config = self.group(topic[len(RETRY_PREFIX) :])
        if not self.isDead(config, times, wanted, version):
            return None
        return self.deadTopic(config.groupName)

    def retryTopic(self, config: SubscriptionGroupConfig, unit: bool) -> TopicConfig:
        """
        The retry topic of a group, created if it does not exist.
        """
        return self._topics.ensureRetryTopic(config.groupName, config.retryQueueNums, unit)

    def deadTopic(self, group: str) -> str:
        """
        The topic of a group's dead letters, created if it does not exist.
        """
        return self._topics.ensure(DLQ_PREFIX + group, _DEAD_QUEUES).topicName
