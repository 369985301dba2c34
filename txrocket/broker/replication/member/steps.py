# SPDX-License-Identifier: Apache-2.0
"""
What a broker does when its role changes; L{txrocket.broker.replication.role} has the order::

    lead, follow       the store and the tables
    serve, close       the links to slaves
    link, unlink       the link to the master
    deliver, rest      delay levels, timers, checks of transactions
    unlock             the locks of queues
    announce, withdraw the name servers
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IProtocolFactory

from txrocket.broker.parts import BrokerParts
from txrocket.broker.registration import NameServerRegistration
from txrocket.broker.replication.handshake import nextEpoch
from txrocket.broker.replication.member.replicafile import ReplicaFile
from txrocket.broker.replication.role import BrokerRoleState, Role
from txrocket.errors import StoreError
from txrocket.model import MASTER_ID
from txrocket.protocol.bodies.replication import LastCut, MasterStatus, ReplicaStatus
from txrocket.store.replica.epochs import EpochFile

__all__ = ["BrokerSteps", "DelayedDelivery", "Links"]


class DelayedDelivery(Protocol):
    """
    A part that delivers or checks parked messages when their time has come.
    """

    def load(self) -> None:
        """
        Read the part's table, before the store is opened.
        """

    def start(self) -> None:
        """
        Begin to deliver: the store is open.
        """

    def stop(self) -> None:
        """
        Deliver no more.
        """

    def save(self) -> Deferred[None]:
        """
        Write the part's table; the Deferred fires once nothing is being written.
        """


class Links(Protocol):
    """
    The links to slaves, and the one to a master.
    """

    @property
    def gate(self) -> IProtocolFactory:
        """
        The factory of the port for slaves.
        """

    def serve(self) -> None:
        """
        Let slaves connect, and tell those that are connected of a new epoch.
        """

    def close(self) -> None:
        """
        End the connections of slaves, and let none connect.
        """

    def follow(self, address: str, haAddress: str) -> None:
        """
        Follow a master.

        @param address: where clients reach it; empty if that is not known.
        """

    def unlink(self) -> None:
        """
        Follow no master.
        """

    def replicated(self) -> Deferred[None]:
        """
        A Deferred that fires once a slave has the whole log and all tables.  It fails with a
        L{ResponseError} if there is none, or it takes too long.
        """

    @property
    def isConnected(self) -> bool:
        """
        Whether the master answers.
        """

    @property
    def lastCut(self) -> LastCut | None:
        """
        What was cut last.
        """

    def replicaStatus(self) -> Sequence[ReplicaStatus]:
        """
        The slaves that are connected.
        """

    def masterStatus(self, address: str, haAddress: str) -> MasterStatus:
        """
        The link to the master with these addresses.
        """


@attrs.define(eq=False, slots=False)
class BrokerSteps:
    """
    The parts of a broker that its role starts and stops, and the steps of a change.

    @ivar file: the broker as a member of its group.
    @ivar epochs: the epochs of its log.
    @ivar master: the master's addresses, for clients and for slaves, as name servers have told
        them.
    @ivar isPromotion: whether an operator wants the broker to lead, and it was a slave.
    @ivar told: fires once the name servers have heard of the role, or failed.
    """

    parts: BrokerParts
    file: ReplicaFile
    epochs: EpochFile
    registration: NameServerRegistration
    links: Links

    def __attrs_post_init__(self) -> None:
        delivery = self.parts.delivery
        self.deliveries: Sequence[DelayedDelivery] = (
            delivery.delayLevels,
            delivery.timers,
            delivery.transactionChecks,
        )
        self.master = ("", "")
        self.isPromotion = False
        self.told: Deferred[None] = succeed(None)
        self._haAddress = self.registration.identity.haAddress

    @property
    def state(self) -> BrokerRoleState:
        """
        The role.
        """
        return self.parts.core.role

    @property
    def epoch(self) -> int:
        """
        The newest epoch of the log; 0 if it has none.
        """
        last = self.epochs.last
        return 0 if last is None else last.epoch

    @property
    def end(self) -> int:
        """
        Where the log ends.
        """
        return self.parts.core.store.replica.end

    def become(self, role: Role, *, isPromotion: bool = False) -> None:
        """
        Change the role.

        @param isPromotion: whether an operator wants it.
        @raise StoreError: if the store cannot take messages.
        """
        self.isPromotion = isPromotion
        self.state.become(role, self)

    def lead(self) -> None:
        """
        See L{RoleSteps}.
        """
        replica, tables = self.parts.core.store.replica, self.parts.tables
        try:
            replica.lead()
        except OSError as error:
            raise StoreError(f"the store cannot take messages: {error}") from error
        last = self.epochs.last
        # The first epoch has all that was there before.
        start = replica.first if last is None else replica.end
        now = self.parts.core.store.now() if self.isPromotion else 0
        self.epochs.append(nextEpoch(self.epoch, self.file.replicaId, now), start)
        for table in (tables.topics, tables.groups, tables.filters):
            table.isCopy = False
        tables.offsets.bringBack(self.parts.core.store.maxOffset)

    def follow(self) -> None:
        """
        See L{RoleSteps}.
        """
        tables = self.parts.tables
        self.parts.core.store.replica.follow()
        for table in (tables.topics, tables.groups, tables.filters):
            table.isCopy = True

    def serve(self) -> None:
        """
        See L{RoleSteps}.
        """
        self.links.serve()

    def close(self) -> None:
        """
        See L{RoleSteps}.
        """
        self.links.close()

    def deliver(self) -> None:
        """
        See L{RoleSteps}.
        """
        for delivery in self.deliveries:
            delivery.start()

    def rest(self) -> None:
        """
        See L{RoleSteps}.
        """
        for delivery in self.deliveries:
            delivery.stop()

    def unlock(self) -> None:
        """
        See L{RoleSteps}.
        """
        self.parts.clients.locks.clear()

    def link(self) -> None:
        """
        See L{RoleSteps}.
        """
        self.links.follow(*self.master)

    def unlink(self) -> None:
        """
        See L{RoleSteps}.
        """
        self.links.unlink()

    def announce(self) -> None:
        """
        See L{RoleSteps}.
        """
        leads = self.state.isMaster
        self.told = self.registration.become(
            MASTER_ID if leads else self.file.replicaId, self._haAddress if leads else ""
        )

    def withdraw(self) -> None:
        """
        See L{RoleSteps}.
        """
        # They are asked again, and refused.
        self.parts.core.longPoll.stop()
        self.told = self.registration.stop()
