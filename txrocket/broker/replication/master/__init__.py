# SPDX-License-Identifier: Apache-2.0
"""
The master's end of replication: the port to which slaves connect.

::

    slave ---- TCP or TLS ---- FirstByteProtocol ---- MasterProtocol ----+
    slave ---- TCP or TLS ---- FirstByteProtocol ---- MasterProtocol ----+-- PieceTurns -- log
    anyone --- says nothing -- closed

A connection reads the log's files itself, and only while its socket takes more: a slow slave
costs the buffer of its socket and one piece.  L{PieceTurns} gives each connection one piece after
the other, so that a slave far behind does not delay one that has nearly all.  Nothing is a
replica before its handshake is done.
"""

from __future__ import annotations

import functools
from ipaddress import ip_address
from typing import Any, Final

from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger

from txrocket.broker.replication.interfaces import MasterParts
from txrocket.broker.replication.master.protocol import MasterProtocol
from txrocket.broker.replication.master.refusals import Refusals
from txrocket.broker.replication.master.turns import PieceTurns
from txrocket.broker.replication.replicas import Replica, Replicas
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.errors import ReplicaRefused
from txrocket.remoting.tls import FirstByteProtocol, ServerTLS, TLSMode

__all__ = ["ReplicaServerFactory"]

# The most connections.  Slaves are few; strangers may be many.
_MOST: Final = 64


class ReplicaServerFactory(ServerFactory):
    """
    Accepts the connections of slaves.
    """

    noisy = False
    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        parts: MasterParts,
        replicas: Replicas,
        settings: ReplicationSettings,
        tls: ServerTLS | None = None,
    ) -> None:
        """
        @param tls: how to treat slaves that begin with a TLS handshake; L{None} refuses them.
        """
        self.clock = clock
        self.parts = parts
        self.replicas = replicas
        self.settings = settings
        self.turns = PieceTurns(clock)
        self.refusals = Refusals()
        self._tls = tls or ServerTLS()
        # Made when first needed, because most slaves do not use TLS, and kept.
        self._contextFactory = functools.cache(self._tls.contextFactory)
        # Connections that have said nothing yet, and those that have, in the order in which
        # they came.
        self._silent: dict[FirstByteProtocol, IDelayedCall] = {}
        self._protocols: dict[MasterProtocol, None] = {}

    @property
    def connections(self) -> int:
        """
        How many connections there are, slaves or not.
        """
        return len(self._silent) + len(self._protocols)

    def startFactory(self) -> None:
        """
        A port listens.

        @raise ValueError: if certificates are configured that cannot be used.
        """
        if self._tls.mode is not TLSMode.DISABLED and not self._tls.testMode:
            self._contextFactory()

    def stopFactory(self) -> None:
        """
        No port listens any more: close what is open.  Messages that wait for a slave fail.
        """
        for silent in list(self._silent):
            _abort(silent)
        for protocol in list(self._protocols):
            protocol.abandon()
        self.replicas.stop()

    def epochBegan(self) -> None:
        """
        The master has begun an epoch: tell the slaves.
        """
        for protocol in self._protocols:
            protocol.sendSoon()

    def buildProtocol(self, addr: IAddress | None) -> FirstByteProtocol | None:
        """
        A protocol for a connection that was accepted; L{None} closes it, because there are as
        many slaves as there may be.
        """
        if self.connections >= _MOST and not self._makeRoom():
            self.refusals.tell(str(addr), ReplicaRefused("too many slaves are connected"))
            return None
        first = FirstByteProtocol(self._accept, self._tls.mode, self._contextFactory, self._spoke)
        # A slave of RocketMQ 4.9.7 says nothing for haSendHeartbeatInterval.
        limit = self.settings.haHousekeepingInterval / 1000
        self._silent[first] = self.clock.callLater(limit, _abort, first)
        return first

    def checkNumber(self, replicaId: int, clientAddress: str) -> None:
        """
        Whether a slave of ours may have its number, which is kept.

        @param clientAddress: where clients reach it.
        @raise ReplicaRefused: if another slave has that number.
        @raise StoreError: if the disk fails.
        """
        for each in self.replicas.all:
            if each.replicaId == replicaId and each.clientAddress != clientAddress:
                raise ReplicaRefused(
                    "another slave has its number",
                    f"{each.clientAddress} is slave {replicaId}: set another brokerId",
                )
        self.parts.identity.met(replicaId)

    def welcome(self, replica: Replica) -> None:
        """
        A handshake is done.  If the slave has another connection, that one is dead and does
        not know it.
        """
        if replica.replicaId:
            for each in list(self._protocols):
                known = each.source.replica if each.source is not None else None
                if known is not None and known.replicaId == replica.replicaId:
                    self._log.info(
                        "Slave {replicaId} connects from {address}: closing its connection from"
                        " {known}",
                        replicaId=replica.replicaId,
                        address=replica.address,
                        known=known.address,
                    )
                    each.abandon()
        self._log.info(
            "Slave {address} follows from {offset}", address=replica.address, offset=replica.written
        )
        self.replicas.add(replica)

    def mayBePlain(self, address: str) -> None:
        """
        Whether a slave may follow without a handshake of ours.

        @raise ReplicaRefused: if C{haPlainAddresses} does not have its host.
        """
        host = address.rpartition(":")[0].strip("[]")
        hosts = self.settings.plainHosts
        if hosts is None:
            if not _isLoopback(host):
                self.refusals.warn(
                    address,
                    "this slave speaks RocketMQ 4.9.7's stream, which has no check of the group"
                    " or the log; haPlainAddresses limits such slaves to known hosts",
                )
        elif host not in hosts:
            raise ReplicaRefused("haPlainAddresses does not have the slave's host")

    def gone(self, protocol: MasterProtocol) -> None:
        """
        A connection is lost.
        """
        self._protocols.pop(protocol, None)
        self.turns.forget(protocol)

    def _accept(self) -> MasterProtocol:
        protocol = MasterProtocol(self)
        self._protocols[protocol] = None
        return protocol

    def _spoke(self, first: FirstByteProtocol) -> None:
        limit = self._silent.pop(first, None)
        if limit is not None and limit.active():
            limit.cancel()

    def _makeRoom(self) -> bool:
        """
        Close the oldest connection that is not a slave's.
        """
        if self._silent:
            oldest = next(iter(self._silent))
            self._spoke(oldest)
            _abort(oldest)
            return True
        for protocol in self._protocols:
            if protocol.source is None:
                protocol.abandon()
                return True
        return False


def _abort(protocol: Any) -> None:
    if protocol.transport is not None:
        protocol.transport.abortConnection()


def _isLoopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
