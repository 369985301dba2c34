# SPDX-License-Identifier: Apache-2.0
"""
Requests of administrators about the broker's role.  RocketMQ has none of them::

    HA_STATUS     the role, the epoch, the slaves and how far they are behind
    HA_PROMOTE    a slave becomes the master
    HA_DEMOTE     a master becomes a slave
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.broker.replication.member.service import Replication
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.bodies.replication import HADemoteRequestHeader, HAPromoteRequestHeader
from txrocket.protocol.codes import ReplicationCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["RoleProcessor"]


class RoleProcessor:
    """
    Serves administrators that look at the broker's role or change it.
    """

    _log = Logger()

    def __init__(self, replication: Replication) -> None:
        self._replication = replication

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            ReplicationCode.HA_STATUS: self.status,
            ReplicationCode.HA_PROMOTE: self.promote,
            ReplicationCode.HA_DEMOTE: self.demote,
        }

    def status(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The role and all that belongs to it.
        """
        return responseCommand(body=encodeBody(self._replication.status()))

    def promote(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        Become the master.

        @return: a Deferred that fails with L{RemoteSystemError
            <txrocket.errors.RemoteSystemError>} if the broker may not.
        """
        force = request.decodeHeader(HAPromoteRequestHeader).force
        self._log.warn(
            "{address} promotes this broker{how}",
            address=peer.address,
            how=" by force" if force else "",
        )
        return self._replication.promote(force=force).addCallback(lambda none: responseCommand())

    def demote(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        Become a slave.

        @return: a Deferred that fails with L{RemoteSystemError
            <txrocket.errors.RemoteSystemError>} if the broker may not.
        """
        force = request.decodeHeader(HADemoteRequestHeader).force
        self._log.warn(
            "{address} demotes this broker{how}",
            address=peer.address,
            how=" by force" if force else "",
        )
        return self._replication.demote(force=force).addCallback(lambda none: responseCommand())
