# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.cluster}.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.selectreactor import SelectReactor
from twisted.logger import LogLevel

from tests.client.members import FakeConsumer, FakeProducer
from tests.client.network import FakeBroker, FakeNameServer, Network, routeTo
from tests.remoting.doubles import Raise, Recorder, RemotingTests
from txrocket.client.cluster import Cluster
from txrocket.errors import ConfigError, ConnectFailed, RequestTimedOut, SystemBusy
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.headers import NotifyConsumerIdsChangedRequestHeader

NS, A, A1, B = "192.0.2.10:9876", "192.0.2.11:10911", "192.0.2.12:10911", "192.0.2.13:10911"


class ClusterTestsBase(RemotingTests):
    """
    A client, a name server, a master with its slave, and another master.
    """

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.ns = FakeNameServer()
        self.a, self.a1, self.b = FakeBroker(), FakeBroker(), FakeBroker()
        self.network.listeners = {NS: self.ns, A: self.a, A1: self.a1, B: self.b}
        self.ns.routes["T"] = routeTo(a={0: A})
        self.chosen = 0
        self.cluster = self.made()

    def choose(self, below: int) -> int:
        """
        No chance: the next number.
        """
        self.chosen += 1
        return self.chosen % below

    def made(self, nameServers: Any = NS, **options: Any) -> Cluster:
        """
        A cluster.
        """
        return Cluster(
            nameServers,
            self.clock,
            connect=self.network.endpoint,
            choose=self.choose,
            **options,
        )

    def producer(self, group: str = "p", cluster: Cluster | None = None) -> FakeProducer:
        """
        A producer that sends to T.
        """
        member = FakeProducer(group, "T")
        (cluster or self.cluster).addProducer(member)
        return member

    def consumer(self, group: str = "g", cluster: Cluster | None = None) -> FakeConsumer:
        """
        A consumer of T.
        """
        member = FakeConsumer(group, "T")
        (cluster or self.cluster).addConsumer(member)
        return member

    def find(self, cluster: Cluster | None = None) -> None:
        """
        The route of T is needed.
        """
        found = (cluster or self.cluster).routes.find("T")
        self.network.flush()
        self.successResultOf(found)
        self.network.flush()


