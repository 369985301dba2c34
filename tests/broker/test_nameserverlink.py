# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.nameserverlink}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.nameserverlink import NameServerLink, shortBackoff
from txrocket.errors import ConnectFailed
from txrocket.testing.memory.cluster import MemoryCluster
from txrocket.testing.trial import memoryCluster

ADDRESS = "192.0.2.1:9876"

# The longest pause between two attempts to connect, in seconds.
LONGEST = 1.5


class BackoffTests(SynchronousTestCase):
    """
    Tests for L{shortBackoff}.
    """

    def test_pausesGrowToABound(self) -> None:
        """
        Pauses double from a tenth of a second to a second, each within half and one and a
        half times of that by chance, however many failures there were.
        """
        least, most = shortBackoff(lambda below: 0), shortBackoff(lambda below: below - 1)
        for failures, mean in ((0, 0.1), (1, 0.2), (2, 0.4), (3, 0.8), (4, 1.0), (10**6, 1.0)):
            self.assertAlmostEqual(least(failures), mean / 2)
            self.assertAlmostEqual(most(failures), mean * 1.5)


class FakePeers:
    """
    Connections that a test makes and loses.
    """

    def __init__(self) -> None:
        self.there: Any = None
        self.wanted: list[Deferred[Any]] = []

    def up(self, address: str) -> Any:
        return self.there

    def connection(self, address: str) -> Deferred[Any]:
        self.wanted.append(Deferred())
        return self.wanted[-1]


class FakeConnection:
    """
    A connection that a test loses.
    """

    def __init__(self) -> None:
        self.lost: list[Deferred[str]] = []

    def whenLost(self) -> Deferred[str]:
        self.lost.append(Deferred())
        return self.lost[-1]


class LinkTests(SynchronousTestCase):
    """
    Tests for L{NameServerLink}.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.peers = FakePeers()
        self.registrations = 0
        peers: Any = self.peers
        self.link = NameServerLink(
            self.clock, peers, ADDRESS, self.register, shortBackoff(lambda below: below - 1)
        )
        self.link.start()

    def register(self) -> None:
        """
        Count an attempt to register.
        """
        self.registrations += 1

    def connect(self) -> FakeConnection:
        """
        Have the connection made that is wanted.
        """
        connection = self.peers.there = FakeConnection()
        self.peers.wanted.pop().callback(connection)
        return connection

    def lose(self, connection: FakeConnection) -> None:
        """
        Lose a connection.
        """
        self.peers.there = None
        for each in connection.lost:
            each.callback("lost")

    def registered(self) -> FakeConnection:
        """
        Have the broker registered.
        """
        connection = self.peers.there = FakeConnection()
        self.link.registered()
        return connection

    def test_connectionLostRegistersAgain(self) -> None:
        """
        A broker that loses its connection connects after a short pause and registers as
        soon as it is connected.
        """
        self.lose(self.registered())
        self.assertEqual(self.peers.wanted, [])
        self.clock.advance(LONGEST)
        self.assertEqual(self.registrations, 0)
        self.connect()
        self.assertEqual(self.registrations, 1)
        self.link.registered()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_refusedConnectionsTriedAgain(self) -> None:
        """
        While no name server listens the broker goes on trying, with pauses that do not grow
        beyond their bound, and encodes nothing for it.
        """
        self.lose(self.registered())
        for _ in range(100):
            self.clock.advance(LONGEST)
            self.peers.wanted.pop().errback(ConnectFailed(ADDRESS, "refused"))
        self.assertEqual(self.registrations, 0)
        self.clock.advance(LONGEST)
        self.connect()
        self.assertEqual(self.registrations, 1)

    def test_lostWhileRegisteringTriedAgain(self) -> None:
        """
        A name server that accepts connections and closes them is tried again with pauses
        that grow.
        """
        self.link.failed()
        pauses = []
        for _ in range(6):
            (call,) = self.clock.getDelayedCalls()
            pauses.append(call.getTime() - self.clock.seconds())
            self.clock.advance(LONGEST)
            self.connect()
            self.peers.there = None
            self.link.failed()
        for pause, expected in zip(pauses, (0.3, 0.6, 1.2, 1.5, 1.5, 1.5), strict=True):
            self.assertAlmostEqual(pause, expected)

    def test_refusedRegistrationNotHurried(self) -> None:
        """
        A name server that is connected and refuses is left to the next registration of
        all.
        """
        self.registered()
        self.link.failed()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_registeredEndsPause(self) -> None:
        """
        A broker that has registered by other means does not try again.
        """
        self.lose(self.registered())
        self.registered()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_connectionIsWatchedOnce(self) -> None:
        """
        A connection is watched once, however often the broker registers over it.
        """
        connection = self.registered()
        for _ in range(3):
            self.link.registered()
        self.assertEqual(len(connection.lost), 1)

    def test_stopEndsPauseAndAttempt(self) -> None:
        """
        A broker that stops tries no more.
        """
        first = self.registered()
        self.lose(first)
        self.link.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.link.start()
        second = self.registered()
        self.lose(second)
        self.clock.advance(LONGEST)
        (wanted,) = self.peers.wanted
        self.link.stop()
        self.assertTrue(wanted.called)
        self.link.failed()
        self.assertEqual((self.registrations, self.clock.getDelayedCalls()), (0, []))

    def test_mistakeLogged(self) -> None:
        """
        A mistake of ours while connecting is logged.
        """
        self.lose(self.registered())
        self.clock.advance(LONGEST)
        self.peers.wanted.pop().errback(KeyError("mistake"))
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)


class RestartTests(SynchronousTestCase):
    """
    Name servers that are restarted while the broker is well.
    """

    def knows(self, cluster: MemoryCluster, nameServer: str) -> bool:
        """
        Whether a name server has the cluster's broker in its table.
        """
        return cluster.nameServer(nameServer).routes.route("TBW102") is not None

    def assertBackWithin(self, cluster: MemoryCluster, nameServer: str, seconds: float) -> None:
        """
        A name server that has just been started knows the broker within a time.
        """
        self.assertFalse(self.knows(cluster, nameServer))
        cluster.advance(seconds)
        self.assertTrue(self.knows(cluster, nameServer))

    def test_restartedNameServerToldAtOnce(self) -> None:
        """
        A name server that was stopped or has crashed, for however long, knows the broker
        again two seconds after it is back.
        """
        cluster = memoryCluster(self)
        (address,) = cluster.nameServers
        for down in (0.0, 0.3, 5.0, 600.0):
            for end in (cluster.stop, cluster.crash):
                end(address)
                cluster.advance(down)
                cluster.start(address)
                self.assertBackWithin(cluster, address, 2.0)

    def test_eachNameServerByItself(self) -> None:
        """
        One name server that is down delays no other that is back.
        """
        cluster = memoryCluster(self, nameServers=3)
        first, second, third = cluster.nameServers
        for each in (first, second):
            cluster.crash(each)
        cluster.advance(300.0)
        cluster.start(second)
        self.assertBackWithin(cluster, second, 2.0)
        self.assertTrue(self.knows(cluster, third))
        cluster.start(first)
        self.assertBackWithin(cluster, first, 2.0)

    def test_stoppedBrokerLeavesNothing(self) -> None:
        """
        A broker that is stopped while a name server is down does not come back to it.
        """
        cluster = memoryCluster(self)
        (address,), (broker,) = cluster.nameServers, cluster.brokers
        cluster.crash(address)
        cluster.advance(5.0)
        cluster.stop(broker)
        cluster.start(address)
        cluster.advance(60.0)
        self.assertFalse(self.knows(cluster, address))
