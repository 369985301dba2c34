# SPDX-License-Identifier: Apache-2.0
"""
A cache of encoded routes, because each client asks for the same routes every thirty
seconds.

The cache needs no invalidation.  The caller builds the route, a frozen value, from the
tables at each request, and the cached bytes are used only if the route is equal to
theirs.  While the tables do not change, both routes consist of the same objects, so
the comparison is cheap.
"""

from __future__ import annotations

from typing import Final

from txrocket.model import TopicRouteData
from txrocket.protocol.bodies.codec import encodeBody

__all__ = ["RouteCache"]

# The estimated memory of a route besides its bytes.
_AROUND: Final = 500


class RouteCache:
    """
    Encoded routes by topic.
    """

    def __init__(self, limit: int = 16 * 1024 * 1024) -> None:
        """
        @param limit: the maximum memory, in bytes.  The cache is cleared when it is
            exceeded.
        """
        self._limit = limit
        self._size = 0
        self._entries: dict[tuple[str, bool], tuple[TopicRouteData, bytes]] = {}

    def __call__(self, topic: str, route: TopicRouteData, standard: bool) -> bytes:
        """
        Encode a topic's route.

        @param standard: whether to write standard JSON; see L{encodeBody}.
        """
        entry = self._entries.get((topic, standard))
        if entry is not None and entry[0] == route:
            return entry[1]
        data = encodeBody(route, standard)
        self._size += len(data) + _AROUND
        if entry is not None:
            self._size -= len(entry[1]) + _AROUND
        if self._size > self._limit:
            self._entries.clear()
            self._size = len(data) + _AROUND
        self._entries[topic, standard] = route, data
        return data
