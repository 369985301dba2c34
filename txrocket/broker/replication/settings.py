# SPDX-License-Identifier: Apache-2.0
"""
The settings of replication, by the names and with the defaults of RocketMQ's
C{MessageStoreConfig}.  Times are milliseconds and sizes bytes.
"""

from __future__ import annotations

from typing import Any

import attrs

from txrocket.config import atLeast, between
from txrocket.protocol.addresses import parseAddress
from txrocket.protocol.ha.plain import PIECE_LIMIT

__all__ = ["ReplicationSettings"]


def _address(section: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None:
        parseAddress(value)


def _hosts(section: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and not all(each.strip() for each in value.split(";")):
        raise ValueError("hosts such as 10.0.0.7;10.0.0.8 were expected")


@attrs.frozen
class ReplicationSettings:
    """
    The links between a master and its slaves.

    @ivar haListenPort: ignored, as in Java: the port is always C{listenPort} + 1.
    @ivar haMasterAddress: the master's address for slaves, C{host:port}; that of the
        registration's response if not set.
    @ivar haTransferBatchSize: the most bytes of the log in a frame.
    @ivar haSlaveFallbehindMax: a slave further behind does not count for SYNC_MASTER.
    @ivar slaveTimeout: how long a send waits for a slave.
    @ivar syncFromLastFile: whether a new slave begins with the master's last file, and not
        with its first.
    @ivar storePathEpochFile: the file of the epochs; C{epochFileCheckpoint} in
        C{storePathRootDir} if not set.
    @ivar haPlainAddresses: hosts with semicolons between them.  If set, slaves that speak
        RocketMQ 4.9.7's stream may connect from these hosts only (txrocket's own).
    """

    haListenPort: int = attrs.field(default=10912, validator=between(0, 65535))
    haMasterAddress: str | None = attrs.field(default=None, validator=_address)
    haSendHeartbeatInterval: int = attrs.field(default=5000, validator=atLeast(1))
    haHousekeepingInterval: int = attrs.field(default=20_000, validator=atLeast(1))
    # A slave of RocketMQ 4.9.7 never takes a longer frame: its buffer is full before.
    haTransferBatchSize: int = attrs.field(default=32 * 1024, validator=between(1, PIECE_LIMIT))
    haSlaveFallbehindMax: int = attrs.field(default=256 * 1024 * 1024, validator=atLeast(0))
    slaveTimeout: int = attrs.field(default=3000, validator=atLeast(0))
    syncFromLastFile: bool = False
    storePathEpochFile: str | None = None
    haPlainAddresses: str | None = attrs.field(default=None, validator=_hosts)

    @property
    def plainHosts(self) -> frozenset[str] | None:
        """
        The hosts of C{haPlainAddresses}; L{None} if any host may connect.
        """
        if self.haPlainAddresses is None:
            return None
        return frozenset(each.strip() for each in self.haPlainAddresses.split(";"))
