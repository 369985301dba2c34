# SPDX-License-Identifier: Apache-2.0
"""
Topics whose ordinary messages need no further look: a message has passed all checks
before, and nothing has changed since.
"""

from __future__ import annotations

from typing import Final

from txrocket.model import TopicConfig
from txrocket.processors.messages.send.sendchecks import SendChecks
from txrocket.protocol.record.fields import TopicField, encodeTopic

__all__ = ["CheckedTopics"]

# How many are known at a time.
_KNOWN: Final = 10_000


class CheckedTopics:
    """
    What is known of topics.

    @ivar configs: by name.
    @ivar queues: by name in UTF-8, the queues to write to, as the store names them.
    @ivar fields: by name, the name as records have it.
    """

    def __init__(self, checks: SendChecks) -> None:
        self._checks = checks
        self._topics = checks.topics
        self._version = checks.topics.version
        self._rules = checks.rules
        self.configs: dict[str, TopicConfig] = {}
        self.queues: dict[bytes, tuple[tuple[str, int], ...]] = {}
        self.fields: dict[str, TopicField] = {}

    def add(self, config: TopicConfig) -> None:
        """
        Messages to a topic have passed all checks.
        """
        if len(self.configs) >= _KNOWN:
            self.clear()
        topic = config.topicName
        self.configs[topic] = config
        queues = range(config.writeQueueNums)
        self.queues[topic.encode()] = tuple((topic, queueId) for queueId in queues)
        self.fields[topic] = encodeTopic(topic)

    def clear(self) -> None:
        """
        The rules have changed.
        """
        self.configs.clear()
        self.queues.clear()
        self.fields.clear()

    def refresh(self) -> None:
        """
        Forget topics that have changed or do not exist any more, and all of them if the
        settings have changed.
        """
        if self._rules != self._checks.rules:
            self._rules = self._checks.rules
            self.clear()
        if self._version is not self._topics.version:
            self._version = self._topics.version
            # A topic that changes becomes another object.
            for topic, config in list(self.configs.items()):
                if config is not self._topics.get(topic):
                    del self.configs[topic], self.queues[topic.encode()], self.fields[topic]
