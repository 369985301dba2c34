# SPDX-License-Identifier: Apache-2.0
"""
The accepting end: plain text and TLS on one port, idle connections closed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import cast

from twisted.internet.interfaces import IAddress, ITCPTransport
from twisted.internet.protocol import ServerFactory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from txrocket.remoting.node import Remoting
from txrocket.remoting.protocol import RemotingProtocol
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
    ) -> None:
        """
        @param tls: how to treat peers that begin with a TLS handshake; L{None}
            refuses them.
        """
        self._remoting = remoting
        self._tls = tls or ServerTLS()
        # Made when first needed, since most servers never see TLS, and kept.
        self._contextFactory = functools.cache(self._tls.contextFactory)
        self._idleTimeout = idleTimeout
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

    def buildProtocol(self, addr: IAddress | None) -> FirstByteProtocol:
        """
        A protocol for a connection that was accepted.
        """
        # Forgotten at once and not by the next sweep: with it goes all that the peer sent.
        protocol = FirstByteProtocol(
            self._accept, self._tls.mode, self._contextFactory, self._silent.pop
        )
        self._silent[protocol] = 0
        return protocol

    def _accept(self) -> RemotingProtocol:
        protocol = RemotingProtocol(self._remoting, accepted=True, gone=self._sweeps.pop)
        self._sweeps[protocol] = 0
        return protocol

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
