# SPDX-License-Identifier: Apache-2.0
"""
The topicQueueTable of Java's C{RouteInfoManager}: which broker has how many queues of
which topic::

    topic  ->  broker name  ->  QueueData

No topic in the table is without a broker.  The values are frozen and are replaced, so
a caller may keep a value that it got.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from txrocket.model import MASTER_ID, PERM_WRITE, QueueData, TopicConfig
from txrocket.nameserver.brokerinfo import BrokerEntry
from txrocket.protocol.fastjson import Gradual

__all__ = ["TopicQueueTable", "queuesOf"]

# Topics per step.
_STEP: Final = 256


class TopicQueueTable(dict[str, dict[str, QueueData]]):
    """
    The queues of all topics.
    """

    def setQueues(self, brokerName: str, queues: Mapping[str, QueueData]) -> None:
        """
        Add or replace a broker's queues of some topics.
        """
        for topic, data in queues.items():
            brokers = self.get(topic)
            if brokers is None:
                self[topic] = {brokerName: data}
            else:
                brokers[brokerName] = data

    def removeBrokers(self, names: Collection[str], topics: Iterable[str] | None = None) -> None:
        """
        Remove the queues of some brokers.  A topic without other brokers is removed too.

        @param topics: the topics to remove them from; L{None} for all topics.
        """
        names = frozenset(names)
        if topics is None:
            topics = [topic for topic, queues in self.items() if not names.isdisjoint(queues)]
        for topic in topics:
            queues = self[topic]
            for name in names.intersection(queues):
                del queues[name]
            if not queues:
                del self[topic]

    def changePerm(self, brokerName: str, change: Callable[[int], int]) -> int:
        """
        Change the permissions of all topics of a broker.

        @return: the number of the broker's topics.
        """
        shared: dict[QueueData, QueueData] = {}
        count = 0
        for queues in self.values():
            data = queues.get(brokerName)
            if data is not None:
                count += 1
                new = replace(data, perm=change(data.perm))
                queues[brokerName] = shared.setdefault(new, new)
        return count

    def topicsWhere(
        self, wanted: Callable[[dict[str, QueueData]], bool]
    ) -> Gradual[frozenset[str]]:
        """
        Find topics in steps.

        @param wanted: called with a topic's queues by broker name.
        """
        found = set()
        for count, (topic, queues) in enumerate(list(self.items()), 1):
            if wanted(queues):
                found.add(topic)
            if count % _STEP == 0:
                yield
        return frozenset(found)


def queuesOf(broker: BrokerEntry, topics: Iterable[TopicConfig]) -> Gradual[dict[str, QueueData]]:
    """
    Convert the topics of a registration to the table's values, in steps.  Topics of a
    slave cannot be written to.
    """
    name = broker.brokerName
    allowed = ~0 if broker.brokerId == MASTER_ID else ~PERM_WRITE
    # Most topics of a broker have the same queues, so they share one value.
    shared: dict[QueueData, QueueData] = {}
    queues = {}
    for count, each in enumerate(topics, 1):
        data = QueueData(
            name,
            each.readQueueNums,
            each.writeQueueNums,
            each.perm & allowed,
            each.topicSysFlag,
        )
        queues[each.topicName] = shared.setdefault(data, data)
        if count % _STEP == 0:
            yield
    return queues
