# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.rebalance}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.logger import LogLevel

from tests.client.brokers import A, B, ConsumerTests
from tests.client.members import FakeConsumer
from tests.client.network import routeTo
from txrocket.client.consumer.allocate import Assign, averagely
from txrocket.client.consumer.rebalance import Rebalance
from txrocket.errors import TopicNotExist
from txrocket.model import MessageQueue, QueueData, TopicRouteData
from txrocket.protocol.bodies import GetConsumerListByGroupResponseBody
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import responseCommand


class RebalanceTestsBase(ConsumerTests):
    """
    A member of group g.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topics = ["T"]
        self.told: list[tuple[str, list[int], list[int]]] = []
        self.member = FakeConsumer("g", "T")
        self.cluster.addConsumer(self.member)

    def changed(
        self, topic: str, added: Sequence[MessageQueue], removed: Sequence[MessageQueue]
    ) -> None:
        """
        Write down what has changed.
        """
        self.told.append(
            (topic, [each.queueId for each in added], [each.queueId for each in removed])
        )

    def started(self, **options: Any) -> Rebalance:
        """
        One that has divided the queues.
        """
        made = Rebalance(self.cluster, "g", lambda: self.topics, self.changed, **options)
        made.start()
        self.addCleanup(made.stop)
        self.network.flush()
        return made

    def since(self) -> list[tuple[str, list[int], list[int]]]:
        """
        The changes since the last call.
        """
        self.network.flush()
        told, self.told = self.told, []
        return told


class WhenTests(RebalanceTestsBase):
    """
    The times of a division.
    """

    def test_queuesAreDividedEachTwentySeconds(self) -> None:
        """
        Queues are divided at the start, and every 20 seconds.
        """
        self.started()
        self.assertEqual(self.since(), [("T", [0, 1, 2, 3], [])])
        self.assertEqual(self.a.asked, ["g"])
        self.a.ids = ("me", "you")
        self.network.advance(19.9)
        self.assertEqual(self.since(), [])
        self.network.advance(0.1)
        self.assertEqual(self.since(), [("T", [], [2, 3])])
        self.a.ids = ("me",)
        self.network.advance(20)
        self.assertEqual(self.since(), [("T", [2, 3], [])])

    def test_changeDividesAtOnce(self) -> None:
        """
        A change of the group divides at once; several changes in one turn are one.
        """
        rebalance = self.started()
        self.a.ids = ("and", "me")
        asked = len(self.a.asked)
        for _ in range(3):
            rebalance.soon()
        self.assertEqual(self.since()[-1], ("T", [], [0, 1]))
        self.assertEqual(len(self.a.asked), asked + 1)

    def test_changeDuringDivisionDividesAgain(self) -> None:
        """
        A change during a division causes another one.
        """
        rebalance = self.started()
        self.since()
        rebalance.soon()
        asked = len(self.a.asked)
        while len(self.a.asked) == asked:
            self.network.step()
        # The broker has answered with the old list.
        self.a.ids = ("me", "you")
        for _ in range(3):
            rebalance.soon()
        self.assertEqual(self.since(), [("T", [], [2, 3])])
        self.assertEqual(len(self.a.asked), asked + 2)

    def test_slowBrokerIsNotAskedTwice(self) -> None:
        """
        While a broker has not answered it is not asked again, so that no old answer comes
        after a new one.
        """
        rebalance = self.started()
        self.since()
        late: Any = Deferred()
        self.a.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda request: late
        rebalance.soon()
        self.network.flush()
        del self.a.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP]
        asked = len(self.a.asked)
        rebalance.soon()
        self.network.flush()
        self.assertEqual(len(self.a.asked), asked)
        old = GetConsumerListByGroupResponseBody(("me", "you"))
        late.callback(responseCommand(body=encodeBody(old)))
        self.assertEqual(self.since(), [("T", [], [2, 3]), ("T", [2, 3], [])])

    def test_routeChangeDividesAtOnce(self) -> None:
        """
        A change of a topic's route divides at once.
        """
        self.started()
        self.since()
        data = self.ns.routes["T"]
        self.ns.routes["T"] = TopicRouteData(
            queueDatas=(QueueData("a", 6, 6, 6),), brokerDatas=data.brokerDatas
        )
        self.ns.routes["U"] = routeTo(b={0: B})
        asked = len(self.a.asked)
        self.got(self.cluster.routes.refresh("U"))
        self.assertEqual(len(self.a.asked), asked)
        self.got(self.cluster.routes.refresh("T"))
        self.assertEqual(self.since(), [("T", [4, 5], [])])

    def test_stopEndsDivision(self) -> None:
        """
        After a stop nothing changes and no timer is left.  A second stop does nothing.
        """
        rebalance = self.started()
        self.since()
        self.a.ids = ("me", "you")
        rebalance.soon()
        asked = len(self.a.asked)
        while len(self.a.asked) == asked:
            self.network.step()
        rebalance.stop()
        rebalance.stop()
        self.assertEqual(self.since(), [])
        rebalance.soon()
        self.got(self.cluster.routes.refresh("T"))
        self.assertEqual(self.since(), [])
        self.assertEqual(len(self.cluster.routes._followers), 1)

    def test_stopCancelsScheduledDivision(self) -> None:
        """
        A scheduled division is not made after a stop.
        """
        rebalance = self.started()
        asked = len(self.a.asked)
        rebalance.soon()
        rebalance.stop()
        self.network.flush()
        self.assertEqual(len(self.a.asked), asked)

    def test_failureAfterStopIsIgnored(self) -> None:
        """
        A missing answer after the stop is ignored.
        """
        self.a.mute = True
        rebalance = self.started()
        rebalance.stop()
        self.network.advance(10)
        self.assertNotIn("keeps its queues", " ".join(self.logged(LogLevel.warn)))

    def test_restartBeginsWithoutQueues(self) -> None:
        """
        A restart begins without queues.
        """
        rebalance = self.started()
        self.since()
        rebalance.stop()
        rebalance.start()
        self.assertEqual(self.since(), [("T", [0, 1, 2, 3], [])])


class WhatTests(RebalanceTestsBase):
    """
    The result of a division.
    """

    def test_queuesAndIdsAreSorted(self) -> None:
        """
        Queues and ids are sorted, so that all members have the same lists.
        """
        seen = []

        def strategy(
            group: str, clientId: str, queues: Sequence[MessageQueue], ids: Sequence[str]
        ) -> Sequence[MessageQueue]:
            seen.append((group, clientId, list(queues), list(ids)))
            return queues[:1]

        self.a.ids = ("z", "me", "a")
        rebalance = self.started(strategy=strategy)
        self.assertEqual(seen[0], ("g", "me", self.queues, ["a", "me", "z"]))
        self.assertEqual(rebalance.queues, {"T": {self.queue}})

    def test_eachTopicIsDividedByItself(self) -> None:
        """
        Each topic is divided by itself, and an unsubscribed one is given up.
        """
        self.ns.routes["U"] = routeTo(b={0: B})
        self.b.ids = ("me", "you")
        self.topics.append("U")
        rebalance = self.started()
        self.assertEqual(sorted(self.since()), [("T", [0, 1, 2, 3], []), ("U", [0, 1], [])])
        self.topics.remove("T")
        rebalance.soon()
        self.assertEqual(self.since(), [("T", [], [0, 1, 2, 3])])
        self.assertEqual(set(rebalance.queues), {"U"})

    def test_unsubscribedTopicIsNotTaken(self) -> None:
        """
        A topic that is unsubscribed during its division is not taken.
        """
        rebalance = self.started()
        self.a.ids = ("me", "you")
        rebalance.soon()
        self.since()
        self.a.ids = ("me",)
        rebalance.soon()
        asked = len(self.a.asked)
        while len(self.a.asked) == asked:
            self.network.step()
        self.topics.clear()
        self.network.flush()
        self.assertEqual(self.since(), [])

    def test_broadcastTakesAllQueues(self) -> None:
        """
        A broadcast consumer has all queues and asks no broker.
        """
        self.a.ids = ("me", "you")
        self.started(broadcast=True)
        self.assertEqual(self.since(), [("T", [0, 1, 2, 3], [])])
        self.assertEqual(self.a.asked, [])

    def test_logTellsNumberOfQueues(self) -> None:
        """
        The log tells how many queues a member has.
        """
        self.started()
        self.assertIn(
            "Group g has 4 queues of T now, 4 more and 0 less", self.logged(LogLevel.info)
        )


class TroubleTests(RebalanceTestsBase):
    """
    Failures that change nothing.
    """

    def test_silentBrokerIsLoggedOnce(self) -> None:
        """
        A broker that does not answer is logged once, and again only after it has answered.
        """
        self.started()
        self.since()
        for _ in range(2):
            self.a.mute = True
            for _ in range(3):
                self.network.advance(20)
            self.assertEqual(self.since(), [])
            self.a.mute = False
            self.network.advance(20)
        kept = [each for each in self.logged(LogLevel.warn) if "keeps its queues of T" in each]
        self.assertEqual(len(kept), 2, kept)

    def test_silentBrokerDelaysNoOtherTopic(self) -> None:
        """
        A broker that does not answer does not delay other topics.
        """
        self.ns.routes["U"] = routeTo(b={0: B})
        self.b.mute = True
        self.topics.append("U")
        self.started()
        self.assertEqual(self.since(), [("T", [0, 1, 2, 3], [])])

    def test_missingTopicKeepsQueues(self) -> None:
        """
        A topic that does not exist any more keeps its queues.
        """
        self.started()
        self.since()
        del self.ns.routes["T"]
        routes = self.cluster.routes
        for broker in ("a", "b"):
            routes.doubt("T", broker, denied=True)
        self.failed(routes.refresh("T"), TopicNotExist)
        self.network.advance(20)
        self.assertEqual(self.since(), [])

    def test_missingRetryTopicIsNotLogged(self) -> None:
        """
        A missing retry topic is not logged: the group's first heartbeat creates it.
        """
        self.topics = ["%RETRY%g", "U"]
        self.started()
        (told,) = self.logged(LogLevel.warn)
        self.assertIn("of U: ", told)

    def test_newTopicIsDividedAtOnce(self) -> None:
        """
        A new topic is divided as soon as its route is known.
        """
        route = self.ns.routes.pop("T")
        self.started()
        self.network.advance(25)
        self.assertEqual(self.since(), [])
        self.ns.routes["T"] = route
        self.network.advance(5)
        self.assertEqual(self.since(), [("T", [0, 1, 2, 3], [])])

    def test_inheritedRouteHasNoQueues(self) -> None:
        """
        A topic with an inherited route has no queues to read yet.
        """
        self.ns.routes["TBW102"] = self.ns.routes.pop("T")
        self.got(self.cluster.routes.inherit("T", 4))
        self.started()
        self.assertEqual(self.since(), [])

    def test_unreadableTopicHasNoQueues(self) -> None:
        """
        A topic that may not be read has no queues.
        """
        self.started()
        self.since()
        data = self.ns.routes["T"]
        self.ns.routes["T"] = TopicRouteData(
            queueDatas=(QueueData("a", 4, 4, 2),), brokerDatas=data.brokerDatas
        )
        self.got(self.cluster.routes.refresh("T"))
        self.assertEqual(self.since(), [("T", [], [0, 1, 2, 3])])

    def test_raisingStrategyKeepsQueues(self) -> None:
        """
        A strategy that raises changes nothing.
        """
        strategies: list[Assign] = [averagely]
        rebalance = self.started(strategy=lambda *arguments: strategies[0](*arguments))
        self.since()

        def broken(*arguments: object) -> Sequence[MessageQueue]:
            raise ZeroDivisionError

        strategies[0] = broken
        rebalance.soon()
        self.assertEqual(self.since(), [])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_emptyGroupKeepsQueues(self) -> None:
        """
        A broker that says that the group has no members changes nothing.
        """
        self.started()
        self.since()
        self.a.ids = ()
        self.network.advance(20)
        self.assertEqual(self.since(), [])


class UnknownTests(RebalanceTestsBase):
    """
    A broker that has not heard of this member yet.
    """

    def heard(self, ids: tuple[str, ...] | None) -> None:
        """
        The broker knows this member once it has had its heartbeat.
        """
        self.a.ids = ids
        beat = self.a.heartbeat

        def hear(request: Any) -> Any:
            self.a.ids = (*(ids or ()), "me")
            return beat(request)

        self.a.answers[RequestCode.HEART_BEAT] = hear

    def test_newBrokerGetsHeartbeatAndIsAskedAgain(self) -> None:
        """
        A new broker gets a heartbeat and is asked again: believing it would give up all
        queues.
        """
        self.cluster.consumers.clear()
        self.heard(("you",))
        made = Rebalance(self.cluster, "g", lambda: self.topics, self.changed)
        made.start()
        self.addCleanup(made.stop)
        self.cluster.consumers["g"] = self.member
        self.assertEqual(self.since(), [("T", [0, 1], [])])

    def test_unknownGroupGetsHeartbeat(self) -> None:
        """
        The same holds if it knows no member at all, which Java's broker answers with an
        error.
        """
        self.heard(None)
        self.started()
        self.assertEqual(self.since(), [("T", [0, 1, 2, 3], [])])

    def test_stillUnknownMemberHasNoQueues(self) -> None:
        """
        A broker that does not know the member even then is believed: the others have
        divided its queues among themselves.
        """
        self.started()
        self.since()
        self.a.ids = ("you",)
        self.network.advance(20)
        self.assertEqual(self.since(), [("T", [], [0, 1, 2, 3])])


class TogetherTests(RebalanceTestsBase):
    """
    All members together.
    """

    @given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True))
    @settings(max_examples=25, deadline=None)
    def test_eachQueueHasOneMember(self, ids: list[str]) -> None:
        """
        However members come and go, once all know of it each queue has one member.
        """
        self.setUp()
        self.a.ids = tuple(ids)
        had: list[MessageQueue] = []
        for clientId in ids:
            self.cluster.clientId = clientId
            had += self.started().queues["T"]
        self.assertEqual(sorted(had), self.queues)
        self.assertEqual(self.network.dialled.count(A), 1)
