# SPDX-License-Identifier: Apache-2.0
"""
The dialled connections of a program, one per address.

A peer is dialled for the first request to it, and again for the first request after its
connection was lost; all requests in between share the attempt.  After a failed attempt
there is a pause that grows with each failure, with some chance in it so that a thousand
clients do not come back in step.  A request that comes during the pause waits for its end,
within its own time limit::

                 asked              connected
      ( idle ) --------> (dialling) ----------> ( up )
          ^  ^               | failed              | lost
          |  |               v                     |
          |  +--------- ( pausing ) --asked, then over--> (dialling)
          +----------------------------------------+
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.internet import backoffPolicy
from twisted.internet.defer import Deferred, DeferredList, fail, maybeDeferred, succeed
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from txrocket.errors import ConnectFailed
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.addresses import parseAddress
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.tls import ClientTLS

__all__ = ["Peers", "endpoints"]

# connectTimeoutMillis of RocketMQ's clients.
CONNECT_TIMEOUT = 3.0

Connect = Callable[[str], IStreamClientEndpoint]
Backoff = Callable[[int], float]


def endpoints(reactor: Any, tls: ClientTLS | None = None) -> Connect:
    """
    How to dial an address: over TCP, its name looked up anew for every attempt,
    and over TLS if that is wanted.
    """

    def connect(address: str) -> IStreamClientEndpoint:
        host, port = parseAddress(address)
        endpoint: IStreamClientEndpoint = HostnameEndpoint(
            reactor, host, port, timeout=CONNECT_TIMEOUT
        )
        return endpoint if tls is None else tls.wrap(endpoint, host)

    return connect


class _Peer:
    """
    One address.
    """

    def __init__(
        self, address: str, remoting: Remoting, connect: Connect, backoff: Backoff
    ) -> None:
        self.address = address
        self._protocol: RemotingProtocol | None = None
        self._remoting = remoting
        self._connect = connect
        self._backoff = backoff
        self._waiting: list[Deferred[RemotingProtocol]] = []
        self._dialling: Deferred[Any] | None = None
        self._dialledAt = 0.0
        self._failures = 0
        self._mayDialAt = 0.0
        self._pausing: IDelayedCall | None = None

    @property
    def protocol(self) -> RemotingProtocol | None:
        """
        The connection, if it is up.  A connection that is being lost is not: a caller that
        tries a failed request again must get another one.
        """
        protocol = self._protocol
        return protocol if protocol is not None and protocol.connected else None

    @property
    def pausing(self) -> bool:
        """
        Whether the last attempt to connect failed, and it is not time for the next.
        """
        return self._failures > 0 and self._remoting.clock.seconds() < self._mayDialAt

    def connection(self) -> Deferred[RemotingProtocol]:
        """
        The connection, which is made if it does not exist.
        """
        if (protocol := self.protocol) is not None:
            return succeed(protocol)
        wanted: Deferred[RemotingProtocol] = Deferred(self._unwanted)
        self._waiting.append(wanted)
        if self._dialling is None and self._pausing is None:
            clock = self._remoting.clock
            pause = self._mayDialAt - clock.seconds()
            if self._failures and pause > 0:
                self._pausing = clock.callLater(pause, self._dial)
            else:
                self._dial()
        return wanted

    def close(self) -> Deferred[str] | None:
        """
        Give the connection up, and whoever waits for it.
        """
        if self._pausing is not None:
            self._pausing.cancel()
            self._pausing = None
        self._fail("because it was given up")
        if self._dialling is not None:
            self._dialling.cancel()
        if self._protocol is None:
            return None
        lost = self._protocol.whenLost()
        self._protocol.close()
        return lost

    def _unwanted(self, wanted: Deferred[RemotingProtocol]) -> None:
        if wanted in self._waiting:
            self._waiting.remove(wanted)

    def _dial(self) -> None:
        self._pausing = None
        self._dialledAt = self._remoting.clock.seconds()
        factory = Factory()
        factory.noisy = False
        factory.protocol = lambda: RemotingProtocol(self._remoting, accepted=False)
        # The endpoint is made anew each time: a name may have moved meanwhile.
        dialling = maybeDeferred(lambda: self._connect(self.address).connect(factory))
        self._dialling = dialling
        dialling.addCallbacks(self._up, self._failed)

    def _up(self, protocol: RemotingProtocol) -> None:
        self._dialling = None
        self._failures = 0
        self._protocol = protocol
        protocol.whenLost().addCallback(self._down, protocol)
        # One at a time, because a callback may cancel another that waits.
        while self._waiting:
            self._waiting.pop(0).callback(protocol)

    def _down(self, reason: str, protocol: RemotingProtocol) -> None:
        if self._protocol is protocol:
            self._protocol = None

    def _failed(self, failure: Failure) -> None:
        self._dialling = None
        self._failures += 1
        now = self._remoting.clock.seconds()
        self._mayDialAt = now + self._backoff(self._failures)
        self._fail(f"after {now - self._dialledAt:.3f} s: {failure.getErrorMessage()}")

    def _fail(self, why: str) -> None:
        # A caller that asks again because of this failure waits for the next attempt.
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:
                each.errback(
                    ConnectFailed(self.address, f"connecting to {self.address} failed {why}")
                )


class Peers:
    """
    The peers that a program calls, by address.
    """

    def __init__(
        self,
        remoting: Remoting,
        connect: Connect,
        backoff: Backoff | None = None,
    ) -> None:
        """
        @param connect: makes the endpoint for an address; see L{endpoints}.
        @param backoff: how many seconds to pause after so many failures in a row.
        """
        self._remoting = remoting
        self._connect = connect
        self._backoff = backoff or backoffPolicy(initialDelay=0.2, maxDelay=10.0, factor=1.5)
        self._peers: dict[str, _Peer] = {}

    def connection(self, address: str) -> Deferred[RemotingProtocol]:
        """
        The connection to an address, which is made if it does not exist.

        @return: a Deferred that fails with L{ConnectFailed}.  Cancelling it
            leaves the attempt to whoever else waits for it.
        """
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Peer(
                address, self._remoting, self._connect, self._backoff
            )
        return peer.connection()

    def up(self, address: str) -> RemotingProtocol | None:
        """
        The connection to an address, if it is up.
        """
        peer = self._peers.get(address)
        return None if peer is None else peer.protocol

    def pausing(self, address: str) -> bool:
        """
        Whether a request to an address would have to wait before it is dialled, because
        the last attempt failed.
        """
        peer = self._peers.get(address)
        return peer is not None and peer.pausing

    def request(
        self, address: str, command: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        """
        Send a request to an address.

        @param timeout: in seconds, connecting included.
        @return: a Deferred of the response, whatever its code; it fails with a
            L{RemotingError} if there is none.
        """
        if (protocol := self.up(address)) is not None:
            return protocol.request(command, timeout)
        clock = self._remoting.clock
        deadline = clock.seconds() + timeout
        connected = self._connectWithin(address, timeout)
        return connected.addCallback(
            lambda protocol: protocol.request(command, max(0.0, deadline - clock.seconds()))
        )

    def oneway(self, address: str, command: RemotingCommand, timeout: float) -> Deferred[None]:
        """
        Send a request that wants no answer.

        @param timeout: in seconds, for connecting.
        @return: a Deferred that fires once the request is handed to the
            transport, or fails with a L{RemotingError}.
        """
        if (protocol := self.up(address)) is not None:
            try:
                protocol.oneway(command)
            except Exception:
                return fail()
            return succeed(None)
        return self._connectWithin(address, timeout).addCallback(
            lambda protocol: protocol.oneway(command)
        )

    def forget(self, address: str) -> None:
        """
        Close the connection to an address, and fail the requests that wait for it.
        """
        peer = self._peers.pop(address, None)
        if peer is not None:
            peer.close()

    def stop(self) -> Deferred[None]:
        """
        Close all connections.

        @return: a Deferred that fires once they are closed.
        """
        peers, self._peers = self._peers, {}
        closing = [lost for lost in [each.close() for each in peers.values()] if lost is not None]
        return DeferredList(closing).addCallback(lambda results: None)

    def _connectWithin(self, address: str, timeout: float) -> Deferred[RemotingProtocol]:
        def late(result: Any, after: float) -> Any:
            return Failure(
                ConnectFailed(
                    address, f"connecting to {address} failed: not connected within {after:g} s"
                )
            )

        return self.connection(address).addTimeout(
            timeout, self._remoting.clock, onTimeoutCancel=late
        )
