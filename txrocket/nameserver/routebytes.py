# SPDX-License-Identifier: Apache-2.0
"""
Routes as bytes, kept: clients ask for the same ones every thirty seconds each.

Nothing tells this of a change.  A route is a frozen value, put together of the
tables' own values in a microsecond, and what was kept counts only for a route that
is equal; as long as nothing changes it is made of the very same objects, and that
is seen at once.  To make bytes of it takes eight microseconds and more.
"""

from __future__ import annotations

from typing import Final

from txrocket.model import TopicRouteData
from txrocket.protocol.bodycodec import encodeBody

__all__ = ["RouteBytes"]

# What the route of one broker takes in memory beside its bytes, about.
_AROUND: Final = 500


class RouteBytes:
    """
    The bytes of routes.
    """

    def __init__(self, limit: int = 16 * 1024 * 1024) -> None:
        """
        @param limit: how much memory to use; beyond that all are forgotten and
            begun anew.
        """
        self._limit = limit
        self._size = 0
        self._kept: dict[tuple[str, bool], tuple[TopicRouteData, bytes]] = {}

    def __call__(self, topic: str, route: TopicRouteData, standard: bool) -> bytes:
        """
        The bytes of a topic's route.

        @param standard: as in L{encodeBody}.
        """
        kept = self._kept.get((topic, standard))
        if kept is not None and kept[0] == route:
            return kept[1]
        data = encodeBody(route, standard)
        self._size += len(data) + _AROUND
        if kept is not None:
            self._size -= len(kept[1]) + _AROUND
        if self._size > self._limit:
            self._kept.clear()
            self._size = len(data) + _AROUND
        self._kept[topic, standard] = route, data
        return data
