# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.server.instances}: with processes that only seem to be, and with real ones.
"""

from __future__ import annotations

import os
import select
import signal
from typing import Any, cast

from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.test_taps import SMALL, TapCase
from tests.twistd import LIMIT
from txrocket import Message
from txrocket.blocking import Client
from txrocket.broker.tap import Options, makeService
from txrocket.config import Configuration
from txrocket.config.javakeys import BROKER_KEYS
from txrocket.errors import ConfigError
from txrocket.server.instances import Instance, Instances, plan
from txrocket.services import BROKER_SECTIONS
from txrocket.testing.clustersettings import freePort


def configured(**settings: str) -> Configuration:
    """
    A broker's settings.
    """
    return Configuration.read(BROKER_SECTIONS, BROKER_KEYS, None, settings)


class PlanTests(SynchronousTestCase):
    """
    Tests for L{plan}, and for the command line.
    """

    def test_brokersDifferInNamePortAndFolder(self) -> None:
        """
        Each broker has its own name, ports that leave room for the two beside them, and
        folder.
        """
        planned = plan(configured(brokerName="b", listenPort="10911", storePathRootDir="/s"), 3)
        self.assertEqual(
            [tuple(each.settings.values()) for each in planned],
            [("b-0", "10911", "/s/0"), ("b-1", "10921", "/s/1"), ("b-2", "10931", "/s/2")],
        )

    def test_zeroPortStaysZero(self) -> None:
        """
        Port 0 stays so, and a broker without a name has the machine's.
        """
        planned = plan(configured(listenPort="0"), 2)
        self.assertEqual([each.settings["listenPort"] for each in planned], ["0", "0"])
        self.assertEqual(len({each.name for each in planned}), 2)

    def test_conflictsAreReportedTogether(self) -> None:
        """
        Settings that cannot be shared are named, all at once; one broker alone may have
        them.
        """
        shared = configured(storePathCommitLog="/log", listenPort="65530")
        error = self.assertRaises(ConfigError, plan, shared, 2)
        self.assertIn("storePathCommitLog is one folder", str(error))
        self.assertIn("listenPort=65530 leaves no room", str(error))
        self.assertEqual(len(plan(shared, 1)), 1)
        self.assertIn("1 or more", str(self.assertRaises(ConfigError, plan, shared, 0)))

    def test_childrenInheritOptions(self) -> None:
        """
        The children have the parent's file and settings, and their own over them.
        """
        options = Options()
        options.parseOptions(
            ["-n", "a:1", "--instances", "2", "--set", "brokerName=b", "--set", "listenPort=1000"]
        )
        (service,) = makeService(options)
        assert isinstance(service, Instances)
        command = options.instances[1].command(options.common())
        words = " ".join(command[command.index("rocket-broker") :])
        self.assertRegex(
            words,
            "^rocket-broker --set namesrvAddr=a:1 --set brokerName=b --set listenPort=1000"
            " --set brokerName=b-1 --set listenPort=1010 --set storePathRootDir=/.*/store/1$",
        )


class Reactor(Clock):
    """
    Spawns nothing.

    @ivar spawned: the protocols of what was to be.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spawned: list[Any] = []
        self.signals: list[str] = []
        self.gone = False
        self.pid = 1

    def spawnProcess(self, protocol: Any, executable: str, args: Any, env: Any) -> None:
        """
        Note it.
        """
        self.spawned.append(protocol)
        protocol.transport = self

    def signalProcess(self, name: str) -> None:
        """
        Note it.
        """
        if self.gone:
            raise ProcessExitedAlready
        self.signals.append(name)


class ChildTests(SynchronousTestCase):
    """
    Tests for L{Instances}, with processes that only seem to be.
    """

    def setUp(self) -> None:
        """
        One that has been started.
        """
        self.logged: list[str] = []

        def observe(event: Any) -> None:
            if event.get("log_namespace", "").startswith("txrocket.server.instances"):
                self.logged.append(event["log_format"].format(**event))

        publisher: Any = globalLogPublisher
        publisher.addObserver(observe)
        self.addCleanup(publisher.removeObserver, observe)
        self.reactor = Reactor()
        self.service = Instances(self.reactor, [Instance("b-0", {})], [])
        self.service.startService()

    def end(self, error: Exception | None = None) -> None:
        """
        The process ends.
        """
        self.reactor.spawned[-1].processEnded(Failure(error or ProcessTerminated(1, None, 256)))

    def test_endedChildIsRestartedAfterPause(self) -> None:
        """
        One that ends is started again, after 1, 2, 4 ... and at most 60 seconds, and the log
        says why and when.
        """
        for count, pause in enumerate([1, 2, 4, 8, 16, 32, 60, 60], 1):
            self.end()
            self.assertEqual(
                self.logged[-1],
                f"Broker b-0 has ended, with status 1; it is started again in {pause} s",
            )
            self.reactor.advance(pause - 0.01)
            self.assertEqual(len(self.reactor.spawned), count)
            self.reactor.advance(0.01)
            self.assertEqual(len(self.reactor.spawned), count + 1)

    def test_longRunResetsPause(self) -> None:
        """
        One that has run for long is started again soon.
        """
        for error, how in (
            (ProcessTerminated(None, 9, 9), "killed by signal 9"),
            (ProcessDone(0), "by itself"),
        ):
            self.reactor.advance(60)
            self.end(error)
            self.assertIn(f"has ended, {how}; it is started again in 1 s", self.logged[-1])
            self.reactor.advance(1)

    def test_stopWaitsForChildren(self) -> None:
        """
        All are asked to stop, and waited for; none is started again.
        """
        stopping = cast(Any, self.service.stopService())
        self.assertEqual(self.reactor.signals, ["TERM"])
        self.reactor.advance(29)
        self.assertNoResult(stopping)
        self.end(ProcessDone(0))
        self.successResultOf(stopping)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual(len(self.reactor.spawned), 1)

    def test_lateChildIsKilled(self) -> None:
        """
        One that does not stop in time is killed.
        """
        stopping = self.service.stopService()
        self.reactor.advance(30)
        self.assertEqual(self.reactor.signals, ["TERM", "KILL"])
        self.assertIn("did not stop within 30 s", self.logged[-1])
        self.assertNoResult(stopping)
        self.end()
        self.successResultOf(stopping)

    def test_stoppedChildIsNotRestarted(self) -> None:
        """
        A child that waits for its restart is not started, and one that has just ended is no
        error.
        """
        self.end()
        self.successResultOf(self.service.stopService())
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.setUp()
        self.reactor.gone = True
        stopping = self.service.stopService()
        self.end()
        self.successResultOf(stopping)

    def test_childOutputIsLoggedByLine(self) -> None:
        """
        The output of a child is logged by lines, after its name, however it is cut; an
        endless line is not kept for ever.
        """
        child = self.reactor.spawned[0]
        self.logged.clear()
        child.outReceived(b"one\ntw")
        child.errReceived(b"o\n\nthree \xff")
        self.assertEqual(self.logged, ["[b-0] one", "[b-0] two"])
        child.outReceived(b"x" * 65_536)
        self.assertEqual(len(self.logged), 3)
        child.outReceived(b"the end")
        self.end()
        self.assertEqual(self.logged[-2], "[b-0] the end")


