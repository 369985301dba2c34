# SPDX-License-Identifier: Apache-2.0
"""
The registries of a broker's clients, and what they subscribe to.
"""

from __future__ import annotations

from twisted.internet.task import Cooperator

from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.clients.producers import Producers
from txrocket.broker.clients.queuelocks import QueueLocks
from txrocket.broker.clients.registry import MemberLimits
from txrocket.broker.parts import Clients, Tables
from txrocket.broker.pull.subscriptions import Subscriptions
from txrocket.broker.settings import ClientSettings, PullSettings
from txrocket.config import Configuration
from txrocket.filters.expressions import ExpressionTypes
from txrocket.server.environment import Environment

__all__ = ["buildClients"]


def buildClients(
    environment: Environment,
    configuration: Configuration,
    tables: Tables,
    slices: Cooperator,
    expressionTypes: ExpressionTypes,
) -> Clients:
    """
    Build the registries.

    @param slices: divides the time among work that takes long.
    """
    settings = configuration.live(ClientSettings)
    own = settings.now

    def notifies(group: str) -> bool:
        config = tables.groups.get(group)
        wanted = config is None or config.notifyConsumerIdsChangedEnable
        return wanted and settings.now.notifyConsumerIdsChangedEnable

    limits = MemberLimits(own.maxGroupNumPerClient, own.maxGroupMemberNum)
    consumers = Consumers(
        environment.clock,
        notifies,
        environment.now,
        limits,
        own.maxSubscriptionNumPerGroup,
        slices,
    )
    subscriptions = Subscriptions(
        tables.groups,
        consumers,
        expressionTypes,
        configuration.live(PullSettings),
        tables.filters.subscription,
    )
    return Clients(
        Producers(environment.timeOf, limits, slices.cooperate),
        consumers,
        QueueLocks(limit=own.maxQueueLockNum),
        subscriptions,
    )
