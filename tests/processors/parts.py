# SPDX-License-Identifier: Apache-2.0
"""
The parts of a broker around a test's own core, as L{txrocket.services} builds them.
"""

from __future__ import annotations

from typing import Any

from txrocket.broker.parts import BrokerParts, Core
from txrocket.broker.registration import Identity
from txrocket.config import Configuration
from txrocket.filters.expressions import ExpressionTypes
from txrocket.processors.cooperate import Slices
from txrocket.remoting.executors import InlineExecutor
from txrocket.server.environment import Environment
from txrocket.services import BROKER_SECTIONS
from txrocket.services.clients import buildClients
from txrocket.services.delivery import buildDelivery
from txrocket.services.tables import buildTables
from txrocket.store.flush.flusher import InThread


def identityOf(name: str, cluster: str, address: str = "192.0.2.9:10911") -> Identity:
    """
    The identity of a broker.
    """
    return Identity(cluster, name, address, address)


def settingsOf(root: str, **given: str) -> Configuration:
    """
    The configuration of a broker.

    @param root: its folder.
    """
    return Configuration.read(BROKER_SECTIONS, (), None, {"storePathRootDir": root, **given})


def environmentOf(clock: Any, inThread: InThread, files: Any, choose: Any) -> Environment:
    """
    An environment that cannot listen or connect.
    """
    nowhere: Any = None
    return Environment(
        clock=clock,
        wall=clock.seconds,
        inThread=inThread,
        listen=nowhere,
        connect=nowhere,
        choose=choose,
        files=files,
        executor=lambda name, size, queueLimit: InlineExecutor(),
    )


def partsAround(
    core: Core,
    environment: Environment,
    configuration: Configuration,
    slices: Slices,
    types: ExpressionTypes,
) -> BrokerParts:
    """
    Tables, clients and delivery around a core.
    """
    tables = buildTables(
        environment, configuration, core, slices, types, lambda: clients.consumers.subscriptions()
    )
    clients = buildClients(environment, configuration, tables, slices, types)
    delivery = buildDelivery(environment, configuration, core, tables, clients)
    return BrokerParts(core, tables, clients, delivery)
