# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket}, C{rocket-namesrv} and C{rocket-broker} as an operator has them:
processes that start or say why not, serve, and stop.
"""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.twistd import ROOT, Twistd, ask, killLeft, terminate, waitUntilGone, waitUntilSaid
from txrocket.model import MASTER_ID, TopicRouteData
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.configtext import parse
from txrocket.protocol.headers import GetRouteInfoRequestHeader, SendMessageRequestHeaderV2
from txrocket.testing.clustersettings import freePort

SEND = requestCommand(
    RequestCode.SEND_MESSAGE_V2,
    SendMessageRequestHeaderV2("tests", "Greetings", "TBW102", 4, 0, 0, 0, 0),
    b"hello",
)
# Provides something to plug in, so that the module is taken for a plugin.
_PLUGIN = """
import io, os, signal, sys
from zope.interface import implementer
from txrocket.broker.interfaces import ISendHook
from txrocket.store.messagestore import MessageStore

@implementer(ISendHook)
class Idle:
    name = "idle"

    def beforeSend(self, sending): pass

    def afterSend(self, sending, response): pass

idle = Idle()

def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
"""

# The signal comes when the store is open and the reactor does not run yet.
_DURING_START = """
start = MessageStore.start

def startAndTerminate(self):
    start(self)
    terminate()

MessageStore.start = startAndTerminate
"""

# The signal comes while the standard output is locked by a line that is being written.
_DURING_PRINT = """
class Terminating(io.FileIO):
    def write(self, data):
        written = super().write(data)
        if b"has registered" in bytes(data):
            terminate()
        return written

