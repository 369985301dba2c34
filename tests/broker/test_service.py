# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.service}: a broker's life, in memory and on real ports.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from twisted.internet import reactor as theReactor
from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks
from twisted.internet.error import CannotListenError
from twisted.logger import LogLevel
from twisted.trial.unittest import TestCase

from tests.broker.brokers import Caller, WholeBrokerTests
from tests.processors.support import BROUGHT, COMMIT, SUSPEND, pullHeader, sendHeader
from tests.store.support import Held
from txrocket.broker.service import Broker, PeriodicTask
from txrocket.config import Configuration
from txrocket.errors import DiskFull, StoreInUse
from txrocket.message import MessageExt
from txrocket.model import SubscriptionGroupConfig, TopicConfig, TopicRouteData
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import GetRouteInfoRequestHeader
from txrocket.protocol.record import decodeRecords
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting
from txrocket.server.environment import Environment
from txrocket.services import BROKER_SECTIONS, NAMESRV_SECTIONS, broker, nameServer
from txrocket.store.files import Files
from txrocket.testing.clustersettings import freePort

reactor: Any = theReactor

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
REGISTER, UNREGISTER = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER
CLUSTER_INFO = RequestCode.GET_BROKER_CLUSTER_INFO

FULL = OSError(errno.ENOSPC, "full")


class BrokerTests(WholeBrokerTests):
    """
    The base: looking at a broker's folder.
    """

    def exists(self, *names: str) -> bool:
        """
        Whether a file is in the folder.
        """
        return os.path.exists(os.path.join(self.root, *names))

    def openFiles(self) -> list[str]:
        """
        Which files are open, but for the lock, which is closed behind the disk's
        back.
        """
        return [each for each in self.disk.opened.values() if not each.endswith("/lock")]

    def assertClosed(self) -> None:
        """
        All ports and files are closed, and nothing will happen any more.
        """
        self.clock.advance(0)
        self.assertEqual([each.open for each in self.ports], [False] * len(self.ports))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.openFiles(), [])
        if self.exists("lock"):
            Files().lock(os.path.join(self.root, "lock"))()
        self.assertEqual(self.happened[-1], "stopped")
        self.assertEqual(self.flushLoggedErrors(), [])

    def send(self, caller: Caller, body: bytes = b"x", **changes: Any) -> None:
        """
        Send a message.
        """
        caller.ask(SEND, sendHeader(**changes), body)

    def codes(self, caller: Caller) -> list[int]:
        """
        The codes of what was answered.
        """
        return [each.code for each in caller.answers()]

    def messages(self, caller: Caller, topic: str = "T") -> list[MessageExt]:
        """
        What a queue holds.
        """
        caller.ask(PULL, pullHeader(topic))
        self.turn()
        [answer] = caller.answers()
        return decodeRecords(answer.body, checkCrc=True)


