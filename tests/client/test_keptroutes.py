# SPDX-License-Identifier: Apache-2.0
"""
Clients of a cluster whose name servers are restarted, and whose topics are deleted.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from txrocket.client.cluster import Cluster
from txrocket.client.producer.producer import Producer
from txrocket.errors import SendFailed, TopicNotExist
from txrocket.message import Message
from txrocket.model import MASTER_ID
from txrocket.nameserver.routetable import RouteTable
from txrocket.testing.memory.cluster import MemoryCluster
from txrocket.testing.trial import memoryCluster


class RestartTests(SynchronousTestCase):
    """
    A producer at work.
    """

    def prepare(self, **options: Any) -> None:
        """
        Start a cluster, and a producer that knows its topic.
        """
        self.servers: MemoryCluster = memoryCluster(self, **options)
        # So that which name server is used first is known.
        self.cluster = Cluster(
            self.servers.nameServers,
            self.servers.clock,
            connect=self.servers.connect,
            choose=lambda below: 0,
        )
        self.addCleanup(lambda: self.servers.resultOf(self.cluster.stopService()))
        self.producer = Producer(self.cluster, "p")
        self.producer.setServiceParent(self.cluster)
        self.servers.resultOf(self.producer.start())
        self.send()
        self.servers.advance(31.0)

    def send(self, topic: str = "T") -> None:
        """
        Send a message.
        """
        self.servers.resultOf(self.producer.send(Message(topic, b"body")))

    def sendFor(self, seconds: float) -> None:
        """
        Send a message every tenth of a second; none may fail.
        """
        for _ in range(int(seconds * 10)):
            self.send()
            self.servers.advance(0.1)

    def test_nameServerRestartFailsNoSend(self) -> None:
        """
        No send fails while a name server is down, while it is back without routes, and
        after that.
        """
        self.prepare()
        (address,) = self.servers.nameServers
        self.servers.crash(address)
        self.sendFor(40.0)
        self.servers.start(address)
        for _ in range(3):
            self.servers.resultOf(self.cluster.refreshRoutes())
            self.send()
        self.sendFor(40.0)

    def test_emptyNameServerFailsNoSend(self) -> None:
        """
        No send fails while a name server has no routes because its brokers do not reach it.
        """
        self.prepare()
        # Its brokers go on telling the rest.
        self.patch(RouteTable, "route", lambda table, topic: None)
        self.sendFor(70.0)

    def test_otherNameServerAsked(self) -> None:
        """
        A topic that one name server does not know is found at another.
        """
        self.prepare(nameServers=2)
        first, _ = self.servers.nameServers
        self.send("U")
        self.servers.advance(1.0)
        self.servers.nameServer(first).routes.deleteTopic("U")
        other = Cluster(
            self.servers.nameServers,
            self.servers.clock,
            connect=self.servers.connect,
            choose=lambda below: 0,
        )
        self.addCleanup(lambda: self.servers.resultOf(other.stopService()))
        route = self.servers.resultOf(other.routes.find("U"))
        self.assertEqual(list(route.brokers), ["broker-0"])

    def test_deletedTopicDropped(self) -> None:
        """
        A topic that is deleted at the broker, which makes none by itself, fails with
        TopicNotExist, and its route is forgotten.
        """
        self.prepare()
        names, topics = self.servers.nameServer().routes, self.servers.broker().tables.topics
        for topic in ("T", "TBW102"):
            self.servers.resultOf(topics.remove(topic))
            names.deleteTopic(topic)
        self.servers.advance(1.0)
        failed = self.assertRaises(SendFailed, self.send)
        self.assertIsInstance(failed.error, TopicNotExist)
        self.assertIsNone(self.cluster.routes.get("T"))

    def test_brokerGoneTopicGoesElsewhere(self) -> None:
        """
        A topic whose only broker is gone for good is taken by another broker, as one that
        does not exist yet.
        """
        self.prepare(brokers=2)
        route = self.cluster.routes.get("T")
        assert route is not None
        (addresses,) = route.brokers.values()
        self.servers.crash(addresses[MASTER_ID])
        self.servers.advance(1.0)
        self.send()
        after = self.cluster.routes.get("T")
        assert after is not None
        self.assertNotEqual(list(after.brokers), list(route.brokers))
