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
    Hooks get every message once, before and after its send.
    """

    def test_hooksGetResultOnce(self) -> None:
        """
        They get the result of a sent message, however often it was tried.
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
        They get the error of a failed one, also if no broker was asked.
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

    def test_invalidMessageShowsNothingToHooks(self) -> None:
        """
        They get nothing of a message that cannot be sent.
        """
        watch = Watch()
        self.failureResultOf(self.producer(hooks=[watch]).send(Message("T", b"")), InvalidMessage)
        self.assertEqual(watch.seen, [])

    def test_raisingHookIsLogged(self) -> None:
        """
        An error of a hook is logged, and neither the message nor the other hooks are
        affected, as with Java.
        """
        bad, good = Watch(ValueError("hook")), Watch()
        self.sent(self.producer(hooks=[bad, good])).stored()
        result = self.successResultOf(self.sending)
        self.assertEqual(good.seen, [("before", HELLO), ("after", result)])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)

    def test_batchesAndOnewayAreShownToHooks(self) -> None:
        """
        They get batches and oneway messages as well.
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
    Oneway messages.
    """

    def test_onewayWantsNoAnswer(self) -> None:
        """
        The request wants no answer, and none is awaited.
        """
        sent = self.producer().sendOneway(HELLO)
        self.assertNoResult(sent)
        received = self.network.only()
        self.assertIsNone(self.successResultOf(sent))
        self.assertTrue(received.request.isOneway)
        self.assertEqual(received.request.body, b"hello")

    def test_failedOnewayIsNotRetried(self) -> None:
        """
        An unreachable broker ends the send: it is not retried.
        """
        self.network.refusing.update(ADDRESSES.values())
        sent = self.producer().sendOneway(HELLO)
        self.network.run()
        error = self.failureResultOf(sent, SendFailed).value
        self.assertEqual((error.phase, error.attempts), ("connect", 1))

    def test_invalidOnewayIsRefused(self) -> None:
        """
        A oneway message is checked as others are.
        """
        producer = self.producer()
        self.failureResultOf(producer.sendOneway(Message("T", b"")), InvalidMessage)
        self.failureResultOf(producer.sendOneway(Message("a b", b"x")), InvalidMessage)

    def test_unknownBrokerFailsOneway(self) -> None:
        """
        An unknown broker is an error as for others.
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

    def test_batchIsOneRequest(self) -> None:
        """
        A batch is one request, and each message has its own id.
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

    def test_largeBatchIsSplit(self) -> None:
        """
        A batch that is too large for one request goes in several, one after the other, each
        with its own time limit.
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

    def test_invalidMessageStopsBatch(self) -> None:
        """
        All messages are checked before the first is sent: if one is invalid, none is sent.
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

    def test_emptyBatchIsRefused(self) -> None:
        """
        A batch without a message is refused.
        """
        self.failureResultOf(self.producer().sendBatch([]), InvalidMessage)

    def test_failedBatchHasEarlierResults(self) -> None:
        """
        If one request fails, the later ones are not made, and the error has the results of
        the earlier ones.
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
    Errors that are not the network's.
    """

    def test_selectorsErrorFailsSend(self) -> None:
        """
        An error of the selector fails the Deferred, and the producer stops as ever.
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

    def test_cancelledSendEnds(self) -> None:
        """
        A cancelled send fails in any phase, is not retried, and is not awaited.
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

    def test_messageTooLargeForFrameIsRefused(self) -> None:
        """
        A message that no frame can hold is refused, and not sent.
        """
        cluster = self.network.cluster(limits=Limits(frame=1000))
        producer = Producer(cluster, "senders")
        self.successResultOf(producer.start())
        self.sending = producer.send(Message("T", bytes(900)))
        self.assertEqual(self.network.run(), [])
        self.failureResultOf(self.sending, InvalidMessage)
        self.stopped(producer)

    def test_invalidGroupIsRefused(self) -> None:
        """
        A group must have a valid name.
        """
        self.assertRaises(InvalidMessage, Producer, self.network.cluster(), "a b")


class LifeTests(ProducerCase):
    """
    Starting and stopping.
    """

    def test_unstartedProducerSendsNothing(self) -> None:
        """
        A producer that is not started, or is stopped, sends nothing.
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
        A stopped producer can be started again.
        """
        producer = self.producer()
        self.successResultOf(producer.stop())
        self.successResultOf(producer.start())
        self.sent(producer).stored()
        self.successResultOf(self.sending)

    def test_secondStopDoesNothing(self) -> None:
        """
        A stopped producer has nothing left to stop.
        """
        producer = self.producer()
        self.sent(producer)
        first = producer.stop()
        self.successResultOf(producer.stop())
        self.assertNoResult(first)

    def test_brokersLearnOfProducer(self) -> None:
        """
        Brokers that are sent to learn of the producer, and of its leaving.
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

    def test_secondProducerOfGroupIsRefused(self) -> None:
        """
        A cluster has one producer of a group.
        """
        self.producer()
        self.failureResultOf(Producer(self.cluster, "senders").start(), ConfigError)

    def test_stopWaitsForSends(self) -> None:
        """
        A stop takes no more messages and waits for those in flight, retries included.
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

    def test_stopIgnoresCancelledSend(self) -> None:
        """
        A cancelled message is not awaited.
        """
        producer = self.producer()
        self.sent(producer)
        stopping = producer.stop()
        self.sending.cancel()
        self.failureResultOf(self.sending, CancelledError)
        self.network.run()
        self.successResultOf(stopping)

    def test_stopWaitsForOnewayWrite(self) -> None:
        """
        A oneway message is awaited until it is written.
        """
        producer = self.producer()
        sent = producer.sendOneway(HELLO)
        stopping = producer.stop()
        self.assertNoResult(stopping)
        self.network.only()
        self.successResultOf(sent)
        self.network.run()
        self.successResultOf(stopping)

    def test_stopKeepsTimeLimit(self) -> None:
        """
        A stop has a time limit; messages still in flight then are logged, and go on.
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

    def test_producerIsContext(self) -> None:
        """
        A producer is a context manager.
        """

        async def use() -> SendResult:
            async with Producer(self.network.cluster(), "senders") as producer:
                return await producer.send(HELLO)

        used = Deferred.fromCoroutine(use())
        self.network.only().stored()
        self.network.run()
        self.assertEqual(self.successResultOf(used).messageQueue.topic, "T")

    def test_checkGetsNoAnswer(self) -> None:
        """
        A transaction check of this producer gets no answer.
        """
        header = CheckTransactionStateRequestHeader(0, 0)
        self.producer().checkTransaction(header, consumed(), "192.0.2.1:10911")
        self.assertEqual(self.network.run(), [])

    def test_consumersShareInnerProducer(self) -> None:
        """
        The consumers of a cluster share one producer.
        """
        cluster = self.network.cluster()
        producer = innerProducer(cluster)
        self.assertIs(innerProducer(cluster), producer)
        self.assertEqual(producer.group, "CLIENT_INNER_PRODUCER")
        self.sent(producer).stored()
        self.successResultOf(self.sending)
