# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.producer.producer}: hooks, batches, starting and stopping.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.client.answering import ADDRESSES
from tests.client.producercase import HELLO, ProducerCase, consumed
from txrocket.client.producer.producer import ISendMessageHook, Producer, innerProducer
from txrocket.client.producer.sendcontext import Sending
from txrocket.client.sansio.results import SendResult
from txrocket.errors import (
    ConfigError,
    ConnectFailed,
    InvalidMessage,
    SendFailed,
    ServiceNotAvailable,
)
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.headers import CheckTransactionStateRequestHeader
from txrocket.protocol.record.batch import decodeBatch
from txrocket.remoting.remoting import Limits


@implementer(ISendMessageHook)
class Watch:
    """
    A hook that writes down what it sees.
    """

    name = "watch"

    def __init__(self, error: Exception | None = None) -> None:
        self.seen: list[tuple[str, Any]] = []
        self._error = error

    def beforeSend(self, sending: Sending) -> None:
        self.seen.append(("before", sending.message))
        if self._error is not None:
            raise self._error

    def afterSend(self, sending: Sending) -> None:
        self.seen.append(("after", sending.error or sending.result))
        if self._error is not None:
            raise self._error


class HookTests(ProducerCase):
    """
    Hooks see every message once, before and after.
    """

    def test_sent(self) -> None:
        """
        Of a message that was sent they see the result, however often it was tried.
        """
        watch = Watch()
        verifyObject(ISendMessageHook, watch)
        self.sent(self.producer(hooks=[watch])).refuse(ResponseCode.SYSTEM_BUSY)
        self.assertEqual(watch.seen, [("before", HELLO)])
        self.network.only().stored()
        result = self.successResultOf(self.sending)
        self.assertEqual(watch.seen[1:], [("after", result)])

    def test_failedSendShowsErrorToHooks(self) -> None:
        """
        Of one that was not they see why, also if no broker was asked.
        """
        watch = Watch()
        producer = self.producer(hooks=[watch])
        self.sent(producer).refuse(ResponseCode.MESSAGE_ILLEGAL)
        first = self.failureResultOf(self.sending, SendFailed).value
        second = self.failureResultOf(producer.send(HELLO, timeout=0), SendFailed).value
        self.assertEqual(
            watch.seen,
            [("before", HELLO), ("after", first), ("before", HELLO), ("after", second)],
        )

    def test_notAtAll(self) -> None:
        """
        Of one that cannot be sent they see nothing.
        """
        watch = Watch()
        self.failureResultOf(self.producer(hooks=[watch]).send(Message("T", b"")), InvalidMessage)
        self.assertEqual(watch.seen, [])

    def test_raise(self) -> None:
        """
        What a hook raises is logged, and neither the message nor the other hooks
        suffer, as in Java.
        """
        bad, good = Watch(ValueError("hook")), Watch()
        self.sent(self.producer(hooks=[bad, good])).stored()
        result = self.successResultOf(self.sending)
        self.assertEqual(good.seen, [("before", HELLO), ("after", result)])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)

    def test_batchesAndOnewayAreShownToHooks(self) -> None:
        """
        They see batches, and messages that nobody waits for, as well.
        """
        watch = Watch()
        producer = self.producer(hooks=[watch])
        sent = producer.sendBatch([HELLO, HELLO])
        self.network.only().stored()
        (result,) = self.successResultOf(sent)
        self.successResultOf(producer.sendOneway(HELLO))
        self.assertEqual(
            watch.seen,
            [("before", [HELLO, HELLO]), ("after", result), ("before", HELLO), ("after", None)],
        )


class OnewayTests(ProducerCase):
    """
    Messages that nobody waits for.
    """

    def test_sent(self) -> None:
        """
        The request wants no answer, and none is waited for.
        """
        sent = self.producer().sendOneway(HELLO)
        self.assertNoResult(sent)
        received = self.network.only()
        self.assertIsNone(self.successResultOf(sent))
        self.assertTrue(received.request.isOneway)
        self.assertEqual(received.request.body, b"hello")

    def test_failedOnewayIsNotRetried(self) -> None:
        """
        A broker that cannot be reached is the end of it: it is not tried again.
        """
        self.network.refusing.update(ADDRESSES.values())
        sent = self.producer().sendOneway(HELLO)
        self.network.run()
        error = self.failureResultOf(sent, SendFailed).value
        self.assertEqual((error.phase, error.attempts), ("connect", 1))

    def test_invalid(self) -> None:
        """
        It is checked as others are.
        """
        producer = self.producer()
        self.failureResultOf(producer.sendOneway(Message("T", b"")), InvalidMessage)
        self.failureResultOf(producer.sendOneway(Message("a b", b"x")), InvalidMessage)

    def test_unknownBroker(self) -> None:
        """
        A broker that nobody knows is an error like others.
        """
        producer = self.producer()
        self.sent(producer).stored()
        sent = producer.sendOneway(HELLO, MessageQueue("T", "broker-x", 0))
        self.network.run()
        error = self.failureResultOf(sent, SendFailed).value
        self.assertIsInstance(error.error, ConnectFailed)


