# SPDX-License-Identifier: Apache-2.0
"""
Changes of a broker's role that an operator wants::

    promote   no master answers? --> no slave has more? --> replica.json --> MASTER
    demote    no more messages --> a slave has all? --> a number --> replica.json --> FOLLOWER

Each question can be passed over by force.  C{replica.json} is written first, so that a broker
that is killed meanwhile starts in its new role.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.broker.replication.member.mastersearch import FoundMaster, MasterSearch
from txrocket.broker.replication.member.steps import BrokerSteps
from txrocket.broker.replication.role import Role
from txrocket.errors import RemoteSystemError, RocketError, StoreError
from txrocket.protocol.bodies.replication import HADemoteRequestHeader, HAStatus
from txrocket.protocol.codes import ReplicationCode
from txrocket.protocol.command import requestCommand

__all__ = ["RoleChange"]

# How long a master that is asked to follow has for its answer, in seconds.
_HAND_OVER: Final = 10.0


class RoleChange:
    """
    Changes the role of a broker while it runs, once at a time.

    @ivar isGoingOn: whether the role is being changed.
    """

    _log = Logger()

    def __init__(
        self, steps: BrokerSteps, search: MasterSearch, status: Callable[[], HAStatus]
    ) -> None:
        """
        @param status: tells the role and all that belongs to it.
        """
        self.isGoingOn = False
        self._steps = steps
        self._search = search
        self._status = status

    @inlineCallbacks
    def promote(self, *, force: bool) -> Generator[Deferred[Any], Any, None]:
        """
        Become the master.

        @param force: whether to do so although the present master answers, which is asked to
            follow then, or although another slave has more messages.
        @raise RemoteSystemError: if the broker may not.
        """
        steps = self._steps
        with self._begun(Role.FOLLOWER):
            found = yield self._present()
            if found is None and steps.links.isConnected and not force:
                # Without name servers, the connection alone shows that there is one.
                raise RemoteSystemError(
                    "this broker still follows its master: demote that one first, or use force"
                )
            if found is not None and not force:
                raise RemoteSystemError(
                    f"{found.address} still answers as the master of this group: demote it first,"
                    " or use force"
                )
            if found is not None and found.status is not None:
                yield self._demote(found.address)
            if not force:
                yield self._checkFurthest()
            try:
                steps.file.makeGroup()
                steps.file.changed(Role.MASTER)
                steps.become(Role.MASTER, isPromotion=True)
            except StoreError as error:
                with suppress(StoreError):
                    steps.file.changed(Role.FOLLOWER)
                raise RemoteSystemError(f"the store cannot take messages: {error}") from error
        yield steps.told

    @inlineCallbacks
    def demote(self, *, force: bool) -> Generator[Deferred[Any], Any, None]:
        """
        Become a slave, once another one has everything.

        @param force: whether to do so although none has.
        @raise RemoteSystemError: if the broker may not.
        """
        steps = self._steps
        with self._begun(Role.MASTER):
            steps.rest()
            try:
                # From now on there are no more messages to wait for.
                steps.follow()
                if not force:
                    yield steps.links.replicated()
                taken = yield self._search.taken()
                replicas = [each.brokerId for each in steps.links.replicaStatus()]
                steps.file.numberBeside(taken.union(replicas))
                steps.file.changed(Role.FOLLOWER)
            except RocketError as error:
                steps.lead()
                steps.serve()
                steps.deliver()
                raise RemoteSystemError(f"no slave has all messages: {error}") from error
            steps.master = ("", "")
            steps.become(Role.FOLLOWER)
        yield steps.told

    def _begun(self, role: Role) -> _Flag:
        """
        A change begins.

        @param role: the one that the broker must have now.
        @raise RemoteSystemError: if it has another one, or another change goes on.
        """
        if self.isGoingOn:
            raise RemoteSystemError("the role of this broker is being changed already")
        now = self._steps.state.role
        if now is Role.SUSPENDED:
            why = self._status().why or "it is starting, or stops"
            raise RemoteSystemError(f"this broker has no role: {why}")
        if now is not role:
            what = "the master" if now is Role.MASTER else "a slave"
            raise RemoteSystemError(f"this broker is {what} already")
        return _Flag(self)

    @inlineCallbacks
    def _present(self) -> Generator[Deferred[Any], Any, FoundMaster | None]:
        """
        The master that answers now.
        """
        if self._steps.master[0]:
            found: FoundMaster | None = yield self._search.ask(self._steps.master[0])
            if found is not None:
                return found
        found = yield self._search.find()
        return found

    @inlineCallbacks
    def _checkFurthest(self) -> Generator[Deferred[Any], Any, None]:
        """
        Whether no other slave that answers has more of the log.

        @raise RemoteSystemError: if one has: messages that were acknowledged may be there.
        """
        own = self._status()
        others: dict[str, HAStatus] = yield self._search.others()
        for address, each in others.items():
            if each.groupId == own.groupId and (each.epoch, each.end) > (own.epoch, own.end):
                raise RemoteSystemError(
                    f"{address} has more messages, up to {each.end} in epoch {each.epoch}, and"
                    f" this broker up to {own.end} in epoch {own.epoch}: promote {address}, or"
                    " use force"
                )

    @inlineCallbacks
    def _demote(self, address: str) -> Generator[Deferred[Any], Any, None]:
        request = requestCommand(ReplicationCode.HA_DEMOTE, HADemoteRequestHeader(True))
        try:
            yield self._steps.registration.ask(address, request, _HAND_OVER)
        except RocketError as error:
            self._log.error(
                "{address}, which was the master, does not follow: {error}",
                address=address,
                error=error,
            )


class _Flag:
    """
    Notes that a change goes on, for as long as it does.
    """

    def __init__(self, change: RoleChange) -> None:
        self._change = change

    def __enter__(self) -> None:
        self._change.isGoingOn = True

    def __exit__(self, *error: object) -> None:
        self._change.isGoingOn = False
