# SPDX-License-Identifier: Apache-2.0
"""
What a master tells its slaves of its tables, as JSON::

    {"table":"topics","begin":true,"end":true,"version":{...},
     "put":{"T":{...}},"remove":["U"]}                            topics, groups
    {"table":"offsets","after":123456,"put":{"T@G":{"0":7}}}      offsets, filters
    {"table":"delay","after":123456,"value":{...}}                delay, timers, broker

A whole table comes in one or more payloads: C{begin} is in the first, C{end} in the last, and
what none of them has is not in the master's table.  Later payloads have what has changed.

What has C{after} tells of messages: how far they were delivered, consumed or decided.  It
counts only once the slave's log has come there, because a slave that is promoted before that
would pass over messages.
"""

from __future__ import annotations

from typing import Any

import msgspec

from txrocket.broker.delivery.timers import TimerProgress
from txrocket.broker.settings import BrokerRole
from txrocket.broker.tables.consumerfilters import TopicFilters
from txrocket.model import DataVersion, SubscriptionGroupConfig, TopicConfig
from txrocket.protocol.bodies import DelayOffsetSerializeWrapper
from txrocket.protocol.bodies.codec import encodeBody

__all__ = [
    "BROKER",
    "DELAY",
    "FILTERS",
    "GROUPS",
    "OFFSETS",
    "TIMERS",
    "TOPICS",
    "BrokerPayload",
    "DelayPayload",
    "FilterPayload",
    "GroupPayload",
    "OffsetPayload",
    "TablePayload",
    "TimerPayload",
    "TopicPayload",
    "membersPayload",
    "valuePayload",
]

TOPICS, GROUPS, OFFSETS, FILTERS = "topics", "groups", "offsets", "filters"
DELAY, TIMERS, BROKER = "delay", "timers", "broker"


class TablePayload(msgspec.Struct, frozen=True):
    """
    What all payloads have.
    """

    table: str
    begin: bool = False
    end: bool = False
    after: int = 0
    remove: tuple[str, ...] = ()


class TopicPayload(TablePayload, frozen=True):
    """
    Topics.
    """

    version: DataVersion = DataVersion()
    put: dict[str, TopicConfig] = {}


class GroupPayload(TablePayload, frozen=True):
    """
    Consumer groups.
    """

    version: DataVersion = DataVersion()
    put: dict[str, SubscriptionGroupConfig] = {}


class OffsetPayload(TablePayload, frozen=True):
    """
    Offsets by C{topic@group} and queue.
    """

    put: dict[str, dict[int, int]] = {}


class FilterPayload(TablePayload, frozen=True):
    """
    Filters by topic.
    """

    put: dict[str, TopicFilters] = {}


class DelayPayload(TablePayload, frozen=True):
    """
    How far each delay level is delivered.
    """

    value: DelayOffsetSerializeWrapper = DelayOffsetSerializeWrapper({})


class TimerPayload(TablePayload, frozen=True, kw_only=True):
    """
    How far the timers are delivered.
    """

    value: TimerProgress


class BrokerPayload(TablePayload, frozen=True, kw_only=True):
    """
    The master's role.
    """

    value: BrokerRole


def membersPayload(
    table: str, put: list[bytes], removed: list[str], after: int, version: bytes | None, marks: str
) -> bytes:
    """
    A payload of members.

    @param put: each a name and a value as JSON.
    @param version: of the table, as JSON, if it has one.
    @param marks: C{begin}, C{end}, both with a space between them, or nothing.
    """
    parts = [b'"table":"%s"' % table.encode()]
    parts += [b'"%s":true' % each.encode() for each in marks.split()]
    if after:
        parts.append(b'"after":%d' % after)
    if version is not None:
        parts.append(b'"version":' + version)
    if put:
        parts.append(b'"put":{%s}' % b",".join(put))
    if removed:
        parts.append(b'"remove":' + encodeBody(removed))
    return b"{%s}" % b",".join(parts)


def valuePayload(table: str, value: Any, after: int) -> bytes:
    """
    A payload of one value.
    """
    return b'{"table":"%s","after":%d,"value":%s}' % (table.encode(), after, encodeBody(value))
