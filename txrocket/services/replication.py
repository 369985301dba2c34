# SPDX-License-Identifier: Apache-2.0
"""
The replication of a broker: its role, its links to slaves or to a master, and its tables on
both.
"""

from __future__ import annotations

import os
import uuid

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Factory

from txrocket.broker.parts import BrokerParts
from txrocket.broker.registration import NameServerRegistration
from txrocket.broker.replication.durability import Durability
from txrocket.broker.replication.member.replicafile import ReplicaFile
from txrocket.broker.replication.member.service import Replication
from txrocket.broker.replication.member.steps import BrokerSteps
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.broker.settings import BrokerSettings
from txrocket.config import Configuration
from txrocket.server.environment import Environment
from txrocket.services.tables import tableAt
from txrocket.store.replica.epochs import EPOCH_FILE, EpochFile

__all__ = ["buildReplication"]


class _NoLinks(Factory):
    isConnected = False

    def serve(self) -> None: ...
    def close(self) -> None: ...
    def follow(self, address: str, haAddress: str) -> None: ...
    def unlink(self) -> None: ...
    def replicated(self) -> Deferred[None]:
        return succeed(None)

    lastCut = None

    def replicaStatus(self):
        return ()

    def masterStatus(self, *a):
        return None


def buildReplication(
    environment: Environment,
    configuration: Configuration,
    parts: BrokerParts,
    registration: NameServerRegistration,
) -> Replication:
    """
    Build the replication of a broker.
    """
    own = configuration[BrokerSettings]
    store = parts.core.store
    path = configuration[ReplicationSettings].storePathEpochFile
    links = _NoLinks()
    return Replication(
        BrokerSteps(
            parts,
            ReplicaFile(
                tableAt(environment, parts.core, "replica.json"),
                parts.core.identity.address,
                own.brokerRole,
                own.brokerId,
                lambda: uuid.UUID(int=environment.choose(1 << 128)).hex,
            ),
            EpochFile(
                environment.files,
                path or os.path.join(store.settings.storePathRootDir, EPOCH_FILE),
            ),
            registration,
            links,
        ),
        Durability(store),
    )