class StartTests(BrokerTests):
    """
    Starting.
    """

    def test_bothPortsServeTheSame(self) -> None:
        """
        A broker listens on its port and on the one two below, and serves the same
        on both.  On the one above it listens for slaves.
        """
        self.start(listenPort="20911")
        self.assertEqual([each.number for each in self.ports], [20911, 20909, 20912])
        for index in (0, 1):
            caller = self.call(index)
            self.send(caller)
            self.turn()
            self.assertEqual(self.codes(caller), [ResponseCode.SUCCESS])
        self.assertEqual(len(self.messages(self.call())), 2)

    def test_missingPortBelowLeavesTwoPorts(self) -> None:
        """
        Without a port two below, there are two ports.
        """
        self.start(listenPort="2")
        self.assertEqual([each.number for each in self.ports], [2, 3])

    def test_startIsLoggedInOneLine(self) -> None:
        """
        One log line has its name, where it listens, where clients reach it and
        where its messages are.
        """
        self.start(brokerClusterName="c", listenPort="20911")
        self.assertIn(
            "Broker b of c listens on 192.0.2.9:20911, 192.0.2.9:20909, 192.0.2.9:20912, is"
            f" reached at 192.0.2.9:20911 and keeps its messages in {self.root}",
            self.logged(LogLevel.info),
        )

    def test_nameServersHearOfTheStart(self) -> None:
        """
        Every name server is told once all is there, and it is known when they have
        been.
        """
        made = self.make(namesrvAddr="192.0.2.1:9876;192.0.2.2:9876")
        self.nameServer.heard = lambda code: self.happened.append(f"told of {len(self.ports)}")
        made.startService()
        announced = made.whenAnnounced()
        self.assertNoResult(announced)
        self.turn()
        self.successResultOf(announced)
        self.successResultOf(made.whenAnnounced())
        self.assertEqual(self.dialled, ["192.0.2.1:9876", "192.0.2.2:9876"])
        self.assertEqual(self.nameServer.asked, [CLUSTER_INFO] * 2 + [REGISTER] * 2)
        self.assertEqual(self.happened, ["started", *["told of 3"] * 4])

    def test_restartFindsItsState(self) -> None:
        """
        A broker finds what the one before it left: messages, topics, groups and
        offsets.
        """
        first = self.start()
        caller = self.call()
        self.send(caller, b"kept", topic="new")
        self.turn()
        caller.ask(
            PULL,
            pullHeader("new", sysFlag=BROUGHT | COMMIT, commitOffset=1, consumerGroup="mine"),
        )
        self.turn()
        stopped = first.stopService()
        self.turn()
        self.successResultOf(stopped)
        self.ports.clear()
        second = self.start()
        self.assertIsNotNone(second.tables.topics.get("new"))
        self.assertIn("mine", second.tables.groups.table)
        self.assertEqual(second.tables.offsets.query("mine", "new", 0), 1)
        self.assertEqual([each.body for each in self.messages(self.call(), "new")], [b"kept"])

    def test_allTablesDamagedLosesNoMessage(self) -> None:
        """
        If every table and its C{.bak} are damaged, the broker starts and says so at error
        level, its messages can be pulled, its groups are known, and what was damaged is
        kept under another name.
        """
        first = self.start()
        caller = self.call()
        for topic in ("new", "newer"):
            self.send(caller, topic.encode(), topic=topic, queueId=1)
            self.turn()
        sysFlag = BROUGHT | COMMIT
        header = pullHeader("new", queueId=1, sysFlag=sysFlag, commitOffset=1, consumerGroup="mine")
        caller.ask(PULL, header)
        self.turn()
        stopped = first.stopService()
        self.turn()
        self.successResultOf(stopped)
        self.ports.clear()
        folder = os.path.join(self.root, "config")
        names = os.listdir(folder)
        for name in names:
            with open(os.path.join(folder, name), "rb+") as file:
                file.truncate(os.path.getsize(file.name) - 20)
                if name.startswith(("topics", "subscriptionGroup")):
                    file.truncate(1)
        second = self.start(autoCreateSubscriptionGroup="false")
        self.assertIn("is damaged", "".join(self.logged(LogLevel.error)))
        self.assertIn("mine", second.tables.groups.table)
        self.assertEqual(second.tables.offsets.query("mine", "new", 1), 1)
        for topic in ("new", "newer"):
            config = second.tables.topics.get(topic)
            assert config is not None
            self.assertEqual(2, config.readQueueNums)
            other = self.call()
            other.ask(PULL, pullHeader(topic, queueId=1, consumerGroup="mine"))
            self.turn()
            [answer] = other.answers()
            found = decodeRecords(answer.body, checkCrc=True)
            self.assertEqual([topic.encode()], [each.body for each in found])
        kept = [each for each in os.listdir(folder) if ".damaged-" in each]
        self.assertEqual(len(names), len(kept))


