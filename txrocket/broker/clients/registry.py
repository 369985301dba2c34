# SPDX-License-Identifier: Apache-2.0
"""
Clients that are members of groups, as long as they are connected and send heartbeats::

    group --> Members      client id --> Member <-- connection
                                         (client, heard)
    connection --> names of the groups that it is a member of

A member has an id and a connection, and in a group either identifies it.  A client that
reconnects replaces its former member, and the late end of the old connection removes
nothing.  As in Java, a connection that changes its id remains one member.  (Java lists an id
twice while the old connection is open, and then no client consumes the queues of the
second.)

A group is removed with its last member, and all about a connection is removed with it.
Limits bound the groups of one connection and the members of all groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

import attrs
from twisted.logger import Logger

from txrocket.errors import RemoteSystemError
from txrocket.protocol.bodies import Connection
from txrocket.protocol.fastjson import Gradual
from txrocket.remoting.protocol import RemotingProtocol

__all__ = [
    "SILENCE_LIMIT",
    "ClientChannelInfo",
    "GroupMember",
    "Later",
    "MemberLimits",
    "Members",
    "Registry",
    "atOnce",
]

#: How many milliseconds a member may be silent; Java's CHANNEL_EXPIRED_TIMEOUT.
SILENCE_LIMIT = 120_000

#: Runs the steps of some work, now or bit by bit.
Later: TypeAlias = Callable[[Iterator[None]], object]

# Members that are looked at, and groups that are left, in one slice.
_STEP: Final = 256
# How much of a client's id an error shows.
_SHOWN = 100


@attrs.frozen
class MemberLimits:
    """
    How many members a registry accepts.

    @ivar perClient: in how many groups a connection may be, C{maxGroupNumPerClient}.
    @ivar inAll: how many members all groups may have, C{maxGroupMemberNum}.
    """

    perClient: int = 2_000
    inAll: int = 200_000


def atOnce(steps: Iterator[None]) -> None:
    """
    Run all steps of some work now.
    """
    for _ in steps:
        pass


@attrs.frozen(eq=False)
class ClientChannelInfo:
    """
    A connected client, as its heartbeat describes it.

    @ivar clientId: its id, C{ip@instance}.
    @ivar peer: the connection of its heartbeat.
    @ivar language: the name of its language.
    @ivar version: its version's ordinal.
    """

    clientId: str
    peer: RemotingProtocol
    language: str
    version: int


@attrs.define(eq=False)
class GroupMember:
    """
    A client in a group.

    @ivar heard: when its last heartbeat came, in milliseconds.
    """

    client: ClientChannelInfo
    heard: int


class Members:
    """
    The members of one group.
    """

    def __init__(self) -> None:
        self.byId: dict[str, GroupMember] = {}
        self.byPeer: dict[RemotingProtocol, GroupMember] = {}

    def __len__(self) -> int:
        return len(self.byId)

    def remove(self, member: GroupMember) -> None:
        """
        Remove a member.
        """
        del self.byId[member.client.clientId]
        del self.byPeer[member.client.peer]

    def connections(self) -> frozenset[Connection]:
        """
        The ids and the addresses of the members.
        """
        clients = [member.client for member in self.byId.values()]
        return frozenset(
            Connection(each.clientId, each.peer.address, each.language, each.version)
            for each in clients
        )


_Group = TypeVar("_Group", bound=Members)


class Registry(Generic[_Group]):
    """
    Groups and their members: what producers and consumers have in common.
    """

    _log = Logger()

    def __init__(
        self,
        make: Callable[[], _Group],
        left: Callable[[str], None],
        limits: MemberLimits | None = None,
        later: Later = atOnce,
    ) -> None:
        """
        @param make: makes a group for its first member.
        @param left: called with each group that a member has left.
        @param later: runs work that need not be done at once.
        """
        self._limits = limits or MemberLimits()
        self._count = 0
        self._later = later
        self._make = make
        self._left = left
        self._groups: dict[str, _Group] = {}
        self._names: dict[RemotingProtocol, set[str]] = {}
        # The members with an id, in all groups, the latest last.
        self._byId: dict[str, dict[GroupMember, None]] = {}

    @property
    def groups(self) -> Mapping[str, _Group]:
        """
        The groups that have members, by their names.
        """
        return self._groups

    def join(self, name: str, client: ClientChannelInfo, now: int) -> tuple[_Group, bool]:
        """
        Add a client to a group, or renew its membership.

        @param client: its connection is open.
        @return: the group, and whether this id or this connection is new in it.
        @raise RemoteSystemError: if it is new and a limit is reached.
        """
        group = self._groups.get(name)
        known = None if group is None else group.byPeer.get(client.peer)
        if group is not None and known is not None and known.client.clientId == client.clientId:
            known.heard = now
            return group, False
        if known is None:
            self._checkRoom(name, client)
        if group is None:
            group = self._groups[name] = self._make()
        for former in (known, group.byId.get(client.clientId)):
            if former is not None:
                self._remove(name, group, former)
        member = GroupMember(client, now)
        group.byId[client.clientId] = group.byPeer[client.peer] = member
        self._byId.setdefault(client.clientId, {})[member] = None
        self._count += 1
        names = self._names.get(client.peer)
        if names is None:
            names = self._names[client.peer] = set()
            client.peer.whenLost().addCallback(self._lost, client.peer)
        names.add(name)
        return group, True

    def unregister(self, name: str, peer: RemotingProtocol) -> None:
        """
        Remove the client on a connection from a group.
        """
        group = self._groups.get(name)
        member = None if group is None else group.byPeer.get(peer)
        if group is not None and member is not None:
            self._remove(name, group, member)
            if not group:
                del self._groups[name]
            self._left(name)

    def find(self, clientId: str) -> RemotingProtocol | None:
        """
        The connection of a client in any group: the one on which it last joined.

        @return: L{None} if the client is not a member of any group.
        """
        members = self._byId.get(clientId)
        return next(reversed(members)).client.peer if members else None

    def expire(self, now: int) -> Gradual[None]:
        """
        Remove the members that have been silent for too long, and close their connections.
        """
        count = 0
        for name, group in list(self._groups.items()):
            for member in list(group.byId.values()):
                count += 1
                if count % _STEP == 0:
                    yield
                # It may have left, or sent a heartbeat, since the list was made.
                isMember = group.byPeer.get(member.client.peer) is member
                if isMember and now - member.heard > SILENCE_LIMIT:
                    self._expire(name, member, now)

    def _expire(self, name: str, member: GroupMember, now: int) -> None:
        client = member.client
        self._log.warn(
            "Closing the connection of {clientId} at {address}, which sent no heartbeat"
            " for group {group} for {silence} s",
            clientId=client.clientId,
            address=client.peer.address,
            group=name,
            silence=(now - member.heard) // 1000,
        )
        self.unregister(name, client.peer)
        client.peer.close()

    def _checkRoom(self, name: str, client: ClientChannelInfo) -> None:
        limits = self._limits
        count = len(self._names.get(client.peer, ()))
        why = ""
        if count >= limits.perClient:
            why = f"it is in {count} groups, and maxGroupNumPerClient is {limits.perClient}"
        elif self._count >= limits.inAll:
            why = f"all groups have {self._count} members, and maxGroupMemberNum is {limits.inAll}"
        if why:
            raise RemoteSystemError(
                f"client {client.clientId[:_SHOWN]} cannot join group {name}: {why}; set it"
                " higher in the broker's file and start the broker anew"
            )

    def _remove(self, name: str, group: _Group, member: GroupMember) -> None:
        clientId = member.client.clientId
        group.remove(member)
        self._count -= 1
        same = self._byId[clientId]
        del same[member]
        if not same:
            del self._byId[clientId]
        # The connection stays in the table until it is lost, so that each has only one
        # callback for its end.
        self._names[member.client.peer].discard(name)

    def _lost(self, reason: str, peer: RemotingProtocol) -> None:
        leaving = self._leaveAll(peer)
        # The first groups at once: few connections are in more groups.
        if next(leaving, False) is None:
            self._later(leaving)

    def _leaveAll(self, peer: RemotingProtocol) -> Iterator[None]:
        for count, name in enumerate(list(self._names[peer]), 1):
            self.unregister(name, peer)
            if count % _STEP == 0:
                yield
        del self._names[peer]
