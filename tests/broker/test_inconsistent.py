# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.clients.inconsistent}: what is noticed in heartbeats of members that do
not want the same.
"""

from __future__ import annotations

from typing import Any

from twisted.logger import LogLevel

from tests.broker.peers import Connected, consumer
from tests.remoting.doubles import RemotingTests
from txrocket.broker.clients.consumers import Consumers
from txrocket.protocol.bodies.inspect import DifferingConsumerConnection
from txrocket.protocol.fastjson import finish

WARNING = "The members of consumer group G have different subscriptions and so lose messages: "
AGAIN = "The members of consumer group G have the same subscriptions again"


class InconsistentTests(RemotingTests):
    """
    Members of a group.
    """

    def setUp(self) -> None:
        super().setUp()
        self.clock.advance(1000)
        self.consumers = Consumers(self.clock, lambda group: True)
        self.connections = {each: Connected() for each in "abc"}

    def beat(self, clientId: str, *topics: str, group: str = "G", **options: Any) -> None:
        """
        A member's heartbeat, and the end of the turn.
        """
        client = self.connections[clientId].client(clientId)
        self.consumers.register(consumer(group, *topics, **options), client, 0)
        self.clock.advance(0)

    def said(self) -> list[str]:
        """
        The log since the last call.
        """
        said = self.logged(LogLevel.warn) + self.logged(LogLevel.info)
        self.events.clear()
        return said

    def names(self) -> list[str]:
        """
        The groups that differ.
        """
        return [each.group for each in finish(self.consumers.differing.first(10)).groups]

    def test_differenceIsLoggedOnce(self) -> None:
        """
        A difference is logged once, however often it is said, and so is its end.
        """
        self.beat("a", "T", expression="x")
        self.assertEqual((self.said(), self.names()), ([], []))
        self.beat("b", "T", expression="y")
        self.assertEqual(self.said(), [f"{WARNING}T: 'x' by a; 'y' by b"])
        for _ in range(3):
            self.beat("a", "T", expression="x")
            self.beat("b", "T", expression="y")
            self.clock.advance(30)
        self.assertEqual((self.said(), self.names()), ([], ["G"]))
        self.beat("a", "T", expression="y", version=2)
        self.assertEqual((self.said(), self.names()), ([AGAIN], []))

    def test_otherTopicsDiffer(self) -> None:
        """
        Other topics are a difference as well.
        """
        self.beat("a", "T", "U")
        self.beat("b", "T")
        self.assertEqual(self.said(), [f"{WARNING}U: '*' by a; not at all by b"])

    def test_rollingRestartLogsTwoLines(self) -> None:
        """
        Members that are restarted one by one with other subscriptions are worth two
        lines.
        """
        for each in "abc":
            self.beat(each, "T", expression="x")
        for each in "abc":
            self.connections[each].lose()
            self.clock.advance(0)
            self.connections[each] = Connected()
            self.beat(each, "T", expression="y", version=2)
        first, last = self.said()
        self.assertEqual(first, f"{WARNING}T: 'x' by b, c; 'y' by a")
        self.assertEqual(last, AGAIN)

    def test_otherDifferenceIsLoggedAgain(self) -> None:
        """
        A changed difference is logged again; its beginning stays the same.
        """
        self.beat("a", "T", expression="x")
        self.beat("b", "T", expression="y")
        self.clock.advance(5)
        self.said()
        self.beat("c", "T", expression="z")
        self.assertEqual(self.said(), [f"{WARNING}T: 'x' by a; 'y' by b; 'z' by c"])
        [group] = finish(self.consumers.differing.first(10)).groups
        self.assertEqual((group.since, group.members, group.more), (1_000_000, 3, 0))

    def test_leavingMemberEndsDifference(self) -> None:
        """
        A difference ends with the member that makes it, and with the group.
        """
        self.beat("a", "T", expression="x")
        self.beat("b", "T", expression="y")
        self.said()
        self.connections["b"].lose()
        self.clock.advance(0)
        self.assertEqual((self.said(), self.names()), ([AGAIN], []))
        self.connections["b"] = Connected()
        self.beat("b", "T", expression="y")
        self.said()
        self.connections["a"].lose()
        self.connections["b"].lose()
        self.assertEqual(self.names(), [])
        self.clock.advance(0)
        self.assertEqual(self.said(), [AGAIN])

    def test_differenceWithinATurnIsNotLogged(self) -> None:
        """
        A difference that ends within a turn of the reactor is not logged.
        """
        self.beat("a", "T", expression="x")
        client = self.connections["b"].client("b")
        self.consumers.register(consumer("G", "T", expression="y"), client, 0)
        self.consumers.register(consumer("G", "T", expression="x"), client, 0)
        self.clock.advance(0)
        self.assertEqual(self.said(), [])

    def test_longestDifferenceIsFirst(self) -> None:
        """
        The groups can be listed, the longest differing first, up to a number and with the
        count of the rest; or one of them.
        """
        for group in ("H", "G", "I", "same"):
            self.beat("a", "T", group=group)
            self.beat("b", "T", group=group, expression="*" if group == "same" else "y")
            self.clock.advance(1)
        told = finish(self.consumers.differing.first(2))
        self.assertEqual([each.group for each in told.groups], ["H", "G"])
        self.assertEqual(told.more, 1)
        told = finish(self.consumers.differing.first(2, "I"))
        self.assertEqual([each.group for each in told.groups], ["I"])
        self.assertEqual(finish(self.consumers.differing.first(2, "same")).groups, ())

    def test_manyDifferencesAreCutOff(self) -> None:
        """
        Of a group with very many differences, only some topics are listed.
        """
        self.beat("a", *(f"T{number:02}" for number in range(30)))
        self.beat("b")
        [group] = finish(self.consumers.differing.first(10)).groups
        self.assertEqual((len(group.differences), group.more), (20, 10))

    def test_connectionShowsDifferences(self) -> None:
        """
        A request for the consumers of a group shows their differences, and nothing of that
        if they agree.
        """
        self.beat("a", "T", expression="x")
        self.assertNotIsInstance(self.consumers.connection("G"), DifferingConsumerConnection)
        self.beat("b", "T", expression="y")
        told = self.consumers.connection("G")
        assert isinstance(told, DifferingConsumerConnection)
        [difference] = told.differences
        self.assertEqual([each.expression for each in difference.views], ["x", "y"])
        self.assertEqual(len(told.connectionSet), 2)
