# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.sansio.topicroute}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.captures import captures
from txrocket.client.sansio.topicroute import Route, limited
from txrocket.model import BrokerData, MessageQueue, QueueData, TopicRouteData
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode

MASTERS = (
    BrokerData("c", "broker-b", {0: "192.0.2.2:10911", 1: "192.0.2.3:10911"}),
    BrokerData("c", "broker-a", {0: "192.0.2.1:10911"}),
)


def route(
    *queues: QueueData, brokers: tuple[BrokerData, ...] = MASTERS, order: str | None = None
) -> Route:
    """
    A route of topic T.
    """
    return Route("T", TopicRouteData(order, queues, brokers), inherited=False)


def named(*queues: tuple[str, int]) -> tuple[MessageQueue, ...]:
    """
    Queues of topic T.
    """
    return tuple(MessageQueue("T", name, queueId) for name, queueId in queues)


class QueueTests(SynchronousTestCase):
    """
    The queues that a route has.
    """

    def test_capturedRoutesHaveTheirQueues(self) -> None:
        """
        The routes that Java's name server gave have their queues.
        """
        found = [
            Route("T", decodeBody(TopicRouteData, each.body), inherited=False)
            for each in captures()
            if each.requestCode == RequestCode.GET_ROUTEINFO_BY_TOPIC
            and each.kind == "response"
            and each.body
        ]
        counts = [len(each.writeQueues) for each in found]
        self.assertEqual(counts, [len(each.readQueues) for each in found])
        self.assertEqual(set(counts), {1, 4, 8})

    def test_queuesAreSorted(self) -> None:
        """
        Queues are sorted by broker name and number; write queues by the number of write
        queues, read queues by that of read queues.
        """
        two = route(QueueData("broker-b", 3, 1, 6), QueueData("broker-a", 1, 2, 6))
        self.assertEqual(two.writeQueues, named(("broker-a", 0), ("broker-a", 1), ("broker-b", 0)))
        self.assertEqual(
            two.readQueues,
            named(("broker-a", 0), ("broker-b", 0), ("broker-b", 1), ("broker-b", 2)),
        )

    def test_permissionsDecideQueues(self) -> None:
        """
        A queue without write permission is not sent to, and one without read permission is
        not pulled.
        """
        some = route(QueueData("broker-a", 1, 1, 2), QueueData("broker-b", 1, 1, 4))
        self.assertEqual(some.writeQueues, named(("broker-a", 0)))
        self.assertEqual(some.readQueues, named(("broker-b", 0)))

    def test_missingMasterMeansReadOnly(self) -> None:
        """
        A broker whose master is gone is read from its slaves, and not sent to.  The same
        holds for a broker without any address.
        """
        slave = BrokerData("c", "broker-a", {1: "192.0.2.4:10911"})
        queues = QueueData("broker-a", 1, 1, 6), QueueData("broker-b", 1, 1, 6)
        alone = route(*queues, brokers=(slave,))
        self.assertEqual(alone.writeQueues, ())
        self.assertEqual(alone.readQueues, named(("broker-a", 0), ("broker-b", 0)))

    def test_orderDecidesWriteQueues(self) -> None:
        """
        For a topic with an order, senders have the queues that it names, in its order,
        even if a broker is gone.  A part without a broker and a number is passed over.
        """
        ordered = route(
            QueueData("broker-a", 4, 4, 6),
            brokers=MASTERS[1:],
            order="broker-b:2;broker-a:1;;broker-c;:3;broker-d:x",
        )
        self.assertEqual(
            ordered.writeQueues, named(("broker-b", 0), ("broker-b", 1), ("broker-a", 0))
        )
        self.assertEqual(len(ordered.readQueues), 4)

    def test_brokersHaveAddressesById(self) -> None:
        """
        The addresses are those of all brokers of a name, by their ids.
        """
        self.assertEqual(
            route().brokers,
            {
                "broker-a": {0: "192.0.2.1:10911"},
                "broker-b": {0: "192.0.2.2:10911", 1: "192.0.2.3:10911"},
            },
        )

    def test_inheritedQueuesAreLimited(self) -> None:
        """
        A missing topic gets the wanted number of queues, but no more than the default topic
        has.
        """
        data = TopicRouteData(None, (QueueData("a", 8, 9, 7), QueueData("b", 2, 9, 7)), MASTERS)
        self.assertEqual(
            limited(data, 4).queueDatas, (QueueData("a", 4, 4, 7), QueueData("b", 2, 2, 7))
        )
        self.assertEqual(limited(data, 4).brokerDatas, MASTERS)
