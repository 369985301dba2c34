# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.brokercalls}.
"""

from __future__ import annotations

from tests.client.brokers import A1, A, B, ConsumerTests
from tests.client.network import routeTo
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.errors import (
    ConnectFailed,
    NoPermission,
    RemoteSystemError,
    RequestCodeNotSupported,
    RequestTimedOut,
    SubscriptionParseFailed,
)
from txrocket.model import MessageQueue, SubscriptionData, TopicRouteData
from txrocket.protocol.bodies import CheckClientRequestBody
from txrocket.protocol.codes import RequestCode


class GroupRequestsTestsBase(ConsumerTests):
    """
    Requests of group g.
    """

    def setUp(self) -> None:
        super().setUp()
        self.requests = GroupCalls(self.cluster, "g")


class OffsetTests(GroupRequestsTestsBase):
    """
    The group's offsets.
    """

    def test_offset(self) -> None:
        """
        The broker has kept it; where it has not, there is none.
        """
        self.a.offsets["g", "T", 0] = 7
        self.a.offsets["other", "T", 1] = 8
        self.assertEqual(self.got(self.requests.offset(self.queue)), 7)
        self.assertIsNone(self.got(self.requests.offset(self.queues[1])))

    def test_offsetRefused(self) -> None:
        """
        A broker that does not say is no broker without an offset: who begins would
        begin in the wrong place.
        """
        self.a.failing[RequestCode.QUERY_CONSUMER_OFFSET] = RemoteSystemError("busy")
        self.failed(self.requests.offset(self.queue), RemoteSystemError)

    def test_offsetLate(self) -> None:
        """
        It is waited for for 5 seconds.
        """
        self.a.mute = True
        asked = self.requests.offset(self.queue)
        self.network.advance(4.9)
        self.assertNoResult(asked)
        self.network.advance(0.2)
        self.failed(asked, RequestTimedOut)

    def test_update(self) -> None:
        """
        The broker keeps what it is told, and says so.
        """
        self.assertIsNone(self.got(self.requests.updateOffset(self.queue, 5)))
        self.assertEqual(self.a.offsets, {("g", "T", 0): 5})

    def test_updateRefused(self) -> None:
        """
        What was not kept is known not to be.
        """
        self.a.failing[RequestCode.UPDATE_CONSUMER_OFFSET] = NoPermission("no")
        self.failed(self.requests.updateOffset(self.queue, 5), NoPermission)

    def test_slave(self) -> None:
        """
        While there is no master, its slave keeps the group's offsets, as Java has it.
        """
        self.ns.routes["T"] = routeTo(a={1: A1})
        self.got(self.requests.updateOffset(self.queue, 5))
        self.assertEqual(self.got(self.requests.offset(self.queue)), 5)
        self.assertEqual(self.a1.offsets, {("g", "T", 0): 5})

    def test_noBroker(self) -> None:
        """
        A broker that is in no route cannot be asked.
        """
        queue = MessageQueue("T", "z", 0)
        for asked in (
            self.requests.offset(queue),
            self.requests.updateOffset(queue, 1),
            self.requests.minOffset(queue),
        ):
            self.assertEqual(
                self.failed(asked, ConnectFailed), "no broker with the name z is known"
            )


class QueueTests(GroupRequestsTestsBase):
    """
    What is asked about a queue.
    """

    def test_bounds(self) -> None:
        """
        The first message's offset, and the next one's.
        """
        self.a.put(b"0", b"1", b"2")
        self.a.cut(2)
        self.assertEqual(self.got(self.requests.minOffset(self.queue)), 2)
        self.assertEqual(self.got(self.requests.maxOffset(self.queue)), 3)

    def test_searchByTime(self) -> None:
        """
        Times are seconds here and milliseconds on the wire.
        """
        self.assertEqual(self.got(self.requests.searchByTime(self.queue, 12.5)), 12)

    def test_earliestTime(self) -> None:
        """
        There is none where there is no message.
        """
        self.assertIsNone(self.got(self.requests.earliestTime(self.queue)))
        self.a.put(b"0")
        self.assertEqual(self.got(self.requests.earliestTime(self.queue)), 1.5)

    def test_masterOnly(self) -> None:
        """
        A slave may be behind: it is not asked.
        """
        self.ns.routes["T"] = routeTo(a={1: A1})
        for asked in (
            self.requests.minOffset(self.queue),
            self.requests.maxOffset(self.queue),
            self.requests.searchByTime(self.queue, 1.0),
            self.requests.earliestTime(self.queue),
        ):
            self.failed(asked, ConnectFailed)


class GroupTests(GroupRequestsTestsBase):
    """
    What is asked about the group.
    """

    def test_consumerIds(self) -> None:
        """
        The brokers of the topic know the group: each one's master is asked, or a slave
        if there is none.
        """
        self.a.ids, self.a1.ids = ("x", "me"), ("z",)
        self.ns.routes["T"] = routeTo(a={0: A, 1: A1})
        self.assertEqual(self.got(self.requests.consumerIds("T")), ["me", "x"])
        self.assertEqual(self.a.asked, ["g"])
        self.ns.routes["U"] = routeTo(a={1: A1})
        self.assertEqual(self.got(self.requests.consumerIds("U")), ["z"])

    def test_allIds(self) -> None:
        """
        A member that any broker knows is one: a broker that has just come does not know
        all of them yet.
        """
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        self.a.ids, self.b.ids = ("y", "me"), ("me", "x")
        self.assertEqual(self.got(self.requests.consumerIds("T")), ["me", "x", "y"])
        self.b.ids = None
        self.assertEqual(self.got(self.requests.consumerIds("T")), ["me", "y"])
        self.a.mute, self.b.ids = True, ("x",)
        asked = self.requests.consumerIds("T")
        self.network.advance(3.1)
        self.assertEqual(self.got(asked), ["x"])

    def test_noIds(self) -> None:
        """
        Brokers that know no member say so, and a topic without brokers has nobody to
        ask.
        """
        self.a.ids = None
        self.failed(self.requests.consumerIds("T"), RemoteSystemError)
        self.ns.routes["U"] = TopicRouteData()
        self.failed(self.requests.consumerIds("U"), ConnectFailed)

    def test_noAnswer(self) -> None:
        """
        If none answers, that is what is told; one that says that it knows no member has
        answered.
        """
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        self.a.mute = self.b.mute = True
        asked = self.requests.consumerIds("T")
        self.network.advance(3.1)
        self.failed(asked, RequestTimedOut)
        self.b.mute, self.b.ids = False, None
        asked = self.requests.consumerIds("T")
        self.network.advance(3.1)
        self.failed(asked, RemoteSystemError)

    def test_check(self) -> None:
        """
        Each broker of the topic is asked whether it evaluates an expression, as Java's
        client asks.
        """
        self.ns.routes["T"] = routeTo(a={0: A, 1: A1}, b={0: B})
        wanted = SubscriptionData("T", "a > 5", expressionType="SQL92", subVersion=7)
        self.assertIsNone(self.got(self.requests.check(wanted)))
        asked = CheckClientRequestBody(self.cluster.clientId, "g", wanted)
        self.assertEqual((self.a.checks, self.a1.checks, self.b.checks), ([asked], [], [asked]))

    def test_checkRefused(self) -> None:
        """
        One that does not evaluate it is one too many; what it says is told.
        """
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        wanted = SubscriptionData("T", "a >", expressionType="SQL92")
        for error in (SubscriptionParseFailed, RemoteSystemError):
            self.b.failing[RequestCode.CHECK_CLIENT_CONFIG] = error("column 4")
            self.assertIn("column 4", self.failed(self.requests.check(wanted), error))

    def test_checkNobody(self) -> None:
        """
        Who cannot be asked has not refused: a broker that does not answer or does not
        know the question, and a topic that does not exist yet.
        """
        wanted = SubscriptionData("T", "a > 5", expressionType="SQL92")
        self.a.failing[RequestCode.CHECK_CLIENT_CONFIG] = RequestCodeNotSupported("what?")
        self.assertIsNone(self.got(self.requests.check(wanted)))
        self.a.mute = True
        asked = self.requests.check(wanted)
        self.network.advance(3.1)
        self.assertIsNone(self.got(asked))
        new = SubscriptionData("new", "a > 5", expressionType="SQL92")
        self.assertIsNone(self.got(self.requests.check(new)))

    def test_lock(self) -> None:
        """
        Queues are locked for this client, but for those that are another's.
        """
        self.got(self.cluster.routes.find("T"))
        self.a.locked = {self.queues[1]}
        self.assertEqual(
            self.got(self.requests.lock("a", self.queues[:3])),
            {self.queues[0], self.queues[2]},
        )

    def test_lockLate(self) -> None:
        """
        A lock is waited for for one second.
        """
        self.got(self.cluster.routes.find("T"))
        self.a.mute = True
        asked = self.requests.lock("a", self.queues)
        self.network.advance(1.01)
        self.failed(asked, RequestTimedOut)

    def test_unlock(self) -> None:
        """
        Locks are given back.
        """
        self.got(self.cluster.routes.find("T"))
        self.assertIsNone(self.got(self.requests.unlock("a", self.queues[:2])))
        self.assertEqual(
            [(each.consumerGroup, each.clientId, each.mqSet) for each in self.a.unlocked],
            [("g", "me", {*self.queues[:2]})],
        )

    def test_noMaster(self) -> None:
        """
        Only a master locks.
        """
        self.ns.routes["T"] = routeTo(a={1: A1})
        self.got(self.cluster.routes.find("T"))
        for asked in (
            self.requests.lock("a", self.queues),
            self.requests.unlock("a", self.queues),
        ):
            self.failed(asked, ConnectFailed)

    def test_addresses(self) -> None:
        """
        Brokers that are known are not asked for again.
        """
        self.got(self.requests.offset(self.queue))
        self.got(self.requests.minOffset(self.queue))
        self.assertEqual(self.ns.asked, ["T"])
        self.assertEqual(self.network.dialled.count(A), 1)
