# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.testing.childcluster}, its child's side, and the fixture for pytest.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import twisted.internet
from twisted.internet import reactor as theReactor
from twisted.internet import stdio
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogBeginner
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.test_examples import asDeferred
from tests.testing.client import Client
from txrocket.errors import ConfigError
from txrocket.remoting.peers import endpoints
from txrocket.testing import ChildCluster, ClusterFailed
from txrocket.testing.__main__ import Child
from txrocket.testing.pytest import rocketCluster

reactor: Any = theReactor

# A child that never answers, one that ends at once, and one that stops badly.
SILENT = "import sys; sys.stdin.read()"
GONE = "import sys; print('no such thing', file=sys.stderr); sys.exit(3)"
BAD = """
import sys
sys.stdin.readline()
print('{"nameServers": [], "brokers": []}', flush=True)
sys.stdin.read()
sys.exit(4)
"""
STUBBORN = """
import sys, time
sys.stdin.readline()
print('{"nameServers": [], "brokers": []}', flush=True)
time.sleep(60)
"""


def isAlive(pid: int) -> bool:
    """
    Whether a child of ours runs, or has run and was not waited for.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class ChildTests(TestCase):
    """
    Tests for L{ChildCluster}.
    """

    timeout = 300

    def setUp(self) -> None:
        self.client = Client(reactor, endpoints(reactor))
        self.addCleanup(self.client.stop)

    @asDeferred
    async def test_startedClusterServes(self) -> None:
        """
        After the start the name servers know the brokers, which have the settings
        that were asked for; after the stop the child and its files are gone.
        """
        with ChildCluster(
            brokers=2, nameServers=2, settings={"autoCreateTopicEnable": False}
        ) as cluster:
            pid, folder = cluster.pid, cluster.folder
            assert pid is not None
            for each in cluster.nameServers:
                known = await self.client.brokersOf(each, "DefaultCluster")
                self.assertEqual(list(known.values()), cluster.brokers)
            with self.assertRaisesRegex(Exception, "TBW102"):
                await self.client.send(cluster.brokers[0], b"no topic")
            self.assertTrue(isAlive(pid))
        self.assertFalse(isAlive(pid))
        self.assertFalse(os.path.exists(folder))
        self.assertIsNone(cluster.pid)

    @asDeferred
    async def test_killedClusterRestartsWithData(self) -> None:
        """
        After a kill it starts again where it was, with what was on the disk.
        """
        with ChildCluster(settings={"flushDiskType": "SYNC_FLUSH"}) as cluster:
            before = cluster.nameServers, cluster.brokers, cluster.pid
            await self.client.send(cluster.brokers[0], b"kept")
            cluster.kill()
            self.assertIsNone(cluster.pid)
            cluster.kill()
            cluster.start()
            self.assertEqual((cluster.nameServers, cluster.brokers), before[:2])
            self.assertNotEqual(cluster.pid, before[2])
            # It was lost while the test was waiting for the child.
            self.client.peers.forget(cluster.brokers[0])
            (message,) = await self.client.pull(cluster.brokers[0])
            self.assertEqual(message.body, b"kept")

    @asDeferred
    async def test_ownFolderOutlivesCluster(self) -> None:
        """
        In a folder of the test's the files outlive the cluster, its log among them.
        """
        folder = Path(self.mktemp())
        cluster = ChildCluster(folder=str(folder))
        self.addCleanup(cluster.stop)
        cluster.start()
        await self.client.send(cluster.brokers[0], b"kept")
        cluster.stop()
        self.assertIn("Broker broker-0 has stopped", (folder / "cluster.log").read_text())
        self.assertFalse((folder / "broker-0" / "store" / "abort").exists())
        cluster.start()
        self.client.peers.forget(cluster.brokers[0])
        (message,) = await self.client.pull(cluster.brokers[0])
        self.assertEqual(message.body, b"kept")

    def test_sigtermStopsChild(self) -> None:
        """
        The child stops gracefully on SIGTERM as well.
        """
        folder = Path(self.mktemp())
        with ChildCluster(folder=str(folder)) as cluster:
            assert cluster.pid is not None
            os.kill(cluster.pid, signal.SIGTERM)
            os.waitid(os.P_PID, cluster.pid, os.WEXITED | os.WNOWAIT)
        self.assertFalse((folder / "broker-0" / "store" / "abort").exists())

    def test_childEndsWithTest(self) -> None:
        """
        The child does not outlive a test that ends without a word.
        """
        script = (
            "from txrocket.testing import ChildCluster\n"
            "import os\n"
            "cluster = ChildCluster()\n"
            "cluster.start()\n"
            "print(cluster.pid, cluster.folder, flush=True)\n"
            "os._exit(0)"
        )
        parent = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, timeout=300
        )
        pid, folder = parent.stdout.split()
        self.addCleanup(subprocess.run, ["rm", "-rf", folder.decode()], check=True)
        try:
            child = os.pidfd_open(int(pid))
        except ProcessLookupError:
            return
        self.addCleanup(os.close, child)
        self.assertEqual(select.select([child], [], [], 30)[0], [child])


class FailureTests(SynchronousTestCase):
    """
    The errors of a test whose child fails.
    """

    def child(self, program: str, timeout: float = 30.0) -> ChildCluster:
        """
        A cluster whose child is another program.
        """
        cluster = ChildCluster(timeout=timeout)
        popen = subprocess.Popen

        def other(command: list[str], **options: Any) -> Any:
            return popen([sys.executable, "-c", program], **options)

        self.patch(subprocess, "Popen", other)
        self.addCleanup(cluster.stop)
        return cluster

    def test_invalidSettingIsReported(self) -> None:
        """
        Wrong settings are reported as by the servers, and no process is left.
        """
        cluster = ChildCluster(settings={"flushDiskTyp": "SYNC_FLUSH"})
        error = self.assertRaises(ClusterFailed, cluster.__enter__)
        self.assertEqual(str(error), "--set flushDiskTyp: unknown; did you mean flushDiskType?")
        self.assertIsNone(cluster.pid)
        self.assertFalse(os.path.exists(cluster.folder))

    def test_lateStartIsGivenUp(self) -> None:
        """
        A child that does not start in time is given up.
        """
        cluster = self.child(SILENT, timeout=0.1)
        error = self.assertRaises(ClusterFailed, cluster.start)
        self.assertIn("the cluster did not start within 0.1 s", str(error))
        self.assertIsNone(cluster.pid)

    def test_endedChildShowsLog(self) -> None:
        """
        If it ends, what it last said is shown.
        """
        cluster = self.child(GONE)
        error = self.assertRaises(ClusterFailed, cluster.start)
        self.assertIn("the cluster ended while it started", str(error))
        self.assertIn("no such thing", str(error))
        self.assertIsNone(cluster.pid)

    def test_badExitStatusIsError(self) -> None:
        """
        An end with another status than 0 is an error.
        """
        cluster = self.child(BAD)
        cluster.start()
        error = self.assertRaises(ClusterFailed, cluster.stop)
        self.assertIn("the cluster ended with status 4", str(error))
        self.assertFalse(os.path.exists(cluster.folder))

    def test_lateStopKillsChild(self) -> None:
        """
        One that does not stop is killed, and that is told.
        """
        cluster = self.child(STUBBORN)
        cluster.start()
        self.patch(cluster, "_timeout", 0.1)
        error = self.assertRaises(ClusterFailed, cluster.stop)
        self.assertIn("the cluster did not stop within 0.1 s", str(error))
        self.assertIsNone(cluster.pid)

    def test_secondStartIsRefused(self) -> None:
        """
        A running cluster is not started again.
        """
        cluster = self.child(SILENT)
        self.patch(cluster, "_tell", lambda asked: {"nameServers": [], "brokers": []})
        cluster.start()
        self.assertRaises(AssertionError, cluster.start)


class Stopped:
    """
    The reactor, but for being stopped.

    @ivar stops: how often it was told to stop.
    """

    def __init__(self) -> None:
        self.stops = 0
        self.triggers: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)

    def addSystemEventTrigger(self, phase: str, event: str, function: Any) -> None:
        self.triggers.append((phase, event, function))

    def run(self) -> None:
        """
        It runs already.
        """

    def stop(self) -> None:
        self.stops += 1
        if self.stops > 1:
            raise ReactorNotRunning


class Heard(StringTransport):
    """
    A transport that tells when something is written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: Deferred[bytes] = Deferred()

    def write(self, data: bytes) -> None:
        self.written.callback(data)


