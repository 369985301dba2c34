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

    @ivar waiting: the topics that are asked for, and who waits, in order.
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
        What is asked for.
        """
        return sorted(topic for topic, _ in self.waiting)

    def answer(self, topic: str, answer: RemotingCommand | Exception | TopicRouteData) -> None:
        """
        Answer who asked for a topic first.
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

    def test_find(self) -> None:
        """
        A route is asked for when it is first needed, and kept.
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

    def test_version(self) -> None:
        """
        Who keeps what follows from routes and addresses learns from a number whether
        it still does: it changes with them, and with nothing else.
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

    def test_shared(self) -> None:
        """
        All who need a route at a time share one request; one who gives up does not
        spoil it for the others.
        """
        first, second, third = (self.routes.find("T") for _ in range(3))
        second.cancel()
        self.failureResultOf(second)
        self.assertEqual(self.servers.topics(), ["T"])
        self.servers.answer("T", route("a"))
        self.assertIs(self.successResultOf(first), self.successResultOf(third))
        self.routes.refresh("T")
        self.assertEqual(self.servers.topics(), ["T"])

    def test_againWithin(self) -> None:
        """
        Who asks again because it got an answer gets a newer one.
        """
        found = self.routes.find("T").addCallback(lambda known: self.routes.refresh("T"))
        self.servers.answer("T", route("a"))
        self.servers.answer("T", route("b"))
        self.assertEqual(self.successResultOf(found).data, route("b"))

    def test_missing(self) -> None:
        """
        A topic that is not there fails with TopicNotExist, which says who said so.
        """
        both = self.routes.find("T"), self.routes.find("T")
        self.servers.answer("T", MISSING)
        for each in both:
            error = self.failureResultOf(each, TopicNotExist).value
            self.assertEqual(
                (error.address, error.remark),
                ("ns:9876", "No topic route info"),
            )

    def test_otherAnswers(self) -> None:
        """
        Every other answer, and no answer, is an error of its own.
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
        A route stays known if no name server has one, because a name server that was
        restarted knows nothing; that is told once.
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
        A route without brokers takes no route's place that has some.
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

    def test_doubtsEndWithAnyRoute(self) -> None:
        """
        What brokers failed before a name server told the route counts no more.
        """
        known = self.know("T", route("a"))
        self.routes.doubt("T", "a", denied=True)
        self.servers.answer("T", route("a"))
        self.assertIs(self.successResultOf(self.missing()), known)

    def test_otherBrokerDoubted(self) -> None:
        """
        A broker that is not in the route says nothing about it, and the route is asked
        for again because the broker may have moved.
        """
        known = self.know("T", route("a"))
        self.doubt("b", denied=False)
        self.assertIs(self.routes.get("T"), known)
        self.routes.doubt("U", "b", denied=False)
        self.assertEqual(self.servers.topics(), ["U"])

    # --- changes ---------------------------------------------------------

    def test_followed(self) -> None:
        """
        Who follows is told of a route that is new or has changed, and of no other,
        until it has enough.
        """
        first = self.know("T", route("a"))
        self.assertIs(self.know("T", route("a")), first)
        second = self.know("T", route("a", "b"))
        self.assertEqual(self.changes, [first, second])
        self.unfollow()
        self.know("T", route("b"))
        self.assertEqual(len(self.changes), 2)

    def test_orderIsNoChange(self) -> None:
        """
        Name servers list the same brokers in different orders: that is no change,
        as it is none to Java's topicRouteDataIsChange.
        """
        known = self.know("T", route("a", "b"))
        self.assertIs(self.know("T", route("b", "a")), known)
        self.assertEqual(self.changes, [known])

    # --- topics that will be ---------------------------------------------

    def test_inherit(self) -> None:
        """
        A topic that is not there yet is served by the brokers of the default topic,
        with as many queues as are wished for, but no more than that one has.
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

    def test_inheritedStays(self) -> None:
        """
        While the topic is not there, what it inherits stays; once it is there, its
        own route takes its place.
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

    def test_inheritTooLate(self) -> None:
        """
        A topic that has come into being meanwhile keeps its own route.
        """
        inherited = self.routes.inherit("T", 4)
        own = self.know("T", route("b"))
        self.servers.answer(DEFAULT_TOPIC, route("a"))
        self.assertIs(self.successResultOf(inherited), own)
        self.assertIs(self.routes.get("T"), own)

    def test_nothingToInherit(self) -> None:
        """
        Where brokers make no topics by themselves, there is none to inherit from.
        """
        inherited = self.routes.inherit("T", 4)
        self.servers.answer(DEFAULT_TOPIC, MISSING)
        self.failureResultOf(inherited, TopicNotExist)

    # --- all of them -----------------------------------------------------

    def test_refreshAll(self) -> None:
        """
        The routes that are needed are asked for again, at once; all others are
        forgotten, with their brokers.
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

    def test_refreshAllFails(self) -> None:
        """
        A route that cannot be had stays as it was, with a warning; that a topic is
        not there is nothing to warn of.
        """
        known = self.know("A", route("a"))
        refreshed = self.routes.refreshAll(["A", "B"])
        self.servers.answer("A", RequestTimedOut("ns:9876", "late"))
        self.servers.answer("B", MISSING)
        self.successResultOf(refreshed)
        self.assertIs(self.routes.get("A"), known)
        self.assertEqual(self.logged(LogLevel.warn), ["The route of A stays as it was: late"])

    # --- addresses -------------------------------------------------------

    def test_addresses(self) -> None:
        """
        Brokers are found by name and id; where to pull, by the id or else by the
        least there is.
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

    def test_moved(self) -> None:
        """
        The newest answer says where a broker is, whichever topic it was about: a
        send that failed asks for its own route only.
        """
        for topic in ("A", "B"):
            self.know(topic, route("a", port=1))
        self.know("A", route("a", port=2))
        self.assertEqual(self.routes.address("a"), "a:2")
        # It moves back, and B's route is as it was before.
        self.know("B", route("a", port=1))
        self.assertEqual(self.routes.address("a"), "a:1")

    def test_slaveGone(self) -> None:
        """
        A slave that the newest answer does not have is gone, although an older one
        has it.
        """
        slave = TopicRouteData(brokerDatas=(BrokerData("c", "a", {0: "a:1", 1: "a:2"}),))
        self.know("A", slave)
        self.know("B", slave)
        self.know("A", route("a", port=1))
        self.assertEqual(self.routes.brokers, {"a": {0: "a:1"}})

    def test_brokerGone(self) -> None:
        """
        A broker that is in no route any more has no address.
        """
        self.know("A", route("a", "b"))
        self.know("A", route("a"))
        self.assertIsNone(self.routes.address("b"))
