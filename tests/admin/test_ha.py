# SPDX-License-Identifier: Apache-2.0
"""
Masters and slaves in processes of their own, with the settings of RocketMQ's distribution,
and the command C{txrocket ha}.
"""

from __future__ import annotations

import io
import time
from contextlib import redirect_stderr
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.distribution import distribution
from tests.twistd import LIMIT, Twistd, ask
from txrocket.admin.commands.ha import main
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import SendMessageRequestHeaderV2
from txrocket.server.main import main as txrocket
from txrocket.testing.clustersettings import freePort

SEND = requestCommand(
    RequestCode.SEND_MESSAGE_V2,
    SendMessageRequestHeaderV2("tests", "Greetings", "TBW102", 4, 0, 0, 0, 0),
    b"hello",
)


class ProcessTests(SynchronousTestCase):
    """
    Brokers as operators start them.
    """

    def setUp(self) -> None:
        self.ports: set[int] = set()
        self.nameServer = self.free()
        child = self.start("rocket-namesrv", "--set", f"listenPort={self.nameServer}")
        child.waitFor("listens on")

    def free(self) -> int:
        """
        A free port, whose neighbours are free as well and were not given before.
        """
        while True:
            port = freePort("127.0.0.1", (2, -1))
            if not self.ports & {port - 2, port, port + 1}:
                self.ports |= {port - 2, port, port + 1}
                return port

    def start(self, *arguments: str) -> Twistd:
        """
        Start a child in the foreground.
        """
        return Twistd(self, "--nodaemon", "--pidfile=", *arguments)

    def startBroker(
        self,
        settings: dict[str, str],
        folder: str = "",
        port: int = 0,
        expected: str = "becomes (MASTER|FOLLOWER)",
    ) -> Twistd:
        """
        Start a broker with a file, beside others on the same machine.
        """
        path = self.mktemp()
        Path(path).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        port = port or self.free()
        own = {
            "listenPort": port,
            "namesrvAddr": f"127.0.0.1:{self.nameServer}",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "storePathRootDir": Path(folder or self.mktemp()).absolute(),
            "mappedFileSizeCommitLog": 1 << 20,
            "messageIndexEnable": "false",
        }
        sets = [each for key, value in own.items() for each in ("--set", f"{key}={value}")]
        child = self.start("rocket-broker", "-c", str(Path(path).absolute()), *sets)
        child.waitFor(expected)
        self.address = f"127.0.0.1:{port}"
        return child

    def ha(self, *arguments: str) -> tuple[int, str]:
        """
        Run the command, and give its exit code and what it has printed.
        """
        out, errors = io.StringIO(), io.StringIO()
        with redirect_stderr(errors):
            code = main(["-t", "20", *arguments], out)
        return code, out.getvalue() + errors.getvalue()

    def waitFor(self, expected: str) -> str:
        """
        Wait until the status of all brokers has some words.
        """
        deadline = time.monotonic() + LIMIT
        while expected not in (told := self.ha("status", "-n", f"127.0.0.1:{self.nameServer}")[1]):
            if time.monotonic() > deadline:
                raise AssertionError(f"{expected} is not in:\n{told}")
            time.sleep(0.1)
        return told

    def test_theFilesOfADistributionStart(self) -> None:
        """
        Brokers with the settings of 2m-2s-async and 2m-noslave start unchanged, and slaves
        find their masters.
        """
        files = distribution()
        children = [
            self.startBroker({**files[key], "brokerName": f"{key[0]}-{files[key]['brokerName']}"})
            for key in files
            if key[0] != "2m-2s-sync" and "-b" not in key[1]
        ]
        self.waitFor("slave 1")
        told = self.waitFor("in sync, 0 bytes and 0.0 s behind")
        self.assertEqual(2, told.count("ASYNC_MASTER 0"), told)
        for child in children:
            self.assertEqual(0, child.stop(), child.printed)

    def test_aSlaveTakesOverAndTheOldMasterFollows(self) -> None:
        """
        With the settings of 2m-2s-sync a message is on the slave; after the master was
        killed, an operator promotes the slave, and the old master comes back as its slave.
        """
        files = distribution()
        settings = files["2m-2s-sync", "broker-a"]
        folder, port = self.mktemp(), self.free()
        first = self.startBroker(settings, folder, port)
        master = self.address
        self.startBroker(files["2m-2s-sync", "broker-a-s"])
        slave = self.address
        self.waitFor("slave 1 ")
        self.assertEqual(ResponseCode.SUCCESS, ask(master, SEND).code)
        code, told = self.ha("promote", "-b", slave)
        self.assertEqual(1, code, told)
        self.assertIn(master, told)
        first.process.kill()
        first.process.wait()
        self.assertEqual(ResponseCode.SERVICE_NOT_AVAILABLE, ask(slave, SEND).code)
        code, told = self.ha("promote", "-b", slave)
        self.assertEqual(0, code, told)
        self.assertIn("MASTER, SYNC_MASTER 0, epoch ", told)
        self.assertEqual(ResponseCode.SLAVE_NOT_AVAILABLE, ask(slave, SEND).code)
        second = self.startBroker(settings, folder, port)
        self.waitFor("slave 2 ")
        self.assertIn("becomes FOLLOWER", second.printed)
        self.assertEqual(ResponseCode.SUCCESS, ask(slave, SEND).code)
        code, told = self.ha("demote", "-b", slave)
        self.assertEqual(0, code, told)
        self.assertIn("FOLLOWER, SLAVE 1", told)
        self.assertEqual(0, second.stop(), second.printed)

    def test_aSecondMasterWithOtherMessagesEnds(self) -> None:
        """
        A broker whose name has a master, and whose folder is of another group, says so and
        ends.
        """
        settings = distribution()["2m-noslave", "broker-a"]
        folder = self.mktemp()
        nameServer, self.nameServer = self.nameServer, self.free()
        self.assertEqual(0, self.startBroker(settings, folder).stop())
        self.nameServer = nameServer
        self.startBroker(settings).waitFor("becomes MASTER")
        self.waitFor("ASYNC_MASTER 0")
        second = self.startBroker(settings, folder, expected="Cannot start")
        second.ended()
        self.assertIn("already", second.printed)
        self.assertNotIn("Traceback", second.printed)


class CommandTests(SynchronousTestCase):
    """
    The command without a broker.
    """

    def run_(self, *arguments: str) -> tuple[int, str]:
        """
        Run C{txrocket ha}.
        """
        errors = io.StringIO()
        with redirect_stderr(errors):
            return txrocket(["ha", *arguments]), errors.getvalue()

    def test_aBrokerMustBeNamed(self) -> None:
        """
        A promotion without a broker is a mistake of the operator.
        """
        for what in ("promote", "demote"):
            code, told = self.run_(what)
            self.assertEqual(2, code)
            self.assertIn("-b", told)

    def test_aBrokerThatDoesNotAnswerIsTold(self) -> None:
        """
        A broker that cannot be reached is named, and the code is 1.
        """
        address = f"127.0.0.1:{freePort('127.0.0.1')}"
        for what in ("status", "promote"):
            code, told = self.run_(what, "-b", address)
            self.assertEqual(1, code)
            self.assertIn(address, told)

    def test_anAddressThatIsNoneIsAMistake(self) -> None:
        """
        What is no address is named, and the code is 2.
        """
        code, told = self.run_("status", "-b", "nowhere")
        self.assertEqual(2, code)
        self.assertIn("nowhere", told)
