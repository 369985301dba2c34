# SPDX-License-Identifier: Apache-2.0
"""
Transactions from end to end: producers, a broker and a consumer, in memory.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.service import Broker
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.transaction import (
    LocalTransactionState,
    TransactionProducer,
    TransactionSendResult,
)
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere, TopicConfig
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.record import decodeRecords
from txrocket.testing.trial import memoryCluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOWN = LocalTransactionState.UNKNOW

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


class TransactionClusterTests(SynchronousTestCase):
    """
    A broker with RocketMQ's own settings.
    """

    def setUp(self) -> None:
        self.servers = memoryCluster(self)
        (self.address,) = self.servers.brokers
        self.clock = self.servers.clock
        # What the check says, and when it was asked.
        self.says: Any = UNKNOWN
        self.asked: list[tuple[bytes, float]] = []
        self.producer = self.join()
        # A topic that is there is consumed at once.
        self.servers.resultOf(self.producer.send(Message("T", b"first")))
        self.consumed: list[bytes] = []
        self.consumer = PushConsumer(
            self.client(),
            "G",
            lambda message: self.consumed.append(message.body),
            consumeFromWhere=FIRST,
        )
        self.consumer.subscribe("T")
        self.stopLater(self.consumer)
        self.consumer.startService()
        self.servers.advance(1)
        self.assertEqual(self.consumed, [b"first"])
        self.consumed.clear()

    def client(self) -> Cluster:
        """
        A process of its own.
        """
        servers = self.servers
        ended: list[bool] = []
        self.end = lambda: ended.append(True)

        def connect(address: str) -> Any:
            return servers.connect("192.0.2.99:9" if ended else address)

        cluster = Cluster(servers.nameServers, servers.clock, connect=connect)
        self.addCleanup(lambda: servers.resultOf(cluster.stop()))
        return cluster

    def stopLater(self, member: Any) -> None:
        """
        Stop a producer or consumer with the test.
        """
        servers = self.servers
        self.addCleanup(lambda: servers.resultOf(member.stop(0)))

    def join(self, group: str = "P") -> TransactionProducer:
        """
        A producer in a process of its own, which the brokers know.
        """
        producer = TransactionProducer(self.client(), group, self.check)
        self.stopLater(producer)
        producer.startService()
        self.servers.advance(1)
        return producer

    def check(self, message: MessageExt) -> Any:
        """
        A broker asks.
        """
        self.asked.append((message.body, self.clock.seconds()))
        return self.says

    @property
    def broker(self) -> Broker:
        """
        The broker that runs now.
        """
        service = self.servers.service(self.address)
        assert isinstance(service, Broker)
        return service

    def sending(self, body: bytes, execute: Any, **properties: str) -> Deferred[Any]:
        """
        A transaction.
        """
        message = Message("T", body, properties=properties)
        return self.producer.sendInTransaction(message, execute)

    def sent(self, body: bytes, state: Any, **properties: str) -> TransactionSendResult:
        """
        A transaction that has come to its end, or not.
        """
        sending = self.sending(body, lambda half: state, **properties)
        result: TransactionSendResult = self.servers.resultOf(sending)
        self.servers.advance()
        return result

    def records(self, topic: str) -> list[MessageExt]:
        """
        All messages of a topic of one queue.
        """
        got = self.broker.store.get(topic, 0, 0, 1000)
        return decodeRecords(got.data)

    # --- what is decided -------------------------------------------------------

    def test_decidedTransactionIsNotChecked(self) -> None:
        """
        A committed message is consumed at once and a rolled back one never; no check is
        made.
        """
        self.sent(b"yes", COMMIT)
        self.sent(b"no", ROLLBACK)
        self.servers.advance(1)
        self.assertEqual(self.consumed, [b"yes"])
        self.servers.advance(300)
        self.assertEqual((self.consumed, self.asked), ([b"yes"], []))

    def test_undecidedMessageIsUnseen(self) -> None:
        """
        No consumer gets a message while its local transaction runs.
        """
        done: Deferred[Any] = Deferred()
        sending = self.sending(b"slow", lambda half: done)
        self.servers.advance(5)
        self.assertEqual((self.consumed, len(self.records(HALF_TOPIC))), ([], 1))
        done.callback(COMMIT)
        self.servers.resultOf(sending)
        self.servers.advance(1)
        self.assertEqual(self.consumed, [b"slow"])

    def test_slowTransactionIsConsumedOnce(self) -> None:
        """
        A message whose transaction runs until the check is consumed once all the same.
        """
        done: Deferred[Any] = Deferred()
        sending = self.sending(b"slow", lambda half: done)
        self.servers.advance(200)
        self.assertGreater(len(self.asked), 1)
        done.callback(COMMIT)
        self.servers.resultOf(sending)
        asked = len(self.asked)
        self.servers.advance(300)
        self.assertEqual((self.consumed, len(self.asked)), ([b"slow"], asked))

    def test_delayBeginsAtCommit(self) -> None:
        """
        A delay begins with the commit.
        """
        done: Deferred[Any] = Deferred()
        # The producer leaves it out, because of Java's broker.
        half = self.producer._half
        self.patch(
            self.producer,
            "_half",
            lambda message: Message(
                "T", message.body, properties={**half(message).properties, "DELAY": "3"}
            ),
        )
        sending = self.sending(b"later", lambda half: done)
        self.servers.advance(4)
        done.callback(COMMIT)
        self.servers.resultOf(sending)
        self.servers.advance(9.9)
        self.assertEqual(self.consumed, [])
        self.servers.advance(1)
        self.assertEqual(self.consumed, [b"later"])

    # --- checks ------------------------------------------------------------------

    def test_checkComesAtTransactionTimeout(self) -> None:
        """
        The producer is checked when the half is 6 seconds old, or as old as it says, at the
        next of the passes every 60 seconds, and then at each.
        """
        start = self.clock.seconds()
        self.sent(b"default", UNKNOWN)
        self.sent(b"patient", UNKNOWN, CHECK_IMMUNITY_TIME_IN_SECONDS="130")
        self.servers.advance(305)
        for body, immunity in ((b"default", 6), (b"patient", 130)):
            times = [when - start for each, when in self.asked if each == body]
            self.assertGreaterEqual(times[0], immunity)
            self.assertLess(times[0], immunity + 60.1)
            for before, after in pairwise(times):
                self.assertAlmostEqual(after - before, 60, delta=0.1)
        self.assertEqual(self.consumed, [])

    def test_checksAnswerCounts(self) -> None:
        """
        The answer to a check counts: a committed message is consumed, a rolled back one is
        not, and unknown is checked again.
        """
        answers: dict[bytes, list[Any]] = {
            b"a": [COMMIT],
            b"b": [ROLLBACK],
            b"c": [UNKNOWN, None, COMMIT],
        }

        def check(message: MessageExt) -> Any:
            self.check(message)
            return answers[message.body].pop(0)

        self.patch(self.producer, "_check", check)
        for body in answers:
            self.sent(body, UNKNOWN)
        self.servers.advance(300)
        self.assertEqual(sorted(self.consumed), [b"a", b"c"])
        asked = [body for body, _ in self.asked]
        self.assertEqual([asked.count(body) for body in answers], [1, 1, 3])

    def test_unansweredHalfIsGivenUpAfterFifteen(self) -> None:
        """
        Without an answer the producer is checked 15 times.  Then the half is in a topic for
        operators, and a resumed check is made again.
        """
        self.says = Deferred()
        self.sent(b"lost", UNKNOWN)
        self.servers.advance(20 * 60)
        self.assertEqual(len(self.asked), 15)
        (given,) = self.records(CHECK_MAX_TOPIC)
        self.assertEqual(given.properties["REAL_TOPIC"], "T")
        self.says = COMMIT
        resume = requestCommand(
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
            ResumeCheckHalfMessageRequestHeader(given.offsetMsgId),
        )
        answer = self.servers.resultOf(
            self.producer.cluster.peers.request(self.address, resume, 3.0)
        )
        self.assertEqual(answer.code, 0, answer.remark)
        self.servers.advance(61)
        self.assertEqual((self.consumed, len(self.asked)), ([b"lost"], 16))

    def test_restartedProducerIsChecked(self) -> None:
        """
        A producer that ended without a word is checked when it is there again, before it
        has sent anything.
        """
        self.producer = self.join("Q")
        end = self.end
        self.sent(b"orphan", UNKNOWN)
        end()
        self.servers.resultOf(self.producer.cluster.peers.stop())
        self.says = COMMIT
        self.join("Q")
        self.servers.advance(66)
        self.assertEqual((len(self.asked), self.consumed), (1, [b"orphan"]))

    def test_namedTopicsAllowCheck(self) -> None:
        """
        The same holds where topics are not created, if the producer names its topics.
        """
        self.servers = memoryCluster(self, settings={"autoCreateTopicEnable": False})
        (self.address,) = self.servers.brokers
        self.clock = self.servers.clock
        self.broker.tables.topics.put(TopicConfig("T", 4, 4))
        self.servers.advance(1)
        self.producer = self.join()
        self.sent(b"orphan", UNKNOWN)
        self.servers.resultOf(self.producer.stop(0))
        for topics in ((), ("T",)):
            self.producer = TransactionProducer(self.client(), "P", self.check, topics=topics)
            self.producer.startService()
            self.servers.advance(120)
            self.assertEqual(bool(self.asked), bool(topics))
            self.servers.resultOf(self.producer.stop(0))

    def test_otherProducerIsChecked(self) -> None:
        """
        If the producer is gone, another of its group is checked.
        """
        self.sent(b"orphan", UNKNOWN)
        self.servers.resultOf(self.producer.stop(0))
        self.servers.resultOf(self.producer.cluster.stop())
        self.join("Q")
        self.servers.advance(3600)
        self.assertEqual((self.asked, self.consumed), ([], []))
        self.says = COMMIT
        self.producer = self.join()
        self.servers.advance(61)
        self.assertEqual((len(self.asked), self.consumed), (1, [b"orphan"]))

    # --- crashes -----------------------------------------------------------------

    def restart(self) -> None:
        """
        The broker is killed and started again; clients find it.
        """
        self.servers.crash(self.address)
        self.servers.start(self.address)

    def test_crashBeforeEndChecks(self) -> None:
        """
        A broker that is killed with the half and without its end checks when it is back.
        """

        def execute(half: Message) -> LocalTransactionState:
            self.servers.crash(self.address)
            return COMMIT

        self.says = COMMIT
        result = self.servers.resultOf(self.sending(b"x", execute))
        self.assertIs(result.localTransactionState, COMMIT)
        self.servers.start(self.address)
        self.servers.advance(5)
        self.assertEqual((self.consumed, self.asked), ([], []))
        self.servers.advance(120)
        self.assertEqual((self.consumed, len(self.asked)), ([b"x"], 1))

    def test_crashAfterEndKeepsDecision(self) -> None:
        """
        A decision from before the kill holds.
        """
        self.says = ROLLBACK
        for number in range(3):
            self.sent(b"yes%d" % number, COMMIT)
            self.sent(b"no%d" % number, ROLLBACK)
            self.restart()
        self.servers.advance(300)
        self.assertEqual((len(set(self.consumed)), self.asked), (3, []))
        self.assertEqual({body[:3] for body in self.consumed}, {b"yes"})

    def test_crashesCountChecks(self) -> None:
        """
        However often it is killed, before and after each check and each answer, it checks
        15 times and no more, and goes on from there.
        """
        self.sent(b"x", UNKNOWN)
        for _ in range(18):
            self.restart()
            self.servers.advance(32)
            self.restart()
            self.servers.advance(65)
        self.assertEqual(len(self.asked), 15)
        self.assertEqual((len(self.records(CHECK_MAX_TOPIC)), self.consumed), (1, []))

    def test_stopsCountChecks(self) -> None:
        """
        The same holds when it is stopped.
        """
        self.sent(b"x", UNKNOWN)
        self.servers.advance(61)
        self.assertEqual(len(self.asked), 1)
        self.servers.stop(self.address)
        self.servers.start(self.address)
        self.servers.advance(32)
        self.says = COMMIT
        self.servers.advance(61)
        self.assertEqual((len(self.asked), self.consumed), (2, [b"x"]))
        self.servers.stop(self.address)
        self.servers.start(self.address)
        self.servers.advance(200)
        self.assertEqual((len(self.asked), self.consumed), (2, [b"x"]))

    def test_unwrittenCommitIsChecked(self) -> None:
        """
        A commit that a broker has read and not written when it is killed is checked.
        """
        result = self.sent(b"x", UNKNOWN)
        header = EndTransactionRequestHeader(
            "P",
            result.sendResult.queueOffset,
            decodeMessageId(result.sendResult.offsetMsgId)[2],
            COMMIT.value,
            "",
        )
        end = requestCommand(RequestCode.END_TRANSACTION, header, oneway=True)
        process = self.broker.remoting.processorTable[RequestCode.END_TRANSACTION]
        (peer, *_) = self.broker.listener.factory.connections
        process.serve(end, peer)
        self.says = COMMIT
        self.restart()
        self.assertEqual(self.broker.store.maxOffset("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0), 0)
        self.servers.advance(120)
        self.assertEqual((len(self.asked), self.consumed), (1, [b"x"]))
