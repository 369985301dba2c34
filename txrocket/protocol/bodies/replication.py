# SPDX-License-Identifier: Apache-2.0
"""
The bodies and headers of txrocket's own requests about roles,
L{ReplicationCode<txrocket.protocol.codes.ReplicationCode>}::

    HA_STATUS    --> HAStatus
    HA_PROMOTE   HAPromoteRequestHeader
    HA_DEMOTE    HADemoteRequestHeader

All bodies are JSON.  Times are milliseconds, and lengths of the log bytes.
"""

from __future__ import annotations

import msgspec

from txrocket.model import Int32, Int64
from txrocket.protocol.headers.fields import Header

__all__ = [
    "HADemoteRequestHeader",
    "HAPromoteRequestHeader",
    "HAStatus",
    "LastCut",
    "MasterStatus",
    "ReplicaStatus",
]


class HAPromoteRequestHeader(Header):
    """
    HA_PROMOTE.

    @ivar force: whether to become a master although the present one answers.
    """

    force: bool = False


class HADemoteRequestHeader(Header):
    """
    HA_DEMOTE.

    @ivar force: whether to give the role up although no slave has all messages.
    """

    force: bool = False


class ReplicaStatus(msgspec.Struct, frozen=True):
    """
    A slave, as its master knows it.

    @ivar brokerId: -1 if the slave has not told it: RocketMQ 4.9.7's does not.
    @ivar plain: whether it speaks the stream of RocketMQ 4.9.7.
    @ivar written: where its log ends.
    @ivar flushed: up to where its log is on the disk; of a plain slave that is not known, and
        the same.
    @ivar lag: how many bytes it is behind.
    @ivar lagMillis: for how long it has been behind.
    @ivar inSync: whether a message may wait for it.
    """

    address: str
    brokerId: Int64
    plain: bool
    written: Int64
    flushed: Int64
    lag: Int64
    lagMillis: Int64
    inSync: bool


class LastCut(msgspec.Struct, frozen=True):
    """
    What a slave has cut last, because its master did not have it.

    @ivar offset: where the log ended afterwards.
    @ivar size: how many bytes were cut.
    @ivar path: the file that keeps them.
    """

    offset: Int64
    size: Int64
    records: Int64
    path: str


class MasterStatus(msgspec.Struct, frozen=True):
    """
    A master, as its slave knows it.

    @ivar address: where clients reach it; empty if that is not known.
    @ivar haAddress: where slaves reach it.
    @ivar state: what the link to it does.
    @ivar plain: whether the link speaks the stream of RocketMQ 4.9.7.
    @ivar lag: how many bytes the slave is behind.
    """

    address: str
    haAddress: str
    state: str
    plain: bool
    lag: Int64


class HAStatus(msgspec.Struct, frozen=True):
    """
    The response to HA_STATUS.

    @ivar role: MASTER, FOLLOWER or SUSPENDED.
    @ivar brokerRole: SYNC_MASTER or ASYNC_MASTER, for a master; SLAVE otherwise.
    @ivar replicaId: the broker's number while it is a slave; 0 if it has none.
    @ivar groupId: empty if the broker has not joined a group.
    @ivar epoch: the newest epoch of its log; 0 if it has none.
    @ivar first: where its log begins.
    @ivar end: where its log ends.
    @ivar flushed: up to where its log is on the disk.
    @ivar why: why the broker is suspended, if it is.
    @ivar master: of a slave.
    @ivar replicas: of a master.
    @ivar lastCut: of this start of the process.
    """

    role: str
    brokerRole: str
    brokerName: str
    brokerId: Int64
    replicaId: Int64
    groupId: str
    epoch: Int32
    first: Int64
    end: Int64
    flushed: Int64
    why: str = ""
    master: MasterStatus | None = None
    replicas: tuple[ReplicaStatus, ...] = ()
    lastCut: LastCut | None = None
