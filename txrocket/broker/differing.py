# SPDX-License-Identifier: Apache-2.0
"""
Consumer groups whose members have different subscriptions, and lose messages by that.

It is logged once when it begins, once for each change, and once when it ends: members
that are restarted with new subscriptions one by one differ for a while, and an operator
wants to see that it was only that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from twisted.logger import Logger

from txrocket.broker.views import View, Views, describe
from txrocket.protocol.inspection import (
    DifferingGroup,
    DifferingGroupList,
    SubscriptionDifference,
)
from txrocket.protocol.javajson import Gradual

__all__ = ["DifferingGroups", "differencesOf"]

# How many topics of a group are told of.
_TOPICS: Final = 20


class Group(Protocol):
    """
    A group of consumers.
    """

    views: Views

    def __len__(self) -> int:
        """
        How many members it has.
        """


class _Differing(NamedTuple):
    """
    @ivar since: when it began, in milliseconds.
    @ivar views: what the members said when it was last logged.
    """

    since: int
    views: frozenset[View]


def differencesOf(group: Group) -> tuple[SubscriptionDifference, ...]:
    """
    What a group's members do not agree about, the first of it.
    """
    return tuple(group.views.differences()[:_TOPICS]) if group.views.differ else ()


class DifferingGroups:
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
        See whether a group's members want the same, now that one has come, gone or
        changed its mind.
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
                " lose messages by that: {differences}",
                group=name,
                differences=describe(group.views.differences()),
            )

    def first(self, most: int, only: str | None = None) -> Gradual[DifferingGroupList]:
        """
        The groups that differ, those first that have for the longest.

        @param most: how many of them.
        @param only: the one group that is meant, if not all are.
        """
        known = [
            name
            for name in self._known
            # One may be gone of which that is not seen yet.
            if name in self._groups and only in (None, name)
        ]
        told = []
        for name in known[:most]:
            # To compare the views of one group takes milliseconds.
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
