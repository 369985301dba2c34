# SPDX-License-Identifier: Apache-2.0
"""
C{python -m txrocket.testing}: the child of
L{ChildCluster<txrocket.testing.childcluster.ChildCluster>}.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

from twisted.internet.error import ReactorNotRunning
from twisted.internet.protocol import connectionDone
from twisted.internet.stdio import StandardIO
from twisted.logger import Logger, globalLogBeginner, textFileLogObserver
from twisted.protocols.basic import LineOnlyReceiver
from twisted.python.failure import Failure

from txrocket.errors import RocketError
from txrocket.testing.realcluster import RealCluster

__all__ = ["Child", "main"]


class Child(LineOnlyReceiver):
    """
    Runs a cluster as the test's line of JSON says, until standard input ends.

    @ivar status: the exit status of the process.
    """

    _log = Logger()
    delimiter = b"\n"
    # Enough for any number of settings.
    MAX_LENGTH = 1 << 20

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self.status = 0

    def lineReceived(self, line: bytes) -> None:
        """
        Start the cluster, and write its addresses.
        """
        cluster = RealCluster(self._reactor, **json.loads(line))
        self._reactor.addSystemEventTrigger("before", "shutdown", cluster.stop)
        cluster.start().addCallbacks(
            lambda none: self._say(nameServers=cluster.nameServers, brokers=cluster.brokers),
            self._failed,
        )

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        Stop, because the test has closed the pipe or has ended.
        """
        # A signal may have stopped the reactor already.
        with suppress(ReactorNotRunning):
            self._reactor.stop()

    def _failed(self, failure: Failure) -> None:
        self.status = 1
        if not failure.check(RocketError):
            self._log.failure("The cluster cannot start", failure)
        self._say(error=failure.getErrorMessage())

    def _say(self, **told: object) -> None:
        assert self.transport is not None
        self.transport.write(json.dumps(told).encode() + b"\n")


def main() -> None:
    """
    Run the child process.
    """
    from twisted.internet import reactor

    # Standard output is for the answer to the test.
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    child = Child(reactor)
    StandardIO(child, reactor=reactor)
    reactor.run()
    sys.exit(child.status)


if __name__ == "__main__":
    main()
