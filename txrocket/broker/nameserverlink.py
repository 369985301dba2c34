# SPDX-License-Identifier: Apache-2.0
"""
A broker's link to one name server: when to register there once more.

A name server keeps its table in memory, so after a restart it knows no broker until
each registers again.  Java's brokers do that within 30 seconds; until then clients get
no route.  This broker notices that the connection is lost, connects as soon as it can,
and registers at once::

    ( registered ) --connection lost--> ( pausing ) --> ( connecting )
          ^                                  ^                |
          |                                  +---- failed ----+
          +------------------ registers -----------------------+

The pauses grow to a second and have chance in them: many brokers must not come back in
step.  Each name server has a link of its own, so one that is down delays no other.  The
topics are encoded once the connection is there, because that takes long for many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.errors import ConnectFailed
from txrocket.remoting.peers import Backoff, Peers
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["NameServerLink", "shortBackoff"]

# In seconds: the mean of the first pause, and of the longest.
_FIRST = 0.1
_LONGEST = 1.0


def shortBackoff(choose: Callable[[int], int]) -> Backoff:
    """
    How many seconds to pause after a number of failures in a row: between half and one and
    a half times 0.1 s, 0.2 s, 0.4 s, 0.8 s, and then 1 s.

    @param choose: returns a number below its argument.
    """

    def backoff(failures: int) -> float:
        mean = min(_LONGEST, _FIRST * 2.0 ** min(failures, 10))
        return mean * (0.5 + choose(1001) / 1000)

    return backoff


class NameServerLink:
    """
    The link to one name server.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        peers: Peers,
        address: str,
        register: Callable[[], object],
        backoff: Backoff,
    ) -> None:
        """
        @param register: registers over the open connection, and then calls L{registered}
            or L{failed}.
        @param backoff: how many seconds to pause after a number of failures in a row.
        """
        self._clock = clock
        self._peers = peers
        self._address = address
        self._register = register
        self._backoff = backoff
        self._failures = 0
        self._running = False
        self._pausing: IDelayedCall | None = None
        self._connecting: Deferred[Any] | None = None
        self._watched: RemotingProtocol | None = None

    def start(self) -> None:
        """
        The broker starts.
        """
        self._running = True

    def stop(self) -> None:
        """
        The broker stops and does not register any more.
        """
        self._running = False
        self._endPause()
        if self._connecting is not None:
            self._connecting.cancel()

    def registered(self) -> None:
        """
        The broker has registered.
        """
        self._failures = 0
        self._endPause()
        protocol = self._peers.up(self._address)
        if protocol is not None and protocol is not self._watched:
            self._watched = protocol
            protocol.whenLost().addCallback(self._lost, protocol)

    def failed(self) -> None:
        """
        An attempt to register has failed.  If the connection is open, the broker tries
        again when it next registers with all name servers.
        """
        self._failures += 1
        if self._peers.up(self._address) is None:
            self._connectLater()

    def _lost(self, reason: str, protocol: RemotingProtocol) -> None:
        if self._watched is protocol:
            self._watched = None
            self._connectLater()

    def _connectLater(self) -> None:
        if self._running and self._pausing is None and self._connecting is None:
            pause = self._backoff(self._failures)
            self._pausing = self._clock.callLater(pause, self._connect)

    def _connect(self) -> None:
        self._pausing = None
        connected: Deferred[Any] = self._peers.connection(self._address)
        # Set it first: the connection may be open already.
        self._connecting = connected
        connected.addCallbacks(self._connected, self._notConnected)
        connected.addErrback(self._broke)

    def _connected(self, protocol: RemotingProtocol) -> None:
        self._connecting = None
        if self._running:
            self._register()

    def _notConnected(self, failure: Failure) -> None:
        self._connecting = None
        if self._running:
            failure.trap(ConnectFailed)
            self.failed()

    def _broke(self, failure: Failure) -> None:
        self._log.failure(
            "Reconnecting to name server {address} failed; the broker registers within a minute",
            failure,
            address=self._address,
        )

    def _endPause(self) -> None:
        if self._pausing is not None:
            self._pausing.cancel()
            self._pausing = None
