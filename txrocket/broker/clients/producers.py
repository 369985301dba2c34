# SPDX-License-Identifier: Apache-2.0
"""
The producers that are connected to a broker, by group; Java's C{ProducerManager}.

A producer sends a heartbeat every 30 seconds.  It leaves a group when it says so, when its
connection ends, or when the broker has not heard from it for 120 seconds.  The broker uses
its connection to ask about a transaction, and to bring it a reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txrocket.broker.clients.registry import (
    ClientChannelInfo,
    GroupMember,
    Later,
    MemberLimits,
    Members,
    Registry,
    atOnce,
)
from txrocket.protocol.bodies import ProducerConnection, ProducerInfo, ProducerTableInfo
from txrocket.protocol.fastjson import Gradual
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["Producers"]


class _ProducerGroup(Members):
    """
    The producers of one group.

    @ivar turn: how often one of them was chosen.
    """

    turn = 0


# Groups that are listed in one slice.
_STEP: Final = 64


class Producers(Registry[_ProducerGroup]):
    """
    The connected producers.
    """

    def __init__(
        self,
        timeOf: Callable[[int], int] = lambda now: now,
        limits: MemberLimits | None = None,
        later: Later = atOnce,
    ) -> None:
        """
        @param timeOf: the time of day for a C{now} of L{register}, which is that of a
            monotonic clock.
        @param later: as in L{Registry}.
        """
        super().__init__(_ProducerGroup, lambda group: None, limits, later)
        self._timeOf = timeOf

    def register(self, group: str, client: ClientChannelInfo, now: int) -> None:
        """
        Add a client to a producer group, or renew its membership.

        @param now: in milliseconds.
        @raise RemoteSystemError: if it is new and a limit is reached.
        """
        self.join(group, client, now)

    def choose(self, group: str) -> RemotingProtocol | None:
        """
        The connection of one producer of a group, each in turn, to check a transaction.

        @return: L{None} if no producer of the group is connected.
        """
        found = self.groups.get(group)
        # A connection that is being closed stays in the table until it is lost.
        peers = [each for each in found.byPeer if each.connected] if found else []
        if found is None or not peers:
            return None
        found.turn += 1
        return peers[found.turn % len(peers)]

    def connection(self, group: str) -> ProducerConnection | None:
        """
        The producers of a group; L{None} if none is connected.
        """
        found = self.groups.get(group)
        return None if found is None else ProducerConnection(found.connections())

    def table(self) -> Gradual[ProducerTableInfo]:
        """
        All producers.
        """
        groups = list(self.groups.items())
        table = {}
        for count, (name, group) in enumerate(groups, 1):
            table[name] = tuple(map(self._info, group.byId.values()))
            if count % _STEP == 0:
                yield
        return ProducerTableInfo(table)

    def _info(self, member: GroupMember) -> ProducerInfo:
        client = member.client
        # As Java prints an address.
        address = f"/{client.peer.address}"
        heard = self._timeOf(member.heard)
        return ProducerInfo(client.clientId, address, client.language, client.version, heard)
