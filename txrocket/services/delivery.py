# SPDX-License-Identifier: Apache-2.0
"""
The parts of a broker that park messages and deliver them later: delay levels, timers,
transactions and retries.
"""

from __future__ import annotations

from txrocket.broker.delivery.delaylevels import DelayLevels
from txrocket.broker.delivery.reroute import Reroutes
from txrocket.broker.delivery.retries import Retries
from txrocket.broker.delivery.timers import Timers
from txrocket.broker.delivery.timerwheel import TimerWheel
from txrocket.broker.parts import Clients, Core, Delivery, Tables
from txrocket.broker.settings import DelaySettings, TransactionSettings
from txrocket.broker.tables.flushedtable import FlushedTable
from txrocket.broker.transaction.check import TransactionChecks
from txrocket.broker.transaction.halfmessages import HalfMessages
from txrocket.config import Configuration
from txrocket.server.environment import Environment
from txrocket.services.tables import tableAt
from txrocket.store.settings import delayLevels

__all__ = ["buildDelivery"]


def buildDelivery(
    environment: Environment,
    configuration: Configuration,
    core: Core,
    tables: Tables,
    clients: Clients,
) -> Delivery:
    """
    Build the parts that deliver later.
    """
    clock, store = environment.clock, core.store
    levels = DelayLevels(
        clock,
        store,
        tableAt(environment, core, "delayOffset.json"),
        environment.inThread,
        delayLevels(store.settings.messageDelayLevel),
        core.stats.put,
    )
    timers = Timers(
        clock,
        store,
        TimerWheel(store),
        FlushedTable(store, tableAt(environment, core, "timers.json"), environment.inThread),
        configuration.live(DelaySettings),
        core.stats.put,
    )
    halfMessages = HalfMessages(store, tables.topics, core.storeHost, environment.now)
    checks = TransactionChecks(
        clock,
        store,
        tables.offsets,
        halfMessages,
        clients.producers,
        configuration.live(TransactionSettings),
    )
    retries = Retries(tables.topics, tables.groups)
    reroutes = Reroutes(levels.reroute, timers.reroute)
    return Delivery(levels, timers, halfMessages, checks, retries, reroutes)
