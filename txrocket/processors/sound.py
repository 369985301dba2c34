# SPDX-License-Identifier: Apache-2.0
"""
Topics whose ordinary messages need no further look: a message has passed all checks
before, and nothing has changed since.
"""

from __future__ import annotations

from typing import Final

from txrocket.broker.topics import Topics
from txrocket.model import TopicConfig
from txrocket.protocol.parts import TopicField, encodeTopic

__all__ = ["SoundTopics"]

# How many are known at a time.
_KNOWN: Final = 10_000


class SoundTopics:
    """
    What is known of topics.

    @ivar configs: by name.
    @ivar queues: by name in UTF-8, the queues to write to, as the store names them.
    @ivar fields: by name, the name as records have it.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._version = topics.version
        self.configs: dict[str, TopicConfig] = {}
        self.queues: dict[bytes, tuple[tuple[str, int], ...]] = {}
        self.fields: dict[str, TopicField] = {}

    def note(self, config: TopicConfig) -> None:
        """
        A topic is in order.
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
        Forget topics that have changed, or are gone.
        """
        if self._version is not self._topics.version:
            self._version = self._topics.version
            # A topic that changes becomes another object.
            for topic, config in list(self.configs.items()):
                if config is not self._topics.get(topic):
                    del self.configs[topic], self.queues[topic.encode()], self.fields[topic]
