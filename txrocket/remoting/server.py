# SPDX-License-Identifier: Apache-2.0
"""
The accepting end: plain text and TLS on one port, idle connections closed, and no more
connections than there may be, in all and of one address.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, cast

from twisted.internet.interfaces import IAddress, ITCPTransport
from twisted.internet.protocol import ServerFactory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.tls import FirstByteProtocol, ServerTLS, TLSMode

__all__ = ["RemotingServerFactory"]

# RocketMQ closes a connection on which nothing was read or written for two
# minutes (serverChannelMaxIdleTimeSeconds); clients send heartbeats every 30 s.
IDLE_TIMEOUT = 120.0

# Idle connections are looked for this many times within the time limit, so one
# is closed at most a twelfth of it too late.
_SWEEPS = 12


class RemotingServerFactory(ServerFactory):
    """
    Builds the protocols of accepted connections and keeps track of them.
    """

    noisy = False
    _log = Logger()

    def __init__(
        self,
        remoting: Remoting,
        tls: ServerTLS | None = None,
        idleTimeout: float = IDLE_TIMEOUT,
        most: int = 50_000,
        mostPerAddress: int = 20_000,
    ) -> None:
        """
        @param most: how many connections there may be, C{serverMaxConnectionNum}.
        @param mostPerAddress: how many of one address,
            C{serverMaxConnectionNumPerAddress}.
        @param tls: how to treat peers that begin with a TLS handshake; L{None}
            refuses them.
        """
        self._remoting = remoting
        self._tls = tls or ServerTLS()
        # Made when first needed, since most servers never see TLS, and kept.
        self._contextFactory = functools.cache(self._tls.contextFactory)
        self._idleTimeout = idleTimeout
        self._most = most
        self._mostPerAddress = mostPerAddress
        self._hosts: dict[str, int] = {}
        self._refused = 0
        self._sweeps: dict[RemotingProtocol, int] = {}
        # Those that have said nothing yet.
        self._silent: dict[FirstByteProtocol, int] = {}
        self._sweeper = LoopingCall(self._sweep)
        self._sweeper.clock = remoting.clock

    @property
    def connections(self) -> Iterable[RemotingProtocol]:
        """
        The connections that are up.
        """
        return self._sweeps.keys()

    def startFactory(self) -> None:
        """
        A port listens: begin to look for idle connections.

        @raise ValueError: if certificates are configured that cannot be used.
        """
        if self._tls.mode is not TLSMode.DISABLED and not self._tls.testMode:
            self._contextFactory()
        started = self._sweeper.start(self._idleTimeout / _SWEEPS, now=False)
        started.addErrback(
            lambda failure: self._log.failure("Idle connections are no longer closed", failure)
        )

    def stopFactory(self) -> None:
        """
        No port listens any more: close what is open.
        """
        self._sweeper.stop()
        for each in list(self._sweeps):
            each.close()
        for silent in list(self._silent):
            if silent.transport is not None:
                silent.transport.loseConnection()

    def buildProtocol(self, addr: IAddress | None) -> FirstByteProtocol | None:
        """
        A protocol for a connection that was accepted; L{None} closes it, because there
        are as many as there may be.
        """
        host: str = getattr(addr, "host", "")
        if self._isFull(host):
            return None
        # Forgotten at once and not by the next sweep: with it goes all that the peer sent.
        protocol = FirstByteProtocol(
            functools.partial(self._accept, host),
            self._tls.mode,
            self._contextFactory,
            functools.partial(self._forget, self._silent, host),
        )
        self._count(host, 1)
        self._silent[protocol] = 0
        return protocol

    def _accept(self, host: str) -> RemotingProtocol:
        gone = functools.partial(self._forget, self._sweeps, host)
        protocol = RemotingProtocol(self._remoting, accepted=True, gone=gone)
        self._count(host, 1)
        self._sweeps[protocol] = 0
        return protocol

    def _forget(self, those: dict[Any, int], host: str, protocol: object) -> None:
        del those[protocol]
        self._count(host, -1)

    def _count(self, host: str, change: int) -> None:
        count = self._hosts.get(host, 0) + change
        if count:
            self._hosts[host] = count
        else:
            del self._hosts[host]

    def _isFull(self, host: str) -> bool:
        """
        Whether no further connection is taken from an address.  It is told at the 1st,
        10th, 100th ... time: anyone can connect.
        """
        ofHost = self._hosts.get(host, 0)
        inAll = len(self._sweeps) + len(self._silent)
        if inAll >= self._most:
            why = f"there are {inAll}, and serverMaxConnectionNum is {self._most}"
        elif host and ofHost >= self._mostPerAddress:
            why = f"it has {ofHost}, and serverMaxConnectionNumPerAddress is {self._mostPerAddress}"
        else:
            return False
        self._refused += 1
        if str(self._refused).strip("0") == "1":
            self._log.warn(
                "Refusing a connection from {host}: {why} (no. {count} that is refused)",
                host=host,
                why=why,
                count=self._refused,
            )
        return True

    def _sweep(self) -> None:
        for protocol, quiet in list(self._sweeps.items()):
            if protocol.active:
                protocol.active = False
                self._sweeps[protocol] = 0
            elif quiet + 1 < _SWEEPS:
                self._sweeps[protocol] = quiet + 1
            else:
                self._log.info(
                    "Closing the connection to {address}: idle for {timeout:g} s",
                    address=protocol.address,
                    timeout=self._idleTimeout,
                )
                protocol.transport.abortConnection()
        self._sweepSilent()

    def _sweepSilent(self) -> None:
        for protocol, quiet in list(self._silent.items()):
            if quiet < _SWEEPS:
                self._silent[protocol] = quiet + 1
            else:
                # Not logged: anyone can connect and say nothing.
                cast(ITCPTransport, protocol.transport).abortConnection()
