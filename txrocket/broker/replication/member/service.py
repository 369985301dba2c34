# SPDX-License-Identifier: Apache-2.0
"""
The role of one broker, from its start to its end::

    start --> SUSPENDED --> settings, replica.json, name servers --> MASTER or FOLLOWER
                                                                 \\-> refused: stays SUSPENDED
    promote: FOLLOWER --> MASTER        demote: MASTER --> FOLLOWER

A broker that is to be a master asks the name servers first, so that its group never gets a
second one.  If there is one, the broker follows it, unless their logs have nothing in common.  If
there is none, and a slave has followed a newer master, the broker follows too: an operator has to
promote one.  A master that was cut off while another one was promoted finds out in the same way,
and follows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.broker.registration import NameServerRegistration
from txrocket.broker.replication.durability import Durability
from txrocket.broker.replication.member.mastersearch import FoundMaster, MasterSearch
from txrocket.broker.replication.member.steps import BrokerSteps
from txrocket.broker.replication.role import Role
from txrocket.errors import ConfigError, RemoteSystemError, RocketError, StoreError
from txrocket.model import MASTER_ID
from txrocket.protocol.bodies.replication import HADemoteRequestHeader, HAStatus
from txrocket.protocol.codes import ReplicationCode
from txrocket.protocol.command import requestCommand
from txrocket.store.replica.cut import Cut

__all__ = ["Replication"]

# How long a master that is asked to promote another one has for its answer, in seconds.
_HAND_OVER: Final = 10.0


class Replication:
    """
    The role of a broker, from its start to its end.

    @ivar steps: the parts that the role starts and stops.
    @ivar durability: tells when a message is stored.
    @ivar why: why the broker is suspended.
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
        self._changing = False
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
        if self._file.role is Role.FOLLOWER:
            # The copy of a master's log ends before a damaged record: nothing takes its place.
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
        if self._file.role is Role.FOLLOWER:
            self.steps.become(Role.FOLLOWER)
        else:
            found, newest = None, 0
            if self.registration.addresses:
                found = yield self._search.find()
                if found is None and self._file.groupId:
                    newest = yield self._search.newestEpoch(self._file.groupId)
            if not self._running:
                return
            if newest > self.steps.epoch:
                yield self._wait(newest)
            else:
                self._begin(found)
        yield self.steps.told

    @inlineCallbacks
    def _wait(self, newest: int) -> Generator[Deferred[Any], Any, None]:
        """
        Follow, although there is no master.
        """
        self._log.error(
            "A slave of this group has followed a master of epoch {newest}, and this broker only"
            " one of {epoch}: it does not lead, and waits for a master; promote a broker",
            newest=newest,
            epoch=self.steps.epoch,
        )
        taken = yield self._search.taken()
        self._followNow(taken)

    def _followNow(self, taken: frozenset[int]) -> None:
        self._number(taken)
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
            return f"{there}, and its messages are others than those of this broker's folder"
        return ""

    def _number(self, taken: frozenset[int]) -> None:
        """
        Give a former master a number as a slave.
        """
        if not self._file.replicaId:
            # A slave that does not run now keeps its number.
            others = taken.union(self._file.members)
            numbers = range(1, len(others) + 2)
            self._file.number(next(each for each in numbers if each not in others))

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
                self._log.info("The slaves may lack messages: {error}", error=error)
        self._links.close()

    @inlineCallbacks
    def look(self) -> Generator[Deferred[Any], Any, None]:
        """
        Have a slave without its master ask the name servers for it, and a master whether there
        is another one.
        """
        if self.role is Role.FOLLOWER and not self._links.isConnected:
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
        if self._changing or self.role is not Role.MASTER:
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
        else:
            self._log.critical(
                "{address} leads this group in the same epoch {epoch}: demote one of them",
                address=found.address,
                epoch=status.epoch,
            )

    def masterFound(self, address: str, haAddress: str) -> None:
        """
        A name server has told of the master.
        """
        if address != self.registration.identity.address and haAddress:
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

    # --- an operator's -------------------------------------------------------

    @inlineCallbacks
    def promote(self, *, force: bool) -> Generator[Deferred[Any], Any, None]:
        """
        Become the master.

        @param force: whether to do so although the present master answers; it is asked to
            follow then.
        @raise RemoteSystemError: if the broker may not.
        """
        with self._change(Role.FOLLOWER, "become a master"):
            found = yield self._present()
            if found is not None and not force:
                raise RemoteSystemError(
                    f"{found.address} still answers as the master of this group: demote it first"
                )
            if found is not None and found.status is not None:
                yield self._demote(found.address)
            try:
                self._file.makeGroup()
                self._file.changed(Role.MASTER)
                self.steps.become(Role.MASTER, isPromotion=True)
            except StoreError as error:
                with suppress(StoreError):
                    self._file.changed(Role.FOLLOWER)
                raise RemoteSystemError(f"the store cannot take messages: {error}") from error
        yield self.steps.told

    @inlineCallbacks
    def demote(self, *, force: bool) -> Generator[Deferred[Any], Any, None]:
        """
        Become a slave, once another one has everything.

        @param force: whether to do so although none has.
        @raise RemoteSystemError: if the broker may not.
        """
        with self._change(Role.MASTER, "become a slave"):
            self.steps.rest()
            try:
                # From now on there are no more messages to wait for.
                self.steps.follow()
                if not force:
                    yield self._links.replicated()
                taken = yield self._search.taken()
                replicas = [each.brokerId for each in self._links.replicaStatus()]
                self._number(taken.union(replicas))
                self._file.changed(Role.FOLLOWER)
            except RocketError as error:
                self.steps.lead()
                self.steps.serve()
                self.steps.deliver()
                raise RemoteSystemError(f"no slave has all messages: {error}") from error
            self.steps.master = ("", "")
            self.steps.become(Role.FOLLOWER)
        yield self.steps.told

    def _change(self, role: Role, what: str) -> _Change:
        """
        A change that an operator wants, one at a time.
        """
        if self._changing:
            raise RemoteSystemError("the role of this broker is being changed already")
        if self.role is not role:
            raise RemoteSystemError(f"a broker that is {self.role.value} cannot {what}")
        return _Change(self._flag)

    def _flag(self, changing: bool) -> None:
        self._changing = changing

    @inlineCallbacks
    def _present(self) -> Generator[Deferred[Any], Any, FoundMaster | None]:
        """
        The master that answers now.
        """
        if self.steps.master[0]:
            found: FoundMaster | None = yield self._search.ask(self.steps.master[0])
            if found is not None:
                return found
        found = yield self._search.find()
        return found

    @inlineCallbacks
    def _demote(self, address: str) -> Generator[Deferred[Any], Any, None]:
        header = HADemoteRequestHeader(True)
        try:
            yield self.registration.ask(
                address, requestCommand(ReplicationCode.HA_DEMOTE, header), _HAND_OVER
            )
        except RocketError as error:
            self._log.error(
                "{address}, which was the master, does not follow: {error}",
                address=address,
                error=error,
            )


class _Change:
    """
    Notes that a change goes on, for as long as it does.
    """

    def __init__(self, flag: Callable[[bool], None]) -> None:
        self._flag = flag

    def __enter__(self) -> None:
        self._flag(True)

    def __exit__(self, *error: object) -> None:
        self._flag(False)