class BatchTests(ProducerCase):
    """
    Many messages at once.
    """

    def test_sent(self) -> None:
        """
        They go in one request, each with an id of its own.
        """
        sent = self.producer().sendBatch(Message("T", body) for body in (b"a", b"b"))
        received = self.network.only()
        self.assertEqual(received.code, RequestCode.SEND_BATCH_MESSAGE)
        messages = decodeBatch(received.request.body, "T")
        self.assertEqual([each.body for each in messages], [b"a", b"b"])
        received.stored()
        (result,) = self.successResultOf(sent)
        self.assertEqual(
            result.msgId.split(","), [each.properties["UNIQ_KEY"] for each in messages]
        )
        self.assertEqual(len(set(result.msgId.split(","))), 2)

    def test_split(self) -> None:
        """
        Those that are too many for one request go in several, one after the other,
        and each of them has the time limit for itself.
        """
        messages = [Message("T", bytes([number]) * 100) for number in range(5)]
        sent = self.producer(maxMessageSize=400).sendBatch(messages, timeout=1.0)
        bodies = []
        for _ in range(3):
            received = self.network.only()
            self.clock.advance(0.9)
            bodies.append([each.body[0] for each in decodeBatch(received.request.body, "T")])
            self.assertLessEqual(len(received.request.body), 400)
            received.stored()
        self.assertEqual(bodies, [[0, 1], [2, 3], [4]])
        self.assertEqual(len(self.successResultOf(sent)), 3)

    def test_checkedBefore(self) -> None:
        """
        All are checked before the first is sent: none is if one cannot be.
        """
        producer = self.producer(maxMessageSize=400)
        large = Message("T", bytes(300))
        for bad in (
            Message("T", b""),
            Message("T", bytes(401)),
            Message("U", bytes(300)),
            Message("T", b"x", delayTimeLevel=3),
        ):
            self.failureResultOf(producer.sendBatch([large, large, bad]), InvalidMessage)
            self.assertEqual(self.network.run(), [])

    def test_empty(self) -> None:
        """
        Without a message there is nothing to send.
        """
        self.failureResultOf(self.producer().sendBatch([]), InvalidMessage)

    def test_failedBatchHasEarlierResults(self) -> None:
        """
        If one request fails, those after it are not made, and the error has the results
        of those before it.
        """
        messages = [Message("T", bytes(300)) for _ in range(4)]
        sent = self.producer(maxMessageSize=400).sendBatch(messages)
        for offset in (7, 8):
            self.network.only().stored(offset=offset)
        self.network.only().refuse(ResponseCode.MESSAGE_ILLEGAL)
        error = self.failureResultOf(sent, SendFailed).value
        self.assertEqual([each.queueOffset for each in error.sent], [7, 8])
        self.assertEqual(self.network.run(), [])

    def test_stopWaitsForWholeBatch(self) -> None:
        """
        A batch that has begun is sent as a whole before its producer stops.
        """
        producer = self.producer(maxMessageSize=400)
        sent = producer.sendBatch([Message("T", bytes(300)) for _ in range(2)])
        first = self.network.only()
        stopping = producer.stop()
        first.stored()
        self.assertNoResult(stopping)
        self.network.only().stored()
        self.assertEqual(len(self.successResultOf(sent)), 2)
        self.network.run()
        self.successResultOf(stopping)


class ErrorTests(ProducerCase):
    """
    What is not the network's fault.
    """

    def test_selectorRaises(self) -> None:
        """
        What a selector raises is what the Deferred fails with, and the producer
        stops as ever.
        """
        producer = self.producer()

        def bad(queues: Any, message: Message, key: Any) -> MessageQueue:
            raise ZeroDivisionError

        for _ in range(2):
            # The first is waiting for a route, the second is not.
            self.sending = producer.send(HELLO, selector=bad)
            self.network.run()
            self.failureResultOf(self.sending, ZeroDivisionError)
        self.stopped(producer)

    def stopped(self, producer: Producer) -> None:
        """
        Stop, without having to wait.
        """
        stopping = producer.stop()
        self.network.run()
        self.successResultOf(stopping)

    def test_cancel(self) -> None:
        """
        A message that is given up fails with that, wherever it is, is not tried
        again, and is not waited for.
        """
        producer = self.producer()
        routing = producer.send(HELLO)
        routing.cancel()
        self.failureResultOf(routing, CancelledError)
        self.assertEqual(self.network.run(), [])
        self.sent(producer)
        self.sending.cancel()
        self.failureResultOf(self.sending, CancelledError)
        seeking = producer.send(HELLO, MessageQueue("T", "broker-x", 0))
        seeking.cancel()
        self.failureResultOf(seeking, CancelledError)
        batch = producer.sendBatch([HELLO])
        self.network.only()
        batch.cancel()
        self.failureResultOf(batch, CancelledError)
        self.stopped(producer)
        self.assertEqual(self.network.received, [])

    def test_tooLargeForFrame(self) -> None:
        """
        A message that no frame holds cannot be sent, and was not.
        """
        cluster = self.network.cluster(limits=Limits(frame=1000))
        producer = Producer(cluster, "senders")
        self.successResultOf(producer.start())
        self.sending = producer.send(Message("T", bytes(900)))
        self.assertEqual(self.network.run(), [])
        self.failureResultOf(self.sending, InvalidMessage)
        self.stopped(producer)

    def test_group(self) -> None:
        """
        A group must have a name that brokers take.
        """
        self.assertRaises(InvalidMessage, Producer, self.network.cluster(), "a b")


