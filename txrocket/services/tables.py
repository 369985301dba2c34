# SPDX-License-Identifier: Apache-2.0
"""
The tables of a broker, each with its JSON file in the folder C{config} of the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from twisted.internet.task import Cooperator

from txrocket.broker.parts import Core, Tables
from txrocket.broker.settings import (
    FilterSettings,
    GroupSettings,
    OffsetSettings,
    PullSettings,
    TopicSettings,
)
from txrocket.broker.tables.consumerfilters import ConsumerFilters
from txrocket.broker.tables.consumeroffsets import ConsumerOffsets
from txrocket.broker.tables.groups import Groups
from txrocket.broker.tables.removal import Removal
from txrocket.broker.tables.savedtable import TableFile
from txrocket.broker.tables.topics import Topics
from txrocket.config import Configuration
from txrocket.filters.expressions import ExpressionTypes
from txrocket.model import SubscriptionData
from txrocket.server.environment import Environment
from txrocket.store.jsontable import Table

__all__ = ["buildTables", "tableAt"]


def tableAt(environment: Environment, core: Core, name: str) -> Table:
    """
    A JSON file in the folder of the tables.
    """
    folder = core.store.settings.storePathRootDir
    return Table(environment.files, os.path.join(folder, "config", name))


def buildTables(
    environment: Environment,
    configuration: Configuration,
    core: Core,
    slices: Cooperator,
    expressionTypes: ExpressionTypes,
    connected: Callable[[], Iterable[tuple[str, Iterable[SubscriptionData]]]],
) -> Tables:
    """
    Build the tables.

    @param slices: divides the time for encoding many members.
    @param connected: the subscriptions of the connected consumers, by group.
    """

    def file(name: str) -> TableFile:
        return TableFile(tableAt(environment, core, name), environment.inThread, slices)

    names = core.identity.cluster, core.identity.name
    topics = Topics(file("topics.json"), names, configuration.live(TopicSettings), environment.now)
    groups = Groups(
        file("subscriptionGroup.json"), configuration.live(GroupSettings), environment.now
    )
    limit = configuration[OffsetSettings].maxConsumerOffsetNum
    offsets = ConsumerOffsets(file("consumerOffset.json"), limit)
    filters = ConsumerFilters(
        file("consumerFilter.json"),
        connected,
        expressionTypes,
        configuration[FilterSettings],
        configuration.live(PullSettings),
        environment.now,
    )
    removal = Removal(topics, groups, offsets, core.store, core.stats)
    return Tables(topics, groups, offsets, filters, removal)
