# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.clients.heartbeat}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.processors.replay import Server, fieldsOf, fieldsOfOurs, requests, responseTo
from tests.remoting.doubles import frame
from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.clients.producers import Producers
from txrocket.broker.clients.queuelocks import QueueLocks
from txrocket.broker.parts import Clients, Tables
from txrocket.model import SubscriptionGroupConfig
from txrocket.processors.clients.heartbeat import HeartbeatProcessor
from txrocket.processors.cooperate import cooperator
from txrocket.protocol.bodies import ConsumerData, HeartbeatData, ProducerData
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.fastjson import finish


class Groups:
    """
    Groups that are made when they are first heard of, but for some.
    """

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.found: list[str] = []

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        self.found.append(group)
        if group in self.refused:
            return None
        return SubscriptionGroupConfig(group, retryQueueNums=3)


class Topics:
    """
    Retry topics.
    """

    def __init__(self) -> None:
        self.made: list[tuple[str, int, bool]] = []

    def ensureRetryTopic(self, group: str, retryQueueNums: int, unit: bool) -> None:
        self.made.append((group, retryQueueNums, unit))


class HeartbeatTests(SynchronousTestCase):
    """
    L{HeartbeatProcessor}.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.consumers = Consumers(self.clock, lambda group: True)
        self.producers = Producers()
        self.groups = Groups()
        self.topics = Topics()
        unused: Any = None
        groups: Any = self.groups
        topics: Any = self.topics
        clients = Clients(self.producers, self.consumers, QueueLocks(), unused)
        tables = Tables(topics, groups, unused, unused, unused)
        self.processor = HeartbeatProcessor(clients, tables, lambda: 1234, cooperator(self.clock))
        self.server = Server(self.processor.codes())

    def beat(self, data: HeartbeatData, **changes: object) -> tuple[int, str | None]:
        """
        The code and the remark that a heartbeat is answered with.
        """
        answer = self.server.send(frame(34, 7, encodeBody(data), **changes))
        assert answer is not None
        return answer.code, answer.remark

    def test_heartbeatJoinsGroups(self) -> None:
        """
        After a heartbeat the client is a member of its groups, in its language and
        version, as of now.
        """
        data = HeartbeatData(
            "c1",
            frozenset({ProducerData("P")}),
            frozenset({ConsumerData("G"), ConsumerData("H")}),
        )
        self.assertEqual(self.beat(data, language="GO", version=317), (ResponseCode.SUCCESS, None))
        self.assertEqual(self.consumers.clientIds("G"), ("c1",))
        self.assertIs(self.consumers.peer("H", "c1"), self.server.peer)
        (info,) = finish(self.producers.table()).data["P"]
        self.assertEqual(
            (info.clientId, info.language, info.version, info.lastUpdateTimestamp),
            ("c1", "GO", 317, 1234),
        )

    def test_retryTopic(self) -> None:
        """
        A consumer group gets its configuration and a retry topic with as many
        queues as that says, marked for a unit if the client belongs to one.
        """
        self.beat(HeartbeatData("c1", consumerDataSet=frozenset({ConsumerData("G")})))
        self.beat(
            HeartbeatData("c1", consumerDataSet=frozenset({ConsumerData("H", unitMode=True)}))
        )
        self.beat(HeartbeatData("c1", frozenset({ProducerData("P")})))
        self.assertEqual(self.groups.found, ["G", "H"])
        self.assertEqual(self.topics.made, [("G", 3, False), ("H", 3, True)])

    def test_noConfiguration(self) -> None:
        """
        A group that may not be made gets no retry topic; its consumer is known all
        the same, as in Java.
        """
        self.groups.refused.add("G")
        data = HeartbeatData("c1", consumerDataSet=frozenset({ConsumerData("G")}))
        self.assertEqual(self.beat(data), (ResponseCode.SUCCESS, None))
        self.assertEqual(self.topics.made, [])
        self.assertEqual(self.consumers.clientIds("G"), ("c1",))

    def test_badName(self) -> None:
        """
        A heartbeat with a group whose name could leave the store's folder is
        refused as a whole.
        """
        for data in (
            HeartbeatData(
                "c1", consumerDataSet=frozenset({ConsumerData("G"), ConsumerData("../../etc")})
            ),
            HeartbeatData("c1", frozenset({ProducerData("a b")}), frozenset({ConsumerData("G")})),
        ):
            code, remark = self.beat(data)
            self.assertEqual(code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("letters, digits", remark or "")
        self.assertEqual(self.consumers.clientIds("G"), ())
        self.assertEqual((self.groups.found, self.topics.made), ([], []))

    def test_malformedBodyIsRefused(self) -> None:
        """
        A body that is no heartbeat is answered SYSTEM_ERROR with what is wrong.
        """
        for body in (b"", b"[]", b"{}", b'{"clientID":'):
            answer = self.server.send(frame(34, 7, body))
            assert answer is not None
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("HeartbeatData", answer.remark or "")

    def test_unregisterLeavesNamedGroups(self) -> None:
        """
        A client leaves the groups that it names and stays in the others.
        """
        groups = frozenset({ConsumerData("G"), ConsumerData("H")})
        producers = frozenset({ProducerData("P"), ProducerData("Q")})
        self.beat(HeartbeatData("c1", producers, groups))
        for fields in ({"consumerGroup": "G"}, {"producerGroup": "P"}):
            answer = self.server.send(frame(35, 7, fields={"clientID": "c1", **fields}))
            assert answer is not None
            self.assertEqual(answer.code, ResponseCode.SUCCESS)
        self.assertEqual(self.consumers.clientIds("G"), ())
        self.assertEqual(self.consumers.clientIds("H"), ("c1",))
        self.assertEqual(finish(self.producers.table()).data.keys(), {"Q"})

    def test_unregisterNothing(self) -> None:
        """
        Leaving a group that one is not in is fine and makes no group, whatever its
        name; a C++ client names the group that it has not with nothing.
        """
        fields = {"clientID": "c1", "consumerGroup": "..", "producerGroup": ""}
        answer = self.server.send(frame(35, 7, fields=fields))
        assert answer is not None
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        self.assertEqual(self.groups.found, [])

    def test_unregisterNobody(self) -> None:
        """
        A client that leaves must send its id.
        """
        answer = self.server.send(frame(35, 7, fields={"consumerGroup": "G"}))
        assert answer is not None
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("clientID", answer.remark or "")

    def test_capturedHeartbeats(self) -> None:
        """
        Heartbeats of Java and C++ clients are answered as Java answers them, and
        their clients are members afterwards, with the subscriptions that they told
        of.
        """
        replayed = requests(RequestCode.HEART_BEAT, "broker", "vip")
        self.assertEqual(len(replayed), 10)
        compared = 0
        for theirs in replayed:
            self.setUp()
            ours = self.server.send(theirs.frame)
            assert ours is not None
            self.assertEqual(
                (ours.code, ours.remark, ours.extFields, ours.body), (0, None, {}, b"")
            )
            data = decodeBody(HeartbeatData, theirs.body)
            self.assertTrue(data.producerDataSet or data.consumerDataSet)
            for producer in data.producerDataSet:
                (info,) = finish(self.producers.table()).data[producer.groupName]
                self.assertEqual(info.clientId, data.clientID)
                self.assertEqual(info.version, theirs.header["version"])
            for consumer in data.consumerDataSet:
                self.assertEqual(self.consumers.clientIds(consumer.groupName), (data.clientID,))
                self.assertIn((consumer.groupName, 3, False), self.topics.made)
                for each in consumer.subscriptionDataSet:
                    self.assertEqual(
                        self.consumers.subscription(consumer.groupName, each.topic), each
                    )
            expected = responseTo(theirs)
            if expected is not None:
                compared += 1
                self.assertEqual(fieldsOfOurs(ours), fieldsOf(expected))
        self.assertEqual(compared, 4)

    def test_capturedUnregisters(self) -> None:
        """
        Clients of all languages that say goodbye are answered as Java answers them,
        and are gone afterwards.
        """
        replayed = requests(RequestCode.UNREGISTER_CLIENT, "broker", "vip")
        self.assertEqual(len(replayed), 18)
        compared = 0
        for theirs in replayed:
            self.setUp()
            fields = theirs.header["extFields"]
            consumer, producer = fields.get("consumerGroup"), fields.get("producerGroup")
            self.beat(
                HeartbeatData(
                    fields["clientID"],
                    frozenset({ProducerData(producer)} if producer else ()),
                    frozenset({ConsumerData(consumer)} if consumer else ()),
                )
            )
            ours = self.server.send(theirs.frame)
            assert ours is not None
            self.assertEqual(
                (ours.code, ours.remark, ours.extFields, ours.body), (0, None, {}, b"")
            )
            self.assertEqual(self.consumers.clientIds(consumer or ""), ())
            self.assertEqual(finish(self.producers.table()).data, {})
            expected = responseTo(theirs)
            if expected is not None:
                compared += 1
                self.assertEqual(fieldsOfOurs(ours), fieldsOf(expected))
        self.assertEqual(compared, 4)
