# SPDX-License-Identifier: Apache-2.0
"""
Removal of topics, groups and old files, from every part of the broker that knows them::

    a topic    its configuration, its queues, the groups' offsets in it, statistics
    a group    its configuration, if asked for its offsets, statistics
    old files  of the log, with what queues and index have of them
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.broker.names import isSystemTopic
from txrocket.broker.stats import Stats
from txrocket.broker.tables.consumeroffsets import ConsumerOffsets
from txrocket.broker.tables.groups import Groups
from txrocket.broker.tables.topics import Topics
from txrocket.errors import StoreError
from txrocket.protocol.fastjson import Gradual
from txrocket.store.messagestore import MessageStore

__all__ = ["Removal"]


class Removal:
    """
    Removes topics, groups and files.
    """

    _log = Logger()

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        offsets: ConsumerOffsets,
        store: MessageStore,
        stats: Stats,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._stats = stats

    def topic(self, name: str) -> Deferred[None]:
        """
        Remove a topic.

        @return: a Deferred that fires once that is on the disk.
        @raise StoreError: if its queues cannot be removed.
        """
        self._forget(name)
        return self._topics.remove(name)

    def unused(self) -> Gradual[int]:
        """
        Remove the queues of topics that do not exist any more.  A queue that still has
        messages stays until the log has deleted them, because a lost table of topics must
        not cost the messages as well.

        @return: how many topics lost their queues.
        @raise StoreError: if they cannot be removed.
        """
        # The broker creates the queues of its own topics without a configuration.
        unused = [
            each
            for each in self._store.queues.topics()
            if self._topics.get(each) is None and not isSystemTopic(each)
        ]
        filled = {topic for topic, _, each in self._store.queues if each.minOffset < each.maxOffset}
        removed = 0
        for name in unused:
            if name not in filled:
                self._forget(name)
                removed += 1
            else:
                self._log.warn(
                    "Topic {topic} does not exist any more, but its queues have messages, and stay"
                    " until the log has deleted these: create the topic to read them",
                    topic=name,
                )
            yield
        return removed

    def group(self, name: str, *, withOffsets: bool) -> Deferred[None]:
        """
        Remove a group.

        @return: a Deferred that fires once that is on the disk.
        """
        removed = self._groups.remove(name)
        if withOffsets:
            self._offsets.removeGroup(name)
        self._stats.forgetGroup(name)
        return removed

    def oldFiles(self) -> int:
        """
        Delete the files of the log that are old enough to go.

        @return: how many.
        @raise StoreError: if they cannot be deleted.
        """
        try:
            return self._store.retention.clean(asked=True)
        except OSError as error:
            raise StoreError(f"deleting old files failed: {error}") from error

    def _forget(self, topic: str) -> None:
        # No caller waits until the files are deleted.
        self._store.removeTopic(topic)
        self._offsets.removeTopic(topic)
        self._stats.forgetTopic(topic)
        self._log.info("The queues of topic {topic} are removed", topic=topic)
