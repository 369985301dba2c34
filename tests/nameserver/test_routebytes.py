# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.nameserver.routebytes}.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.model import BrokerData, QueueData, TopicRouteData
from txrocket.nameserver import routebytes
from txrocket.nameserver.routebytes import RouteBytes
from txrocket.protocol.bodycodec import encodeBody


def route(queues: int = 4, order: str | None = None) -> TopicRouteData:
    """
    A route, made anew.
    """
    return TopicRouteData(
        order, (QueueData("a", queues, queues, 6),), (BrokerData("c", "a", {0: "h:1"}),)
    )


class RouteBytesTests(SynchronousTestCase):
    """
    Bytes that are kept.
    """

    def setUp(self) -> None:
        self.encoded = 0

        def counting(body: object, standard: bool) -> bytes:
            self.encoded += 1
            return encodeBody(body, standard)

        self.patch(routebytes, "encodeBody", counting)

    def test_kept(self) -> None:
        """
        An equal route is not encoded again.
        """
        encode = RouteBytes()
        self.assertIs(encode("T", route(), True), encode("T", route(), True))
        self.assertEqual(self.encoded, 1)

    def test_changed(self) -> None:
        """
        A route that differs in anything is encoded, and so is the other form.
        """
        encode = RouteBytes()
        for each in (route(), route(8), route(8, "a:8")):
            for standard in (True, False):
                self.assertEqual(encode("T", each, standard), encodeBody(each, standard))
        self.assertEqual(self.encoded, 6)

    @given(
        st.integers(0, 4000),
        st.lists(st.tuples(st.sampled_from("TUVWX"), st.integers(1, 3), st.booleans())),
    )
    def test_bounded(self, limit: int, asked: list[tuple[str, int, bool]]) -> None:
        """
        Whatever is asked for in whatever order, the bytes are those of the route,
        and no more is kept than allowed, but for the last one.
        """
        encode = RouteBytes(limit)
        for topic, queues, standard in asked:
            expected = encodeBody(route(queues), standard)
            self.assertEqual(encode(topic, route(queues), standard), expected)
            sizes = [len(data) + 500 for _, data in encode._kept.values()]
            self.assertEqual(encode._size, sum(sizes))
            self.assertTrue(sum(sizes) <= limit or len(sizes) == 1)
