# SPDX-License-Identifier: Apache-2.0
"""
The links of a broker to the other members of its group, which its role opens and closes::

    MASTER      SlaveGate open  --> ReplicaServerFactory --> Replicas <-- messages that wait
    FOLLOWER    MasterLink --> the master;  JavaMasterTables, if the master is RocketMQ's
    SUSPENDED   neither

The port for slaves listens in each role, so that a promotion cannot fail because of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory

from txrocket.broker.replication.master import ReplicaServerFactory
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.broker.replication.slave import LinkState, MasterLink
from txrocket.broker.replication.tables.javamaster import JavaMasterTables
from txrocket.broker.replication.tables.sink import TableSink
from txrocket.protocol.bodies.replication import LastCut, MasterStatus, ReplicaStatus
from txrocket.remoting.tls import FirstByteProtocol

__all__ = ["BrokerLinks", "SlaveGate"]

_CONNECTED = (LinkState.PLAIN, LinkState.FOLLOWING)


class SlaveGate(ServerFactory):
    """
    Accepts connections of slaves while the broker is a master.
    """

    noisy = False

    def __init__(self, slaves: ReplicaServerFactory) -> None:
        self._slaves = slaves
        self.isOpen = False

    def startFactory(self) -> None:
        """
        A port listens.

        @raise ValueError: if certificates are configured that cannot be used.
        """
        self._slaves.startFactory()

    def stopFactory(self) -> None:
        """
        No port listens any more.
        """
        self._slaves.stopFactory()

    def buildProtocol(self, addr: IAddress | None) -> FirstByteProtocol | None:
        """
        A protocol for a connection that was accepted; L{None} closes it.
        """
        return self._slaves.buildProtocol(addr) if self.isOpen else None


class BrokerLinks:
    """
    The links of one broker.

    @ivar gate: the factory of the port for slaves.
    """

    def __init__(
        self,
        slaves: ReplicaServerFactory,
        link: MasterLink,
        javaTables: JavaMasterTables,
        sink: TableSink,
        settings: ReplicationSettings,
    ) -> None:
        """
        @param sink: takes the tables of a master.
        """
        self.gate = SlaveGate(slaves)
        self._slaves = slaves
        self._replicas = slaves.replicas
        self._log = slaves.parts.log
        self._clock = slaves.clock
        self._link = link
        self._javaTables = javaTables
        self._sink = sink
        self._settings = settings

    # --- slaves ------------------------------------------------------------

    def serve(self) -> None:
        """
        Let slaves connect, and tell those that are connected of a new epoch.
        """
        self.gate.isOpen = True
        self._slaves.epochBegan()

    def close(self) -> None:
        """
        End the connections of slaves, and let none connect.
        """
        self.gate.isOpen = False
        self._slaves.stopFactory()
        self._replicas.stop()

    @property
    def waiting(self) -> int:
        """
        How many messages wait for a slave.
        """
        return self._replicas.waiting

    def stored(self, end: int) -> Deferred[None]:
        """
        See L{IReplicas<txrocket.broker.replication.durability.IReplicas>}.
        """
        return self._replicas.stored(end)

    def tablesStored(self) -> Deferred[None]:
        """
        See L{IReplicas<txrocket.broker.replication.durability.IReplicas>}.
        """
        return self._replicas.tablesStored(self._slaves.parts.tables.changes)

    def replicated(self) -> Deferred[None]:
        """
        A Deferred that fires once a slave has the whole log and all tables.  It fails with a
        L{ResponseError<txrocket.errors.ResponseError>} if there is none, or it takes too long.
        """
        return self.stored(self._log.end).addCallback(lambda none: self.tablesStored())

    def replicaStatus(self) -> Sequence[ReplicaStatus]:
        """
        The slaves that are connected.
        """
        end, now = self._log.end, self._clock.seconds()
        found = []
        for each in self._replicas.all:
            lag, seconds = each.lag(end, now)
            found.append(
                ReplicaStatus(
                    each.clientAddress or each.address,
                    -1 if each.isPlain else each.replicaId,
                    each.isPlain,
                    each.written,
                    each.flushed,
                    lag,
                    int(seconds * 1000),
                    each.counts and self._replicas.isInSync(each),
                )
            )
        return found

    # --- the master ----------------------------------------------------------

    def follow(self, address: str, haAddress: str) -> None:
        """
        Follow a master.  C{haMasterAddress} of the settings goes before what name servers
        tell.

        @param address: where clients reach it; empty if that is not known.
        @param haAddress: where slaves reach it; empty if that is not known.
        """
        self._link.follow(self._settings.haMasterAddress or haAddress or None)
        self._javaTables.follow(address)

    def unlink(self) -> None:
        """
        Follow no master.
        """
        self._link.follow(None)
        self._javaTables.follow("")
        self._sink.forget()

    @property
    def isConnected(self) -> bool:
        """
        Whether the master answers.
        """
        return self._link.state in _CONNECTED

    @property
    def lastCut(self) -> LastCut | None:
        """
        What was cut last.
        """
        cut = self._link.status.lastCut
        return None if cut is None else LastCut(cut.offset, cut.size, cut.records, cut.path)

    def masterStatus(self, address: str, haAddress: str) -> MasterStatus:
        """
        The link to the master with these addresses.
        """
        status = self._link.status
        state = status.state.value
        return MasterStatus(
            address,
            status.address or haAddress,
            f"{state}: {status.problem}" if status.problem else state,
            status.state is LinkState.PLAIN,
            status.lag,
        )