class MakingTests(ClusterTestsBase):
    """
    Making a cluster.
    """

    def test_clusterWithoutMembersIsIdle(self) -> None:
        """
        Without a member no server is dialled and no timer is set.
        """
        self.network.advance(100)
        self.assertEqual(self.network.dialled, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nameServersComeFromArgumentOrEnvironment(self) -> None:
        """
        Name servers are given as text or as a list.  Without an argument, NAMESRV_ADDR is
        used.
        """
        self.patch(os, "environ", {"NAMESRV_ADDR": "192.0.2.1:1; 192.0.2.2:2"})
        for given, expected in (
            (None, ("192.0.2.1:1", "192.0.2.2:2")),
            ("192.0.2.3:3;192.0.2.4:4", ("192.0.2.3:3", "192.0.2.4:4")),
            (["192.0.2.3:3", "192.0.2.4:4"], ("192.0.2.3:3", "192.0.2.4:4")),
        ):
            self.assertEqual(self.made(given).nameServers.addresses, expected)

    def test_missingOrInvalidNameServersAreRefused(self) -> None:
        """
        Without a name server, or with an invalid address, no cluster is made, and the error
        says which.
        """
        self.patch(os, "environ", {})
        for given, said in (
            (None, "NAMESRV_ADDR is not set"),
            ("", "NAMESRV_ADDR is not set"),
            ([], "NAMESRV_ADDR is not set"),
            ("192.0.2.1", "'192.0.2.1': host:port was expected"),
            (["192.0.2.1:x"], "'x' is not a port"),
        ):
            self.assertIn(said, str(self.assertRaises(ConfigError, self.made, given)))

    def test_clientIdIsUnique(self) -> None:
        """
        A client id is the address, the process and a random part, so that no two are equal;
        or it is the given one.
        """
        first, second = self.made("127.0.0.1:9876"), self.made("127.0.0.1:9876")
        pattern = rf"127\.0\.0\.1@{os.getpid()}#[0-9a-f]{{12}}"
        self.assertTrue(re.fullmatch(pattern, first.clientId), first.clientId)
        self.assertNotEqual(first.clientId, second.clientId)
        self.assertEqual(self.made(clientId="me").clientId, "me")

    def test_unknownHostIsNotLookedUp(self) -> None:
        """
        An unknown host does not keep a cluster from being made: dialling it will fail.
        Names are not looked up, because that would block the reactor.
        """
        self.patch(socket, "getaddrinfo", Raise(AssertionError("looked up")))
        for host in ("a..b", "x" * 64, "name.invalid", "[2001:db8::1%none]"):
            made = self.made(f"{host}:9876")
            self.assertTrue(re.fullmatch(r"[0-9a-f.:]+@\d+#\w+", made.clientId), made.clientId)

    def test_noNetworkMeansLoopback(self) -> None:
        """
        A machine without a network uses its loopback address.
        """
        self.patch(socket, "socket", Raise(OSError("unreachable")))
        self.assertTrue(self.made().clientId.startswith("127.0.0.1@"))

    def test_messageIdsAreUnique(self) -> None:
        """
        Message ids have Java's form and are never equal, also between two clusters in one
        process.
        """
        clusters = self.made(), self.made("[::1]:9876")
        ids = [each.uniqueId() for each in clusters for _ in range(3)]
        self.assertEqual(len(set(ids)), 6)
        for each in ids:
            self.assertTrue(re.fullmatch("[0-9A-F]{32}|[0-9A-F]{56}", each), each)

    def test_defaultReactorIsTwisteds(self) -> None:
        """
        Without a reactor, Twisted's is used.
        """
        from twisted.internet import reactor

        self.assertIs(Cluster(NS).reactor, reactor)

    def test_nowIsReactorsMilliseconds(self) -> None:
        """
        Time is the reactor's, in milliseconds.
        """
        self.clock.advance(1.5)
        self.assertEqual(self.cluster.now(), 1500)

    def test_hooksGetEveryRequest(self) -> None:
        """
        Hooks get every request.
        """
        seen: list[tuple[object, ...]] = []
        cluster = self.made(hooks=[Recorder("hook", seen)])
        self.find(cluster)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        self.assertEqual(seen, [("hook", "before", NS, code), ("hook", "after", NS, code, 0)])


class TimeTests(ClusterTestsBase):
    """
    The clocks of a client.
    """

    def test_timersIgnoreTimeOfDay(self) -> None:
        """
        The timers of the reactor do not follow the time of day, unless the caller wants
        that.
        """
        reactor: Any = SelectReactor()
        self.addCleanup(reactor.disconnectAll)
        Cluster(NS, reactor, steadyTimers=False)
        self.assertIs(reactor.seconds, SelectReactor.seconds)
        cluster = Cluster(NS, reactor)
        self.assertIsNot(reactor.seconds, SelectReactor.seconds)
        self.assertIs(cluster.wall, time.time)

    def test_shownTimeIsTimeOfDay(self) -> None:
        """
        Sent and shown times are the given time of day, or the clock's.
        """
        self.clock.advance(7)
        self.assertEqual(self.cluster.now(), 1000 * self.clock.seconds())
        cluster = self.made(wall=lambda: 5000.25)
        self.assertEqual(cluster.now(), 5_000_250)
        self.assertEqual(cluster.timeOf(self.clock.seconds() - 0.25), 5_000_000)

    def test_versionNeverGoesBack(self) -> None:
        """
        A version is the time of day, and above the last one if the time of day is set back.
        """
        times = iter([5.0, 5.0, 2.0, 3.0, 6.0])
        cluster = self.made(wall=lambda: next(times))
        # The first was asked for already, to make ids.
        found = [cluster.version() for _ in range(4)]
        self.assertEqual(found, [5000, 5001, 5002, 6000])


class AskTests(ClusterTestsBase):
    """
    L{Cluster.ask}.
    """

    CODE = RequestCode.GET_MAX_OFFSET

    def ask(self, address: str = A, timeout: float | None = None) -> Deferred[RemotingCommand]:
        """
        Ask a broker for something.
        """
        answer = self.cluster.ask(address, requestCommand(self.CODE), timeout)
        self.network.flush()
        return answer

    def test_successIsReturned(self) -> None:
        """
        An answer of SUCCESS is returned as it is.
        """
        self.a.answers[self.CODE] = lambda request: responseCommand(body=b"7")
        self.assertEqual(self.successResultOf(self.ask()).body, b"7")

    def test_errorAnswerIsErrorOfItsCode(self) -> None:
        """
        Every other answer is the error of its code, with the remark and the sender's
        address.
        """
        self.a.answers[self.CODE] = lambda request: responseCommand(2, "later")
        error: Any = self.failureResultOf(self.ask(), SystemBusy).value
        self.assertEqual((error.remark, error.address), ("later", A))

    def test_silenceIsAwaitedUpToTimeout(self) -> None:
        """
        An answer is awaited for the cluster's timeout, or the caller's.
        """
        self.a.answers[self.CODE] = lambda request: responseCommand()
        self.a.mute = True
        short, usual = self.ask(timeout=1.0), self.ask()
        self.network.advance(1.0)
        self.failureResultOf(short, RequestTimedOut)
        self.network.advance(1.9)
        self.assertNoResult(usual)
        self.network.advance(0.1)
        self.failureResultOf(usual, RequestTimedOut)

    def test_shortTimeoutIsNotExtended(self) -> None:
        """
        A caller with a shorter timeout does not wait for the cluster's.
        """
        self.a.mute = True
        self.a.answers[self.CODE] = lambda request: responseCommand()
        self.successResultOf(self.cluster.peers.connection(A))
        answer = self.ask(timeout=0.0)
        self.network.advance(0.1)
        self.failureResultOf(answer, RequestTimedOut)

    def test_unreachableAddressIsError(self) -> None:
        """
        An address without a server is an error that says so.
        """
        error: Any = self.failureResultOf(self.ask("192.0.2.99:1"), ConnectFailed).value
        self.assertEqual(error.address, "192.0.2.99:1")


class HeartbeatTests(ClusterTestsBase):
    """
    Heartbeats to brokers.
    """

    def test_newRouteSendsHeartbeat(self) -> None:
        """
        Once a route is known its broker gets a heartbeat at once, and then every 30 s.
        """
        self.producer()
        self.find()
        (beat,) = self.a.beats
        self.assertEqual(beat.clientID, self.cluster.clientId)
        self.assertEqual(self.a.groups(), [({"p"}, set())])
        self.network.advance(29.9)
        self.assertEqual(self.a.groups(), [])
        self.network.advance(0.1)
        self.assertEqual(self.a.groups(), [({"p"}, set())])
        self.network.advance(30)
        self.assertEqual(self.a.groups(), [({"p"}, set())])

    def test_noMembersSendNoHeartbeat(self) -> None:
        """
        A cluster without producer and consumer sends no heartbeat.
        """
        self.find()
        self.successResultOf(self.cluster.heartbeat())
        self.assertEqual(self.a.beats, [])

    def test_newMemberSendsHeartbeat(self) -> None:
        """
        A new member causes a heartbeat at once, with all other members and all
        subscriptions.
        """
        self.producer()
        self.find()
        self.a.groups()
        self.consumer()
        self.producer("p2")
        self.network.flush()
        (beat,) = self.a.beats
        (data,) = beat.consumerDataSet
        self.assertEqual({each.topic for each in data.subscriptionDataSet}, {"T"})
        self.assertEqual(self.a.groups(), [({"p", "p2"}, {"g"})])

    def test_newBrokerGetsHeartbeat(self) -> None:
        """
        A new broker gets a heartbeat as soon as its route is known.
        """
        self.producer()
        self.find()
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        self.network.advance(29.9)
        self.assertEqual(self.b.groups(), [])
        self.network.advance(0.1)
        self.assertEqual(self.b.groups(), [({"p"}, set())])

    def test_slavesGetConsumersOnly(self) -> None:
        """
        Slaves get heartbeats only from clients with consumers: producers do not use slaves.
        """
        self.ns.routes["T"] = routeTo(a={0: A, 1: A1})
        self.producer()
        self.find()
        self.assertEqual((len(self.a.groups()), self.a1.groups()), (1, []))
        self.assertNotIn(A1, self.network.dialled)
        self.consumer()
        self.network.flush()
        self.assertEqual(self.a1.groups(), [({"p"}, {"g"})])

    def test_refusedHeartbeatIsLoggedOnce(self) -> None:
        """
        A broker that refuses heartbeats is logged once, and once more when it takes them
        again.  The other brokers get theirs as before.
        """
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        del self.network.listeners[A]
        self.producer()
        self.find()
        for _ in range(3):
            self.network.advance(30)
        (warning,) = self.logged(LogLevel.warn)
        self.assertIn(f"Broker {A} does not take heartbeats", warning)
        self.assertEqual(len(self.b.groups()), 4)
        self.network.listeners[A] = self.a
        self.network.advance(30)
        self.network.advance(3)
        self.assertEqual(self.logged(LogLevel.info), [f"Broker {A} is there again"])
        self.assertEqual(len(self.a.groups()), 1)

    def test_silentBrokerDelaysNoHeartbeat(self) -> None:
        """
        A broker that does not answer delays neither the other brokers nor the next
        heartbeat.
        """
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        self.a.mute = True
        self.cluster = self.made(timeout=100.0)
        self.producer()
        self.find()
        for _ in range(2):
            self.network.advance(30)
        self.assertEqual(len(self.b.groups()), 3)

    def test_failingMemberIsLogged(self) -> None:
        """
        If a member raises while the heartbeat is made, that is logged.
        """
        member = self.producer()
        self.find()

        def broken() -> Any:
            raise RuntimeError("broken")

        self.patch(member, "producerData", broken)
        self.network.advance(30)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        (line,) = self.logged(LogLevel.critical)
        self.assertIn("Routes or heartbeats have stopped", line)


class RefreshTests(ClusterTestsBase):
    """
    Refreshing routes.
    """

    def test_routesAreRefreshedEachThirtySeconds(self) -> None:
        """
        The routes of all members' topics are requested every 30 s, each once.
        """
        self.producer().wanted = ("T", "U")
        self.consumer()
        self.find()
        self.ns.asked.clear()
        self.network.advance(29.9)
        self.assertEqual(self.ns.asked, [])
        self.network.advance(0.1)
        self.assertEqual(sorted(self.ns.asked), ["T", "U"])
        self.network.advance(30)
        self.assertEqual(sorted(self.ns.asked), ["T", "T", "U", "U"])

    def test_brokerInNoRouteIsDisconnected(self) -> None:
        """
        The connection to a broker that is in no route any more is closed, and it gets no
        heartbeat.
        """
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        member = self.producer()
        self.find()
        self.assertEqual((self.a.open, self.b.open), (1, 1))
        self.ns.routes["T"] = routeTo(a={0: A})
        self.network.advance(30)
        self.assertEqual((self.a.open, self.b.open), (1, 0))
        self.b.groups()
        self.network.advance(30)
        self.assertEqual(self.b.groups(), [])
        self.successResultOf(self.leave(member))
        self.assertEqual((len(self.a.left), self.b.left), (1, []))

    def leave(self, member: FakeProducer) -> Deferred[None]:
        """
        A producer stops.
        """
        left = self.cluster.removeProducer(member)
        self.network.flush()
        return left

    def test_leftBrokerIsLoggedAgain(self) -> None:
        """
        A broker that comes back and refuses heartbeats again is logged again.
        """
        del self.network.listeners[B]
        both, one = routeTo(a={0: A}, b={0: B}), routeTo(a={0: A})
        self.producer()
        self.ns.routes["T"] = both
        self.find()
        for data in (one, both):
            self.ns.routes["T"] = data
            self.network.advance(30)
        self.network.advance(10)
        self.assertEqual(len(self.logged(LogLevel.warn)), 2)

    def test_leftBrokersSilenceIsNotLogged(self) -> None:
        """
        If a broker has left the routes, its missing answer to the last heartbeat is not
        logged.
        """
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        self.producer()
        self.find()
        self.b.mute = True
        self.ns.routes["T"] = routeTo(a={0: A})
        self.network.advance(30)
        self.network.advance(3)
        self.assertEqual(self.b.open, 0)
        self.assertEqual(self.logged(LogLevel.warn), [])

    def test_silentNameServersChangeNothing(self) -> None:
        """
        While no name server answers, everything stays as it was.
        """
        self.producer()
        self.find()
        self.ns.mute = True
        for _ in range(3):
            self.network.advance(30)
        self.assertEqual(len(self.a.groups()), 4)
        self.assertEqual(self.a.open, 1)


class MembersTests(ClusterTestsBase):
    """
    Members that join and leave.
    """

    def test_secondMemberOfGroupIsRefused(self) -> None:
        """
        A cluster has one producer and one consumer of a group: brokers could not tell two
        apart.
        """
        self.producer("x")
        self.consumer("x")
        for add, kind in ((self.producer, "producer"), (self.consumer, "consumer")):
            error = self.assertRaises(ConfigError, add, "x")
            self.assertIn(f"there is a {kind} of group x", str(error))

    def test_leavingMemberIsUnregistered(self) -> None:
        """
        Brokers are told the client, group and kind of a member that leaves, and the next
        heartbeat is without it.
        """
        producer, consumer = self.producer(), self.consumer()
        self.find()
        self.a.groups()
        left = self.cluster.removeConsumer(consumer)
        self.assertNoResult(left)
        self.network.flush()
        self.successResultOf(left)
        (header,) = self.a.left
        self.assertEqual(
            (header.clientID, header.producerGroup, header.consumerGroup),
            (self.cluster.clientId, None, "g"),
        )
        self.network.advance(30)
        self.assertEqual(self.a.groups(), [({"p"}, set())])
        left = self.cluster.removeProducer(producer)
        self.network.flush()
        self.successResultOf(left)
        header = self.a.left[1]
        self.assertEqual((header.producerGroup, header.consumerGroup), ("p", None))
        self.network.advance(30)
        self.assertEqual(self.a.groups(), [])

    def test_unansweredHeartbeatIsFollowedByUnregister(self) -> None:
        """
        A broker is told even if it has not answered the heartbeat yet: else a consumer
        would keep its queues for two minutes.
        """
        consumer = self.consumer()
        found = self.cluster.routes.find("T")
        while not found.called:
            self.network.step()
        self.clock.advance(0)
        left = self.cluster.removeConsumer(consumer)
        self.network.flush()
        self.successResultOf(left)
        self.assertEqual(len(self.a.beats), 1)
        self.assertEqual([each.consumerGroup for each in self.a.left], ["g"])

    def test_unregisterWaitsForHeartbeats(self) -> None:
        """
        A broker is told only after it has answered all heartbeats: Java's broker might
        serve the heartbeat last and keep the member for two minutes.
        """
        held: list[Deferred[RemotingCommand]] = []

        def hold(request: RemotingCommand) -> Deferred[RemotingCommand]:
            held.append(Deferred())
            return held[-1]

        self.a.answers[RequestCode.HEART_BEAT] = hold  # type: ignore[assignment]
        consumer = self.consumer()
        self.find()
        self.cluster.heartbeat()
        self.network.flush()
        left = self.cluster.removeConsumer(consumer)
        for answer in held:
            self.network.flush()
            self.assertEqual(self.a.left, [])
            answer.callback(responseCommand())
        self.assertEqual(len(held), 2)
        self.network.flush()
        self.successResultOf(left)
        self.assertEqual([each.consumerGroup for each in self.a.left], ["g"])

    def test_unansweredHeartbeatSkipsUnregister(self) -> None:
        """
        A broker that has not answered the heartbeat in time is not told.
        """
        consumer = self.consumer()
        self.a.mute = True
        self.find()
        left = self.cluster.removeConsumer(consumer)
        self.network.advance(2.9)
        self.assertNoResult(left)
        self.network.advance(0.1)
        self.successResultOf(left)

    def test_deafBrokerIsNotAwaited(self) -> None:
        """
        A broker that does not answer is not awaited: it forgets the member by itself.
        """
        member = self.producer()
        self.a.mute = True
        self.find()
        self.network.advance(3)
        self.successResultOf(self.cluster.removeProducer(member))

    def test_silentBrokerIsAwaitedUpToTimeout(self) -> None:
        """
        A broker that becomes silent is awaited no longer than for any answer.
        """
        member = self.producer()
        self.find()
        self.a.mute = True
        left = self.cluster.removeProducer(member)
        self.network.advance(2.9)
        self.assertNoResult(left)
        self.network.advance(0.1)
        self.successResultOf(left)

    def test_refusedMemberLeavesSilently(self) -> None:
        """
        A refused member that stops does not remove the other one, and brokers are told
        nothing.
        """
        member = self.producer()
        self.find()
        self.successResultOf(self.cluster.removeProducer(FakeProducer("p")))
        self.network.flush()
        self.assertEqual(self.cluster.producers, {"p": member})
        self.assertEqual(self.a.left, [])

    def test_brokerRequestReachesMember(self) -> None:
        """
        A broker's request reaches the member over the connection that the client made.
        """
        consumer = self.consumer()
        self.find()
        peer = self.network.accepted[A][0]
        peer.oneway(
            requestCommand(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                NotifyConsumerIdsChangedRequestHeader("g"),
            )
        )
        self.network.flush()
        self.assertEqual(consumer.seen, ["ids"])


class StopTests(ClusterTestsBase):
    """
    The end of a cluster.
    """

    def test_stopClosesConnectionsAndTimers(self) -> None:
        """
        A stop closes all connections and cancels all timers.
        """
        self.producer()
        self.find()
        self.consumer()
        stopped = self.cluster.stop()
        self.network.flush()
        self.successResultOf(stopped)
        self.assertEqual((self.ns.open, self.a.open), (0, 0))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unusedClusterStops(self) -> None:
        """
        A cluster that was never used has nothing to stop.
        """
        self.successResultOf(self.cluster.stop())

    def test_stoppedClusterCanBeUsedAgain(self) -> None:
        """
        After a stop a cluster can be used again, and brokers get heartbeats of its members
        at once.
        """
        member = self.producer()
        self.find()
        self.consumer()
        self.cluster.removeProducer(member)
        self.cluster.stop()
        self.network.flush()
        self.cluster.consumers.clear()
        self.a.groups()
        self.producer("p2")
        self.network.flush()
        self.assertEqual(self.a.groups(), [({"p2"}, set())])
        self.network.advance(30)
        self.assertEqual(len(self.a.groups()), 1)

    def test_leavingAfterStopDialsNoBroker(self) -> None:
        """
        A member that leaves after the stop causes no connection.
        """
        member = self.producer()
        self.find()
        self.cluster.stop()
        self.network.flush()
        self.network.dialled.clear()
        self.successResultOf(self.cluster.removeProducer(member))
        self.assertEqual(self.network.dialled, [])

    def test_contextStopsCluster(self) -> None:
        """
        As a context manager, a cluster stops at the end.
        """

        async def use() -> Cluster:
            async with self.cluster as cluster:
                await cluster.routes.find("T")
            return cluster

        used = ensureDeferred(use())
        self.network.flush()
        self.assertIs(self.successResultOf(used), self.cluster)
        self.assertEqual(self.ns.open, 0)


class ServiceTests(ClusterTestsBase):
    """
    A cluster as a service, the parent of its members.
    """

    def test_servicesStopInReverseOrder(self) -> None:
        """
        The services are stopped one after the other, the last first, and the connections
        are closed at the end.
        """
        first, last = Slow(), Slow()
        for each in first, last:
            each.setServiceParent(self.cluster)
        self.cluster.startService()
        self.assertTrue(first.running and last.running)
        self.find()
        stopped = self.cluster.stopService()
        self.assertEqual((first.running, last.running), (1, 0))
        last.stopped.callback(None)
        self.assertEqual((first.running, self.ns.open), (0, 1))
        self.assertNoResult(stopped)
        first.stopped.callback(None)
        self.network.flush()
        self.successResultOf(stopped)
        self.assertEqual(self.ns.open, 0)

    def test_failingStopIsLogged(self) -> None:
        """
        A service that fails to stop is logged, and the others are stopped all the same.
        """
        first, last = Slow(), Slow()
        for each in first, last:
            each.setServiceParent(self.cluster)
        self.cluster.startService()
        last.stopped.errback(ValueError("no"))
        first.stopped.callback(None)
        self.successResultOf(self.cluster.stopService())
        self.assertFalse(first.running)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class Slow(Service):
    """
    A service that takes its time to stop.
    """

    def __init__(self) -> None:
        self.stopped: Deferred[None] = Deferred()

    def stopService(self) -> Deferred[None]:
        Service.stopService(self)
        return self.stopped


class TwoClustersTests(ClusterTestsBase):
    """
    Two clusters in one process.
    """

    def test_clustersShareNothing(self) -> None:
        """
        Two clusters may have members of the same group.  They have their own connections
        and ids, and one goes on when the other stops.
        """
        other = self.made()
        member = self.consumer()
        self.consumer(cluster=other)
        self.find()
        self.assertIsNone(other.routes.get("T"))
        self.find(other)
        self.assertEqual((self.ns.open, self.a.open), (2, 2))
        self.assertEqual(
            {each.clientID for each in self.a.beats}, {self.cluster.clientId, other.clientId}
        )
        self.cluster.removeConsumer(member)
        self.cluster.stop()
        self.network.flush()
        self.assertEqual((self.ns.open, self.a.open), (1, 1))
        self.a.beats.clear()
        self.network.advance(30)
        self.assertEqual({each.clientID for each in self.a.beats}, {other.clientId})
