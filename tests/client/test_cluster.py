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
    Of what a cluster is made.
    """

    def test_idle(self) -> None:
        """
        Without a member nobody is dialled and nothing is timed.
        """
        self.network.advance(100)
        self.assertEqual(self.network.dialled, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nameServers(self) -> None:
        """
        Name servers are given as text or as a list; without, NAMESRV_ADDR has them,
        and what is given comes before it.
        """
        self.patch(os, "environ", {"NAMESRV_ADDR": "192.0.2.1:1; 192.0.2.2:2"})
        for given, expected in (
            (None, ("192.0.2.1:1", "192.0.2.2:2")),
            ("192.0.2.3:3;192.0.2.4:4", ("192.0.2.3:3", "192.0.2.4:4")),
            (["192.0.2.3:3", "192.0.2.4:4"], ("192.0.2.3:3", "192.0.2.4:4")),
        ):
            self.assertEqual(self.made(given).nameServers.addresses, expected)

    def test_noNameServers(self) -> None:
        """
        Without a name server, and with an address that is none, no cluster is made,
        and the error says which.
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

    def test_clientId(self) -> None:
        """
        A client's id is its address, its process and a random part, so that no two
        are the same; or what it is told to be.
        """
        first, second = self.made("127.0.0.1:9876"), self.made("127.0.0.1:9876")
        pattern = rf"127\.0\.0\.1@{os.getpid()}#[0-9a-f]{{12}}"
        self.assertTrue(re.fullmatch(pattern, first.clientId), first.clientId)
        self.assertNotEqual(first.clientId, second.clientId)
        self.assertEqual(self.made(clientId="me").clientId, "me")

    def test_address(self) -> None:
        """
        A host that is none does not keep a cluster from being made: dialling it will
        tell.  Names are not looked up for it, which would hold up the reactor.
        """
        self.patch(socket, "getaddrinfo", Raise(AssertionError("looked up")))
        for host in ("a..b", "x" * 64, "name.invalid", "[2001:db8::1%none]"):
            made = self.made(f"{host}:9876")
            self.assertTrue(re.fullmatch(r"[0-9a-f.:]+@\d+#\w+", made.clientId), made.clientId)

    def test_noAddress(self) -> None:
        """
        A machine without a network has its loopback.
        """
        self.patch(socket, "socket", Raise(OSError("unreachable")))
        self.assertTrue(self.made().clientId.startswith("127.0.0.1@"))

    def test_uniqueIds(self) -> None:
        """
        Ids of messages are in Java's form and never the same, also of two clusters
        in one process.
        """
        clusters = self.made(), self.made("[::1]:9876")
        ids = [each.uniqueId() for each in clusters for _ in range(3)]
        self.assertEqual(len(set(ids)), 6)
        for each in ids:
            self.assertTrue(re.fullmatch("[0-9A-F]{32}|[0-9A-F]{56}", each), each)

    def test_reactor(self) -> None:
        """
        Without a reactor it is Twisted's.
        """
        from twisted.internet import reactor

        self.assertIs(Cluster(NS).reactor, reactor)

    def test_now(self) -> None:
        """
        Time is the reactor's, in milliseconds.
        """
        self.clock.advance(1.5)
        self.assertEqual(self.cluster.now(), 1500)

    def test_hooks(self) -> None:
        """
        Hooks see every request.
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

    def test_timersAreSteady(self) -> None:
        """
        The timers of the reactor do not follow the time of day, unless somebody wants
        that.
        """
        reactor: Any = SelectReactor()
        self.addCleanup(reactor.disconnectAll)
        Cluster(NS, reactor, steadyTimers=False)
        self.assertIs(reactor.seconds, SelectReactor.seconds)
        cluster = Cluster(NS, reactor)
        self.assertIsNot(reactor.seconds, SelectReactor.seconds)
        self.assertIs(cluster.wall, time.time)

    def test_timeOfDay(self) -> None:
        """
        What is sent and shown is the time of day that is given, or the clock's.
        """
        self.clock.advance(7)
        self.assertEqual(self.cluster.now(), 1000 * self.clock.seconds())
        cluster = self.made(wall=lambda: 5000.25)
        self.assertEqual(cluster.now(), 5_000_250)
        self.assertEqual(cluster.timeOf(self.clock.seconds() - 0.25), 5_000_000)

    def test_versionNeverGoesBack(self) -> None:
        """
        A version is the time of day, and above the last one if that is set back.
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

    def test_answer(self) -> None:
        """
        An answer of SUCCESS is given as it is.
        """
        self.a.answers[self.CODE] = lambda request: responseCommand(body=b"7")
        self.assertEqual(self.successResultOf(self.ask()).body, b"7")

    def test_errorAnswerIsErrorOfItsCode(self) -> None:
        """
        Every other answer is the error of its code, with the remark and who said it.
        """
        self.a.answers[self.CODE] = lambda request: responseCommand(2, "later")
        error: Any = self.failureResultOf(self.ask(), SystemBusy).value
        self.assertEqual((error.remark, error.address), ("later", A))

    def test_silent(self) -> None:
        """
        An answer is waited for as long as the cluster says, or the caller.
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

    def test_noTime(self) -> None:
        """
        Who has no time left does not get all of it.
        """
        self.a.mute = True
        self.a.answers[self.CODE] = lambda request: responseCommand()
        self.successResultOf(self.cluster.peers.connection(A))
        answer = self.ask(timeout=0.0)
        self.network.advance(0.1)
        self.failureResultOf(answer, RequestTimedOut)

    def test_nobody(self) -> None:
        """
        Nobody at the address is an error that says so.
        """
        error: Any = self.failureResultOf(self.ask("192.0.2.99:1"), ConnectFailed).value
        self.assertEqual(error.address, "192.0.2.99:1")


class HeartbeatTests(ClusterTestsBase):
    """
    When brokers hear of a client.
    """

    def test_first(self) -> None:
        """
        Once a route is known its broker hears of the client at once, and then every
        30 s.
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

    def test_nobody(self) -> None:
        """
        Who has neither producer nor consumer has nothing to say.
        """
        self.find()
        self.successResultOf(self.cluster.heartbeat())
        self.assertEqual(self.a.beats, [])

    def test_newMember(self) -> None:
        """
        A member that comes is told of at once, together with all others, and with
        what it subscribes to.
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

    def test_newBroker(self) -> None:
        """
        A broker that comes hears of the client as soon as its route is known.
        """
        self.producer()
        self.find()
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        self.network.advance(29.9)
        self.assertEqual(self.b.groups(), [])
        self.network.advance(0.1)
        self.assertEqual(self.b.groups(), [({"p"}, set())])

    def test_slaves(self) -> None:
        """
        Slaves hear only of clients that consume: producers have no use for them.
        """
        self.ns.routes["T"] = routeTo(a={0: A, 1: A1})
        self.producer()
        self.find()
        self.assertEqual((len(self.a.groups()), self.a1.groups()), (1, []))
        self.assertNotIn(A1, self.network.dialled)
        self.consumer()
        self.network.flush()
        self.assertEqual(self.a1.groups(), [({"p"}, {"g"})])

    def test_deaf(self) -> None:
        """
        A broker that does not take heartbeats is warned of once, not every time, and
        a line tells when it does again; the others hear as ever.
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

    def test_slow(self) -> None:
        """
        A broker that answers nothing holds up neither the other brokers nor the next
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
        If a member cannot say what it is, that is logged, not lost.
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
    When routes are asked for.
    """

    def test_interval(self) -> None:
        """
        The routes of all members' topics are asked for every 30 s, each once.
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

    def test_brokerLeaves(self) -> None:
        """
        A broker that is in no route any more is forgotten: its connection is closed
        and it hears nothing.
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

    def test_deafBrokerLeaves(self) -> None:
        """
        What is known of a broker that never answered goes with it: when it comes
        back and does not answer, that is news again.
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

    def test_leavesSilently(self) -> None:
        """
        That a broker which has left does not answer its last heartbeat is nothing to
        warn of.
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

    def test_unreachable(self) -> None:
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
    Members that come and go.
    """

    def test_twice(self) -> None:
        """
        There is one producer and one consumer of a group: brokers could not tell two
        apart.  One of each kind is no conflict.
        """
        self.producer("x")
        self.consumer("x")
        for add, kind in ((self.producer, "producer"), (self.consumer, "consumer")):
            error = self.assertRaises(ConfigError, add, "x")
            self.assertIn(f"there is a {kind} of group x", str(error))

    def test_leave(self) -> None:
        """
        Brokers are told of a member that leaves, by its client, its group and its
        kind; the next heartbeat is without it.
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

    def test_leaveAtOnce(self) -> None:
        """
        A broker that has been sent a heartbeat is told, although it has not answered
        yet: otherwise a consumer would keep its queues for two minutes after it left.
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

    def test_leaveAfterHeartbeat(self) -> None:
        """
        A broker is told of one that leaves only when it has answered all heartbeats:
        Java's serves both in threads of their own, and would take in a member that has
        left if its heartbeat were dealt with last, for two minutes.
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

    def test_leaveNeverAnswered(self) -> None:
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

    def test_leaveDeaf(self) -> None:
        """
        A broker that does not answer is not waited for: it forgets by itself.
        """
        member = self.producer()
        self.a.mute = True
        self.find()
        self.network.advance(3)
        self.successResultOf(self.cluster.removeProducer(member))

    def test_leaveUnanswered(self) -> None:
        """
        A broker that falls silent meanwhile is waited for no longer than for any
        answer.
        """
        member = self.producer()
        self.find()
        self.a.mute = True
        left = self.cluster.removeProducer(member)
        self.network.advance(2.9)
        self.assertNoResult(left)
        self.network.advance(0.1)
        self.successResultOf(left)

    def test_stranger(self) -> None:
        """
        One who was refused, and stops, does not take the other's place with it, and
        brokers hear nothing of it.
        """
        member = self.producer()
        self.find()
        self.successResultOf(self.cluster.removeProducer(FakeProducer("p")))
        self.network.flush()
        self.assertEqual(self.cluster.producers, {"p": member})
        self.assertEqual(self.a.left, [])

    def test_served(self) -> None:
        """
        What a broker asks reaches the member, over the connection that the client
        made.
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
        All connections are closed, and nothing is timed any more.
        """
        self.producer()
        self.find()
        self.consumer()
        stopped = self.cluster.stop()
        self.network.flush()
        self.successResultOf(stopped)
        self.assertEqual((self.ns.open, self.a.open), (0, 0))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unused(self) -> None:
        """
        One that was never used has nothing to stop.
        """
        self.successResultOf(self.cluster.stop())

    def test_stoppedClusterCanBeUsedAgain(self) -> None:
        """
        After a stop a cluster can be used again, and brokers hear of its members at
        once as before.
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

    def test_tooLate(self) -> None:
        """
        A member that leaves after the stop has nobody dialled again.
        """
        member = self.producer()
        self.find()
        self.cluster.stop()
        self.network.flush()
        self.network.dialled.clear()
        self.successResultOf(self.cluster.removeProducer(member))
        self.assertEqual(self.network.dialled, [])

    def test_context(self) -> None:
        """
        As a context, a cluster stops at its end.
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

    def test_oneAfterTheOther(self) -> None:
        """
        The services are stopped one after the other, the last first, and the
        connections are closed after the first.
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

    def test_failure(self) -> None:
        """
        One that fails to stop is told of, and the others are stopped all the same.
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

    def test_neverMeet(self) -> None:
        """
        They may have members of the same group, have connections and ids of their
        own, and one's end is none of the other's affair.
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
