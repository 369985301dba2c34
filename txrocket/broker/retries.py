# SPDX-License-Identifier: Apache-2.0
"""
Messages that a group could not deal with: how often they are tried again, and where
they go when that was the last time; the rules that C{asyncConsumerSendMsgBack} and
C{handleRetryAndDLQ} of Java's C{SendMessageProcessor} share::

    sent back, or sent to %RETRY%group --> times left: %RETRY%group, after a while
                                     \\--> none: %DLQ%group, for good
"""

from __future__ import annotations

from typing import Final

from txrocket.broker.groups import Groups
from txrocket.broker.names import DLQ_PREFIX, RETRY_PREFIX
from txrocket.broker.topics import Topics
from txrocket.errors import SubscriptionGroupNotExist
from txrocket.model import SubscriptionGroupConfig, TopicConfig

__all__ = ["Retries"]

# The ordinal of V3_4_9: clients before it do not say how often they want to try.
_SAYS_TIMES: Final = 121

# Queues of a topic of dead letters, as in Java.
_DEAD_QUEUES: Final = 1


class Retries:
    """
    The groups of a broker that try messages again.
    """

    def __init__(self, topics: Topics, groups: Groups) -> None:
        self._topics = topics
        self._groups = groups

    def group(self, name: str) -> SubscriptionGroupConfig:
        """
        A group that wants to try a message again.

        @raise ResponseError: if there is none.
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
        Whether a message is not tried again.

        @param times: how often it was.
        @param wanted: how often its client wants to, if it says so.
        @param version: the client's.
        """
        most = config.retryMaxTimes if wanted is None or version < _SAYS_TIMES else wanted
        return times >= most

    def dead(self, topic: str, times: int, wanted: int | None, version: int) -> str | None:
        """
        Where a message goes instead that a client sends to a retry topic, if it is not
        tried again.

        @param topic: C{%RETRY%} and the group.
        @raise ResponseError: if there is no such group.
        """
        config = self.group(topic[len(RETRY_PREFIX) :])
        if not self.isDead(config, times, wanted, version):
            return None
        return self.deadTopic(config.groupName)

    def retryTopic(self, config: SubscriptionGroupConfig, unit: bool) -> TopicConfig:
        """
        Where a group's messages come again, made if it is not there.
        """
        return self._topics.ensureRetryTopic(config.groupName, config.retryQueueNums, unit)

    def deadTopic(self, group: str) -> str:
        """
        Where a group's dead letters lie, made if it is not there.
        """
        return self._topics.ensure(DLQ_PREFIX + group, _DEAD_QUEUES).topicName