class TaskTests(BrokerTests):
    """
    Periodic tasks.
    """

    def test_tasksRunAtTheirPace(self) -> None:
        """
        Each is done at its own pace, for the first time after its first pause; one
        that fails ends and is logged, and the others go on.
        """
        done: list[str] = []
        made = self.make()

        def fail() -> None:
            done.append("fail")
            raise KeyError("oops")

        made.tasks = [
            PeriodicTask("Failing", 2, fail),
            PeriodicTask("Often", 1, lambda: done.append("often")),
            PeriodicTask("Seldom", 3, lambda: done.append("seldom")),
        ]
        made.startService()
        self.assertEqual(done, [])
        self.clock.pump([1] * 6)
        self.assertEqual(sorted(done), ["fail", *["often"] * 6, *["seldom"] * 2])
        self.assertEqual(self.logged(LogLevel.critical), ["Failing has ended"])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_stopEndsTasks(self) -> None:
        """
        After the stop nothing is done any more, and one that had ended harms
        nothing.
        """
        done: list[str] = []
        made = self.make()
        made.tasks = [
            PeriodicTask("Failing", 1, lambda: 1 // 0),
            PeriodicTask("Often", 1, lambda: done.append("often")),
        ]
        made.startService()
        self.clock.pump([1] * 2)
        self.flushLoggedErrors(ZeroDivisionError)
        made.stopService()
        self.clock.pump([1] * 10)
        self.assertEqual(done, ["often"] * 2)

    def test_offsetsAreWrittenPeriodically(self) -> None:
        """
        A broker writes its consumers' offsets every five seconds.
        """
        made = self.start()
        made.tables.offsets.commit("G", "T", 0, 7, "here")
        self.clock.advance(4.9)
        self.assertFalse(self.exists("config", "consumerOffset.json"))
        self.clock.advance(0.1)
        self.assertTrue(self.exists("config", "consumerOffset.json"))

    def test_tableNotWrittenIsTriedAgain(self) -> None:
        """
        Topics and groups that could not be written are written ten seconds later, though
        nothing has changed since; the broker serves meanwhile.
        """
        made = self.start()
        self.disk.only = "config"
        self.disk.failing["pwrite"] = FULL
        self.failureResultOf(made.tables.topics.put(TopicConfig("late")), DiskFull)
        self.failureResultOf(made.tables.groups.put(SubscriptionGroupConfig("late")), DiskFull)
        self.clock.advance(10)
        self.assertFalse(self.exists("config", "topics.json"))
        caller = self.call()
        self.send(caller, topic="TBW102")
        self.turn()
        self.assertEqual(1, len(self.codes(caller)))
        self.disk.failing.clear()
        self.clock.advance(10)
        for name in ("topics.json", "subscriptionGroup.json"):
            with open(os.path.join(self.root, "config", name), "rb") as file:
                self.assertIn(b'"late"', file.read())
        self.assertEqual(set(), set(made.tables.topics.unsaved))


class StopTests(BrokerTests):
    """
    Stopping.
    """

    def setUp(self) -> None:
        super().setUp()
        self.held = Held()
        self.inThread = self.held

    def work(self) -> None:
        """
        Let threads do all that they are asked for.
        """
        while self.held.jobs:
            self.held.work()
            self.turn()

    def begin(self, **given: str) -> Broker:
        """
        Start a broker that waits for the disk.
        """
        made = self.start(None, flushDiskType="SYNC_FLUSH", **given)
        self.work()
        return made

    def stop(self, made: Broker) -> None:
        """
        Stop a broker, and look whether anything is left of it.
        """
        stopped = made.stopService()
        self.turn()
        self.work()
        self.successResultOf(stopped)
        self.assertClosed()

    def test_idleStopLeavesACleanFolder(self) -> None:
        """
        A broker that did nothing leaves a folder that was closed properly, and says
        that it has stopped.
        """
        made = self.begin()
        self.assertTrue(self.exists("abort"))
        self.stop(made)
        self.assertFalse(self.exists("abort"))
        self.assertEqual(self.happened, ["started", "stopped"])
        self.assertEqual(self.logged(LogLevel.info)[-1], "Broker b has stopped")

    def test_requestsAreServedWhileUnregistering(self) -> None:
        """
        Name servers are told first, and while they are, requests are served.
        """
        made = self.begin(namesrvAddr="192.0.2.1:9876")
        caller = self.call()
        made.stopService()
        self.send(caller)
        self.assertEqual(self.codes(caller), [])
        self.held.work()
        self.turn()
        self.work()
        self.assertEqual(self.nameServer.asked, [CLUSTER_INFO, REGISTER, UNREGISTER])
        self.assertEqual(self.codes(caller), [ResponseCode.SUCCESS])
        self.assertClosed()

    def test_silentNameServerIsAwaitedThreeSeconds(self) -> None:
        """
        A name server that does not answer is awaited for three seconds.
        """
        made = self.begin(namesrvAddr="192.0.2.1:9876")
        self.nameServer.silent = True
        stopped = made.stopService()
        self.turn(2.9)
        self.work()
        self.assertNoResult(stopped)
        self.turn(0.1)
        self.work()
        self.successResultOf(stopped)
        self.assertClosed()

    def test_heldPullsAreAnswered(self) -> None:
        """
        Held pulls are answered, before their connections are closed.
        """
        made = self.begin()
        caller = self.call()
        self.send(caller)
        self.work()
        caller.answers()
        caller.ask(PULL, pullHeader(queueOffset=1, sysFlag=SUSPEND | BROUGHT))
        self.work()
        self.assertEqual(self.codes(caller), [])
        self.stop(made)
        self.assertEqual(self.codes(caller), [ResponseCode.PULL_NOT_FOUND])
        self.assertTrue(caller.wire.disconnecting)

    def test_waitingSendIsAnsweredAndStored(self) -> None:
        """
        A message that waits for the disk is answered when it is there, and it is
        found by the next broker.
        """
        made = self.begin()
        self.send(self.call())
        self.work()
        caller = self.call()
        self.send(caller, b"waits")
        self.turn()
        self.assertEqual(self.codes(caller), [])
        self.stop(made)
        self.assertEqual(self.codes(caller), [ResponseCode.SUCCESS])
        self.assertFalse(self.exists("abort"))
        self.ports.clear()
        second = self.begin()
        self.work()
        self.assertEqual(second.store.maxOffset("T", 0), 2)

    def test_waitingTopicSendIsAnswered(self) -> None:
        """
        A send that waits for its topic to be written is answered as well, even as the last
        one.
        """
        made = self.begin()
        caller = self.call()
        self.send(caller)
        stopped = made.stopService()
        self.turn()
        # The topic first, then the message: have the message synced and no more.
        self.assertEqual(len(self.held.jobs), 2)
        self.held.jobs.reverse()
        self.held.work()
        self.turn()
        self.assertNoResult(stopped)
        self.assertEqual(self.codes(caller), [])
        self.work()
        self.successResultOf(stopped)
        self.assertEqual(self.codes(caller), [ResponseCode.SUCCESS])
        self.assertTrue(self.exists("config", "topics.json"))
        self.assertClosed()

    def test_unwritableSendIsToldAtStop(self) -> None:
        """
        A send that cannot be written gets an error, and the broker stops all the same.
        """
        made = self.begin()
        self.send(self.call())
        self.work()
        caller = self.call()
        self.disk.failing["pwrite"] = FULL
        self.disk.only = "commitlog"
        self.send(caller, b"lost")
        self.stop(made)
        self.disk.failing.clear()
        self.assertEqual(self.codes(caller), [ResponseCode.SERVICE_NOT_AVAILABLE])
        self.assertFalse(self.exists("abort"))

    def test_failedSyncConfirmsNoSend(self) -> None:
        """
        If the disk fails, no send is confirmed, and the folder is marked as not closed.
        """
        made = self.begin()
        self.send(self.call())
        self.work()
        caller = self.call()
        self.send(caller, b"lost")
        self.turn()
        self.disk.failing["sync"] = OSError(errno.EIO, "broken")
        self.disk.only = "commitlog"
        self.stop(made)
        self.disk.failing.clear()
        self.assertEqual(self.codes(caller), [ResponseCode.SERVICE_NOT_AVAILABLE])
        self.assertTrue(self.exists("abort"))

    def test_stoppingBrokerRefusesRequests(self) -> None:
        """
        While it waits for the disk, requests are refused, so that clients turn to
        other brokers; nothing of them is stored.
        """
        made = self.begin()
        caller = self.call()
        self.send(caller)
        self.work()
        self.send(caller, b"waits")
        self.turn()
        caller.answers()
        made.stopService()
        self.turn()
        late = self.call()
        self.send(late, b"late")
        caller.ask(PULL, pullHeader())
        for each in (late, caller):
            [answer] = each.answers()
            self.assertEqual(answer.code, ResponseCode.SERVICE_NOT_AVAILABLE)
            self.assertEqual(answer.remark, "this broker is being stopped")
        self.work()
        self.assertEqual(made.store.maxOffset("T", 0), 2)
        self.assertClosed()

    def test_tablesAreOnDisk(self) -> None:
        """
        Offsets, topics and groups are on the disk.
        """
        made = self.begin()
        made.tables.offsets.commit("G", "T", 0, 7, "here")
        made.tables.topics.ensure("T", 1)
        made.tables.groups.find("G")
        self.stop(made)
        for name in ("consumerOffset.json", "topics.json", "subscriptionGroup.json"):
            self.assertTrue(self.exists("config", name), name)

    def test_stubbornClientIsAborted(self) -> None:
        """
        A client that does not let go is let go after five seconds.
        """
        made = self.begin()
        caller = self.call()
        caller.ask(PULL, pullHeader("none"))
        self.work()
        caller.wire.stubborn = True
        stopped = made.stopService()
        self.turn(4.9)
        self.work()
        self.assertNoResult(stopped)
        self.turn(0.1)
        self.work()
        self.successResultOf(stopped)
        self.assertEqual(caller.wire.aborts, 1)
        self.assertClosed()

    def test_idleConnectionDelaysNoStop(self) -> None:
        """
        A connection without a request does not delay the stop.
        """
        made = self.begin()
        caller = self.call()
        self.stop(made)
        self.assertTrue(caller.wire.disconnecting)

    def test_leavingMembersAreNotLogged(self) -> None:
        """
        The members of a group leave one by one, and that the broker cannot notify the others
        is no error.
        """
        made = self.begin()
        for each in ("a", "b", "c"):
            caller = self.call()
            body = (
                f'{{"clientID":"{each}","consumerDataSet":[{{"groupName":"G",'
                '"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
                '"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[],'
                '"unitMode":false}],"producerDataSet":[]}'
            )
            caller.ask(RequestCode.HEART_BEAT, None, body.encode())
            self.work()
            self.assertIn(ResponseCode.SUCCESS, self.codes(caller))
        self.stop(made)

    def test_partsStopInOrder(self) -> None:
        """
        A part that others need is closed after them: threads after the store, the store
        after the tables.
        """
        made = self.begin(namesrvAddr="192.0.2.1:9876")
        self.nameServer.heard = lambda code: self.happened.append(str(code))
        for name, owner, method in (
            ("held", made.parts.core.longPoll, "stop"),
            ("offsets", made.tables.offsets, "save"),
            ("store", made.store, "stop"),
            ("peers", made.registration, "close"),
        ):
            self.patch(owner, method, self._noting(name, getattr(owner, method)))
        for port in self.ports:
            stop = self._noting("port", port.stopListening)
            self.patch(port, "stopListening", stop)
        self.stop(made)
        self.assertEqual(
            self.happened,
            [
                *("started", "104", "held", "offsets", "port", "port", "port", "offsets"),
                *("store", "peers", "stopped"),
            ],
        )

    def _noting(self, name: str, method: Any) -> Any:
        def noted() -> Any:
            self.happened.append(name)
            return method()

        return noted


class FailedStartTests(BrokerTests):
    """
    Brokers that cannot start leave nothing behind.
    """

    def test_takenPortClosesAll(self) -> None:
        """
        If the second port is taken, the first is closed, and so is the store, as
        if it had never been opened.
        """
        self.taken = {10909}
        made = self.make(namesrvAddr="192.0.2.1:9876")
        self.assertRaises(CannotListenError, made.startService)
        self.assertFalse(made.running)
        self.assertEqual(len(self.ports), 1)
        self.assertClosed()
        self.assertFalse(self.exists("abort"))
        self.assertEqual(self.dialled, [])
        self.taken.clear()
        self.start()

    def test_usedStoreOpensNoPort(self) -> None:
        """
        If another broker has the store, no port is opened, and the files are left alone.
        """
        self.start()
        self.happened.clear()
        ports, opened = list(self.ports), self.openFiles()
        timers = len(self.clock.getDelayedCalls())
        self.ports.clear()
        made = self.make(listenPort="20911")
        self.assertRaises(StoreInUse, made.startService)
        self.assertEqual(self.ports, [])
        self.assertEqual(self.happened, ["started", "stopped"])
        self.assertTrue(self.exists("abort"))
        self.assertEqual(self.openFiles(), opened)
        self.assertEqual(len(self.clock.getDelayedCalls()), timers)
        self.ports = ports
        caller = self.call()
        self.send(caller)
        self.turn()
        self.assertEqual(self.codes(caller), [ResponseCode.SUCCESS])

    def test_fullDiskLeavesNothingOpen(self) -> None:
        """
        If the disk has no room for opening the store, nothing stays open.
        """
        self.disk.failing["open"] = FULL
        self.disk.only = "abort"
        self.assertRaises(DiskFull, self.make().startService)
        self.disk.failing.clear()
        self.assertClosed()


class RealTests(TestCase):
    """
    A name server and a broker on real ports, with real threads.
    """

    timeout = 300

    def configured(self, sections: Any, **given: str) -> Configuration:
        return Configuration.read(sections, (), None, given)

    @inlineCallbacks
    def test_heldPullGetsMessage(self) -> Any:
        """
        A message that is sent while a pull is held comes with it; the name server
        knows the topic; after a restart the message is there, once.
        """
        folder = self.mktemp()
        names = nameServer(
            Environment.real(reactor),
            self.configured(
                NAMESRV_SECTIONS,
                listenPort="0",
                bindAddress="127.0.0.1",
                kvConfigPath=os.path.join(folder, "kv.json"),
            ),
        )
        names.startService()
        host: Any = names.ports[0].getHost()
        namesrv = f"127.0.0.1:{host.port}"
        port = freePort("127.0.0.1", (2, -1))
        address, vip = f"127.0.0.1:{port}", f"127.0.0.1:{port - 2}"
        configuration = self.configured(
            BROKER_SECTIONS,
            brokerName="b",
            brokerIP1="127.0.0.1",
            bindAddress="127.0.0.1",
            listenPort=str(port),
            namesrvAddr=namesrv,
            storePathRootDir=os.path.join(folder, "store"),
            mappedFileSizeCommitLog="1048576",
            flushDiskType="SYNC_FLUSH",
        )
        peers = Peers(Remoting(reactor), endpoints(reactor))

        def ask(where: str, code: int, header: Any, body: bytes = b"") -> Deferred[RemotingCommand]:
            return peers.request(where, requestCommand(code, header, body), 20)

        for expected in ([b"first"], [b"first", b"second"]):
            server = broker(Environment.real(reactor), configuration)
            server.startService()
            yield server.whenAnnounced()
            sent = yield ask(vip, SEND, sendHeader(), expected[-1])
            self.assertEqual((sent.code, sent.remark), (ResponseCode.SUCCESS, None))
            answer = yield ask(address, PULL, pullHeader())
            self.assertEqual([each.body for each in decodeRecords(answer.body)], expected)
            count = len(expected)
            held = ask(address, PULL, pullHeader(queueOffset=count, sysFlag=SUSPEND | BROUGHT))
            route = yield ask(
                namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T")
            )
            [data] = decodeBody(TopicRouteData, route.body).brokerDatas
            self.assertEqual(data.brokerAddrs, {0: address})
            yield server.stopService()
            answer = yield held
            self.assertEqual(answer.code, ResponseCode.PULL_NOT_FOUND)
            self.assertNotIn("abort", os.listdir(os.path.join(folder, "store")))
        route = yield ask(
            namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T")
        )
        self.assertEqual(route.code, ResponseCode.TOPIC_NOT_EXIST)
        yield gatherResults([peers.stop(), names.stopService()])
