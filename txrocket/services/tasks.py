# SPDX-License-Identifier: Apache-2.0
"""
The periodic tasks of a broker.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.internet.task import Cooperator

from txrocket.broker.parts import BrokerParts
from txrocket.broker.service import PeriodicTask
from txrocket.broker.settings import DelaySettings, OffsetSettings, TransactionSettings
from txrocket.broker.stats import SAMPLE_PERIOD
from txrocket.broker.tables.consumerfilters import SAVE_PERIOD
from txrocket.config import Configuration
from txrocket.processors.cooperate import cooperate
from txrocket.protocol.fastjson import Gradual
from txrocket.server.environment import Environment

__all__ = ["MASTER_LOOK", "periodicTasks"]

#: Seconds until a slave without its master asks the name servers for it again.
MASTER_LOOK = 5.0

# Seconds between two looks for silent clients.
_SCAN_INTERVAL = 10.0

# Seconds between two looks for parked messages that no timer waits for.
_DELAY_LOOK = 10.0

# Seconds until the broker writes tables again that it could not write.
_SAVE_AGAIN = 10.0

# Seconds between two reads of the op messages of transactions.
_OP_LOOK = 1.0


def periodicTasks(
    environment: Environment,
    configuration: Configuration,
    parts: BrokerParts,
    slices: Cooperator,
) -> Sequence[PeriodicTask]:
    """
    All that a broker does every so often.

    @param slices: divides the time among work that takes long.
    """
    tables, clients, delivery = parts.tables, parts.clients, parts.delivery

    def expire() -> Gradual[None]:
        now = environment.elapsed()
        yield from clients.producers.expire(now)
        yield from clients.consumers.expire(now)
        yield from clients.locks.expire(now)

    def saveFilters() -> Deferred[None]:
        followed = cooperate(slices, tables.filters.follow())
        return followed.addCallback(lambda none: tables.filters.write())

    levels, timers, checks = delivery.delayLevels, delivery.timers, delivery.transactionChecks
    delay = configuration[DelaySettings]
    saveOffsets = configuration[OffsetSettings].flushConsumerOffsetInterval / 1000
    check = configuration[TransactionSettings].transactionCheckInterval / 1000
    return [
        PeriodicTask(
            "Sampling the statistics",
            SAMPLE_PERIOD,
            lambda: cooperate(slices, parts.core.stats.sample()),
        ),
        PeriodicTask(
            "Removing silent clients", _SCAN_INTERVAL, lambda: cooperate(slices, expire())
        ),
        PeriodicTask("Writing the consumers' offsets", saveOffsets, tables.offsets.save),
        PeriodicTask(
            "Writing the offsets of the delay levels",
            delay.flushDelayOffsetInterval / 1000,
            levels.save,
        ),
        PeriodicTask(
            "Writing the progress of the timers", delay.timerFlushIntervalMs / 1000, timers.save
        ),
        PeriodicTask("Looking for delayed messages", _DELAY_LOOK, levels.look),
        PeriodicTask("Writing the consumers' filters", SAVE_PERIOD, saveFilters),
        PeriodicTask("Writing changed topics", _SAVE_AGAIN, tables.topics.flush),
        PeriodicTask("Writing changed groups", _SAVE_AGAIN, tables.groups.flush),
        PeriodicTask("Reading the op messages of transactions", _OP_LOOK, checks.look),
        PeriodicTask("Checking undecided transactions", check, checks.check),
        PeriodicTask("Looking for messages of timers", _DELAY_LOOK, timers.look),
    ]
