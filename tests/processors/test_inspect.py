# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.admin.inspect}, and of what there is to look at in whole
brokers.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.processors.replay import Server
from txrocket.broker.service import Broker
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.transaction import TransactionProducer
from txrocket.errors import StoreError
from txrocket.message import Message
from txrocket.model import ConsumeFromWhere, MessageQueue
from txrocket.processors.admin.inspect import Halves, InspectProcessor
from txrocket.processors.cooperate import cooperator
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.bodies.inspect import (
    DifferingConsumerConnection,
    DifferingGroup,
    DifferingGroupList,
    HalfList,
    HeldLock,
    InspectHalvesRequestHeader,
    InspectRequestHeader,
    LockList,
    PendingHalf,
)
from txrocket.protocol.codes import InspectCode, RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import GetConsumerConnectionListRequestHeader
from txrocket.protocol.headers.fields import Header
from txrocket.remoting.peers import Peers
from txrocket.remoting.remoting import Remoting
from txrocket.testing.trial import memoryCluster


class InspectTests(SynchronousTestCase):
    """
    The processor.
    """

    def setUp(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.halves: list[tuple[Any, ...]] = []
        self.lock = HeldLock("G", MessageQueue("T", "b", 1), "c", 5000, 10)
        self.differing = DifferingGroup("G", 7, 2)
        self.clock = Clock()
        self.server = self.serve(self.some)

    def serve(self, halves: Halves) -> Server:
        """
        The processor behind a connection.
        """
        slices = cooperator(self.clock)
        processor = InspectProcessor(self.locks, halves, self.groups, slices)
        return Server(processor.codes(), self.clock)

    def locks(self, most: int, group: str | None) -> Gradual[LockList]:
        """
        The locks.
        """
        self.asked.append((most, group))
        yield
        return LockList((self.lock,), 3)

    def some(self, most: int, offset: int) -> list[tuple[Any, ...]]:
        """
        Some halves.
        """
        self.asked.append((most, offset))
        return self.halves[offset : offset + most]

    def groups(self, most: int, group: str | None) -> Gradual[DifferingGroupList]:
        """
        The groups that differ.
        """
        self.asked.append((most, group))
        yield
        return DifferingGroupList((self.differing,))

    def ask(self, code: int, header: Header | None = None) -> RemotingCommand:
        """
        What is answered.
        """
        request = requestCommand(code, header)
        request.opaque = 7
        answer = self.server.send(request.encode())
        assert answer is not None
        return answer

    def test_locksAreListed(self) -> None:
        """
        The locks are told, of all groups or of one.
        """
        answer = self.ask(InspectCode.INSPECT_LOCKS)
        self.assertEqual(decodeBody(LockList, answer.body), LockList((self.lock,), 3))
        self.ask(InspectCode.INSPECT_LOCKS, InspectRequestHeader("G"))
        self.assertEqual(self.asked, [(1000, None), (1000, "G")])

    def test_differingGroupsAreListed(self) -> None:
        """
        The groups that differ are told, all or one.
        """
        answer = self.ask(InspectCode.INSPECT_SUBSCRIPTIONS)
        told = decodeBody(DifferingGroupList, answer.body)
        self.assertEqual(told, DifferingGroupList((self.differing,)))
        self.ask(InspectCode.INSPECT_SUBSCRIPTIONS, InspectRequestHeader("G"))
        self.assertEqual(self.asked, [(100, None), (100, "G")])

    def test_halvesAreListedInPages(self) -> None:
        """
        Halves are listed up to a limit, and whether there are more.
        """
        self.halves = [(each, f"m{each}", "o", "T", "P", 1, 2, 3) for each in range(350)]
        first = decodeBody(HalfList, self.ask(InspectCode.INSPECT_HALVES).body)
        self.assertEqual((len(first.halves), first.more), (200, True))
        self.assertEqual(first.halves[9], PendingHalf(9, "m9", "o", "T", "P", 1, 2, 3))
        header = InspectHalvesRequestHeader(200)
        rest = decodeBody(HalfList, self.ask(InspectCode.INSPECT_HALVES, header).body)
        self.assertEqual((len(rest.halves), rest.more), (150, False))
        header = InspectHalvesRequestHeader(-5)
        again = decodeBody(HalfList, self.ask(InspectCode.INSPECT_HALVES, header).body)
        self.assertEqual(again, first)

    def test_unreadableDiskIsReported(self) -> None:
        """
        A disk that does not give them is told of.
        """

        def broken(most: int, offset: int) -> list[tuple[Any, ...]]:
            raise StoreError("broken")

        self.server = self.serve(broken)
        answer = self.ask(InspectCode.INSPECT_HALVES)
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("broken", answer.remark or "")


class WholeTests(SynchronousTestCase):
    """
    A whole broker, and clients.
    """

    def setUp(self) -> None:
        self.servers = memoryCluster(self)
        broker = self.servers.service(self.servers.brokers[0])
        assert isinstance(broker, Broker)
        for topic in ("T0", "T1"):
            broker.tables.topics.ensure(topic, 4)
        self.servers.advance(1)
        self.peers = Peers(Remoting(self.servers.clock), self.servers.connect)
        self.addCleanup(lambda: self.servers.resultOf(self.peers.stop()))

    def ask(self, code: int, header: Header | None = None) -> bytes:
        """
        The body of the broker's answer.
        """
        request = requestCommand(code, header)
        answer = self.servers.resultOf(self.peers.request(self.servers.brokers[0], request, 3.0))
        self.assertEqual(answer.code, 0, answer.remark)
        return answer.body

    def cluster(self, clientId: str) -> Cluster:
        """
        A client in a process of its own.
        """
        servers = self.servers
        cluster = Cluster(
            servers.nameServers, servers.clock, clientId=clientId, connect=servers.connect
        )
        self.addCleanup(lambda: servers.resultOf(cluster.stop()))
        return cluster

    def consumer(self, clientId: str, *expressions: str, **options: Any) -> PushConsumer:
        """
        A consumer of T.
        """
        consumer = PushConsumer(
            self.cluster(clientId),
            "G",
            lambda message: None,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            **options,
        )
        for number, each in enumerate(expressions):
            consumer.subscribe(f"T{number}", each)
        consumer.startService()
        self.addCleanup(lambda: self.servers.resultOf(consumer.stop()))
        self.servers.advance(1)
        return consumer

    def test_orderlyConsumersLocksAreListed(self) -> None:
        """
        Who consumes in order has locks, which grow old and are renewed.
        """
        self.consumer("one", "*", orderly=True)
        self.servers.advance(24)
        found = decodeBody(LockList, self.ask(InspectCode.INSPECT_LOCKS))
        mine = [each for each in found.locks if each.queue.topic == "T0"]
        self.assertEqual([each.queue.queueId for each in mine], [0, 1, 2, 3])
        self.assertEqual({each.clientId for each in mine}, {"one"})
        self.assertEqual({each.group for each in mine}, {"G"})
        for each in mine:
            self.assertGreater(each.held, 20_000)
            self.assertLess(each.silent, 20_000)
        other = self.ask(InspectCode.INSPECT_LOCKS, InspectRequestHeader("H"))
        self.assertEqual(decodeBody(LockList, other), LockList())

    def test_differingMembersAreListed(self) -> None:
        """
        Members that do not want the same are told of, also with the group's
        consumers.
        """
        one = self.consumer("one", "a || b", "*")
        self.assertEqual(json.loads(self.ask(InspectCode.INSPECT_SUBSCRIPTIONS))["groups"], [])
        self.consumer("two", "b || c", "*")
        [group] = decodeBody(DifferingGroupList, self.ask(InspectCode.INSPECT_SUBSCRIPTIONS)).groups
        self.assertEqual((group.group, group.members), ("G", 2))
        [difference] = group.differences
        self.assertEqual(difference.topic, "T0")
        said = {each.clientIds: each.expression for each in difference.views}
        self.assertEqual(said, {("one",): "a || b", ("two",): "b || c"})
        body = self.ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader("G")
        )
        told = decodeBody(DifferingConsumerConnection, body)
        self.assertEqual(told.differences, group.differences)
        one.subscribe("T0", "c||b")
        self.servers.advance(1)
        self.assertEqual(json.loads(self.ask(InspectCode.INSPECT_SUBSCRIPTIONS))["groups"], [])

    def test_undecidedHalvesAreListed(self) -> None:
        """
        A transaction that is not decided is told of, with how often its producer was
        asked.
        """
        producer = TransactionProducer(
            self.cluster("p"), "P", check=lambda message: Deferred(), timeout=3.0
        )
        producer.startService()
        self.addCleanup(lambda: self.servers.resultOf(producer.stop()))
        self.assertEqual(decodeBody(HalfList, self.ask(InspectCode.INSPECT_HALVES)), HalfList())
        producer.sendInTransaction(Message("T0", b"x"), lambda message: Deferred())
        self.servers.advance(130)
        [half] = decodeBody(HalfList, self.ask(InspectCode.INSPECT_HALVES)).halves
        self.assertEqual((half.topic, half.group), ("T0", "P"))
        self.assertGreater(half.checks, 0)
        self.assertGreaterEqual(half.age, 120_000)