class LiveTests(TapCase):
    """
    Two brokers in processes of their own.
    """

    def sentTo(self, nameServer: int) -> set[str]:
        """
        The brokers that took a message for each queue of a topic.
        """
        with Client(f"127.0.0.1:{nameServer}") as client:
            client.createTopic("T", 2)
            queues = client.queues("T")
            results = [client.send(Message("T", b"x"), each) for each in queues]
        return {each.messageQueue.brokerName for each in results}

    def test_killedInstanceReturnsWithMessages(self) -> None:
        """
        A producer sends to both; one that is killed comes back with its messages; the stop
        leaves no process, and nothing to put right.
        """
        nameServer = freePort("127.0.0.1")
        servers = self.start(
            *("rocket-namesrv", "--set", f"listenPort={nameServer}"),
            *("--set", "bindAddress=127.0.0.1"),
        )
        servers.waitFor("listens on")
        port = freePort("127.0.0.1", (2, -1, -8, -10, -11))
        parent = self.start(
            *("rocket-broker", "-n", f"127.0.0.1:{nameServer}", "--instances", "2"),
            *("--set", f"listenPort={port}", "--set", "brokerName=b", *SMALL),
            *("--set", "brokerIP1=127.0.0.1", "--set", "storePathRootDir=store"),
        )
        pids = [int(parent.waitFor(rf"b-{each} is process (\d+)")[1]) for each in range(2)]
        for each in range(2):
            servers.waitFor(rf"b-{each}\b.*has registered")
        addresses = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 10}"]
        self.assertEqual(sorted(self.brokersOf(f"127.0.0.1:{nameServer}")), sorted(addresses))
        self.assertEqual(self.sentTo(nameServer), {"b-0", "b-1"})
        os.kill(pids[1], signal.SIGKILL)
        parent.waitFor("Broker b-1 has ended, killed by signal 9; it is started again in 1 s")
        parent.printed = servers.printed = ""
        pids[1] = int(parent.waitFor(r"b-1 is process (\d+)")[1])
        servers.waitFor(r"b-1\b.*has registered")
        self.assertEqual(self.sentTo(nameServer), {"b-0", "b-1"})
        self.assertEqual(parent.stop(), 0, parent.printed)
        for each, pid in enumerate(pids):
            self.assertRaises(ProcessLookupError, os.kill, pid, 0)
            self.assertFalse((parent.folder / "store" / str(each) / "abort").exists())
        for each in range(2):
            servers.waitFor(rf"b-{each}\b.*has unregistered")

    def test_killedParentEndsChildren(self) -> None:
        """
        Children do not outlive their parent, however it ends.
        """
        port = freePort("127.0.0.1", (2, -1, -8, -10, -11))
        parent = self.start(
            *("rocket-broker", "--instances", "2", "--set", f"listenPort={port}", *SMALL),
            *("--set", "brokerName=b", "--set", "storePathRootDir=store"),
        )
        handles = []
        for each in range(2):
            pid = int(parent.waitFor(rf"b-{each} is process (\d+)")[1])
            handles.append(os.pidfd_open(pid))
            self.addCleanup(os.close, handles[-1])
            parent.waitFor(rf"Broker b-{each} of DefaultCluster listens")
        parent.signal(signal.SIGKILL)
        for handle in handles:
            self.assertEqual(select.select([handle], [], [], LIMIT)[0], [handle])

    def test_checkAcceptsInstances(self) -> None:
        """
        --check knows of it.
        """
        child = self.start("rocket-broker", "--instances", "2", "--check")
        self.assertEqual((child.ended(), child.printed), (0, "The configuration is sound\n"))
        child = self.start(
            *("rocket-broker", "--instances", "2", "--check"), *("--set", "storePathCommitLog=x")
        )
        self.assertEqual(child.ended(), 1)
        self.assertIn("storePathCommitLog is one folder", child.printed)
