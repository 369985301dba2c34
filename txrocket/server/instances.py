# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket-broker --instances N}: N brokers of one cluster on one machine, each in a
process of its own, since one process keeps one core busy::

    twistd (this service, which serves nothing itself)
      |-- broker-a-0   listenPort         storePathRootDir/0
      |-- broker-a-1   listenPort + 10    storePathRootDir/1
      '-- ...

A child is C{twistd rocket-broker} with the same settings, except for the ones that must
differ.  Its output goes to the parent's log, after its name.  If a child ends, the parent
starts it again, after a pause that doubles each time the child ends soon.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.settings import BrokerSettings
from txrocket.config import Configuration
from txrocket.errors import ConfigError
from txrocket.remoting.settings import BrokerServerSettings
from txrocket.remoting.timebase import steady
from txrocket.store.settings import StoreSettings

__all__ = ["STEP", "Instance", "Instances", "plan"]

#: The distance between the listenPorts of two brokers.  A broker also listens two below it,
#: and Java's broker one above it for its slaves.
STEP: Final = 10

# The first and the longest pause before a child is started again, in seconds.
_FIRST: Final = 1.0
_LONGEST: Final = 60.0

# A child that has run for this many seconds has not ended soon.
_LONG: Final = 60.0

# The seconds that a child may take to stop before it is killed.
_PATIENCE: Final = 30.0

# A child has a session of its own, because Ctrl-C is for the parent, which then stops it.  If
# the parent is killed, the system stops the child (PR_SET_PDEATHSIG is 1, SIGTERM 15), so
# that the next parent finds ports and files free.
_RUN: Final = (
    "import ctypes, os; os.setsid(); ctypes.CDLL(None).prctl(1, 15);"
    " from twisted.scripts.twistd import run; run()"
)

# The bytes after which a line without an end is cut.
_LINE: Final = 65_536


@attrs.frozen
class Instance:
    """
    A broker to be started.

    @ivar settings: the settings that differ from the other brokers'.
    """

    name: str
    settings: Mapping[str, str]

    def command(self, common: Sequence[str]) -> list[str]:
        """
        The command line of its process.

        @param common: the options of all brokers.
        """
        twistd = [sys.executable, "-c", _RUN, "--nodaemon", "--pidfile=", "--logfile=-"]
        own = [each for key, value in self.settings.items() for each in ("--set", f"{key}={value}")]
        return [*twistd, "rocket-broker", *common, *own]


def plan(configuration: Configuration, count: int) -> list[Instance]:
    """
    The brokers of a configuration.

    @raise ConfigError: if they cannot share a setting; it lists all problems.
    """
    own = configuration[BrokerSettings]
    store = configuration[StoreSettings]
    port = configuration[BrokerServerSettings].listenPort
    problems = []
    if count < 1:
        problems.append(f"--instances {count}: 1 or more was expected")
    if port and port + (count - 1) * STEP > 65_535:
        problems.append(
            f"--instances {count}: listenPort={port} leaves no room for a port every {STEP}"
        )
    if store.storePathCommitLog is not None and count > 1:
        problems.append(
            f"--instances {count}: storePathCommitLog is one folder, and each broker needs its"
            " own: set storePathRootDir alone"
        )
    if problems:
        raise ConfigError(*problems)
    name = own.brokerName or socket.gethostname()
    return [
        Instance(
            f"{name}-{index}",
            {
                "brokerName": f"{name}-{index}",
                # 0 stands for any free port, for each of them.
                "listenPort": str(port + index * STEP if port else 0),
                "storePathRootDir": os.path.join(
                    os.path.abspath(store.storePathRootDir), str(index)
                ),
            },
        )
        for index in range(count)
    ]


class Instances(Service):
    """
    Runs a child process for each broker, and restarts a child that ends.
    """

    def __init__(self, reactor: Any, instances: Sequence[Instance], common: Sequence[str]) -> None:
        """
        @param common: the options of all brokers.
        """
        steady(reactor)
        self.children = [_Child(reactor, each.name, each.command(common)) for each in instances]

    def startService(self) -> None:
        """
        Start all children.
        """
        Service.startService(self)
        for each in self.children:
            each.start()

    def stopService(self) -> Deferred[None]:
        """
        Stop all children gracefully.  A child that does not stop in time is killed.

        @return: a Deferred that fires once all have ended.
        """
        Service.stopService(self)
        stopping = [each.stop() for each in self.children]
        return DeferredList(stopping).addCallback(lambda results: None)


class _Child(ProcessProtocol):
    """
    The process of one broker, which is started again when it ends.
    """

    _log = Logger()

    def __init__(self, reactor: Any, name: str, command: Sequence[str]) -> None:
        self._reactor = reactor
        self._name = name
        self._command = command
        self._running = False
        self._stopping: Deferred[None] | None = None
        self._pause = _FIRST
        self._started = 0.0
        self._call: IDelayedCall | None = None
        self._rest = b""

    # --- starting and stopping -------------------------------------------

    def start(self) -> None:
        """
        Start the process.
        """
        self._call = None
        self._started = self._reactor.seconds()
        self._running = True
        self._rest = b""
        # The child can then import all that this process can.
        path = os.pathsep.join(os.path.abspath(each) for each in sys.path)
        env = {**os.environ, "PYTHONPATH": path}
        self._reactor.spawnProcess(self, self._command[0], self._command, env=env)
        self._log.info(
            "Broker {name} is process {pid}", name=self._name, pid=getattr(self.transport, "pid", 0)
        )

    def stop(self) -> Deferred[None]:
        """
        Stop the process, and do not start it again.

        @return: a Deferred that fires once it has ended.
        """
        if self._call is not None:
            self._call.cancel()
            self._call = None
        if not self._running:
            return succeed(None)
        self._stopping = Deferred()
        self._signal("TERM")
        self._call = self._reactor.callLater(_PATIENCE, self._kill)
        return self._stopping

    def _kill(self) -> None:
        self._call = None
        self._log.error(
            "Broker {name} did not stop within {limit:g} s and is killed",
            name=self._name,
            limit=_PATIENCE,
        )
        self._signal("KILL")

    def _signal(self, name: str) -> None:
        try:
            assert self.transport is not None
            self.transport.signalProcess(name)
        except ProcessExitedAlready:
            # processEnded is about to be called.
            pass

    # --- as the process's protocol ---------------------------------------

    def outReceived(self, data: bytes) -> None:
        """
        Log the child's output line by line.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._tell(line)

    def errReceived(self, data: bytes) -> None:
        """
        Log standard error like standard output.
        """
        self.outReceived(data)

    def _tell(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            self._log.info("[{name}] {text}", name=self._name, text=text)

    def processEnded(self, reason: Failure) -> None:
        """
        Start the process again after a pause, unless it was stopped.
        """
        self._running = False
        self._tell(self._rest)
        self._rest = b""
        if self._stopping is not None:
            if self._call is not None:
                self._call.cancel()
                self._call = None
            stopping, self._stopping = self._stopping, None
            stopping.callback(None)
            return
        if self._reactor.seconds() - self._started >= _LONG:
            self._pause = _FIRST
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST)
        self._log.error(
            "Broker {name} has ended, {how}; it is started again in {pause:g} s",
            name=self._name,
            how=_how(reason),
            pause=pause,
        )
        self._call = self._reactor.callLater(pause, self.start)


def _how(reason: Failure) -> str:
    if reason.check(ProcessDone):
        return "by itself"
    error: Any = reason.value
    if error.signal is not None:
        return f"killed by signal {error.signal}"
    return f"with status {error.exitCode}"
