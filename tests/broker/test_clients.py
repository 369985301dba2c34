# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.clients.producers} and L{txrocket.broker.clients.consumers}.
"""

from __future__ import annotations

from msgspec.structs import replace
from twisted.internet.task import Clock
from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.peers import Connected, consumer
from tests.captures import captures
from tests.remoting.doubles import RemotingTests
from txrocket.broker.clients.consumers import ConsumerGroup, Consumers
from txrocket.broker.clients.producers import Producers
from txrocket.model import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from txrocket.protocol.bodies import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.fastjson import finish
from txrocket.remoting.remoting import Limits


class ProducersTests(SynchronousTestCase):
    """
    L{Producers}.
    """

    def setUp(self) -> None:
        self.producers = Producers()

    def test_groupListsItsProducers(self) -> None:
        """
        A group's producers are there from their heartbeat on until they give it up,
        are lost, or fall silent.
        """
        clients = [Connected(f"192.0.2.7:{port}") for port in (1, 2, 3)]
        for each, clientId in zip(clients, "abc", strict=True):
            self.producers.register("P", each.client(clientId), 0)
        self.producers.register("P", clients[2].client("c"), 10_000)

        def known() -> list[Connection]:
            found = self.producers.connection("P")
            return [] if found is None else sorted(found.connectionSet, key=str)

        a, b, c = (
            Connection(clientId, f"192.0.2.7:{port}", "JAVA", 407)
            for clientId, port in (("a", 1), ("b", 2), ("c", 3))
        )
        self.assertEqual(known(), [a, b, c])
        self.producers.unregister("P", clients[0].peer)
        self.assertEqual(known(), [b, c])
        finish(self.producers.expire(120_001))
        self.assertEqual(known(), [c])
        clients[2].lose()
        self.assertIsNone(self.producers.connection("P"))

    def test_connectionHasToolsForm(self) -> None:
        """
        The producers of a group are returned in the form of RocketMQ's tools.
        """
        self.producers.register("P", Connected("192.0.2.7:1").client("a"), 0)
        self.assertEqual(
            self.producers.connection("P"),
            ProducerConnection(frozenset({Connection("a", "192.0.2.7:1", "JAVA", 407)})),
        )

    def test_tableListsAllProducers(self) -> None:
        """
        All producers can be listed, with the time of their last heartbeat and
        addresses as Java prints them.
        """
        self.assertEqual(finish(self.producers.table()), ProducerTableInfo())
        one, two = Connected("192.0.2.7:1"), Connected("192.0.2.7:2")
        self.producers.register("P", one.client("a"), 5)
        self.producers.register("P", two.client("b"), 6)
        self.producers.register("Q", one.client("a"), 7)
        self.assertEqual(
            finish(self.producers.table()),
            ProducerTableInfo(
                {
                    "P": (
                        ProducerInfo("a", "/192.0.2.7:1", "JAVA", 407, 5),
                        ProducerInfo("b", "/192.0.2.7:2", "JAVA", 407, 6),
                    ),
                    "Q": (ProducerInfo("a", "/192.0.2.7:1", "JAVA", 407, 7),),
                }
            ),
        )

    def test_producersAreChosenInTurn(self) -> None:
        """
        Producers of a group are chosen in turn, whatever is chosen of others.
        """
        one, two, other = Connected(), Connected(), Connected()
        self.producers.register("P", one.client("a"), 0)
        self.producers.register("P", two.client("b"), 0)
        self.producers.register("Q", other.client("c"), 0)
        chosen = []
        for _ in range(4):
            chosen.append(self.producers.choose("P"))
            self.assertIs(self.producers.choose("Q"), other.peer)
        self.assertEqual(set(chosen[:2]), {one.peer, two.peer})
        self.assertEqual(chosen[2:], chosen[:2])

    def test_noConnectedProducerChoosesNone(self) -> None:
        """
        No producer is chosen if none is connected, or only one that is being
        dropped.
        """
        self.assertIsNone(self.producers.choose("P"))
        one, two = Connected(), Connected()
        self.producers.register("P", one.client("a"), 0)
        self.producers.register("P", two.client("b"), 0)
        one.peer.connected = 0
        self.assertEqual({self.producers.choose("P") for _ in range(4)}, {two.peer})
        two.peer.connected = 0
        self.assertIsNone(self.producers.choose("P"))


class SubscribeTests(SynchronousTestCase):
    """
    L{ConsumerGroup.subscribe}.
    """

    def setUp(self) -> None:
        self.group = ConsumerGroup()
        self.first = SubscriptionData("T", "a", subVersion=5)
        self.other = SubscriptionData("U", "*", subVersion=5)

    def test_newTopicChangesGroup(self) -> None:
        """
        A topic that is new changes the group.
        """
        self.assertTrue(self.group.subscribe([self.first]))
        self.assertTrue(self.group.subscribe([self.first, self.other]))
        self.assertEqual(self.group.subscriptions, {"T": self.first, "U": self.other})
        self.assertFalse(self.group.subscribe([self.other, self.first]))

    def test_newerExpressionReplacesOlder(self) -> None:
        """
        A newer expression takes the place of an older one and no other does; no
        queue changes hands for it.
        """
        self.group.subscribe([self.first])
        for version, expression in ((4, "a"), (5, "a"), (6, "b")):
            changed = replace(self.first, subString="b", subVersion=version)
            self.assertFalse(self.group.subscribe([changed]))
            self.assertEqual(self.group.subscriptions["T"].subString, expression)

    def test_omittedTopicIsUnsubscribed(self) -> None:
        """
        A topic that a heartbeat leaves out is gone, and comes back with any
        version.
        """
        self.group.subscribe([self.first, self.other])
        self.assertTrue(self.group.subscribe([self.other]))
        self.assertEqual(self.group.subscriptions, {"U": self.other})
        older = replace(self.first, subVersion=1)
        self.assertTrue(self.group.subscribe([self.other, older]))
        self.assertEqual(self.group.subscriptions["T"], older)

    def test_newerOfRepeatedTopicCounts(self) -> None:
        """
        If one heartbeat has a topic twice, the newer counts, in either order.
        """
        newer = replace(self.first, subString="b", subVersion=6)
        for wanted in ([self.first, newer], [newer, self.first]):
            group = ConsumerGroup()
            self.assertTrue(group.subscribe(wanted))
            self.assertEqual(group.subscriptions, {"T": newer})


class ConsumersTests(RemotingTests):
    """
    L{Consumers}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.quiet: set[str] = set()
        self.consumers = Consumers(self.clock, lambda group: group not in self.quiet)

    def settle(self) -> None:
        """
        The reactor's turn ends.
        """
        self.clock.advance(0)

    def test_heartbeatIsRegistered(self) -> None:
        """
        The content of a heartbeat can be requested.
        """
        one, two = Connected("192.0.2.7:1"), Connected("192.0.2.7:2")
        self.assertTrue(self.consumers.register(consumer("G", "T"), one.client("a"), 0))
        self.assertTrue(self.consumers.register(consumer("G", "T"), two.client("b"), 0))
        self.assertFalse(self.consumers.register(consumer("G", "T"), two.client("b"), 1))
        self.assertEqual(self.consumers.clientIds("G"), ("a", "b"))
        self.assertIs(self.consumers.peer("G", "b"), two.peer)
        subscription = SubscriptionData("T", "*", subVersion=1)
        self.assertEqual(self.consumers.subscription("G", "T"), subscription)
        self.assertEqual(
            self.consumers.connection("G"),
            ConsumerConnection(
                frozenset(
                    {
                        Connection("a", "192.0.2.7:1", "JAVA", 407),
                        Connection("b", "192.0.2.7:2", "JAVA", 407),
                    }
                ),
                {"T": subscription},
                ConsumeType.CONSUME_PASSIVELY,
                MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            ),
        )

    def test_emptyGroupIsUnknown(self) -> None:
        """
        Of a group without members nothing is known, and of others only what they
        said.
        """
        self.assertEqual(self.consumers.clientIds("G"), ())
        self.assertIsNone(self.consumers.peer("G", "a"))
        self.assertIsNone(self.consumers.subscription("G", "T"))
        self.assertIsNone(self.consumers.connection("G"))
        self.assertIsNone(self.consumers.get("G"))
        self.consumers.register(consumer("G", "T"), Connected().client("a"), 0)
        self.assertIsNone(self.consumers.peer("G", "b"))
        self.assertIsNone(self.consumers.subscription("G", "U"))

    def test_lastHeartbeatDecidesKind(self) -> None:
        """
        The kind of a group is that of its last heartbeat.
        """
        one, two = Connected(), Connected()
        self.consumers.register(consumer("G", "T"), one.client("a"), 0)
        self.consumers.register(
            replace(consumer("G", "T"), messageModel=MessageModel.BROADCASTING, consumeType=None),
            two.client("b"),
            0,
        )
        group = self.consumers.get("G")
        assert group is not None
        self.assertEqual(group.messageModel, MessageModel.BROADCASTING)
        self.assertIsNone(group.consumeType)

    def test_lastMemberTakesSubscriptions(self) -> None:
        """
        The subscriptions of a group go with its last member.
        """
        one = Connected()
        self.consumers.register(consumer("G", "T", version=9), one.client("a"), 0)
        one.lose()
        self.assertIsNone(self.consumers.subscription("G", "T"))
        self.consumers.register(consumer("G", "T", version=1), Connected().client("a"), 0)
        found = self.consumers.subscription("G", "T")
        assert found is not None
        self.assertEqual(found.subVersion, 1)

    def test_newMemberIsNotifiedToAll(self) -> None:
        """
        All members get a notice of a new one, itself included, and none of a heartbeat
        without changes.
        """
        one, two = Connected(), Connected()
        self.consumers.register(consumer("G", "T"), one.client("a"), 0)
        self.settle()
        self.assertEqual(one.notices(), ["G"])
        self.consumers.register(consumer("G", "T"), two.client("b"), 0)
        self.settle()
        self.assertEqual((one.notices(), two.notices()), (["G"], ["G"]))
        self.consumers.register(consumer("G", "T"), two.client("b"), 1)
        self.settle()
        self.assertEqual((one.notices(), two.notices()), ([], []))

    def test_newTopicsAreNotifiedToAll(self) -> None:
        """
        All members get a notice when the group subscribes to other topics, and not when
        only an expression is newer.
        """
        one, two = Connected(), Connected()
        for each, clientId in ((one, "a"), (two, "b")):
            self.consumers.register(consumer("G", "T"), each.client(clientId), 0)
        self.settle()
        one.notices(), two.notices()
        for topics, version, told in (
            (("T", "U"), 1, ["G"]),
            (("T", "U"), 2, []),
            (("U",), 2, ["G"]),
        ):
            self.consumers.register(consumer("G", *topics, version=version), one.client("a"), 0)
            self.settle()
            self.assertEqual((one.notices(), two.notices()), (told, told))

    def test_lostMemberIsNotifiedToRest(self) -> None:
        """
        The remaining members are notified of one that unregisters, is lost or expires.
        """
        stays = Connected()
        self.consumers.register(consumer("G", "T"), stays.client("z"), 1)
        for goes in (
            lambda each: self.consumers.unregister("G", each.peer),
            lambda each: each.lose(),
            lambda each: finish(self.consumers.expire(120_001)),
        ):
            one = Connected()
            self.consumers.register(consumer("G", "T"), one.client("a"), 0)
            self.settle()
            stays.notices(), one.notices()
            goes(one)
            self.assertEqual(self.consumers.clientIds("G"), ("z",))
            self.settle()
            self.assertEqual(stays.notices(), ["G"])
            self.assertEqual(one.notices(), [])

    def test_configurationDisablesNotice(self) -> None:
        """
        If the group's configuration says so, no member is notified.
        """
        self.quiet.add("G")
        one, two = Connected(), Connected()
        self.consumers.register(consumer("G", "T"), one.client("a"), 0)
        self.consumers.register(consumer("H", "T"), one.client("a"), 0)
        self.consumers.register(consumer("G", "T"), two.client("b"), 0)
        self.settle()
        two.lose()
        self.settle()
        self.assertEqual(one.notices(), ["H"])

    def test_changesOfOneTurnAreToldOnce(self) -> None:
        """
        All changes of one turn are told once: a thousand members that come together get a
        thousand notices and not half a million.
        """
        members = [Connected() for _ in range(1000)]
        for number, each in enumerate(members):
            self.consumers.register(consumer("G", "T"), each.client(str(number)), 0)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.settle()
        self.assertEqual([each.notices() for each in members], [["G"]] * 1000)
        for each in members[1:]:
            each.lose()
        self.settle()
        self.assertEqual(members[0].notices(), ["G"])

    def test_unreachableMemberDelaysNoOther(self) -> None:
        """
        A member that cannot be notified does not keep the others from it, and the log tells
        the number.
        """
        members = [
            Connected(),
            Connected("192.0.2.9:1", Limits(oneways=0)),
            Connected(),
            Connected("192.0.2.9:2", Limits(oneways=0)),
        ]
        for number, each in enumerate(members):
            self.consumers.register(consumer("G", "T"), each.client(str(number)), 0)
        self.settle()
        self.assertEqual([each.notices() for each in members], [["G"], [], ["G"], []])
        said = self.logged(LogLevel.info)
        self.assertEqual(len(said), 1)
        self.assertTrue(said[0].startswith("2 of 4 members of group G could not be notified"))
        self.assertIn("192.0.2.9:2", said[0])

    def test_goneGroupIsToldNothing(self) -> None:
        """
        A group that is gone by the end of the turn gets no notice.
        """
        one = Connected()
        self.consumers.register(consumer("G", "T"), one.client("a"), 0)
        self.consumers.unregister("G", one.peer)
        self.settle()
        self.assertEqual(one.notices(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_notificationIsJavas(self) -> None:
        """
        The notice is what Java's broker writes, but for its language, its version and
        its number.
        """
        theirs = next(
            each
            for each in captures()
            if each.requestCode == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        )
        one = Connected()
        group = theirs.header["extFields"]["consumerGroup"]
        self.consumers.register(consumer(group, "T"), one.client("a"), 0)
        self.settle()
        (ours,) = one.wire.drain()
        self.assertEqual(ours.code, theirs.header["code"])
        self.assertEqual(ours.flag, theirs.header["flag"])
        self.assertEqual(ours.extFields, theirs.header["extFields"])
        self.assertEqual(ours.version, theirs.header["version"])
        self.assertEqual(ours.remark, theirs.header.get("remark"))
        self.assertEqual(ours.body, theirs.body)


class ClockTests(SynchronousTestCase):
    """
    L{Consumers} and the reactor.
    """

    def test_idleRegistryHasNoTimer(self) -> None:
        """
        Nothing waits while nothing changes.
        """
        clock = Clock()
        consumers = Consumers(clock, lambda group: True)
        one = Connected()
        consumers.register(consumer("G", "T"), one.client("a"), 0)
        clock.advance(0)
        consumers.register(consumer("G", "T"), one.client("a"), 1)
        finish(consumers.expire(1))
        self.assertEqual(clock.getDelayedCalls(), [])