class LifeTests(ProducerCase):
    """
    Starting and stopping.
    """

    def test_notStarted(self) -> None:
        """
        A producer that is not started, or was stopped, sends nothing.
        """
        producer = Producer(self.network.cluster(), "senders")
        for _ in range(2):
            for send in (producer.send, producer.sendOneway, producer.request):
                self.failureResultOf(send(HELLO), ServiceNotAvailable)
            self.failureResultOf(producer.sendBatch([HELLO]), ServiceNotAvailable)
            self.successResultOf(producer.start())
            stopping = producer.stop()
            self.network.run()
            self.successResultOf(stopping)
        self.assertEqual(self.network.received, [])

    def test_stoppedProducerStartsAgain(self) -> None:
        """
        A producer that was stopped can be started again.
        """
        producer = self.producer()
        self.successResultOf(producer.stop())
        self.successResultOf(producer.start())
        self.sent(producer).stored()
        self.successResultOf(self.sending)

    def test_stopTwice(self) -> None:
        """
        A producer that is stopped has nothing left to stop.
        """
        producer = self.producer()
        self.sent(producer)
        first = producer.stop()
        self.successResultOf(producer.stop())
        self.assertNoResult(first)

    def test_heartbeat(self) -> None:
        """
        Brokers that are sent to learn of the producer, and that it leaves.
        """
        producer = self.producer()
        self.assertEqual(list(producer.topics()), [])
        self.sent(producer).stored()
        self.assertEqual(set(self.network.heartbeats), set(list(ADDRESSES.values())[:2]))
        self.assertEqual(list(producer.topics()), ["T"])
        self.assertEqual(producer.producerData().groupName, "senders")
        stopping = producer.stopService()
        self.network.run()
        self.successResultOf(stopping)
        self.assertEqual(self.cluster.producers, {})

    def test_twice(self) -> None:
        """
        A cluster has one producer of a group.
        """
        self.producer()
        self.failureResultOf(Producer(self.cluster, "senders").start(), ConfigError)

    def test_drain(self) -> None:
        """
        Stopping takes no more messages and waits for those that are under way,
        attempts and all.
        """
        producer = self.producer()
        received = self.sent(producer)
        stopping = producer.stop()
        self.failureResultOf(producer.send(HELLO), ServiceNotAvailable)
        received.refuse(ResponseCode.SYSTEM_BUSY)
        self.assertNoResult(stopping)
        self.network.only().stored()
        self.successResultOf(self.sending)
        self.network.run()
        self.successResultOf(stopping)

    def test_drainCancelled(self) -> None:
        """
        A message that is given up is not waited for any longer.
        """
        producer = self.producer()
        self.sent(producer)
        stopping = producer.stop()
        self.sending.cancel()
        self.failureResultOf(self.sending, CancelledError)
        self.network.run()
        self.successResultOf(stopping)

    def test_drainOneway(self) -> None:
        """
        A message that nobody waits for is waited for until it is written.
        """
        producer = self.producer()
        sent = producer.sendOneway(HELLO)
        stopping = producer.stop()
        self.assertNoResult(stopping)
        self.network.only()
        self.successResultOf(sent)
        self.network.run()
        self.successResultOf(stopping)

    def test_drainLimit(self) -> None:
        """
        Stopping has a time limit; what is under way then is told of, and goes its
        way.
        """
        producer = self.producer(timeout=10.0)
        received = self.sent(producer)
        stopping = producer.stop(within=2.0)
        self.clock.advance(1.9)
        self.assertNoResult(stopping)
        self.clock.advance(0.1)
        self.network.run()
        self.successResultOf(stopping)
        received.stored()
        self.successResultOf(self.sending)

    def test_context(self) -> None:
        """
        A producer is a context.
        """

        async def use() -> SendResult:
            async with Producer(self.network.cluster(), "senders") as producer:
                return await producer.send(HELLO)

        used = Deferred.fromCoroutine(use())
        self.network.only().stored()
        self.network.run()
        self.assertEqual(self.successResultOf(used).messageQueue.topic, "T")

    def test_noTransactions(self) -> None:
        """
        Who asks this producer about a transaction gets no answer.
        """
        header = CheckTransactionStateRequestHeader(0, 0)
        self.producer().checkTransaction(header, consumed(), "192.0.2.1:10911")
        self.assertEqual(self.network.run(), [])

    def test_inner(self) -> None:
        """
        The consumers of a cluster share one producer.
        """
        cluster = self.network.cluster()
        producer = innerProducer(cluster)
        self.assertIs(innerProducer(cluster), producer)
        self.assertEqual(producer.group, "CLIENT_INNER_PRODUCER")
        self.sent(producer).stored()
        self.successResultOf(self.sending)
