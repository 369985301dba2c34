# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.nameserver.topicqueues}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from txrocket.model import PERM_READ, PERM_WRITE, QueueData, TopicConfig
from txrocket.nameserver.brokerinfo import BrokerEntry
from txrocket.nameserver.topicqueues import TopicQueueTable, queuesOf
from txrocket.protocol.fastjson import finish


def queues(brokerName: str, perm: int = PERM_READ | PERM_WRITE) -> QueueData:
    """
    The queues of a topic at a broker.
    """
    return QueueData(brokerName, 4, 4, perm)


class TopicQueueTableTests(SynchronousTestCase):
    """
    L{TopicQueueTable}.
    """

    def setUp(self) -> None:
        self.table = TopicQueueTable()
        self.table.setQueues("a", {"T": queues("a"), "U": queues("a")})
        self.table.setQueues("b", {"T": queues("b")})

    def test_removedBrokerRemovesItsTopics(self) -> None:
        """
        A topic whose last broker is removed is removed, too; others keep their brokers.
        """
        self.table.removeBrokers({"a", "unknown"})
        self.assertEqual(self.table, {"T": {"b": queues("b")}})

    def test_removedBrokerKeepsOtherTopics(self) -> None:
        """
        With topics, a broker is removed from these only.
        """
        self.table.removeBrokers({"a"}, ("T",))
        self.assertEqual(self.table, {"T": {"b": queues("b")}, "U": {"a": queues("a")}})

    def test_changedPermSparesOtherBrokers(self) -> None:
        """
        The permissions of one broker's topics change, and equal values are shared.
        """
        self.assertEqual(self.table.changePerm("a", lambda perm: perm & ~PERM_WRITE), 2)
        self.assertEqual(self.table["T"], {"a": queues("a", PERM_READ), "b": queues("b")})
        self.assertIs(self.table["T"]["a"], self.table["U"]["a"])
        self.assertEqual(self.table.changePerm("unknown", lambda perm: 0), 0)

    def test_changeBetweenStepsIsSafe(self) -> None:
        """
        The table may change between the steps of a search; queues that are removed before
        their step are not found.
        """
        for number in range(1000):
            self.table.setQueues("c", {f"T{number}": queues("c")})
        searching = self.table.topicsWhere(lambda each: "c" in each)
        next(searching)
        self.table.removeBrokers({"c"})
        self.assertLess(0, len(finish(searching)))
        self.assertEqual(self.table.keys(), {"T", "U"})


class QueuesOfTests(SynchronousTestCase):
    """
    L{queuesOf}.
    """

    def test_slavesTopicsAreReadOnly(self) -> None:
        """
        The topics of a slave have no write permission, those of a master have it.
        """
        for brokerId, perm in ((0, PERM_READ | PERM_WRITE), (1, PERM_READ)):
            broker = BrokerEntry("cluster", "a", brokerId, "192.0.2.1:10911")
            made = finish(queuesOf(broker, [TopicConfig("T", 4, 4)]))
            self.assertEqual(made, {"T": queues("a", perm)})
