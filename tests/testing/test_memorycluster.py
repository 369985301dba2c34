# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.testing.memory.cluster} and L{txrocket.testing.trial}.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorTime
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.testing.client import Cleaned, Client
from txrocket.broker.interfaces import IBrokerProcessor
from txrocket.broker.service import Broker
from txrocket.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    ResponseError,
    TopicNotExist,
)
from txrocket.nameserver.service import NameServer
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.headers import GetKVConfigRequestHeader, PutKVConfigRequestHeader
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.services import Plugins
from txrocket.testing import MemoryCluster
from txrocket.testing.trial import memoryCluster

OWN_CODE = 20_001


@implementer(IBrokerProcessor)
class Reverse:
    """
    Gives a body back in reverse, from a thread.
    """

    blocking = True

    def codes(self) -> dict[int, Process]:
        return {OWN_CODE: self.reverse}

    def reverse(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        if not request.body:
            raise TopicNotExist("nothing to reverse")
        return responseCommand(body=request.body[::-1])


class MemoryCase(SynchronousTestCase):
    """
    A cluster in memory and a client.
    """

    def start(self, **options: Any) -> MemoryCluster:
        """
        Start a cluster.
        """
        self.cluster = memoryCluster(self, **options)
        self.client = Client(self.cluster.clock, self.cluster.connect)
        return self.cluster

    def get(self, asking: Coroutine[Deferred[Any], Any, Any]) -> Any:
        """
        What the client gets.
        """
        return self.cluster.resultOf(Deferred.fromCoroutine(asking))

    def bodies(self, broker: str, **options: Any) -> list[bytes]:
        """
        The bodies of what is pulled.
        """
        return [each.body for each in self.get(self.client.pull(broker, **options))]


class ClusterTests(MemoryCase):
    """
    A cluster that runs.
    """

    def test_startedClusterDeliversMessages(self) -> None:
        """
        After the start every name server knows every broker, and messages go
        through each.
        """
        cluster = self.start(brokers=2, nameServers=2)
        for each in cluster.nameServers:
            known = self.get(self.client.brokersOf(each))
            self.assertEqual(list(known.values()), cluster.brokers)
        for each in cluster.brokers:
            self.get(self.client.send(each, each.encode()))
        self.assertEqual(
            [self.bodies(each) for each in cluster.brokers],
            [[each.encode()] for each in cluster.brokers],
        )

    def test_clusterUsesNoSystemResources(self) -> None:
        """
        There is no socket, no thread and no file, and time passes on the clock only.
        """

        def refuse(*args: Any, **options: Any) -> Any:
            raise AssertionError(f"{args} leaves the test")

        self.patch(socket, "socket", refuse)
        self.patch(threading.Thread, "start", refuse)
        self.patch(os, "open", refuse)
        self.patch(os, "mkdir", refuse)
        cluster = self.start()
        began = cluster.clock.seconds()
        self.get(self.client.send(cluster.brokers[0], b"x", properties="KEYS\x01k\x02"))
        self.assertEqual(self.bodies(cluster.brokers[0]), [b"x"])
        self.assertEqual(cluster.clock.seconds(), began)
        cluster.advance(60)
        cluster.stop()
        self.assertEqual(cluster.clock.seconds(), began + 60)

    def test_largeMessageArrivesWhole(self) -> None:
        """
        A message of many reads arrives whole, and a pull that is larger than what a
        connection holds.
        """
        cluster = self.start()
        sent = [bytes([n]) * 100_000 for n in range(3)]
        for each in sent:
            self.get(self.client.send(cluster.brokers[0], each))
        self.assertEqual(self.bodies(cluster.brokers[0]), sent[:2])
        self.assertEqual(self.bodies(cluster.brokers[0], offset=2), sent[2:])

    def test_pullIsHeldUntilMessage(self) -> None:
        """
        A pull is held until a message comes, or its time is over.
        """
        cluster = self.start()
        broker = cluster.brokers[0]
        self.get(self.client.send(broker, b"first"))
        held = Deferred.fromCoroutine(self.client.pull(broker, offset=1, hold=3))
        cluster.advance(2)
        self.assertNoResult(held)
        self.get(self.client.send(broker, b"second"))
        self.assertEqual([each.body for each in self.successResultOf(held)], [b"second"])
        held = Deferred.fromCoroutine(self.client.pull(broker, offset=2, hold=3))
        cluster.advance(2.9)
        self.assertNoResult(held)
        cluster.advance(0.2)
        self.assertEqual(self.successResultOf(held), [])

    def test_syncFlushSendIsAnswered(self) -> None:
        """
        A send that waits for the disk is answered.
        """
        cluster = self.start(settings={"flushDiskType": "SYNC_FLUSH"})
        self.get(self.client.send(cluster.brokers[0], b"safe"))
        self.assertEqual(self.bodies(cluster.brokers[0]), [b"safe"])

    def test_tlsIsRefused(self) -> None:
        """
        A server that would have to dial over TLS cannot run in memory, and says so.
        """
        cluster = MemoryCluster(settings={"tls.server.mode": "enforcing"})
        self.addCleanup(cluster.stop)
        error = self.assertRaises(ConfigError, cluster.start)
        self.assertEqual(str(error), "a MemoryCluster does not support TLS: use a RealCluster")

    def test_blockingProcessorAnswers(self) -> None:
        """
        A blocking processor runs in its turn, and its error is answered.
        """
        cluster = self.start(plugins=Plugins(processors=[Reverse()]))
        asking = self.client.ask(cluster.brokers[0], requestCommand(OWN_CODE, body=b"abc"))
        self.assertEqual(self.get(asking).body, b"cba")
        asking = self.client.ask(cluster.brokers[0], requestCommand(OWN_CODE))
        self.assertRaises(TopicNotExist, self.get, asking)

    def test_serversAreReachableByAddress(self) -> None:
        """
        The running servers are found by their addresses.
        """
        cluster = self.start(brokers=2)
        self.assertIsInstance(cluster.nameServer(), NameServer)
        self.assertIsInstance(cluster.broker(), Broker)
        self.assertIsNot(cluster.broker(cluster.brokers[1]), cluster.broker())
        self.assertRaises(KeyError, cluster.service, "192.0.2.1:1")
        cluster.stop(cluster.brokers[1])
        self.assertRaises(KeyError, cluster.broker, cluster.brokers[1])
        cluster.broker()

    def test_unknownSettingIsRefused(self) -> None:
        """
        Settings are the servers' own; one that is unknown is an error at once.
        """
        cluster = self.start(settings={"defaultTopicQueueNums": 3, "listenPort": 11911})
        topic = cluster.broker().tables.topics.get("TBW102")
        assert topic is not None
        self.assertEqual(topic.writeQueueNums, 3)
        self.assertTrue(cluster.brokers[0].endswith(":11911"))
        self.assertRaises(ConfigError, MemoryCluster, settings={"defaultTopicQueueNum": 3})

    def test_clustersAreSeparate(self) -> None:
        """
        Two clusters never meet, though they have the same addresses.
        """
        one = self.start()
        other = memoryCluster(self)
        self.assertEqual(one.brokers, other.brokers)
        self.get(self.client.send(one.brokers[0], b"here"))
        self.assertIsNotNone(one.broker().tables.topics.get("Greetings"))
        self.assertIsNone(other.broker().tables.topics.get("Greetings"))
        other.stop()
        self.assertEqual(self.bodies(one.brokers[0]), [b"here"])

    def test_runsAreReproducible(self) -> None:
        """
        Two equal runs have the same result, to the byte: chance is fixed.
        """
        ids = []
        for _ in range(2):
            cluster = self.start()
            sent = [self.get(self.client.send(cluster.brokers[0], b"x")) for _ in range(3)]
            ids.append([each.msgId for each in sent])
        self.assertEqual(ids[0], ids[1])


class TimeTests(MemoryCase):
    """
    Time passes when the test says so.
    """

    def test_dueCallsHappenInTurn(self) -> None:
        """
        Calls that are due in between happen at their times, one after the other.
        """
        cluster = self.start()
        began = cluster.clock.seconds()
        happened: list[float] = []

        def happen() -> None:
            happened.append(cluster.clock.seconds() - began)
            if len(happened) < 5:
                cluster.clock.callLater(1, happen)

        cluster.clock.callLater(1, happen)
        cluster.advance(3.5)
        self.assertEqual(happened, [1, 2, 3])
        self.assertEqual(cluster.clock.seconds(), began + 3.5)
        cluster.advance(0.5)
        self.assertEqual(happened, [1, 2, 3, 4])

    def test_resultOfAdvancesClock(self) -> None:
        """
        Time passes until there is a result, and no longer than allowed.
        """
        cluster = self.start()
        began = cluster.clock.seconds()
        late: Deferred[str] = Deferred()
        cluster.clock.callLater(5, late.callback, "late")
        self.assertEqual(cluster.resultOf(late), "late")
        self.assertEqual(cluster.clock.seconds(), began + 5)
        self.assertEqual(cluster.resultOf(succeed("there")), "there")
        self.assertRaises(ValueError, cluster.resultOf, fail(ValueError("no")))
        cancelled: list[Any] = []
        error = self.assertRaises(
            TimeoutError, cluster.resultOf, Deferred(cancelled.append), within=7.5
        )
        self.assertEqual(str(error), "there is no result after 7.5 s")
        self.assertEqual(len(cancelled), 1)
        self.assertLessEqual(cluster.clock.seconds(), began + 12.5)

    def test_silentBrokerIsForgotten(self) -> None:
        """
        The servers' own rules keep the time of the clock: a broker registers every
        half minute and is not dropped in an hour.
        """
        cluster = self.start()
        cluster.advance(3600)
        known = self.get(self.client.brokersOf(cluster.nameServers[0]))
        self.assertEqual(list(known.values()), cluster.brokers)

    def test_shiftedWallLeavesClock(self) -> None:
        """
        A test sets the time of day, ahead and back, and the clock does not follow.
        """
        cluster = self.start()
        began = cluster.clock.seconds()
        self.assertEqual(cluster.wall(), began)
        cluster.shiftWall(3600)
        cluster.shiftWall(-7200)
        self.assertEqual(cluster.wall(), began - 3600)
        cluster.advance(5)
        self.assertEqual(cluster.wall(), began - 3595)
        self.assertEqual(cluster.clock.seconds(), began + 5)
        self.assertEqual(cluster.broker().store.now(), int(1000 * cluster.wall()))

    def test_serverHasOneClock(self) -> None:
        """
        A server has one clock, which knows the calls of that server only.
        """
        cluster = self.start()
        clock = cluster.broker().remoting.clock
        verifyObject(IReactorTime, clock)
        self.assertEqual(clock.seconds(), cluster.clock.seconds())
        foreign = cluster.clock.callLater(1, lambda: None)
        own = clock.callLater(1, lambda: None)
        self.assertIn(own, clock.getDelayedCalls())
        self.assertNotIn(foreign, clock.getDelayedCalls())


class StopTests(MemoryCase):
    """
    Servers that stop, gracefully or not.
    """

    def test_stopLeavesNoCalls(self) -> None:
        """
        After a graceful stop nothing is left to do, the name servers know of no
        broker, and all is on the disk.
        """
        cluster = self.start()
        self.get(self.client.send(cluster.brokers[0], b"kept"))
        cluster.stop(cluster.brokers[0])
        self.assertRaises(TopicNotExist, self.get, self.client.brokersOf(cluster.nameServers[0]))
        cluster.start()
        self.assertEqual(self.bodies(cluster.brokers[0]), [b"kept"])
        cluster.stop()
        cluster.stop()
        self.assertEqual(cluster.clock.getDelayedCalls(), [])

    def test_crashKeepsAnsweredMessages(self) -> None:
        """
        A crash breaks the connections and keeps what was answered; the name server
        forgets the broker at once, and hears of it again when it is back.
        """
        cluster = self.start(brokers=2)
        crashed, other = cluster.brokers
        self.get(self.client.send(crashed, b"kept"))
        pending = Deferred.fromCoroutine(self.client.pull(crashed, offset=1, hold=9))
        cluster.advance()
        cluster.crash(crashed)
        self.failureResultOf(pending, ConnectionLost)
        self.assertRaises(ConnectFailed, self.get, self.client.send(crashed, b"refused"))
        known = self.get(self.client.brokersOf(cluster.nameServers[0]))
        self.assertEqual(list(known.values()), [other])
        cluster.start(crashed)
        known = self.get(self.client.brokersOf(cluster.nameServers[0]))
        self.assertEqual(sorted(known.values()), cluster.brokers)
        self.assertEqual(self.bodies(crashed), [b"kept"])

    def test_crashLosesUnwrittenMessages(self) -> None:
        """
        A crash loses what the broker had in its memory only: a send that was not
        answered, and the work that threads had before them.
        """
        cluster = self.start(settings={"flushDiskType": "SYNC_FLUSH"})
        broker = cluster.brokers[0]
        self.get(self.client.send(broker, b"kept"))
        store = cluster.broker().store
        written = store.written.offset
        store.put("Greetings", 0, b"lost", b"", bornTimestamp=1, bornHost=bytes(8))
        cluster.crash(broker)
        self.assertEqual(store.written.offset, written)
        cluster.start(broker)
        self.assertEqual(self.bodies(broker), [b"kept"])
        self.get(self.client.send(broker, b"next"))
        self.assertEqual(self.bodies(broker), [b"kept", b"next"])

    def test_crashDuringStopIsCrash(self) -> None:
        """
        A crash during a stop is a crash: the next start takes the log as it is.
        """
        cluster = self.start()
        broker = cluster.brokers[0]
        self.get(self.client.send(broker, b"kept"))
        cluster.broker().stopService()
        cluster.crash(broker)
        cluster.start(broker)
        self.assertEqual(self.bodies(broker), [b"kept"])

    def test_nameServerComesBack(self) -> None:
        """
        A name server comes back with the content of its disk, and brokers register again
        within half a minute.
        """
        cluster = self.start()
        address = cluster.nameServers[0]
        put = PutKVConfigRequestHeader(namespace="n", key="k", value="v")
        self.get(self.client.ask(address, requestCommand(RequestCode.PUT_KV_CONFIG, put)))
        cluster.crash(address)
        cluster.start(address)
        get = GetKVConfigRequestHeader(namespace="n", key="k")
        answer = self.get(self.client.ask(address, requestCommand(RequestCode.GET_KV_CONFIG, get)))
        self.assertEqual(answer.extFields["value"], "v")
        self.assertRaises(ResponseError, self.get, self.client.brokersOf(address))
        cluster.advance(31)
        self.assertEqual(len(self.get(self.client.brokersOf(address))), 1)

    def test_failedStartIsTold(self) -> None:
        """
        If a server cannot start the test gets the error, and the others can be stopped.
        """
        cluster = self.start()
        broker = cluster.brokers[0]
        cluster.stop(broker)
        service = cluster._machines[broker]._machine.listen(10909)
        port = self.successResultOf(service.listen(cluster.nameServer()._factory))
        self.assertRaises(CannotListenError, cluster.start, broker)
        port.stopListening()
        cluster.start(broker)
        self.get(self.client.send(broker, b"hello"))


class FixtureTests(SynchronousTestCase):
    """
    Tests for L{memoryCluster}.
    """

    def test_clusterIsStoppedAfterTest(self) -> None:
        """
        The cluster is stopped after the test, even if it could not start.
        """
        cleaned = Cleaned()
        cluster = memoryCluster(cleaned, brokers=2)
        self.assertEqual(len(cluster.brokers), 2)
        cluster.broker()
        cleaned.cleanups.pop()()
        self.assertRaises(KeyError, cluster.broker)
        settings = {"tls.enable": True}
        self.assertRaises(ConfigError, memoryCluster, cleaned, settings=settings)
        cleaned.cleanups.pop()()
        self.assertEqual(cleaned.cleanups, [])
