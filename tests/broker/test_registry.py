# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.clients.registry}.
"""

from __future__ import annotations

from twisted.logger import LogLevel

from tests.broker.peers import Connected
from tests.remoting.doubles import RemotingTests
from txrocket.broker.clients.registry import Members, Registry
from txrocket.protocol.bodies import Connection
from txrocket.protocol.fastjson import finish


class RegistryTests(RemotingTests):
    """
    L{Registry}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.left: list[str] = []
        self.registry = Registry(Members, self.left.append)

    def ids(self, group: str) -> list[str]:
        """
        The client ids of a group.
        """
        return list(self.registry.groups[group].byId)

    def test_clientIsNewOnce(self) -> None:
        """
        A client is new in a group once; later heartbeats only keep it there.
        """
        one = Connected()
        group, joined = self.registry.join("G", one.client("a"), 5)
        self.assertTrue(joined)
        again, joined = self.registry.join("G", one.client("a"), 7)
        self.assertFalse(joined)
        self.assertIs(again, group)
        self.assertEqual(len(group), 1)
        self.assertEqual(group.byId["a"].heard, 7)

    def test_connectionsListMembers(self) -> None:
        """
        A group lists its members and their addresses.
        """
        one, two = Connected("192.0.2.1:1"), Connected("192.0.2.2:2")
        self.registry.join("G", one.client("a"), 0)
        group, _ = self.registry.join("G", two.client("b"), 0)
        self.assertEqual(
            group.connections(),
            {
                Connection("a", "192.0.2.1:1", "JAVA", 407),
                Connection("b", "192.0.2.2:2", "JAVA", 407),
            },
        )

    def test_lastMemberRemovesGroup(self) -> None:
        """
        A client leaves one group and stays in others; the group goes with its
        last member.
        """
        one, two = Connected(), Connected()
        for each in ("G", "H"):
            self.registry.join(each, one.client("a"), 0)
        self.registry.join("G", two.client("b"), 0)
        self.registry.unregister("G", one.peer)
        self.assertEqual(self.ids("G"), ["b"])
        self.assertEqual(self.ids("H"), ["a"])
        self.registry.unregister("G", two.peer)
        self.assertEqual(self.registry.groups.keys(), {"H"})
        self.assertEqual(self.left, ["G", "G"])

    def test_strangerLeavesNothing(self) -> None:
        """
        A client that is not in the group, or a group that does not exist, has nothing to
        leave.
        """
        self.registry.join("G", Connected().client("a"), 0)
        stranger = Connected()
        self.registry.unregister("G", stranger.peer)
        self.registry.unregister("H", stranger.peer)
        self.assertEqual(self.ids("G"), ["a"])
        self.assertEqual(self.left, [])

    def test_lostConnectionLeavesAllGroups(self) -> None:
        """
        A client leaves all its groups with its connection.
        """
        one, two = Connected(), Connected()
        for each in ("G", "H"):
            self.registry.join(each, one.client("a"), 0)
        self.registry.join("G", two.client("b"), 0)
        one.lose()
        self.assertEqual(self.registry.groups.keys(), {"G"})
        self.assertEqual(self.ids("G"), ["b"])
        self.assertEqual(sorted(self.left), ["G", "H"])

    def test_reconnectedClientReplacesItself(self) -> None:
        """
        A client on a new connection replaces itself; the old connection's requests or its
        late end do not affect it.
        """
        old, new = Connected("192.0.2.1:1"), Connected("192.0.2.1:2")
        self.registry.join("G", old.client("a"), 0)
        group, joined = self.registry.join("G", new.client("a"), 1)
        self.assertTrue(joined)
        self.assertEqual(self.ids("G"), ["a"])
        self.registry.unregister("G", old.peer)
        old.lose()
        self.assertEqual(self.ids("G"), ["a"])
        self.assertIs(group.byId["a"].client.peer, new.peer)
        self.assertEqual(self.left, [])
        new.lose()
        self.assertEqual(self.registry.groups, {})

    def test_findReturnsLatestConnection(self) -> None:
        """
        A client is found by its id while it is in any group, on the connection that
        it came on last.
        """
        old, new = Connected(), Connected()
        self.registry.join("G", old.client("a"), 0)
        self.registry.join("H", old.client("a"), 0)
        self.registry.join("G", Connected().client("b"), 0)
        self.assertIs(self.registry.find("a"), old.peer)
        self.registry.join("H", new.client("a"), 1)
        self.assertIs(self.registry.find("a"), new.peer)
        self.registry.unregister("H", new.peer)
        self.assertIs(self.registry.find("a"), old.peer)
        old.lose()
        self.assertIsNone(self.registry.find("a"))
        self.assertIsNone(self.registry.find("c"))

    def test_changedIdIsOneMember(self) -> None:
        """
        A connection that changes its id is still one member.
        """
        one = Connected()
        self.registry.join("G", one.client("a"), 0)
        _, joined = self.registry.join("G", one.client("b"), 0)
        self.assertTrue(joined)
        self.assertEqual(self.ids("G"), ["b"])

    def test_takenIdReplacesMember(self) -> None:
        """
        A connection that takes the id of another member replaces it.
        """
        one, two = Connected(), Connected()
        self.registry.join("G", one.client("a"), 0)
        self.registry.join("G", two.client("b"), 0)
        group, joined = self.registry.join("G", one.client("b"), 0)
        self.assertTrue(joined)
        self.assertEqual(self.ids("G"), ["b"])
        self.assertIs(group.byId["b"].client.peer, one.peer)
        self.assertEqual(group.byPeer.keys(), {one.peer})

    def test_silentMemberIsRemoved(self) -> None:
        """
        A member that sent no heartbeat for more than 120 seconds is removed, its connection is
        closed, and the log names it.
        """
        one, two = Connected("192.0.2.1:1"), Connected()
        self.registry.join("G", one.client("a"), 0)
        self.registry.join("H", one.client("a"), 0)
        self.registry.join("G", two.client("b"), 1)
        self.registry.join("H", one.client("a"), 1)
        finish(self.registry.expire(120_000))
        self.assertEqual(self.ids("G"), ["a", "b"])
        finish(self.registry.expire(120_001))
        self.assertEqual(self.ids("G"), ["b"])
        self.assertEqual(self.ids("H"), ["a"])
        self.assertTrue(one.wire.disconnecting)
        self.assertFalse(two.wire.disconnecting)
        (said,) = self.logged(LogLevel.warn)
        self.assertEqual(
            said,
            "Closing the connection of a at 192.0.2.1:1, which sent no heartbeat for group G"
            " for 120 s",
        )
        one.lose()
        self.assertEqual(self.registry.groups.keys(), {"G"})
        self.assertEqual(self.left, ["G", "H"])

    def test_silentGroupExpires(self) -> None:
        """
        A group whose members are all silent expires.
        """
        for each in ("a", "b"):
            self.registry.join("G", Connected().client(each), 0)
        finish(self.registry.expire(200_000))
        self.assertEqual(self.registry.groups, {})

    def test_connectionIsWatchedOnce(self) -> None:
        """
        However often a client joins and leaves, its connection is watched once, and nothing
        is known of a connection that is gone.
        """
        one, two = Connected(), Connected()
        for turn in range(10):
            self.registry.join("G", one.client("a"), turn)
            self.registry.unregister("G", one.peer)
            self.registry.join("H", one.client("a"), turn)
            self.registry.join("H", two.client("a"), turn)
            self.registry.unregister("H", two.peer)
        self.assertEqual(len(one.peer._lost), 1)
        self.assertEqual(self.registry._names, {one.peer: set(), two.peer: set()})
        one.lose()
        two.lose()
        self.assertEqual(self.registry._names, {})