class ServingTests(TestCase):
    """
    Tests for L{txrocket.testing.__main__}.
    """

    timeout = 300

    def setUp(self) -> None:
        self.reactor = Stopped()
        self.child = Child(self.reactor)
        self.transport = Heard()
        self.child.makeConnection(self.transport)

    async def told(self, **asked: Any) -> Any:
        """
        The answer of the child.
        """
        self.child.dataReceived(json.dumps(asked).encode() + b"\n")
        ((phase, event, stop),) = self.reactor.triggers
        self.assertEqual((phase, event), ("before", "shutdown"))
        self.addCleanup(stop)
        answer = await self.transport.written
        self.assertTrue(answer.endswith(b"\n"))
        return json.loads(answer)

    @asDeferred
    async def test_childWritesAddresses(self) -> None:
        """
        It says where the cluster is, and stops when it is no longer needed.
        """
        told = await self.told(brokers=2)
        self.assertEqual(
            {key: len(value) for key, value in told.items()}, {"nameServers": 1, "brokers": 2}
        )
        self.assertEqual((self.reactor.stops, self.child.status), (0, 0))
        self.child.connectionLost()
        self.child.connectionLost()
        self.assertEqual(self.reactor.stops, 2)

    @asDeferred
    async def test_wrongSettingsAreTold(self) -> None:
        """
        The test gets its mistake in the settings as an error.
        """
        told = await self.told(settings={"noSuch": 1})
        self.assertEqual(told, {"error": "--set noSuch: unknown"})
        self.assertEqual(self.child.status, 1)
        self.assertEqual(self.flushLoggedErrors(ConfigError), [])

    @asDeferred
    async def test_otherFailureIsLogged(self) -> None:
        """
        Any other failure is in the log as well.
        """
        told = await self.told(brokers="two")
        self.assertIn("integer", told["error"])
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)

    def test_programLogsToStandardError(self) -> None:
        """
        The program reads its standard input, logs to its standard error, and ends
        with its child's status.
        """
        children: list[Any] = []
        observers: list[Any] = []
        self.patch(stdio, "StandardIO", lambda child, reactor: children.append(child))
        self.patch(globalLogBeginner, "beginLoggingTo", lambda to, **options: observers.extend(to))
        self.patch(twisted.internet, "reactor", self.reactor)
        with mock.patch.dict(sys.modules):
            del sys.modules[Child.__module__]
            error = self.assertRaises(
                SystemExit, runpy.run_module, Child.__module__, run_name="__main__"
            )
        self.assertEqual((error.code, len(children), len(observers)), (0, 1, 1))


