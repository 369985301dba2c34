# SPDX-License-Identifier: Apache-2.0
"""
Consumer groups whose members have different subscriptions, and so lose messages.

The broker logs when that begins, changes and ends.  Members that are restarted one by one
with new subscriptions differ for a while, and the operator sees that it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from twisted.logger import Logger

from txrocket.broker.clients.subscriptionviews import SubscriptionViews, View, describe
from txrocket.protocol.bodies.inspect import (
    DifferingGroup,
    DifferingGroupList,
    SubscriptionDifference,
)
from txrocket.protocol.fastjson import Gradual

__all__ = ["InconsistentSubscriptions", "differencesOf"]

# How many topics of a group are reported.
_TOPICS: Final = 20


class Group(Protocol):
    """
    A group of consumers.
    """

    views: SubscriptionViews

    def __len__(self) -> int:
        """
        How many members it has.
        """


class _Differing(NamedTuple):
    """
    @ivar since: when it began, in milliseconds.
    @ivar views: the different views when they were last logged.
    """

    since: int
    views: frozenset[View]


def differencesOf(group: Group) -> tuple[SubscriptionDifference, ...]:
    """
    The first differences between a group's members.
    """
    return tuple(group.views.differences()[:_TOPICS]) if group.views.differ else ()


class InconsistentSubscriptions:
    """
    The groups that differ.
    """

    _log = Logger()

    def __init__(self, groups: Mapping[str, Group], now: Callable[[], int]) -> None:
        """
        @param groups: all that have members.
        @param now: the time in milliseconds.
        """
        self._groups = groups
        self._now = now
        self._known: dict[str, _Differing] = {}

    def look(self, name: str) -> None:
        """
        Compare a group's members, because one has joined, left or changed its
        subscriptions.
        """
        group = self._groups.get(name)
        known = self._known.get(name)
        if group is None or not group.views.differ:
            if known is not None:
                del self._known[name]
                self._log.info(
                    "The members of consumer group {group} have the same subscriptions again",
                    group=name,
                )
            return
        views = group.views.distinct()
        if known is None or known.views != views:
            since = self._now() if known is None else known.since
            self._known[name] = _Differing(since, views)
            self._log.warn(
                "The members of consumer group {group} have different subscriptions and"
                " so lose messages: {differences}",
                group=name,
                differences=describe(group.views.differences()),
            )

    def first(self, most: int, only: str | None = None) -> Gradual[DifferingGroupList]:
        """
        The groups that differ, the longest first.

        @param most: how many of them.
        @param only: a group, or L{None} for all groups.
        """
        known = [
            name
            for name in self._known
            # A group may be gone before look() has seen it.
            if name in self._groups and only in (None, name)
        ]
        told = []
        for name in known[:most]:
            # To compare the views of one group takes long.
            yield
            if name in self._known and name in self._groups:
                told.append(self._told(name))
        return DifferingGroupList(tuple(told), len(known) - len(told))

    def _told(self, name: str) -> DifferingGroup:
        group = self._groups[name]
        differences = group.views.differences()
        return DifferingGroup(
            name,
            self._known[name].since,
            len(group),
            tuple(differences[:_TOPICS]),
            max(0, len(differences) - _TOPICS),
        )
