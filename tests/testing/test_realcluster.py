# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.testing.realcluster} and L{txrocket.testing.trial}.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from typing import Any

from twisted.internet import reactor as theReactor
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.trial.unittest import TestCase

from tests.test_examples import asDeferred
from tests.testing.client import Cleaned, Client
from txrocket.broker.service import Broker
from txrocket.errors import ConfigError
from txrocket.nameserver.service import NameServer
from txrocket.remoting.peers import endpoints
from txrocket.testing import RealCluster, realcluster
from txrocket.testing.clustersettings import freePort
from txrocket.testing.trial import realCluster

reactor: Any = theReactor


class RealTests(TestCase):
    """
    Tests for L{RealCluster}.
    """

    timeout = 300

    def setUp(self) -> None:
        self.client = Client(reactor, endpoints(reactor))
        self.addCleanup(self.client.stop)

    @asDeferred
    async def test_startedClusterDeliversMessages(self) -> None:
        """
        After the start every name server knows every broker, and messages go
        through each.
        """
        cluster = RealCluster(reactor, brokers=2, nameServers=2)
        self.addCleanup(cluster.stop)
        await cluster.start()
        for each in cluster.nameServers:
            known = await self.client.brokersOf(each)
            self.assertEqual(
                known, dict(zip(["broker-0", "broker-1"], cluster.brokers, strict=True))
            )
        for each in cluster.brokers:
            await self.client.send(each, each.encode())
            (message,) = await self.client.pull(each)
            self.assertEqual(message.body, each.encode())

    @asDeferred
    async def test_serversAreReachableByAddress(self) -> None:
        """
        The servers are found by their addresses.
        """
        cluster = RealCluster(reactor, nameServers=2)
        self.addCleanup(cluster.stop)
        await cluster.start()
        self.assertIsInstance(cluster.nameServer(), NameServer)
        self.assertIsInstance(cluster.broker(), Broker)
        self.assertIsNot(cluster.nameServer(cluster.nameServers[1]), cluster.nameServer())
        self.assertIs(cluster.broker(cluster.brokers[0]), cluster.broker())
        self.assertRaises(KeyError, cluster.service, "192.0.2.1:1")
        self.assertRaises(AssertionError, cluster.broker, cluster.nameServers[0])
        self.assertRaises(AssertionError, cluster.nameServer, cluster.brokers[0])

    @asDeferred
    async def test_temporaryFolderIsRemoved(self) -> None:
        """
        The files are in a folder that is gone after the stop, and take little room.
        """
        cluster = RealCluster(reactor)
        self.addCleanup(cluster.stop)
        await cluster.start()
        await self.client.send(cluster.brokers[0], b"hello", properties="KEYS\x01k\x02")
        root = cluster.broker().store.settings.storePathRootDir
        sizes = [
            os.stat(os.path.join(folder, name)).st_blocks * 512
            for folder, _, names in os.walk(root)
            for name in names
        ]
        self.assertIn(sum(sizes), range(1, 64 << 20))
        await cluster.stop()
        self.assertFalse(os.path.exists(root))
        self.assertEqual((cluster.nameServers, cluster.brokers), ([], []))

    @asDeferred
    async def test_folderAndPorts(self) -> None:
        """
        In a folder of the test's the files stay, and another cluster may go on with
        them, on the same ports.
        """
        folder = self.mktemp()
        first = RealCluster(reactor, folder=folder)
        self.addCleanup(first.stop)
        await first.start()
        addresses = [*first.nameServers, *first.brokers]
        await self.client.send(first.brokers[0], b"kept")
        await first.stop()
        ports = [int(each.rpartition(":")[2]) for each in addresses]
        second = RealCluster(reactor, folder=folder, ports=ports)
        self.addCleanup(second.stop)
        await second.start()
        self.assertEqual([*second.nameServers, *second.brokers], addresses)
        (message,) = await self.client.pull(second.brokers[0])
        self.assertEqual(message.body, b"kept")

    @asDeferred
    async def test_portTakenMeanwhileIsReplaced(self) -> None:
        """
        If another process takes a port just before the cluster does, the cluster takes
        another.
        """
        with socket.socket() as other:
            other.bind(("127.0.0.1", freePort("127.0.0.1")))
            other.listen()
            taken = other.getsockname()[1]
            # For the name server, for the broker, and for the broker's second port.
            found = [taken, 0, taken, taken + 2, 0]

            def unlucky(host: str, below: Collection[int]) -> int:
                return found.pop(0) or freePort(host, below)

            self.patch(realcluster, "freePort", unlucky)
            cluster = RealCluster(reactor)
            self.addCleanup(cluster.stop)
            await cluster.start()
            self.assertEqual(found, [])
            await self.client.send(cluster.brokers[0], b"hello")

    @asDeferred
    async def test_wantedPortTakenIsError(self) -> None:
        """
        A wanted port that is taken is an error, and so is a long row of taken ports.
        Started servers are stopped.
        """
        with socket.socket() as other:
            other.bind(("127.0.0.1", freePort("127.0.0.1")))
            other.listen()
            taken = other.getsockname()[1]
            cluster = RealCluster(reactor, ports=[freePort("127.0.0.1"), taken])
            await self.assertFailure(cluster.start(), CannotListenError)
            await cluster.stop()
            self.patch(realcluster, "freePort", lambda host, below: taken)
            cluster = RealCluster(reactor)
            await self.assertFailure(cluster.start(), CannotListenError)
            await cluster.stop()

    @asDeferred
    async def test_unknownSettingIsRefused(self) -> None:
        """
        Settings are the servers' own; one that is unknown is an error.
        """
        cluster = RealCluster(reactor, settings={"defaultTopicQueueNums": 3})
        self.addCleanup(cluster.stop)
        await cluster.start()
        topic = cluster.broker().tables.topics.get("TBW102")
        assert topic is not None
        self.assertEqual(topic.writeQueueNums, 3)
        wrong = RealCluster(reactor, settings={"defaultTopicQueueNum": 3})
        self.addCleanup(wrong.stop)
        await self.assertFailure(wrong.start(), ConfigError)

    @asDeferred
    async def test_clustersAreSeparate(self) -> None:
        """
        Two clusters in one process do not know each other.
        """
        one, other = RealCluster(reactor), RealCluster(reactor)
        for each in (one, other):
            self.addCleanup(each.stop)
            await each.start()
        known = await self.client.brokersOf(one.nameServers[0])
        self.assertEqual(list(known.values()), one.brokers)
        await self.client.send(one.brokers[0], b"hello")
        self.assertIsNone(other.broker().tables.topics.get("Greetings"))


class FixtureTests(TestCase):
    """
    Tests for L{realCluster}.
    """

    timeout = 300

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return realCluster(self, reactor, brokers=2).addCallback(self.keep)

    def keep(self, cluster: RealCluster) -> None:
        """
        Keep what the fixture gave.
        """
        self.cluster = cluster

    @asDeferred
    async def test_fixtureStartsCluster(self) -> None:
        """
        The fixture gives a cluster that runs.
        """
        client = Client(reactor, endpoints(reactor))
        self.addCleanup(client.stop)
        known = await client.brokersOf(self.cluster.nameServers[0])
        self.assertEqual(list(known.values()), self.cluster.brokers)

    @asDeferred
    async def test_fixtureStopsCluster(self) -> None:
        """
        It is stopped when the test is over, and so it is if it cannot start.
        """
        case = Cleaned()
        cluster = await realCluster(case, reactor)
        self.assertEqual(len(cluster.brokers), 1)
        await case.cleanups.pop()()
        self.assertEqual(cluster.brokers, [])
        await self.assertFailure(realCluster(case, reactor, settings={"noSetting": 1}), ConfigError)
        await case.cleanups.pop()()
