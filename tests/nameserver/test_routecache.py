# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.nameserver.routecache}.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.model import BrokerData, QueueData, TopicRouteData
from txrocket.nameserver import routecache
from txrocket.nameserver.routecache import RouteCache
from txrocket.protocol.bodies.codec import encodeBody


def route(queues: int = 4, order: str | None = None) -> TopicRouteData:
    """
    Create a new route.
    """
    return TopicRouteData(
        order, (QueueData("a", queues, queues, 6),), (BrokerData("c", "a", {0: "h:1"}),)
    )


class RouteCacheTests(SynchronousTestCase):
    """
    The cache of encoded routes.
    """

    def setUp(self) -> None:
        self.encoded = 0

        def counting(body: object, standard: bool) -> bytes:
            self.encoded += 1
            return encodeBody(body, standard)

        self.patch(routecache, "encodeBody", counting)

    def test_equalRouteIsNotEncodedAgain(self) -> None:
        """
        An equal route is not encoded again.
        """
        encode = RouteCache()
        self.assertIs(encode("T", route(), True), encode("T", route(), True))
        self.assertEqual(self.encoded, 1)

    def test_changedRouteIsEncoded(self) -> None:
        """
        A route with any difference is encoded, and so is the other format.
        """
        encode = RouteCache()
        for each in (route(), route(8), route(8, "a:8")):
            for standard in (True, False):
                self.assertEqual(encode("T", each, standard), encodeBody(each, standard))
        self.assertEqual(self.encoded, 6)

    @given(
        st.integers(0, 4000),
        st.lists(st.tuples(st.sampled_from("TUVWX"), st.integers(1, 3), st.booleans())),
    )
    def test_cacheStaysWithinLimit(self, limit: int, asked: list[tuple[str, int, bool]]) -> None:
        """
        With any routes in any order, the bytes are those of the route, and the cache does
        not exceed its limit by more than the last route.
        """
        encode = RouteCache(limit)
        for topic, queues, standard in asked:
            expected = encodeBody(route(queues), standard)
            self.assertEqual(encode(topic, route(queues), standard), expected)
            sizes = [len(data) + 500 for _, data in encode._entries.values()]
            self.assertEqual(encode._size, sum(sizes))
            self.assertTrue(sum(sizes) <= limit or len(sizes) == 1)
