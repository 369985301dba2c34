# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.producer.newtopics}.
"""

from __future__ import annotations

from typing import cast

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.client.answering import routeTo
from tests.client.producercase import ProducerCase
from tests.client.test_routes import MISSING, FakeNameServers, route
from txrocket.client.producer.newtopics import NewTopics
from txrocket.client.routes import Routes
from txrocket.errors import ConnectFailed, RequestTimedOut
from txrocket.message import Message
from txrocket.remoting.nameservers import NameServers


class NewTopicsTests(SynchronousTestCase):
    """
    Asking for the route of a topic that a message has created.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.nameServers = FakeNameServers()
        self.routes = Routes(cast("NameServers", self.nameServers), 3.0)
        self.topics = NewTopics(self.routes, self.clock)

    def questions(self, until: float) -> list[float]:
        """
        Let time pass, while the name server knows no topic.

        @return: when it was asked, in seconds.
        """
        asked = []
        while self.clock.seconds() < until:
            if self.nameServers.waiting:
                asked.append(round(self.clock.seconds(), 3))
                self.nameServers.answer("T", MISSING)
            due = [each.getTime() for each in self.clock.getDelayedCalls()]
            self.clock.advance(min([*due, until]) - self.clock.seconds())
        return asked

    def test_unknownTopicIsAskedForWithGrowingPauses(self) -> None:
        """
        While the name server does not know the topic, the client asks again after pauses
        that double up to a second, until the send's time is over.
        """
        self.topics.created("T", 3.0)
        asked = self.questions(10.0)
        self.assertEqual(asked, [0.0, 0.01, 0.03, 0.07, 0.15, 0.31, 0.63, 1.27, 2.27])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_knownTopicIsAskedForNoMore(self) -> None:
        """
        Once the name server tells the route, however late within the send's time, the client
        has it and asks no more.
        """
        self.topics.created("T", 3.0)
        self.questions(2.0)
        self.clock.advance(0.5)
        self.nameServers.answer("T", route("a"))
        found = self.routes.get("T")
        assert found is not None
        self.assertEqual(found.data, route("a"))
        self.assertEqual(self.questions(10.0), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nameServerThatFailsIsAskedAgain(self) -> None:
        """
        A name server that does not answer, or is out of reach, is asked again.
        """
        self.topics.created("T", 3.0)
        for error in (RequestTimedOut("ns", "late"), ConnectFailed("ns", "refused")):
            self.nameServers.answer("T", error)
            self.assertEqual(self.nameServers.topics(), [])
            self.clock.advance(0.02)
            self.assertEqual(self.nameServers.topics(), ["T"])

    def test_messagesOfOneTopicShareTheQuestions(self) -> None:
        """
        A thousand messages that create a topic together make one question at a time, as long
        as the last of them has time.
        """
        for number in range(1000):
            self.topics.created("T", number / 1000)
        self.assertEqual(self.nameServers.topics(), ["T"])
        asked = self.questions(10.0)
        self.assertEqual(asked, [0.0, 0.01, 0.03, 0.07, 0.15, 0.31, 0.63])

    def test_noTimeLeftAsksOnce(self) -> None:
        """
        If the send took all its time, the client asks once.
        """
        self.topics.created("T", -1.0)
        self.assertEqual(self.questions(10.0), [0.0])

    def test_topicCreatedAgainIsAskedForAgain(self) -> None:
        """
        A topic whose questions came to nothing is asked for anew after the next message.
        """
        self.topics.created("T", 0.0)
        self.questions(1.0)
        self.topics.created("T", 1.0)
        self.assertEqual(self.nameServers.topics(), ["T"])

    def test_stopEndsPauses(self) -> None:
        """
        After the stop nothing is asked, whether a question is open or a pause goes on.
        """
        self.topics.created("T", 3.0)
        self.topics.created("U", 3.0)
        self.nameServers.answer("U", MISSING)
        self.topics.stop()
        self.nameServers.answer("T", MISSING)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ProducerTests(ProducerCase):
    """
    A producer whose message creates a topic.
    """

    def test_routeIsLearntAfterRegistration(self) -> None:
        """
        The producer knows the topic's own route soon after the broker has registered it, even
        if that takes two seconds.
        """
        producer = self.producer()
        self.sent(producer, Message("New", b"x")).stored()
        self.network.run()
        for _ in range(20):
            self.clock.advance(0.1)
            self.network.run()
        known = self.cluster.routes.get("New")
        assert known is not None
        self.assertTrue(known.inherited)
        self.network.routes["New"] = routeTo("broker-a")
        self.clock.advance(1.0)
        self.network.run()
        known = self.cluster.routes.get("New")
        assert known is not None
        self.assertFalse(known.inherited)

    def test_stoppedProducerAsksNoMore(self) -> None:
        """
        A producer that stops leaves no question behind.
        """
        producer = self.producer()
        self.sent(producer, Message("New", b"x")).stored()
        self.network.run()
        producer.stop()
        self.network.run()
        self.network.asked.clear()
        self.clock.advance(3.0)
        self.network.run()
        self.assertEqual(self.network.asked, [])
