# SPDX-License-Identifier: Apache-2.0
"""
L{Consumers<txrocket.broker.clients.consumers.Consumers>} beside a model that is too simple
to be wrong: a list of members, searched from end to end, and a set of groups
whose members are to be told.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.peers import Connected, consumer
from txrocket.broker.clients.consumers import Consumers
from txrocket.model import SubscriptionData
from txrocket.protocol.fastjson import finish

GROUPS = ("G", "H", "quiet")
TOPICS = ("T", "U")
IDS = ("a", "b", "c")

picks = st.integers(0, 2)


class Known(NamedTuple):
    """
    A member, as the model knows it.
    """

    group: str
    clientId: str
    connection: Connected
    heard: int
    said: frozenset[tuple[str, str]]


class ConsumersMachine(RuleBasedStateMachine):
    """
    Clients connect, heartbeat, unregister, fall silent and are lost, in any order
    and any number of times in a turn of the reactor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.consumers = Consumers(self.clock, lambda group: group != "quiet")
        self.now = 0
        self.open: list[Connected] = []
        self.members: list[Known] = []
        self.subscriptions: dict[tuple[str, str], SubscriptionData] = {}
        self.changed: set[str] = set()

    def forget(self, goes: list[Known]) -> None:
        """
        Members leave their groups.
        """
        self.members = [each for each in self.members if each not in goes]
        self.changed |= {each.group for each in goes}
        groups = {each.group for each in self.members}
        self.subscriptions = {
            key: each for key, each in self.subscriptions.items() if key[0] in groups
        }

    def pick(self, number: int) -> Connected:
        """
        One of the open connections.
        """
        return self.open[number % len(self.open)]

    @precondition(lambda self: len(self.open) < 3)
    @rule()
    def connect(self) -> None:
        """
        A client connects and has sent no heartbeat yet.
        """
        self.open.append(Connected())

    @precondition(lambda self: self.open)
    @rule(
        number=picks,
        group=st.sampled_from(GROUPS),
        clientId=st.sampled_from(IDS),
        topics=st.sets(st.sampled_from(TOPICS)),
        version=st.integers(0, 2),
        expression=st.sampled_from(["*", "x"]),
    )
    def heartbeat(
        self,
        number: int,
        group: str,
        clientId: str,
        topics: set[str],
        version: int,
        expression: str,
    ) -> None:
        """
        A client says which group it is in and what that subscribes to.
        """
        connection = self.pick(number)
        data = consumer(group, *topics, version=version, expression=expression)
        self.consumers.register(data, connection.client(clientId), self.now)
        same = [
            each
            for each in self.members
            if each.group == group and (each.connection is connection or each.clientId == clientId)
        ]
        if [(each.connection, each.clientId) for each in same] != [(connection, clientId)]:
            self.changed.add(group)
        self.members = [each for each in self.members if each not in same]
        said = frozenset((topic, expression) for topic in topics)
        self.members.append(Known(group, clientId, connection, self.now, said))
        before = {topic for name, topic in self.subscriptions if name == group}
        if before != topics:
            self.changed.add(group)
        for topic in before - topics:
            del self.subscriptions[group, topic]
        for each in data.subscriptionDataSet:
            known = self.subscriptions.get((group, each.topic))
            if known is None or known.subVersion < version:
                self.subscriptions[group, each.topic] = each

    @precondition(lambda self: self.open)
    @rule(number=picks, group=st.sampled_from(GROUPS))
    def unregister(self, number: int, group: str) -> None:
        """
        A client gives a group up, which it need not be in.
        """
        connection = self.pick(number)
        self.consumers.unregister(group, connection.peer)
        self.forget(
            [each for each in self.members if (each.group, each.connection) == (group, connection)]
        )

    @precondition(lambda self: self.open)
    @rule(number=picks)
    def lose(self, number: int) -> None:
        """
        A connection ends.
        """
        connection = self.pick(number)
        self.open.remove(connection)
        connection.lose()
        self.forget([each for each in self.members if each.connection is connection])

    @rule(pause=st.sampled_from([1, 60_000, 120_000, 120_001]))
    def expire(self, pause: int) -> None:
        """
        Time passes, and the registry looks for silent clients.
        """
        self.now += pause
        finish(self.consumers.expire(self.now))
        self.forget([each for each in self.members if self.now - each.heard > 120_000])

    @rule()
    def turn(self) -> None:
        """
        The turn ends: each member of each group that changed is told of it once.
        """
        self.clock.advance(0)
        for connection in self.open:
            expected = Counter(
                each.group
                for each in self.members
                if each.connection is connection and each.group in self.changed - {"quiet"}
            )
            assert Counter(connection.notices()) == expected
        self.changed.clear()
        differing = {
            name
            for name in GROUPS
            if len({each.said for each in self.members if each.group == name}) > 1
        }
        told = finish(self.consumers.differing.first(len(GROUPS)))
        assert {each.group for each in told.groups} == differing

    @invariant()
    def agrees(self) -> None:
        """
        Whatever can be asked is as in the model.
        """
        for group in GROUPS:
            members = [each for each in self.members if each.group == group]
            assert sorted(self.consumers.clientIds(group)) == sorted(
                each.clientId for each in members
            )
            for each in members:
                assert self.consumers.peer(group, each.clientId) is each.connection.peer
            assert (self.consumers.connection(group) is None) == (not members)
            for topic in TOPICS:
                assert self.consumers.subscription(group, topic) == self.subscriptions.get(
                    (group, topic)
                )

    @invariant()
    def bounded(self) -> None:
        """
        Nothing is known but of groups with members and of open connections.
        """
        registry = self.consumers
        for group in registry.groups.values():
            assert group.views._of.keys() == group.byId.keys()
            views = list(group.views._of.values())
            # Each is kept once.
            assert len(set(map(id, views))) == len(set(views)) == len(group.views._members)
        assert registry.groups.keys() == {each.group for each in self.members}
        for clientId in IDS:
            peers = [each.connection.peer for each in self.members if each.clientId == clientId]
            found = registry.find(clientId)
            assert found in peers if peers else found is None
        assert registry._byId.keys() == {each.clientId for each in self.members}
        assert registry._names.keys() <= {each.peer for each in self.open}
        for peer, names in registry._names.items():
            assert names == {each.group for each in self.members if each.connection.peer is peer}
        assert all(len(each.peer._lost) <= 1 for each in self.open)


class ModelTests(SynchronousTestCase):
    """
    The consumers against the model.
    """

    def test_clientsMatchModel(self) -> None:
        """
        Whatever clients do, the broker's tables are those of the model.
        """
        run_state_machine_as_test(
            ConsumersMachine, settings=settings(max_examples=200, stateful_step_count=40)
        )