sys.stdout = io.TextIOWrapper(io.BufferedWriter(Terminating(1, "w")))
"""

SMALL = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "messageIndexEnable=false")


class TapCase(SynchronousTestCase):
    """
    Starting children.
    """

    def start(self, *arguments: str, **options: Any) -> Twistd:
        """
        Start a child in the foreground.
        """
        return Twistd(self, "--nodaemon", "--pidfile=", *arguments, **options)

    def ports(self) -> tuple[int, int]:
        """
        Free ports for a name server and a broker.
        """
        broker = freePort("127.0.0.1", (2, -1))
        while (nameServer := freePort("127.0.0.1")) in (broker, broker - 2, broker + 1):
            pass
        return nameServer, broker

    def startRocket(self, *arguments: str, **options: Any) -> tuple[Twistd, str, str]:
        """
        Start C{twistd rocket}, and wait until its name server knows its broker.

        @return: the child, and where its servers are.
        """
        nameServer, broker = self.ports()
        child = self.start(
            "rocket",
            *("--namesrvPort", str(nameServer), "--set", f"listenPort={broker}", *SMALL),
            *arguments,
            **options,
        )
        child.waitFor("has registered")
        return child, f"127.0.0.1:{nameServer}", f"127.0.0.1:{broker}"

    def assertRefused(self, child: Twistd, *expected: str) -> None:
        """
        A child has said in its last lines why it cannot start, in these words and
        without a traceback, and has ended with status 1.
        """
        self.assertEqual(child.ended(), 1, child.printed)
        self.assertNotIn("Traceback", child.printed)
        lines = child.printed.splitlines()[-len(expected) :]
        for line, words in zip(lines, expected, strict=True):
            self.assertIn(words, line)
        self.assertEqual(child.printed.count("Cannot start"), 1, child.printed)

    def brokersOf(self, nameServer: str) -> list[str]:
        """
        The brokers that a name server knows.
        """
        header = GetRouteInfoRequestHeader("TBW102")
        answer = ask(nameServer, requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
        route = decodeBody(TopicRouteData, answer.body)
        return [each.brokerAddrs[MASTER_ID] for each in route.brokerDatas]


class ServingTests(TapCase):
    """
    Children that serve.
    """

    def test_rocketServesAndStopsOnSigterm(self) -> None:
        """
        C{twistd rocket} says in one line where it is, serves, and stops gracefully on
        SIGTERM, with status 0 and nothing to put right at the next start.
        """
        child, nameServer, broker = self.startRocket()
        store = child.folder / "data" / "store"
        vip = int(broker.rpartition(":")[2]) - 2
        child.waitFor(
            f"Broker broker-a of DefaultCluster listens on {broker}, 127.0.0.1:{vip},"
            f" 127.0.0.1:{vip + 3}, is reached at {broker} and keeps its messages in {store}\n"
        )
        self.assertEqual(self.brokersOf(nameServer), [broker])
        for address in (broker, f"127.0.0.1:{vip}"):
            self.assertEqual(ask(address, SEND).code, ResponseCode.SUCCESS)
        self.assertTrue((store / "abort").exists())
        self.assertEqual(child.stop(), 0, child.printed)
        self.assertFalse((store / "abort").exists())
        self.assertIn("Broker broker-a has stopped", child.printed)
        self.assertIn("has unregistered", child.printed)
        self.assertNotIn("Traceback", child.printed)

    def test_interruptStopsGracefully(self) -> None:
        """
        Ctrl-C stops it gracefully as well; the shell sees what it was.
        """
        child, _, broker = self.startRocket()
        self.assertEqual(ask(broker, SEND).code, ResponseCode.SUCCESS)
        child.signal(signal.SIGINT)
        self.assertEqual(child.ended(), -signal.SIGINT)
        self.assertFalse((child.folder / "data" / "store" / "abort").exists())

    def test_secondSigtermDoesNothing(self) -> None:
        """
        A second SIGTERM causes no error.
        """
        child, _, _ = self.startRocket()
        child.signal(signal.SIGTERM)
        child.waitFor("Received SIGTERM")
        child.signal(signal.SIGTERM)
        # The second may come when all is done, and then just ends it.
        self.assertIn(child.ended(), (0, -signal.SIGTERM), child.printed)
        self.assertNotIn("Traceback", child.printed)
        self.assertFalse((child.folder / "data" / "store" / "abort").exists())

    def startPlugged(self, program: str) -> Twistd:
        """
        Start C{twistd rocket} with a plugin that runs a program when it is loaded.
        """
        nameServer, broker = self.ports()
        folder = Path(self.mktemp()).absolute()
        plugins = folder / "txrocket" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "signalling.py").write_text(_PLUGIN + program)
        return self.start(
            "rocket",
            *("--namesrvPort", str(nameServer), "--set", f"listenPort={broker}", *SMALL),
            env={"PYTHONPATH": str(folder)},
        )

    def assertStopped(self, child: Twistd) -> None:
        """
        A child has stopped in order after one SIGTERM, and has said so.
        """
        self.assertEqual(child.ended(), 0, child.printed)
        self.assertEqual(child.printed.count("Received SIGTERM"), 1, child.printed)
        self.assertIn("Broker broker-a has stopped", child.printed)
        self.assertNotIn("Traceback", child.printed)
        self.assertFalse((child.folder / "data" / "store" / "abort").exists())

    def test_sigtermDuringStartStopsInOrder(self) -> None:
        """
        A server that receives SIGTERM while it starts finishes the start and stops in
        order.
        """
        self.assertStopped(self.startPlugged(_DURING_START))

    def test_sigtermDuringLogLineIsLogged(self) -> None:
        """
        A server that receives SIGTERM while it writes a line of its log still says that
        it stops.
        """
        self.assertStopped(self.startPlugged(_DURING_PRINT))

    def test_nameServerAndBrokerServeApart(self) -> None:
        """
        A name server and a broker of their own, with files of settings as RocketMQ
        reads them.
        """
        nameServerPort, brokerPort = self.ports()
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        conf = folder / "namesrv.conf"
        conf.write_text(
            f"listenPort={nameServerPort}\nbindAddress=127.0.0.1\n"
            f"kvConfigPath={folder / 'kvConfig.json'}\n"
        )
        nameServer = self.start("rocket-namesrv", "-c", str(conf))
        address = f"127.0.0.1:{nameServerPort}"
        nameServer.waitFor(f"The name server listens on {address}")
        conf = folder / "broker.conf"
        conf.write_text(
            f"brokerName=b\nlistenPort={brokerPort}\nbrokerIP1=127.0.0.1\n"
            f"bindAddress=127.0.0.1\nstorePathRootDir={folder / 'store'}\n"
            "flushDiskType=SYNC_FLUSH\nmappedFileSizeCommitLog=1048576\n"
        )
        broker = self.start("rocket-broker", "-c", str(conf), "-n", address)
        nameServer.waitFor("master of b in DefaultCluster .* has registered")
        self.assertEqual(self.brokersOf(address), [f"127.0.0.1:{brokerPort}"])
        self.assertEqual(ask(f"127.0.0.1:{brokerPort}", SEND).code, ResponseCode.SUCCESS)
        self.assertEqual(broker.stop(), 0, broker.printed)
        self.assertFalse((folder / "store" / "abort").exists())
        nameServer.waitFor("has unregistered")
        self.assertEqual(nameServer.stop(), 0, nameServer.printed)

    def test_pluginOnPathIsLoaded(self) -> None:
        """
        A module in a folder on the path is plugged in.
        """
        _, _, broker = self.startRocket(env={"PYTHONPATH": str(ROOT / "examples" / "plugins")})
        request = requestCommand(20_001)
        request.extFields["name"] = "operator"
        self.assertTrue(ask(broker, request).body.startswith(b"hello operator at 127.0.0.1:"))

    def test_backgroundStartReportsFailure(self) -> None:
        """
        In the background it writes its number and its log, and its starter gets an error at
        once if it cannot start.
        """
        nameServer, broker = self.ports()
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        pidFile, log = folder / "twistd.pid", folder / "twistd.log"
        self.addCleanup(killLeft, pidFile)
        arguments = (
            *(f"--pidfile={pidFile}", f"--logfile={log}", "rocket", "--data", str(folder)),
            *("--namesrvPort", str(nameServer), "--set", f"listenPort={broker}", *SMALL),
        )
        with socket.socket() as other:
            other.bind(("127.0.0.1", broker))
            other.listen()
            child = Twistd(self, *arguments)
            self.assertEqual(child.ended(), 1)
            self.assertIn(f"Cannot start: Couldn't listen on 127.0.0.1:{broker}", child.printed)
            self.assertNotIn("Traceback", child.printed + log.read_text())
            waitUntilGone(pidFile)
        child = Twistd(self, *arguments)
        self.assertEqual(child.ended(), 0, child.printed)
        # It takes messages once it knows its role, and then tells the name server.
        waitUntilSaid(log, "has registered")
        self.assertEqual(ask(f"127.0.0.1:{broker}", SEND).code, ResponseCode.SUCCESS)
        terminate(pidFile)
        self.assertFalse((folder / "store" / "abort").exists())
        self.assertFalse(pidFile.exists())


class RefusedTests(TapCase):
    """
    Children that cannot start.
    """

    def test_takenPortIsNamed(self) -> None:
        """
        A taken port is named, and the store is left as it was.
        """
        nameServer, broker = self.ports()
        for taken in (nameServer, broker, broker - 2):
            with socket.socket() as other:
                other.bind(("127.0.0.1", taken))
                other.listen()
                child = self.start(
                    *("rocket", "--namesrvPort", str(nameServer), *SMALL),
                    *("--set", f"listenPort={broker}"),
                )
                self.assertRefused(
                    child,
                    f"Cannot start: Couldn't listen on 127.0.0.1:{taken}:"
                    " [Errno 98] Address already in use.",
                )
            self.assertFalse((child.folder / "data" / "store" / "abort").exists())

    def test_usedStoreIsNamed(self) -> None:
        """
        A folder that another broker has open is named, and that broker goes on.
        """
        first, _, broker = self.startRocket()
        store = first.folder / "data" / "store"
        second = self.start(
            *("rocket-broker", "--set", f"listenPort={freePort('127.0.0.1', (2, -1))}"),
            *("--set", f"storePathRootDir={store}", "--set", "brokerIP1=127.0.0.1", *SMALL),
        )
        self.assertRefused(second, f"Cannot start: {store} is in use by another process")
        self.assertEqual(ask(broker, SEND).code, ResponseCode.SUCCESS)
        self.assertEqual(first.stop(), 0)

    def test_invalidSettingsAreListed(self) -> None:
        """
        Wrong settings are listed in a line each, by file and line or by option.
        """
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        conf = folder / "broker.conf"
        conf.write_text("# mine\nlistenPort=many\n")
        child = self.start("rocket-broker", "-c", str(conf), "--set", "brokerNam=b")
        self.assertRefused(
            child,
            f"Cannot start: {conf}:2: listenPort=many: a whole number was expected",
            "--set brokerNam: unknown; did you mean brokerName?",
        )
        self.assertEqual(len(child.printed.splitlines()), 2)
        for arguments, expected in (
            (["rocket-broker", "--no"], "Cannot start: option --no not recognized"),
            (
                ["rocket-broker", "-n", "nowhere"],
                "Cannot start: namesrvAddr=nowhere: address 'nowhere': host:port was expected",
            ),
            (
                ["rocket", "--namesrvPort", "70000"],
                "Cannot start: --namesrvPort 70000: 1 to 65535 was expected",
            ),
            (
                ["rocket-namesrv", "-c", "/no/such/file"],
                "Cannot start: /no/such/file: No such file or directory",
            ),
        ):
            child = self.start(*arguments)
            self.assertRefused(child, expected)
            self.assertEqual(len(child.printed.splitlines()), 1)

    def test_damagedNameServerFileIsNamed(self) -> None:
        """
        A name server whose file is damaged names it.
        """
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        path = folder / "kvConfig.json"
        path.write_text("{")
        child = self.start("rocket-namesrv", "--set", f"kvConfigPath={path}")
        self.assertRefused(child, f"Cannot start: {path} is damaged: ")

    def test_brokenPluginIsNamed(self) -> None:
        """
        A plugin that cannot be loaded is named.
        """
        folder = Path(self.mktemp()).absolute()
        plugins = folder / "txrocket" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "broken.py").write_text("import no_such_module\n")
        child = self.start("rocket", env={"PYTHONPATH": str(folder)})
        self.assertRefused(
            child,
            f"Cannot start: plugin {plugins / 'broken.py'} cannot be loaded:"
            " ModuleNotFoundError: No module named 'no_such_module'",
        )
        self.assertEqual(len(child.printed.splitlines()), 1)

    def test_checkAndPrintStartNothing(self) -> None:
        """
        --check says what is wrong, or that nothing is; -p prints all settings.  Both
        start nothing.
        """
        child = self.start("rocket-broker", "--check", "--set", "listenPort=x")
        self.assertEqual(child.ended(), 1)
        self.assertEqual(child.printed, "--set listenPort=x: a whole number was expected\n")
        child = self.start("rocket-namesrv", "--check")
        self.assertEqual((child.ended(), child.printed), (0, "The configuration is sound\n"))
        child = self.start("rocket", "-p", "--set", "brokerName=mine")
        self.assertEqual(child.ended(), 0)
        settings = parse(child.printed.encode())
        self.assertEqual((settings["brokerName"], settings["listenPort"]), ("mine", "10911"))
        self.assertEqual(list(child.folder.iterdir()), [])
