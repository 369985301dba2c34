# SPDX-License-Identifier: Apache-2.0
"""
The parts of a broker, grouped as its processors use them.

C{txrocket.services} builds each group; a processor takes the group that it needs, rather
than six of its members::

    Core      remoting, store, long polls, statistics, role
    Tables    topics, groups, offsets, filters, and what removes from all of them
    Clients   producers, consumers, their queue locks and subscriptions
    Delivery  delay levels, timers, transactions, retries
"""

from __future__ import annotations

import attrs

from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.clients.producers import Producers
from txrocket.broker.clients.queuelocks import QueueLocks
from txrocket.broker.delivery.delaylevels import DelayLevels
from txrocket.broker.delivery.reroute import Reroutes
from txrocket.broker.delivery.retries import Retries
from txrocket.broker.delivery.timers import Timers
from txrocket.broker.pull.longpoll import LongPoll
from txrocket.broker.pull.subscriptions import Subscriptions
from txrocket.broker.registration import Identity
from txrocket.broker.replication.role import BrokerRoleState
from txrocket.broker.stats import Stats
from txrocket.broker.tables.consumerfilters import ConsumerFilters
from txrocket.broker.tables.consumeroffsets import ConsumerOffsets
from txrocket.broker.tables.groups import Groups
from txrocket.broker.tables.removal import Removal
from txrocket.broker.tables.topics import Topics
from txrocket.broker.transaction.check import TransactionChecks
from txrocket.broker.transaction.halfmessages import HalfMessages
from txrocket.remoting.remoting import Remoting
from txrocket.store.messagestore import MessageStore

__all__ = ["BrokerParts", "Clients", "Core", "Delivery", "Tables"]


@attrs.frozen
class Core:
    """
    The parts that all others use.

    @ivar storeHost: the broker's address, as records hold it.
    @ivar role: whether the broker leads or follows.
    """

    identity: Identity
    storeHost: bytes
    remoting: Remoting
    store: MessageStore
    longPoll: LongPoll
    stats: Stats
    role: BrokerRoleState


@attrs.frozen
class Tables:
    """
    The tables that the broker writes to JSON files.
    """

    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    filters: ConsumerFilters
    removal: Removal


@attrs.frozen
class Clients:
    """
    The connected clients.
    """

    producers: Producers
    consumers: Consumers
    locks: QueueLocks
    subscriptions: Subscriptions


@attrs.frozen
class Delivery:
    """
    The parts that append a message to another topic than its own, or do so later.

    @ivar reroutes: decides where a new message is parked.
    """

    delayLevels: DelayLevels
    timers: Timers
    halfMessages: HalfMessages
    transactionChecks: TransactionChecks
    retries: Retries
    reroutes: Reroutes

    def oldestNeeded(self) -> int:
        """
        Where in the log the first message lies that is parked and not delivered.
        """
        return min(self.delayLevels.needed(), self.timers.needed())


@attrs.frozen
class BrokerParts:
    """
    All parts of one broker.
    """

    core: Core
    tables: Tables
    clients: Clients
    delivery: Delivery
