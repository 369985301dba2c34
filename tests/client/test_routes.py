# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.routes}.
"""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel

from tests.remoting.doubles import RemotingTests, decoded
from txrocket.client.routes import DEFAULT_TOPIC, Route, Routes, readQueues, writeQueues
from txrocket.errors import ConnectFailed, MalformedBody, RequestTimedOut, SystemBusy, TopicNotExist
from txrocket.model import BrokerData, QueueData, TopicRouteData
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import GetRouteInfoRequestHeader
from txrocket.remoting.nameservers import NameServers

READ_WRITE, READ, WRITE = 6, 4, 2


class FakeNameServers:
    """
    Name servers that write down what they are asked.

    @ivar waiting: the requested topics and their Deferreds, in order.
    """

    current = "ns:9876"

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Deferred[RemotingCommand]]] = []
        self.timeouts: list[float] = []

    def request(
        self, command: RemotingCommand, timeout: float, knows: object = None
    ) -> Deferred[RemotingCommand]:
        assert command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        answer: Deferred[RemotingCommand] = Deferred()
        # As a server reads it.
        (sent,) = decoded(command.encode())
        header = sent.decodeHeader(GetRouteInfoRequestHeader)
        self.waiting.append((header.topic, answer))
        self.timeouts.append(timeout)
        return answer

    def topics(self) -> list[str]:
        """
        The requested topics.
        """
        return sorted(topic for topic, _ in self.waiting)

    def answer(self, topic: str, answer: RemotingCommand | Exception | TopicRouteData) -> None:
        """
        Answer the first request for a topic.
        """
        asked = next(each for each in self.waiting if each[0] == topic)
        self.waiting.remove(asked)
        if isinstance(answer, Exception):
            asked[1].errback(answer)
            return
        if isinstance(answer, TopicRouteData):
            answer = responseCommand(body=encodeBody(answer))
        asked[1].callback(answer)


def route(
    *brokers: str, perm: int = READ_WRITE, queues: int = 2, port: int = 10911
) -> TopicRouteData:
    """
    A route over masters of these names.
    """
    return TopicRouteData(
        queueDatas=tuple(QueueData(each, queues, queues, perm) for each in brokers),
        brokerDatas=tuple(BrokerData("c", each, {0: f"{each}:{port}"}) for each in brokers),
    )


MISSING = responseCommand(ResponseCode.TOPIC_NOT_EXIST, "No topic route info")


class RoutesTests(RemotingTests):
    """
    The routes that a client knows.
    """

    def setUp(self) -> None:
        super().setUp()
        self.servers = FakeNameServers()
        self.connected: set[str] = set()
        self.routes = Routes(
            cast(NameServers, self.servers), 3.0, lambda address: address in self.connected
        )
        self.changes: list[Route] = []
        self.unfollow = self.routes.follow(self.changes.append)

    def know(self, topic: str, data: TopicRouteData) -> Route:
        """
        Have a route known.
        """
        found = self.routes.refresh(topic)
        self.servers.answer(topic, data)
        return self.successResultOf(found)

    def test_routeIsRequestedOnceAndKept(self) -> None:
        """
        A route is requested when it is first needed, and kept.
        """
        self.assertIsNone(self.routes.get("T"))
        found = self.routes.find("T")
        self.assertEqual((self.servers.topics(), self.servers.timeouts), (["T"], [3.0]))
        self.servers.answer("T", route("a"))
        known = self.successResultOf(found)
        self.assertEqual((known.topic, known.data, known.inherited), ("T", route("a"), False))
        self.assertEqual(known.writeQueues, writeQueues("T", route("a")))
        self.assertEqual(known.readQueues, readQueues("T", route("a")))
        self.assertIs(self.successResultOf(self.routes.find("T")), known)
        self.assertIs(self.routes.get("T"), known)
        self.assertEqual(self.servers.topics(), [])

    def test_versionFollowsRoutesAndAddresses(self) -> None:
        """
        The version changes with routes and addresses and with nothing else, so that derived
        data can be kept.
        """

        def known() -> object:
            return {topic: self.routes.get(topic) for topic in "TU"}, dict(self.routes.brokers)

        versions = {}
        for topic, data in (
            ("T", route("a")),
            ("T", route("a")),
            ("U", route("a", port=1)),
            ("U", route("a", port=1)),
            # It has the same queues, but the broker is where the last one says.
            ("T", route("a")),
            ("T", route("a", "b")),
            ("T", MISSING),
            ("T", MISSING),
        ):
            before, was = self.routes.version, known()
            found = self.routes.refresh(topic)
            self.servers.answer(topic, data)
            found.addErrback(lambda failure: None)
            self.assertEqual(self.routes.version != before, known() != was)
            versions[self.routes.version] = known()
        self.assertEqual(len(versions), 4)
        before = self.routes.version
        for broker in "ab":
            self.doubt(broker, denied=True)
        self.assertIsNone(self.routes.get("T"))
        self.assertNotEqual(self.routes.version, before)
        before = self.routes.version
        self.routes.refreshAll([])
        self.assertNotEqual(self.routes.version, before)

    def test_concurrentNeedsShareOneRequest(self) -> None:
        """
        Concurrent needs of a route share one request; a cancelled one does not affect the
        others.
        """
        first, second, third = (self.routes.find("T") for _ in range(3))
        second.cancel()
        self.failureResultOf(second)
        self.assertEqual(self.servers.topics(), ["T"])
        self.servers.answer("T", route("a"))
        self.assertIs(self.successResultOf(first), self.successResultOf(third))
        self.routes.refresh("T")
        self.assertEqual(self.servers.topics(), ["T"])

    def test_requestInCallbackGetsNewerRoute(self) -> None:
        """
        A request made while an answer is delivered gets a newer answer.
        """
        found = self.routes.find("T").addCallback(lambda known: self.routes.refresh("T"))
        self.servers.answer("T", route("a"))
        self.servers.answer("T", route("b"))
        self.assertEqual(self.successResultOf(found).data, route("b"))

    def test_missingTopicIsTopicNotExist(self) -> None:
        """
        A missing topic fails with TopicNotExist and the name server's address.
        """
        both = self.routes.find("T"), self.routes.find("T")
        self.servers.answer("T", MISSING)
        for each in both:
            error = self.failureResultOf(each, TopicNotExist).value
            self.assertEqual(
                (error.address, error.remark),
                ("ns:9876", "No topic route info"),
            )

    def test_otherAnswersAreTheirErrors(self) -> None:
        """
        Every other answer, and no answer, is its own error.
        """
        for answer, expected in (
            (responseCommand(ResponseCode.SYSTEM_BUSY, "busy"), SystemBusy),
            (responseCommand(body=b"[1"), MalformedBody),
            (RequestTimedOut("ns:9876", "late"), RequestTimedOut),
        ):
            found = self.routes.find("T")
            self.servers.answer("T", answer)
            self.failureResultOf(found, expected)

    # --- routes that name servers do not have ------------------------------

    def missing(self, topic: str = "T") -> Deferred[Route]:
        """
        Ask for a route that no name server has.
        """
        refreshed = self.routes.refresh(topic)
        self.servers.answer(topic, MISSING)
        return refreshed

    def doubt(self, brokerName: str, *, denied: bool) -> None:
        """
        Have a broker fail, and no name server have a route.
        """
        self.routes.doubt("T", brokerName, denied=denied)
        self.servers.answer("T", MISSING)

    def test_unknownToNameServersKept(self) -> None:
        """
        A route stays known if no name server has it, because a restarted name server knows
        none.  That is logged once.
        """
        known = self.know("T", route("a"))
        for _ in range(3):
            self.assertIs(self.successResultOf(self.missing()), known)
        self.assertIs(self.routes.get("T"), known)
        (said,) = self.logged(LogLevel.warn)
        self.assertIn("No name server has a route of T; the last one counts", said)
        self.know("T", route("a"))
        self.successResultOf(self.missing())
        self.assertEqual(len(self.logged(LogLevel.warn)), 2)

    def test_withoutBrokersKept(self) -> None:
        """
        A route without brokers does not replace one with brokers.
        """
        known = self.know("T", route("a"))
        self.assertIs(self.know("T", route()), known)
        empty = self.know("U", route())
        self.assertEqual(empty.brokers, {})

    def test_nameServerOutOfReachKept(self) -> None:
        """
        A route stays known if no name server answers.
        """
        known = self.know("T", route("a"))
        refreshed = self.routes.refresh("T")
        self.servers.answer("T", ConnectFailed("ns:9876", "refused"))
        self.failureResultOf(refreshed, ConnectFailed)
        self.assertIs(self.routes.get("T"), known)

    def test_deniedByAllBrokersDropped(self) -> None:
        """
        A route is dropped once each of its brokers has said that the topic does not
        exist, and no name server has it.
        """
        self.know("T", route("a", "b"))
        self.connected = {"a:10911", "b:10911"}
        self.doubt("a", denied=True)
        self.assertIsNotNone(self.routes.get("T"))
        self.doubt("b", denied=True)
        self.assertIsNone(self.routes.get("T"))
        self.failureResultOf(self.missing(), TopicNotExist)
        # Nothing is left to be doubted.
        self.routes.doubt("T", "b", denied=True)
        self.assertEqual(self.servers.waiting, [])

    def test_unreachableBrokersDropped(self) -> None:
        """
        A route is dropped once none of its brokers answers or is connected, and no name
        server has it: another broker may take the topic.
        """
        self.know("T", route("a", "b"))
        self.doubt("a", denied=False)
        self.connected = {"b:10911"}
        self.doubt("b", denied=False)
        self.assertIsNotNone(self.routes.get("T"))
        self.connected = set()
        self.doubt("b", denied=False)
        self.assertIsNone(self.routes.get("T"))

    def test_newRouteEndsDoubts(self) -> None:
        """
        Failures of brokers from before a name server told the route do not count.
        """
        known = self.know("T", route("a"))
        self.routes.doubt("T", "a", denied=True)
        self.servers.answer("T", route("a"))
        self.assertIs(self.successResultOf(self.missing()), known)

    def test_unrelatedBrokerRefreshesRoute(self) -> None:
        """
        The failure of a broker outside the route does not count against it, and the route
        is requested again because the broker may have moved.
        """
        known = self.know("T", route("a"))
        self.doubt("b", denied=False)
        self.assertIs(self.routes.get("T"), known)
        self.routes.doubt("U", "b", denied=False)
        self.assertEqual(self.servers.topics(), ["U"])

    # --- changes ---------------------------------------------------------

    def test_followerGetsNewAndChangedRoutes(self) -> None:
        """
        A follower gets new and changed routes, and no other, until it stops following.
        """
        first = self.know("T", route("a"))
        self.assertIs(self.know("T", route("a")), first)
        second = self.know("T", route("a", "b"))
        self.assertEqual(self.changes, [first, second])
        self.unfollow()
        self.know("T", route("b"))
        self.assertEqual(len(self.changes), 2)

    def test_orderOfBrokersIsNoChange(self) -> None:
        """
        Name servers list the same brokers in different orders: that is no change, as in
        Java's topicRouteDataIsChange.
        """
        known = self.know("T", route("a", "b"))
        self.assertIs(self.know("T", route("b", "a")), known)
        self.assertEqual(self.changes, [known])

    # --- topics that will be ---------------------------------------------

    def test_missingTopicInheritsDefault(self) -> None:
        """
        A missing topic is served by the brokers of the default topic, with the wanted
        number of queues, but no more than that topic has.
        """
        few, many = self.routes.inherit("T", 4), self.routes.inherit("U", 16)
        # One request serves all who ask.
        self.assertEqual(self.servers.topics(), [DEFAULT_TOPIC])
        self.servers.answer(DEFAULT_TOPIC, route("a", queues=8))
        for topic, inherited, given in (("T", few, 4), ("U", many, 8)):
            known = self.successResultOf(inherited)
            self.assertTrue(known.inherited)
            self.assertEqual(len(known.writeQueues), given)
            self.assertEqual({each.topic for each in known.writeQueues}, {topic})
            self.assertIs(self.routes.get(topic), known)
            self.assertIs(self.successResultOf(self.routes.inherit(topic, 1)), known)

    def test_inheritedRouteIsReplacedByOwn(self) -> None:
        """
        While the topic is missing, the inherited route stays; once it exists, its own route
        replaces it.
        """
        inherited = self.routes.inherit("T", 4)
        self.servers.answer(DEFAULT_TOPIC, route("a"))
        known = self.successResultOf(inherited)
        refreshed = self.routes.refresh("T")
        self.servers.answer("T", MISSING)
        self.failureResultOf(refreshed, TopicNotExist)
        self.assertIs(self.routes.get("T"), known)
        # The same brokers and queues, but now they are there.
        own = self.know("T", known.data)
        self.assertFalse(own.inherited)
        self.assertEqual(self.changes[1:], [known, own])

    def test_ownRouteIsNotReplaced(self) -> None:
        """
        A topic that was created meanwhile keeps its own route.
        """
        inherited = self.routes.inherit("T", 4)
        own = self.know("T", route("b"))
        self.servers.answer(DEFAULT_TOPIC, route("a"))
        self.assertIs(self.successResultOf(inherited), own)
        self.assertIs(self.routes.get("T"), own)

    def test_noDefaultTopicIsError(self) -> None:
        """
        Where brokers do not create topics, there is no route to inherit.
        """
        inherited = self.routes.inherit("T", 4)
        self.servers.answer(DEFAULT_TOPIC, MISSING)
        self.failureResultOf(inherited, TopicNotExist)

    # --- all of them -----------------------------------------------------

    def test_refreshAllForgetsUnneededRoutes(self) -> None:
        """
        The needed routes are requested at once; all others are forgotten, with their
        brokers.
        """
        self.know("A", route("a"))
        self.know("B", route("b"))
        refreshed = self.routes.refreshAll(["B", "C"])
        self.assertEqual(self.servers.topics(), ["B", "C"])
        self.assertIsNone(self.routes.get("A"))
        self.servers.answer("B", route("b"))
        self.assertNoResult(refreshed)
        self.servers.answer("C", route("c"))
        self.successResultOf(refreshed)
        self.assertEqual(set(self.routes.brokers), {"b", "c"})

    def test_failedRefreshKeepsRoute(self) -> None:
        """
        A route that cannot be requested stays, with a warning; a missing topic is not
        warned of.
        """
        known = self.know("A", route("a"))
        refreshed = self.routes.refreshAll(["A", "B"])
        self.servers.answer("A", RequestTimedOut("ns:9876", "late"))
        self.servers.answer("B", MISSING)
        self.successResultOf(refreshed)
        self.assertIs(self.routes.get("A"), known)
        self.assertEqual(self.logged(LogLevel.warn), ["The route of A stays as it was: late"])

    # --- addresses -------------------------------------------------------

    def test_brokersAreFoundByNameAndId(self) -> None:
        """
        Brokers are found by name and id; for a pull, by the id or else the lowest.
        """
        data = TopicRouteData(
            brokerDatas=(
                BrokerData("c", "a", {0: "a:1", 1: "a:2"}),
                BrokerData("c", "b", {2: "b:2", 1: "b:1"}),
                BrokerData("c", "e", {}),
            )
        )
        self.know("T", data)
        routes = self.routes
        self.assertEqual(routes.brokers["a"], {0: "a:1", 1: "a:2"})
        self.assertEqual(routes.address("a"), "a:1")
        self.assertEqual(routes.address("a", 1), "a:2")
        self.assertIsNone(routes.address("b"))
        self.assertIsNone(routes.address("x"))
        self.assertEqual(routes.anyAddress("a", 1), ("a:2", 1))
        self.assertEqual(routes.anyAddress("a", 3), ("a:1", 0))
        self.assertEqual(routes.anyAddress("b"), ("b:1", 1))
        self.assertIsNone(routes.anyAddress("e"))
        self.assertIsNone(routes.anyAddress("x"))

    def test_newestAnswerHasAddress(self) -> None:
        """
        The newest answer has a broker's address, whichever topic it was about: a failed
        send requests its own route only.
        """
        for topic in ("A", "B"):
            self.know(topic, route("a", port=1))
        self.know("A", route("a", port=2))
        self.assertEqual(self.routes.address("a"), "a:2")
        # It moves back, and B's route is as it was before.
        self.know("B", route("a", port=1))
        self.assertEqual(self.routes.address("a"), "a:1")

    def test_missingSlaveIsGone(self) -> None:
        """
        A slave that the newest answer lacks is gone, although an older one has it.
        """
        slave = TopicRouteData(brokerDatas=(BrokerData("c", "a", {0: "a:1", 1: "a:2"}),))
        self.know("A", slave)
        self.know("B", slave)
        self.know("A", route("a", port=1))
        self.assertEqual(self.routes.brokers, {"a": {0: "a:1"}})

    def test_brokerInNoRouteHasNoAddress(self) -> None:
        """
        A broker that is in no route any more has no address.
        """
        self.know("A", route("a", "b"))
        self.know("A", route("a"))
        self.assertIsNone(self.routes.address("b"))
