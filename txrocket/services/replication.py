# SPDX-License-Identifier: Apache-2.0
"""
The replication of a broker: its role, its links to slaves and to a master, and its tables on
both::

    MasterParts --> ReplicaServerFactory --+
    SlaveParts  --> MasterLink ------------+--> BrokerLinks --> BrokerSteps --> Replication
    JavaMasterTables ----------------------+        \\--> Durability
"""

from __future__ import annotations

import os
import uuid

from txrocket.broker.nameserverlink import shortBackoff
from txrocket.broker.parts import BrokerParts
from txrocket.broker.registration import NameServerRegistration
from txrocket.broker.replication.durability import Durability
from txrocket.broker.replication.interfaces import MasterParts, SlaveParts
from txrocket.broker.replication.master import ReplicaServerFactory
from txrocket.broker.replication.member.links import BrokerLinks
from txrocket.broker.replication.member.replicafile import ReplicaFile
from txrocket.broker.replication.member.service import Replication
from txrocket.broker.replication.member.steps import BrokerSteps
from txrocket.broker.replication.replicas import Replicas
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.broker.replication.slave import LinkState, MasterLink
from txrocket.broker.replication.tables.javamaster import JavaMasterTables
from txrocket.broker.replication.tables.sink import TableSink
from txrocket.broker.replication.tables.source import SharedTables, TableSource
from txrocket.broker.settings import BrokerRole, BrokerSettings
from txrocket.config import Configuration
from txrocket.remoting.settings import TLSSettings
from txrocket.server.environment import Environment
from txrocket.services.tables import tableAt
from txrocket.store.replica.epochs import EPOCH_FILE, EpochFile
from txrocket.store.settings import FlushDiskType

__all__ = ["buildReplication"]


def buildReplication(
    environment: Environment,
    configuration: Configuration,
    parts: BrokerParts,
    registration: NameServerRegistration,
) -> Replication:
    """
    Build the replication of a broker.
    """
    file = _replicaFile(environment, configuration, parts)
    epochs = _epochs(environment, configuration, parts)
    slaves = _slaves(environment, configuration, parts, file, epochs)
    sink = TableSink(
        parts.tables,
        parts.delivery,
        parts.core.store.replica,
        parts.core.store.removeTopic,
        file.groupRole,
    )
    own = SlaveParts(
        parts.core.store.replica,
        epochs,
        sink,
        file,
        parts.core.store.settings.mappedFileSizeCommitLog,
        parts.core.store.flusher.flush,
        # The link tells of them once the broker runs.
        lambda cut: replication.cutBack(cut),
        lambda offset, folder: replication.startedAnew(offset, folder),
    )
    settings = configuration[ReplicationSettings]
    link = MasterLink(
        environment.clock,
        environment.connect(configuration[TLSSettings].client()),
        own,
        settings,
        shortBackoff(environment.choose),
    )
    javaTables = JavaMasterTables(
        environment.clock, registration.ask, sink, lambda: link.state is LinkState.PLAIN
    )
    links = BrokerLinks(slaves, link, javaTables, sink, settings)
    role = parts.core.role
    durability = Durability(parts.core.store, links, lambda: role.isMaster and file.isSync)
    steps = BrokerSteps(parts, file, epochs, registration, links)
    replication = Replication(steps, durability)
    return replication


def _replicaFile(
    environment: Environment, configuration: Configuration, parts: BrokerParts
) -> ReplicaFile:
    own = configuration[BrokerSettings]
    return ReplicaFile(
        tableAt(environment, parts.core, "replica.json"),
        parts.core.identity.address,
        own.brokerRole,
        own.brokerId,
        lambda: uuid.UUID(int=environment.choose(1 << 128)).hex,
    )


def _epochs(
    environment: Environment, configuration: Configuration, parts: BrokerParts
) -> EpochFile:
    root = parts.core.store.settings.storePathRootDir
    path = configuration[ReplicationSettings].storePathEpochFile
    return EpochFile(environment.files, path or os.path.join(root, EPOCH_FILE))


def _slaves(
    environment: Environment,
    configuration: Configuration,
    parts: BrokerParts,
    file: ReplicaFile,
    epochs: EpochFile,
) -> ReplicaServerFactory:
    """
    The port for slaves.
    """
    store, settings = parts.core.store, configuration[ReplicationSettings]

    def role() -> BrokerRole:
        return BrokerRole.SYNC_MASTER if file.isSync else BrokerRole.ASYNC_MASTER

    shared = SharedTables(parts.tables, parts.delivery, role, lambda: store.replica.end)
    return ReplicaServerFactory(
        environment.clock,
        MasterParts(
            store.replica,
            epochs,
            TableSource(environment.clock, shared),
            file,
            store.settings.mappedFileSizeCommitLog,
        ),
        Replicas(
            environment.clock,
            store.replica,
            settings,
            store.settings.flushDiskType is FlushDiskType.SYNC_FLUSH,
        ),
        settings,
        configuration[TLSSettings].server(),
    )
