# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket-broker --instances N}: N brokers of one cluster on one machine, each in a
process of its own, since one process keeps one core busy::

    twistd (this service, which serves nothing itself)
      |-- broker-a-0   listenPort         storePathRootDir/0
      |-- broker-a-1   listenPort + 10    storePathRootDir/1
      '-- ...

A child is C{twistd rocket-broker} with the same settings, and those that must differ over
them.  What it prints is in the log of the parent, after its name.  One that ends is started
again, after a pause that doubles each time it ends soon.
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

#: From one broker's listenPort to the next: each has the port two below as well, and Java's
#: one above for its slaves.
STEP: Final = 10

# The pause before a child is started again, in seconds: the first, and the longest.
_FIRST: Final = 1.0
_LONGEST: Final = 60.0

# One that has run so long has not ended soon, in seconds.
_LONG: Final = 60.0

# How long a child may take to stop before it is killed, in seconds.
_PATIENCE: Final = 30.0

# A child has a session of its own: Ctrl-C is for the parent, which then stops it.  And it
# is told to stop (PR_SET_PDEATHSIG is 1, SIGTERM 15) if the parent is killed: what is left
# would keep ports and files from who is started next.
_RUN: Final = (
    "import ctypes, os; os.setsid(); ctypes.CDLL(None).prctl(1, 15);"
    " from twisted.scripts.twistd import run; run()"
)

# A line that does not end is cut, in bytes.
_LINE: Final = 65_536


@attrs.frozen
class Instance:
    """
    A broker that is to be started.

    @ivar settings: those that differ from the others'.
    """

    name: str
    settings: Mapping[str, str]

    def command(self, given: Sequence[str]) -> list[str]:
        """
        The command line of its process.

        @param given: the options that all have in common.
        """
        twistd = [sys.executable, "-c", _RUN, "--nodaemon", "--pidfile=", "--logfile=-"]
        own = [each for key, value in self.settings.items() for each in ("--set", f"{key}={value}")]
        return [*twistd, "rocket-broker", *given, *own]


def plan(configuration: Configuration, count: int) -> list[Instance]:
    """
    The brokers of a configuration.

    @raise ConfigError: naming all that they could not share.
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
                # Any that is free for one is so for each.
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
    Children that are kept running.
    """

    def __init__(self, reactor: Any, instances: Sequence[Instance], given: Sequence[str]) -> None:
        """
        @param given: the options that all have in common.
        """
        steady(reactor)
        self.children = [_Child(reactor, each.name, each.command(given)) for each in instances]

    def startService(self) -> None:
        """
        Start all.
        """
        Service.startService(self)
        for each in self.children:
            each.start()

    def stopService(self) -> Deferred[None]:
        """
        Have all stop gracefully, and kill those that do not.

        @return: a Deferred that fires once none is left.
        """
        Service.stopService(self)
        stopping = [each.stop() for each in self.children]
        return DeferredList(stopping).addCallback(lambda results: None)


class _Child(ProcessProtocol):
    """
    One child, again and again.
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
        # What this process can import, the child can.
        path = os.pathsep.join(os.path.abspath(each) for each in sys.path)
        env = {**os.environ, "PYTHONPATH": path}
        self._reactor.spawnProcess(self, self._command[0], self._command, env=env)
        self._log.info(
            "Broker {name} is process {pid}", name=self._name, pid=getattr(self.transport, "pid", 0)
        )

    def stop(self) -> Deferred[None]:
        """
        Have the process stop, and start it no more.

        @return: a Deferred that fires once it is gone.
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
            # Its end is on its way here.
            pass

    # --- as the process's protocol ---------------------------------------

    def outReceived(self, data: bytes) -> None:
        """
        It has printed something.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._tell(line)

    def errReceived(self, data: bytes) -> None:
        """
        It has printed something.
        """
        self.outReceived(data)

    def _tell(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            self._log.info("[{name}] {text}", name=self._name, text=text)

    def processEnded(self, reason: Failure) -> None:
        """
        It has ended.
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
