# SPDX-License-Identifier: Apache-2.0
"""
What a broker knows of itself as a member of its group: C{config/replica.json}::

    {"groupId":"6f0c...","replicaId":1,"role":"MASTER","configured":"SLAVE","groupRole":...}

The group's id is made by its first master, and every slave takes it over.  So a slave with
messages of another group is noticed, even if its names are the same.

The role is there if an operator has changed it while the broker ran.  A start goes on with
it, because an old master that comes back must not lead again.  It counts until brokerRole in
the broker's file is another one than at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from txrocket.broker.replication.role import Role
from txrocket.broker.settings import BrokerRole
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.store.jsontable import Table

__all__ = ["ReplicaFile"]


class _Replica(msgspec.Struct, frozen=True):
    """
    The file.
    """

    groupId: str = ""
    replicaId: int = 0
    role: Role | None = None
    configured: BrokerRole | None = None
    groupRole: BrokerRole | None = None
    change: int = 0
    members: tuple[int, ...] = ()


class ReplicaFile:
    """
    A broker as a member of its group, and its file.  Each change is on the disk when the
    method returns: it has a few hundred bytes, and comes with a change of roles.

    @ivar address: where clients reach this broker.
    @ivar incarnation: a random text of this start of the process.
    """

    def __init__(
        self,
        table: Table,
        address: str,
        configured: BrokerRole,
        brokerId: int,
        makeId: Callable[[], str],
    ) -> None:
        """
        @param configured: the role in the broker's settings.
        @param brokerId: a slave's number in the broker's settings; 0 for a master.
        @param makeId: makes a random text.
        """
        self.address = address
        self.incarnation = makeId()
        self._table = table
        self._configured = configured
        self._brokerId = brokerId
        self._makeId = makeId
        self._now = _Replica()

    def load(self) -> None:
        """
        Read the file.  If it is damaged, read the older one, which is of the same group; if
        both are, the settings decide again, and a master makes a new group.
        """

        def mended(older: _Replica | None, spoiled: Sequence[bytes]) -> _Replica | None:
            return older

        found = self._table.load(lambda data: decodeBody(_Replica, data), mended)
        self._now = found or _Replica()
        if self._table.damaged:
            # The damaged file must not be found again.
            self._change()

    @property
    def groupId(self) -> str:
        """
        The id of the group; empty if the broker has not joined one.
        """
        return self._now.groupId

    @property
    def replicaId(self) -> int:
        """
        The number of this broker while it is a slave; 0 if it has none.
        """
        return self._brokerId or self._now.replicaId

    @property
    def role(self) -> Role:
        """
        The role that the broker had last, or is to have.
        """
        now = self._now
        if now.role is not None and now.configured is self._configured:
            return now.role
        return Role.FOLLOWER if self._configured is BrokerRole.SLAVE else Role.MASTER

    @property
    def isSync(self) -> bool:
        """
        Whether messages wait for a slave while this broker is the master.
        """
        if self._configured is BrokerRole.SLAVE:
            # As its master was.
            return self._now.groupRole is BrokerRole.SYNC_MASTER
        return self._configured is BrokerRole.SYNC_MASTER

    def makeGroup(self) -> None:
        """
        Make the id of the group, unless there is one.

        @raise StoreError: if it cannot be written.
        """
        if not self._now.groupId:
            self._change(groupId=self._makeId())

    def join(self, groupId: str) -> None:
        """
        Become a member of a group.

        @raise StoreError: if it cannot be written.
        """
        self._change(groupId=groupId)

    def number(self, replicaId: int) -> None:
        """
        Have a number as a slave.

        @raise StoreError: if it cannot be written.
        """
        self._change(replicaId=replicaId)

    def numberBeside(self, taken: frozenset[int]) -> None:
        """
        Have a number as a slave, unless there is one: the lowest that no other slave has.

        @param taken: the numbers of other slaves.
        @raise StoreError: if it cannot be written.
        """
        if not self.replicaId:
            # A slave that does not run now keeps its number.
            others = taken.union(self.members)
            numbers = range(1, len(others) + 2)
            self.number(next(each for each in numbers if each not in others))

    @property
    def members(self) -> Sequence[int]:
        """
        The numbers of all slaves that have followed this broker.
        """
        return self._now.members

    @property
    def hasCopies(self) -> bool:
        """
        Whether another broker has the log, or a part of it: a slave, or the master.
        """
        return bool(self._now.members) or self.replicaId > 0

    def met(self, replicaId: int) -> None:
        """
        A slave with this number follows.

        @raise StoreError: if it cannot be written.
        """
        if replicaId not in self._now.members:
            self._change(members=(*self._now.members, replicaId))

    def groupRole(self, role: BrokerRole) -> None:
        """
        The master has this role.
        """
        if role is not self._now.groupRole:
            self._change(groupRole=role)

    def changed(self, role: Role) -> None:
        """
        An operator has another role in mind than the settings.

        @raise StoreError: if it cannot be written.
        """
        self._change(role=role, configured=self._configured)

    def _change(self, **changes: object) -> None:
        # Twice, so that the older file has the same group.
        for _ in range(2 if "groupId" in changes else 1):
            changed = replace(self._now, **changes, change=self._now.change + 1)
            self._table.save(encodeBody(changed))
            self._now = changed