PASSING = """
    pytest_plugins = ["txrocket.testing.pytest"]

    def test_one(rocketCluster):
        test_one.cluster = rocketCluster
        assert rocketCluster.pid

    def test_other(rocketCluster):
        assert rocketCluster is test_one.cluster
        print("PID", rocketCluster.pid)
"""
FAILING = """
    from txrocket.testing.pytest import rocketCluster

    def test_one(rocketCluster):
        print("PID", rocketCluster.pid)
        assert False
"""


class PytestTests(SynchronousTestCase):
    """
    The fixture for pytest, in a pytest of its own.
    """

    def run_(self, source: str) -> tuple[int, str]:
        """
        Run a file of tests.

        @return: the status, and what was printed.
        """
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "test_it.py").write_text(textwrap.dedent(source))
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_it.py"],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def pid(self, printed: str) -> int:
        """
        The number of the child.
        """
        found = re.search(r"PID (\d+)", printed)
        assert found is not None, printed
        return int(found[1])

    def test_sessionSharesCluster(self) -> None:
        """
        All tests of a session have the same cluster, which is gone with it.
        """
        status, printed = self.run_(PASSING)
        self.assertEqual(status, 0, printed)
        self.assertIn("2 passed", printed)
        self.assertFalse(isAlive(self.pid(printed)))

    def test_failingTestStopsCluster(self) -> None:
        """
        It is gone as well after a test that fails; and the fixture can be imported.
        """
        status, printed = self.run_(FAILING)
        self.assertEqual(status, 1, printed)
        self.assertIn("1 failed", printed)
        self.assertFalse(isAlive(self.pid(printed)))

    def test_fixtureStartsAndStopsCluster(self) -> None:
        """
        The fixture runs a cluster from its beginning to its end.
        """
        fixture: Any = rocketCluster
        running = fixture.__wrapped__()
        cluster = next(running)
        self.addCleanup(cluster.stop)
        self.assertEqual((len(cluster.nameServers), len(cluster.brokers)), (1, 1))
        self.assertIsNone(next(running, None))
        self.assertIsNone(cluster.pid)

    def test_pytestIsOptional(self) -> None:
        """
        Without pytest all the rest works, and nothing installs a reactor.
        """
        script = (
            "import sys\n"
            "sys.modules['pytest'] = None\n"
            "import txrocket.testing, txrocket.testing.trial\n"
            "assert 'twisted.internet.reactor' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
