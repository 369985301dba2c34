# SPDX-License-Identifier: Apache-2.0
"""
Servers and clients in processes of their own.

All processes of a test end with it, by force if they do not stop.  If the test fails, its
error shows the last output of the processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet import reactor as theReactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting
from txrocket.testing import clustersettings as plan

__all__ = ["SMALL_LOG", "Child", "LiveTestCase", "freePort", "twistd"]

# A file of the log has 1 GiB by default, and the files of tests stay until the next run.
# That would fill small disks.
SMALL_LOG = f"--set=mappedFileSizeCommitLog={64 << 20}"

reactor: Any = theReactor

# The seconds that a server has to start, and to stop before it is killed.  They are many
# times the usual ones, because other programs may use the machine's cores.
START = 120.0
STOP = 60.0

# The last lines of a process's output that an error shows.
_TOLD = 60


# The ports that tests of this process have got.  A server may take its port much later.
_given: set[int] = set()


def freePort() -> int:
    """
    A port that is free, as are those that a broker derives from it: of the VIP channel and of
    its replicas.  No test has got one of them before.
    """
    while True:
        port = plan.freePort("127.0.0.1", (2, -1))
        ports = set(range(port - 2, port + 2))
        if not ports & _given:
            _given.update(ports)
            return port


def twistd(*arguments: str) -> list[str]:
    """
    The command line of a server.
    """
    program = str(Path(sys.executable).with_name("twistd"))
    return [sys.executable, program, "--nodaemon", "--pidfile=", "--logfile=-", *arguments]


class Child(ProcessProtocol):
    """
    A process.

    @ivar listening: a Deferred that fires with L{True} once a server listens, or with
        L{False} once it has ended without.
    @ivar lines: its output.
    @ivar faults: lines that should not be there.
    """

    transport: Any

    def __init__(self, said: bytes = b"") -> None:
        """
        @param said: a part of the line that a server prints when it listens.
        """
        self.listening: Deferred[bool] = Deferred()
        self._ended: Deferred[int] = Deferred()
        self.lines: list[bytes] = []
        self.faults: list[str] = []
        self._said = said
        self._line = b""

    @property
    def output(self) -> str:
        """
        The last lines of its output.
        """
        return b"\n".join([*self.lines[-_TOLD:], self._line]).decode(errors="replace")

    def outReceived(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        self.lines += lines
        for line in lines:
            if re.search(rb"Traceback|Unhandled|#error|#critical", line):
                self.faults.append(line.decode(errors="replace"))
            if self._said and self._said in line and not self.listening.called:
                self.listening.callback(True)

    errReceived = outReceived

    def processEnded(self, reason: Failure) -> None:
        if not self.listening.called:
            self.listening.callback(False)
        ended: Any = reason.value
        self._ended.callback(-(ended.signal or 0) or ended.exitCode)

    def signal(self, name: str) -> None:
        """
        Send it a signal, if it runs.
        """
        with contextlib.suppress(ProcessExitedAlready):
            self.transport.signalProcess(name)

    async def end(self, name: str = "TERM", limit: float = STOP) -> int:
        """
        End it with a signal, by force if it does not end in time.
        """
        self.signal(name)
        killing = reactor.callLater(limit, self.signal, "KILL")
        try:
            return await self.whenEnded()
        finally:
            if killing.active():
                killing.cancel()

    def whenEnded(self) -> Deferred[int]:
        """
        A Deferred of the exit code, or of the number of the signal that ended it,
        below zero.
        """
        told: Deferred[int] = Deferred()

        def tell(code: int) -> int:
            if not told.called:
                told.callback(code)
            return code

        self._ended.addCallback(tell)
        return told


class LiveTestCase(TestCase):
    """
    Tests with processes.

    @ivar folder: a folder of the test's own.
    """

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def spawn(self, command: Sequence[str], said: bytes = b"", **variables: str) -> Child:
        """
        Start a process that ends when the test does.

        @param variables: of its environment.
        """
        child = Child(said)
        # Each is at home in the test's folder: clients write their logs there.
        environment = {**os.environ, "HOME": str(self.folder), **variables}
        reactor.spawnProcess(
            child, command[0], list(command), env=environment, path=str(self.folder)
        )
        self.addCleanup(lambda: Deferred.fromCoroutine(child.end()))
        return child

    async def started(self, child: Child) -> Child:
        """
        Wait until a server listens.
        """
        late = reactor.callLater(START, child.signal, "KILL")
        listening = await child.listening
        if late.active():
            late.cancel()
        self.assertTrue(listening, child.output)
        return child

    async def finished(self, child: Child, limit: float) -> None:
        """
        Wait until a program has done its work.
        """
        late = reactor.callLater(limit, child.signal, "KILL")
        code = await child.whenEnded()
        if late.active():
            late.cancel()
        self.assertEqual(code, 0, child.output)

    def peers(self) -> Peers:
        """
        Connections of their own.
        """
        peers = Peers(Remoting(reactor), endpoints(reactor))
        self.addCleanup(peers.stop)
        return peers
