# SPDX-License-Identifier: Apache-2.0
"""
The role of one broker, from its start to its end::

    start --> SUSPENDED --> settings, replica.json, name servers --> MASTER or FOLLOWER
                                                                 \\-> refused: stays SUSPENDED
    promote: FOLLOWER --> MASTER        demote: MASTER --> FOLLOWER

A broker that is to be a master asks the name servers first, so that its group never gets a
second one.  If there is one, the broker follows it, unless their logs have nothing in common.  If
there is none, and a slave has more messages or has followed a newer master, the broker follows
too: an operator has to promote one.  A master that was cut off while another one was promoted
finds out in the same way, and follows.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.broker.registration import NameServerRegistration
from txrocket.broker.replication.durability import Durability
from txrocket.broker.replication.member.mastersearch import FoundMaster, MasterSearch
from txrocket.broker.replication.member.rolechange import RoleChange
from txrocket.broker.replication.member.steps import BrokerSteps
from txrocket.broker.replication.role import Role
from txrocket.errors import ConfigError, RocketError
from txrocket.model import MASTER_ID
from txrocket.protocol.bodies.replication import HAStatus
from txrocket.store.replica.cut import Cut

__all__ = ["Replication"]


class Replication:
    """
    The role of a broker, from its start to its end.

    @ivar steps: the parts that the role starts and stops.
    @ivar durability: tells when a message is stored.
    @ivar why: why the broker is suspended.
    @ivar roleChange: changes the role as an operator wants it.
    """

    _log = Logger()

    def __init__(self, steps: BrokerSteps, durability: Durability) -> None:
        self.steps = steps
        self.durability = durability
        self.why = ""
        self._parts = steps.parts
        self._file = steps.file
        self._links = steps.links
        self._search = MasterSearch(steps.registration)
        self._running = False
        self.roleChange = RoleChange(steps, self._search, self.status)
        # Whether the log says that there is no master.
        self._isLost = False
        # The other master in the same epoch that the log tells of.
        self._rival = ""
        steps.registration.follow(self.masterFound)

    @property
    def role(self) -> Role:
        """
        The role as it is now.
        """
        return self.steps.state.role

    @property
    def registration(self) -> NameServerRegistration:
        """
        The registration with the name servers.
        """
        return self.steps.registration

    # --- life --------------------------------------------------------------

    def load(self) -> None:
        """
        Read the files, before the store is opened.

        @raise StoreCorrupt: if one cannot be read.
        """
        self._file.load()
        self.steps.epochs.load()
        if self._file.hasCopies:
            # The log ends before a damaged record: another broker has it, and nothing else may
            # take its place.
            self._parts.core.store.replica.follow()

    @inlineCallbacks
    def start(self) -> Generator[Deferred[Any], Any, None]:
        """
        Take a role: the store is open.

        @return: a Deferred that fires once each name server has heard of it, or failed.  It
            fails with L{ConfigError} if the broker may take no role.
        """
        self._running = True
        self.steps.follow()
        if self._file.hasCopies:
            # A power loss may have taken the bytes of the last epochs, and the messages that
            # consumers were at.
            self.steps.epochs.cutAt(self.steps.end + 1)
            self._parts.tables.offsets.bringBack(self._parts.core.store.maxOffset)
        if self._file.role is Role.FOLLOWER:
            self.steps.become(Role.FOLLOWER)
        else:
            found, furthest = None, (0, 0)
            if self.registration.addresses:
                found = yield self._search.find()
                if found is None and self._file.groupId:
                    furthest = yield self._search.furthest(self._file.groupId)
            if not self._running:
                return
            if furthest > (self.steps.epoch, self.steps.end):
                yield self._wait(*furthest)
            else:
                self._begin(found)
        yield self.steps.told

    @inlineCallbacks
    def _wait(self, epoch: int, end: int) -> Generator[Deferred[Any], Any, None]:
        """
        Follow, although there is no master, because a slave has messages that this broker lacks.
        """
        self._log.error(
            "A slave of this group is at {end} of epoch {epoch}, and this broker only at {ownEnd}"
            " of epoch {ownEpoch}: it does not lead, and waits for a master; promote the slave",
            epoch=epoch,
            end=end,
            ownEpoch=self.steps.epoch,
            ownEnd=self.steps.end,
        )
        taken = yield self._search.taken()
        self._followNow(taken)

    def _followNow(self, taken: frozenset[int]) -> None:
        self._file.numberBeside(taken)
        self._file.changed(Role.FOLLOWER)
        self.steps.become(Role.FOLLOWER)

    def _begin(self, found: FoundMaster | None) -> None:
        """
        Lead, or follow the master that there is.
        """
        if found is None:
            self._file.makeGroup()
            self.steps.become(Role.MASTER)
            return
        self.why = self._refusal(found)
        if self.why:
            self._log.critical("This broker takes no role: {why}", why=self.why)
            raise ConfigError(self.why)
        self._log.warn(
            "{address} is the master of this group: this broker, which was to be one, follows it",
            address=found.address,
        )
        self._followNow(found.taken)

    def _refusal(self, found: FoundMaster) -> str:
        """
        Why a master cannot be followed; empty if it can.
        """
        name = self.registration.identity.name
        there = f"{found.address} is a master of brokerName={name} already"
        if found.status is None:
            return f"{there}, and does not run txrocket: set brokerRole=SLAVE to follow it"
        if not self._file.groupId and not self._parts.core.store.replica.end:
            return ""
        if found.status.groupId != self._file.groupId:
            return (
                f"{there}, and its messages are others than those of this broker's folder: set"
                " another brokerName, or an empty storePathRootDir"
            )
        return ""

    def stop(self) -> Deferred[None]:
        """
        Deliver no more, and leave the name servers.  Slaves still get what there is.
        """
        self._running = False
        self.steps.rest()
        self._links.unlink()
        return self.registration.stop()

    @inlineCallbacks
    def finish(self) -> Generator[Deferred[Any], Any, None]:
        """
        End the connections of slaves, once one of them has everything, or after a while.
        """
        if self._links.replicaStatus():
            try:
                yield self._links.replicated()
            except RocketError as error:
                self._log.warn(
                    "This broker stops, and its slaves may lack messages: {error}", error=error
                )
        self._links.close()

    @inlineCallbacks
    def look(self) -> Generator[Deferred[Any], Any, None]:
        """
        Have a slave without its master ask the name servers for it, and a master whether there
        is another one.
        """
        if self.role is Role.FOLLOWER and not self._links.isConnected:
            if not self._isLost and not self._links.masterStatus(*self.steps.master).haAddress:
                self._isLost = True
                self._log.warn("This broker has no master to follow: {why}", why=self._noMaster())
            yield self.registration.announce(force=True)
        elif self.role is Role.MASTER and self.registration.addresses:
            found = yield self._search.find()
            if found is not None and self._running:
                yield self._meet(found)

    @inlineCallbacks
    def _meet(self, found: FoundMaster) -> Generator[Deferred[Any], Any, None]:
        """
        There is another master: the one with the newer epoch leads.
        """
        status = found.status
        if status is None or status.groupId != self._file.groupId:
            return
        if self.roleChange.isGoingOn or self.role is not Role.MASTER:
            return
        if status.epoch > self.steps.epoch:
            self._log.error(
                "{address} leads this group in epoch {newer}: this broker, which has led it in"
                " epoch {epoch}, follows",
                address=found.address,
                newer=status.epoch,
                epoch=self.steps.epoch,
            )
            self.steps.master = ("", "")
            self._followNow(found.taken)
            yield self.steps.told
        elif status.epoch < self.steps.epoch:
            # The other one finds this one then.
            yield self.registration.announce(force=True)
        elif found.address != self._rival:
            self._rival = found.address
            self._log.critical(
                "{address} leads this group in the same epoch {epoch}: demote one of them",
                address=found.address,
                epoch=status.epoch,
            )

    def _noMaster(self) -> str:
        """
        Why no master is known.
        """
        if not self.registration.addresses:
            return "neither namesrvAddr nor haMasterAddress is set"
        return (
            f"no name server knows a master of brokerName={self.registration.identity.name};"
            " this broker goes on asking"
        )

    def masterFound(self, address: str, haAddress: str) -> None:
        """
        A name server has told of the master.
        """
        if address != self.registration.identity.address and haAddress:
            self._isLost = False
            self.steps.master = address, haAddress
            if self.role is Role.FOLLOWER:
                self._links.follow(address, haAddress)

    def status(self) -> HAStatus:
        """
        The role and all that belongs to it.
        """
        steps, replica, leads = self.steps, self._parts.core.store.replica, self.role is Role.MASTER
        identity = self.registration.identity
        follows = self.role is Role.FOLLOWER
        sync = "SYNC_MASTER" if self._file.isSync else "ASYNC_MASTER"
        return HAStatus(
            self.role.value,
            sync if leads else "SLAVE",
            identity.name,
            MASTER_ID if leads else self._file.replicaId,
            self._file.replicaId,
            self._file.groupId,
            steps.epoch,
            replica.first,
            replica.end,
            replica.flushed,
            self.why,
            self._links.masterStatus(*steps.master) if follows else None,
            tuple(self._links.replicaStatus()) if leads else (),
            self._links.lastCut,
            tuple(self._file.members),
        )

    def cutBack(self, cut: Cut) -> None:
        """
        The log was cut, because the master does not have its end.
        """
        count = self._parts.tables.offsets.bringBack(self._parts.core.store.maxOffset)
        self._log.warn(
            "The master does not have the end of this log: {records} messages, {size} bytes from"
            " {offset} on, were cut and are kept in {path}; {count} offsets of consumers were"
            " set back",
            records=cut.records,
            size=cut.size,
            offset=cut.offset,
            path=cut.path,
            count=count,
        )

    def startedAnew(self, offset: int, folder: str) -> None:
        """
        The log begins anew, because the master's has nothing in common with it.
        """
        self._parts.tables.offsets.bringBack(self._parts.core.store.maxOffset)
        self._parts.delivery.delayLevels.adopt({})
        self._log.warn(
            "This log and the master's have nothing in common: this one begins anew at {offset},"
            " and what was there is kept in {folder}",
            offset=offset,
            folder=folder,
        )
