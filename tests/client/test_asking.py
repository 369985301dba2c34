# SPDX-License-Identifier: Apache-2.0
"""
Messages that are replied to, with whole brokers in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.service import Broker
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.listener import ConsumeLater
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.errors import RemoteSystemError, RequestTimedOut, SendFailed
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere
from txrocket.testing.trial import memoryCluster

REPLIES = "DefaultCluster_REPLY_TOPIC"


class AskingCase(SynchronousTestCase):
    """
    The base: requesters and repliers.

    @ivar failed: why replies failed.
    """

    brokers = 1
    settings: dict[str, Any] = {}

    def setUp(self) -> None:
        self.servers = memoryCluster(self, brokers=self.brokers, settings=self.settings)
        self.failed: list[Any] = []
        self.questions: list[MessageExt] = []
        self.pupil = self.producer("pupils")

    def client(self) -> Cluster:
        """
        A client in a process of its own.
        """
        servers = self.servers
        cluster = Cluster(servers.nameServers, servers.clock, connect=servers.connect)
        self.addCleanup(lambda: servers.resultOf(cluster.stop()))
        return cluster

    def producer(self, group: str) -> Producer:
        """
        A producer.
        """
        producer = Producer(self.client(), group)
        producer.startService()
        self.addCleanup(lambda: self.servers.resultOf(producer.stop()))
        return producer

    def teacher(self, *, after: float = 0.0) -> Producer:
        """
        A producer that replies.

        @param after: how many seconds it takes.
        """
        producer = self.producer("teachers")

        def answer(message: MessageExt) -> None:
            self.questions.append(message)
            self.servers.clock.callLater(after, self.reply, producer, message)

        self.listen(producer, answer)
        return producer

    def listen(self, producer: Producer, answer: Callable[[MessageExt], object]) -> None:
        """
        Consume the questions.
        """
        consumer = PushConsumer(
            producer.cluster,
            "teachers",
            answer,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe("Questions")
        consumer.startService()
        self.addCleanup(lambda: self.servers.resultOf(consumer.stop()))

    def reply(self, producer: Producer, message: MessageExt) -> None:
        """
        Reply to a message.
        """
        producer.reply(message, message.body.upper()).addErrback(self.failed.append)

    def ask(self, body: bytes = b"why?", timeout: float = 30.0) -> Deferred[MessageExt]:
        """
        A question, and its answer.
        """
        return self.pupil.request(Message("Questions", body), timeout)

    def kept(self) -> int:
        """
        How many replies the brokers keep.
        """
        count = 0
        for each in self.servers.brokers:
            service = self.servers.service(each)
            assert isinstance(service, Broker)
            count += service.store.maxOffset(REPLIES, 0)
        return count


class AskingTests(AskingCase):
    """
    Requests and replies through one broker.
    """

    def test_requesterGetsReply(self) -> None:
        """
        The requester gets the reply to its first request: the broker has its heartbeat by
        then.
        """
        self.teacher()
        reply = self.servers.resultOf(self.ask())
        self.assertEqual((reply.body, reply.topic), (b"WHY?", REPLIES))
        [question] = self.questions
        self.assertEqual(reply.properties["CORRELATION_ID"], question.properties["CORRELATION_ID"])
        self.assertIn("PUSH_REPLY_TIME", reply.properties)
        self.assertIn("ARRIVE_TIME", reply.properties)
        self.assertEqual(self.kept(), 1)
        self.assertEqual(self.failed, [])

    def test_eachRequestGetsItsReply(self) -> None:
        """
        Each request gets its own reply.
        """
        self.teacher(after=0.5)
        asked = {b"q%d" % number: self.ask(b"q%d" % number) for number in range(20)}
        for body, reply in asked.items():
            self.assertEqual(self.servers.resultOf(reply).body, body.upper())

    def test_largeReplyArrivesWhole(self) -> None:
        """
        A large reply is compressed on the wire, and arrives whole.
        """
        self.teacher()
        body = b"why? " * 5000
        self.assertEqual(self.servers.resultOf(self.ask(body)).body, body.upper())

    def test_lateReplyFailsRequest(self) -> None:
        """
        A request without a reply in time fails, and the late reply is dropped without harm.
        """
        self.teacher(after=10)
        self.servers.advance(30)
        began = self.servers.clock.seconds()
        reply = self.ask(timeout=5)
        self.assertRaises(RequestTimedOut, self.servers.resultOf, reply)
        self.assertEqual(self.servers.clock.seconds() - began, 5)
        self.servers.advance(20)
        self.assertEqual(self.failed, [])
        self.assertEqual(self.pupil.cluster.requests.replies, {})

    def test_requesterGoneFailsReply(self) -> None:
        """
        If the requester has gone, its replier gets an error.
        """
        self.teacher(after=10)
        reply = self.ask(timeout=100)
        self.servers.advance(25)
        self.assertEqual(len(self.questions), 1)
        self.servers.resultOf(self.pupil.stop())
        self.servers.resultOf(self.pupil.cluster.stop())
        self.servers.advance(20)
        [failure] = self.failed
        error = failure.value
        self.assertIsInstance(error, SendFailed)
        self.assertIsInstance(error.error, RemoteSystemError)
        self.assertIn("is not connected here", str(error))
        reply.addErrback(lambda failure: None).cancel()

    def test_newConnectionStillGetsReply(self) -> None:
        """
        The requester may have a new connection by the time the reply comes.
        """
        self.teacher(after=60)
        reply = self.ask(timeout=100)
        self.servers.advance(5)
        self.servers.resultOf(self.pupil.cluster.peers.stop())
        self.pupil.cluster.heartbeat()
        self.assertEqual(self.servers.resultOf(reply, 120).body, b"WHY?")

    def test_failedReplyRedeliversRequest(self) -> None:
        """
        A listener that fails together with its reply gets the request again.
        """
        producer = self.producer("teachers")
        times: list[int] = []

        async def answer(message: MessageExt) -> ConsumeLater | None:
            times.append(message.reconsumeTimes)
            if not message.reconsumeTimes:
                return ConsumeLater()
            await producer.reply(message, b"because")
            return None

        self.listen(producer, answer)
        self.assertEqual(self.servers.resultOf(self.ask(timeout=50)).body, b"because")
        self.assertEqual(times, [0, 1])


class NotKeptTests(AskingCase):
    """
    A broker that does not store replies.
    """

    settings = {"storeReplyMessageEnable": "false"}

    def test_requesterGetsUnstoredReply(self) -> None:
        """
        The requester gets the reply all the same.
        """
        self.teacher()
        self.assertEqual(self.servers.resultOf(self.ask()).body, b"WHY?")
        self.assertEqual((self.kept(), self.failed), (0, []))


class TwoBrokersTests(AskingCase):
    """
    Replies through another broker than their request.
    """

    brokers = 2

    def test_anyBrokerDeliversReply(self) -> None:
        """
        Each broker of the cluster knows the requester, so a reply through any of them
        arrives.
        """
        self.teacher()
        self.servers.advance(40)
        for number in range(8):
            reply = self.servers.resultOf(self.ask(b"q%d" % number))
            self.assertEqual(reply.body, b"Q%d" % number)
        self.assertEqual(self.kept(), 8)
