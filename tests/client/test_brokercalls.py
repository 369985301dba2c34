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
    The offsets of the group.
    """

    def test_savedOffsetIsReturned(self) -> None:
        """
        The offset that the broker has is returned, and L{None} if it has none.
        """
        self.a.offsets["g", "T", 0] = 7
        self.a.offsets["other", "T", 1] = 8
        self.assertEqual(self.got(self.requests.offset(self.queue)), 7)
        self.assertIsNone(self.got(self.requests.offset(self.queues[1])))

    def test_refusedOffsetIsError(self) -> None:
        """
        A broker that refuses to say is not taken for one without an offset: a consumer
        would begin in the wrong place.
        """
        self.a.failing[RequestCode.QUERY_CONSUMER_OFFSET] = RemoteSystemError("busy")
        self.failed(self.requests.offset(self.queue), RemoteSystemError)

    def test_offsetIsAwaitedFiveSeconds(self) -> None:
        """
        The broker's answer is awaited for 5 seconds.
        """
        self.a.mute = True
        asked = self.requests.offset(self.queue)
        self.network.advance(4.9)
        self.assertNoResult(asked)
        self.network.advance(0.2)
        self.failed(asked, RequestTimedOut)

    def test_updateIsSaved(self) -> None:
        """
        The broker saves the offset, and confirms it.
        """
        self.assertIsNone(self.got(self.requests.updateOffset(self.queue, 5)))
        self.assertEqual(self.a.offsets, {("g", "T", 0): 5})

    def test_refusedUpdateIsError(self) -> None:
        """
        An offset that the broker does not save is an error.
        """
        self.a.failing[RequestCode.UPDATE_CONSUMER_OFFSET] = NoPermission("no")
        self.failed(self.requests.updateOffset(self.queue, 5), NoPermission)

    def test_slaveServesOffsetsWithoutMaster(self) -> None:
        """
        While there is no master, its slave keeps the offsets of the group, as with Java.
        """
        self.ns.routes["T"] = routeTo(a={1: A1})
        self.got(self.requests.updateOffset(self.queue, 5))
        self.assertEqual(self.got(self.requests.offset(self.queue)), 5)
        self.assertEqual(self.a1.offsets, {("g", "T", 0): 5})

    def test_brokerInNoRouteIsError(self) -> None:
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
    Requests about a queue.
    """

    def test_minAndMaxOffsetAreReturned(self) -> None:
        """
        The offset of the first message and of the next one are returned.
        """
        self.a.put(b"0", b"1", b"2")
        self.a.cut(2)
        self.assertEqual(self.got(self.requests.minOffset(self.queue)), 2)
        self.assertEqual(self.got(self.requests.maxOffset(self.queue)), 3)

    def test_searchByTimeSendsMilliseconds(self) -> None:
        """
        Times are seconds in the API and milliseconds on the wire.
        """
        self.assertEqual(self.got(self.requests.searchByTime(self.queue, 12.5)), 12)

    def test_emptyQueueHasNoEarliestTime(self) -> None:
        """
        A queue without messages has no earliest time.
        """
        self.assertIsNone(self.got(self.requests.earliestTime(self.queue)))
        self.a.put(b"0")
        self.assertEqual(self.got(self.requests.earliestTime(self.queue)), 1.5)

    def test_slaveIsNotAsked(self) -> None:
        """
        A slave may be behind, so it is not asked.
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
    Requests about the group.
    """

    def test_idsComeFromEachBrokersMaster(self) -> None:
        """
        The brokers of the topic know the group.  Of each, the master is asked, or a slave
        if there is no master.
        """
        self.a.ids, self.a1.ids = ("x", "me"), ("z",)
        self.ns.routes["T"] = routeTo(a={0: A, 1: A1})
        self.assertEqual(self.got(self.requests.consumerIds("T")), ["me", "x"])
        self.assertEqual(self.a.asked, ["g"])
        self.ns.routes["U"] = routeTo(a={1: A1})
        self.assertEqual(self.got(self.requests.consumerIds("U")), ["z"])

    def test_idsOfAllBrokersCount(self) -> None:
        """
        A member that any broker knows counts: a new broker does not know all members yet.
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

    def test_unknownGroupHasNoIds(self) -> None:
        """
        If no broker knows a member, there are no ids.  A topic without brokers has no
        broker to ask.
        """
        self.a.ids = None
        self.failed(self.requests.consumerIds("T"), RemoteSystemError)
        self.ns.routes["U"] = TopicRouteData()
        self.failed(self.requests.consumerIds("U"), ConnectFailed)

    def test_noAnswerAtAllIsError(self) -> None:
        """
        If no broker answers, the error is returned.  A broker that knows no member has
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

    def test_checkAsksEachBroker(self) -> None:
        """
        Each broker of the topic is asked whether it evaluates an expression, as Java's
        client asks.
        """
        self.ns.routes["T"] = routeTo(a={0: A, 1: A1}, b={0: B})
        wanted = SubscriptionData("T", "a > 5", expressionType="SQL92", subVersion=7)
        self.assertIsNone(self.got(self.requests.check(wanted)))
        asked = CheckClientRequestBody(self.cluster.clientId, "g", wanted)
        self.assertEqual((self.a.checks, self.a1.checks, self.b.checks), ([asked], [], [asked]))

    def test_oneRefusedCheckIsError(self) -> None:
        """
        If one broker does not evaluate the expression, its error is returned.
        """
        self.ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        wanted = SubscriptionData("T", "a >", expressionType="SQL92")
        for error in (SubscriptionParseFailed, RemoteSystemError):
            self.b.failing[RequestCode.CHECK_CLIENT_CONFIG] = error("column 4")
            self.assertIn("column 4", self.failed(self.requests.check(wanted), error))

    def test_unaskableBrokersPassCheck(self) -> None:
        """
        A broker that does not answer or does not know the request has not refused, and
        neither has a topic that does not exist yet.
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

    def test_lockReturnsQueuesOfThisClient(self) -> None:
        """
        Queues are locked for this client, except those that another client holds.
        """
        self.got(self.cluster.routes.find("T"))
        self.a.locked = {self.queues[1]}
        self.assertEqual(
            self.got(self.requests.lock("a", self.queues[:3])),
            {self.queues[0], self.queues[2]},
        )

    def test_lockIsAwaitedOneSecond(self) -> None:
        """
        The answer to a lock is awaited for one second.
        """
        self.got(self.cluster.routes.find("T"))
        self.a.mute = True
        asked = self.requests.lock("a", self.queues)
        self.network.advance(1.01)
        self.failed(asked, RequestTimedOut)

    def test_unlockReleasesQueues(self) -> None:
        """
        Locks are released.
        """
        self.got(self.cluster.routes.find("T"))
        self.assertIsNone(self.got(self.requests.unlock("a", self.queues[:2])))
        self.assertEqual(
            [(each.consumerGroup, each.clientId, each.mqSet) for each in self.a.unlocked],
            [("g", "me", {*self.queues[:2]})],
        )

    def test_lockWithoutMasterIsError(self) -> None:
        """
        Only a master locks queues.
        """
        self.ns.routes["T"] = routeTo(a={1: A1})
        self.got(self.cluster.routes.find("T"))
        for asked in (
            self.requests.lock("a", self.queues),
            self.requests.unlock("a", self.queues),
        ):
            self.failed(asked, ConnectFailed)

    def test_knownBrokersAreNotLookedUp(self) -> None:
        """
        The addresses of known brokers are not looked up again.
        """
        self.got(self.requests.offset(self.queue))
        self.got(self.requests.minOffset(self.queue))
        self.assertEqual(self.ns.asked, ["T"])
        self.assertEqual(self.network.dialled.count(A), 1)
