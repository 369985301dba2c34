# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.trace.hooks}: what is written down of messages, and what is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, capturedLogs
from zope.interface.verify import verifyObject

from tests.client.answering import ADDRESSES, Received, routeTo
from tests.client.messages import HOST, pulled
from tests.client.network import routeTo as routeOf
from tests.client.producercase import HELLO, ProducerCase
from tests.client.pushcase import PushTests
from txrocket.client.consumer.push.consumehooks import IConsumeMessageHook
from txrocket.client.consumer.push.listener import ConsumeLater
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import ISendMessageHook, Producer
from txrocket.client.producer.transaction import LocalTransactionState, TransactionProducer
from txrocket.errors import InvalidMessage, SendFailed
from txrocket.message import Message, splitProperties
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import (
    CheckTransactionStateRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from txrocket.protocol.messageid import encodeMessageId
from txrocket.protocol.names import checkGroupName
from txrocket.protocol.tracebodies import (
    ConsumeReturnType,
    EndTransaction,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    Trace,
    decodeTraces,
)

TOPIC = "RMQ_SYS_TRACE_TOPIC"
NORMAL, HALF, COMMIT, DELAY, _ = MessageType


def tracesOf(request: RemotingCommand) -> list[Trace]:
    """
    The traces of a request.
    """
    return decodeTraces(request.body)


def dropped(logs: Sequence[LogEvent]) -> list[int]:
    """
    The totals of dropped traces that are logged.
    """
    return [each["dropped"] for each in logs if "dropped" in each]


class SendTraceTests(ProducerCase):
    """
    A traced producer, and a broker that stores the traces.
    """

    def setUp(self) -> None:
        super().setUp()
        self.network.routes[TOPIC] = routeTo("broker-a", queues=1)

    def traced(self, **options: Any) -> Producer:
        """
        A producer that has traces.
        """
        return self.producer(**{"trace": True, **options})

    def written(self, seconds: float = 0.5) -> list[Received]:
        """
        The traces that are sent within some time.
        """
        self.clock.advance(seconds)
        received = [*self.network.run()]
        self.network.received.clear()
        return received

    def pub(self, message: Message = HELLO, answer: dict[str, Any] | None = None) -> Pub:
        """
        The trace of a message.
        """
        self.sent(self.traced(), message).stored(**answer or {})
        (received,) = self.written()
        (trace,) = tracesOf(received.request)
        assert isinstance(trace, Pub)
        return trace

    def test_sentMessageIsTraced(self) -> None:
        """
        The trace of a sent message tells sender, time, broker, size and duration, and
        another producer sends it.
        """
        producer = self.traced()
        hook = producer._trace
        verifyObject(ISendMessageHook, hook)
        received = self.sent(producer, Message("T", b"hello", "tag", ["k1", "k2"]))
        self.clock.advance(0.25)
        received.stored(MSG_REGION="north", TRACE_ON="true")
        result = self.successResultOf(self.sending)
        (written,) = self.written()
        header = written.request.decodeHeader(SendMessageRequestHeaderV2)
        self.assertEqual(header.topic, TOPIC)
        self.assertEqual(header.producerGroup, "_INNER_TRACE_PRODUCER-senders-PRODUCE-1")
        properties = splitProperties(header.properties or "")
        self.assertEqual(properties["KEYS"], f"{result.msgId} k1 k2")
        self.assertEqual(
            tracesOf(written.request),
            [
                Pub(
                    timeStamp=1_700_000_000_000,
                    regionId="north",
                    groupName="senders",
                    topic="T",
                    msgId=result.msgId,
                    tags="tag",
                    keys="k1 k2",
                    storeHost=ADDRESSES["broker-a"],
                    bodyLength=5,
                    costTime=250,
                    msgType=NORMAL,
                    offsetMsgId="0A",
                    success=True,
                )
            ],
        )

    def test_missingFieldsAreWrittenAsByJava(self) -> None:
        """
        Missing fields of a message are written as by Java.  A broker that tells no region
        and no trace setting has the default of both.
        """
        trace = self.pub()
        self.assertEqual((trace.tags, trace.keys), (None, None))
        self.assertEqual(trace.regionId, "DefaultRegion")
        # A property without a value is as good as none.
        self.assertIsNone(self.pub(Message("T", b"x", properties={"KEYS": ""})).keys)

    def test_unsafeMessageHasFailed(self) -> None:
        """
        A message that is stored less safely than it should be has failed in its trace.
        """
        for code in (
            ResponseCode.FLUSH_DISK_TIMEOUT,
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
            ResponseCode.SLAVE_NOT_AVAILABLE,
        ):
            self.assertIs(self.pub(answer={"code": code}).success, False)

    def test_delayedMessageHasOwnType(self) -> None:
        """
        Delayed messages have a type of their own.
        """
        for properties, expected in (
            ({}, NORMAL),
            ({"DELAY": "3"}, DELAY),
            ({"__STARTDELIVERTIME": "1"}, DELAY),
            ({"TIMER_DELIVER_MS": "1"}, DELAY),
            ({"TIMER_DELAY_SEC": "1"}, DELAY),
            ({"TIMER_DELAY_MS": "1"}, DELAY),
            ({"TRAN_MSG": "true"}, HALF),
            ({"TRAN_MSG": "true", "DELAY": "3"}, DELAY),
            ({"TRAN_MSG": "false"}, NORMAL),
        ):
            self.assertIs(self.pub(Message("T", b"x", properties=properties)).msgType, expected)

    def test_sizeIsOfSentBody(self) -> None:
        """
        The size is that of the sent body.
        """
        message = Message("T", b"x" * 10_000)
        received = self.sent(self.traced(), message)
        received.stored()
        (written,) = self.written()
        (trace,) = tracesOf(written.request)
        assert isinstance(trace, Pub)
        self.assertEqual(trace.bodyLength, len(received.request.body))
        self.assertLess(trace.bodyLength, 100)

    def test_eachMessageOfBatchIsTraced(self) -> None:
        """
        Each message of a batch has its trace under its own id.
        """
        batch = [Message("T", b"a", keys="k1"), Message("T", b"bc", "tag")]
        for offsets, expected in (("0A,0B", ["0A", "0B"]), ("0A", ["0A", ""])):
            sending = self.traced().sendBatch(batch)
            received = self.network.only()
            answer = SendMessageResponseHeader(offsets, int(received.fields["e"]), 7)
            received.answer(responseCommand(0, None, answer))
            (result,) = self.successResultOf(sending)
            (written,) = self.written()
            first, second = tracesOf(written.request)
            assert isinstance(first, Pub) and isinstance(second, Pub)
            self.assertEqual([first.msgId, second.msgId], result.msgId.split(","))
            self.assertEqual([first.offsetMsgId, second.offsetMsgId], expected)
            self.assertEqual([first.bodyLength, second.bodyLength], [1, 2])
            self.assertEqual([first.keys, second.keys], ["k1", None])
            self.assertEqual([first.tags, second.tags], [None, "tag"])
            keys = splitProperties(written.fields["i"])["KEYS"]
            self.assertEqual(keys, f"{first.msgId} k1 {second.msgId}")

    def test_brokerWithoutTracesGetsNone(self) -> None:
        """
        A broker that wants no traces gets none.
        """
        self.sent(self.traced()).stored(TRACE_ON="false")
        self.successResultOf(self.sending)
        self.assertEqual(self.written(), [])

    def test_unconfirmedMessageIsNotTraced(self) -> None:
        """
        A message that no broker has confirmed is not traced, as with Java.
        """
        producer = self.traced()
        self.sent(producer).refuse(ResponseCode.MESSAGE_ILLEGAL)
        self.failureResultOf(self.sending, SendFailed)
        self.successResultOf(producer.sendOneway(HELLO))
        self.network.only()
        self.assertEqual(self.written(), [])

    def test_traceTopicIsNotTraced(self) -> None:
        """
        Messages to the trace topic are not traced.
        """
        producer = self.traced()
        self.sent(producer, Message(TOPIC, b"x")).stored()
        self.assertEqual(self.written(), [])
        self.sent(producer).stored()
        (written,) = self.written()
        written.stored()
        self.assertEqual(self.written(10), [])

    def test_otherTraceTopicIsUsed(self) -> None:
        """
        Traces go to the given topic, whose name must be valid.
        """
        self.network.routes["Traces"] = routeTo("broker-b", queues=1)
        self.sent(self.traced(trace="Traces")).stored()
        (written,) = self.written()
        self.assertEqual(written.fields["b"], "Traces")
        self.assertRaises(InvalidMessage, Producer, self.cluster, "G", trace="a b")

    def test_missingTraceTopicIsLoggedOnce(self) -> None:
        """
        If the trace topic does not exist, sends are not affected, and there is one warning.
        """
        del self.network.routes[TOPIC], self.network.routes["TBW102"]
        producer = self.traced()
        with capturedLogs() as logs:
            for _ in range(3):
                self.sent(producer).stored()
                self.successResultOf(self.sending)
                self.assertEqual(self.written(), [])
            self.assertEqual(dropped(logs), [1])
            producer.stop()
            self.network.run()
        self.assertEqual(dropped(logs), [1, 3])

    def test_sendDoesNotWaitForTraces(self) -> None:
        """
        A send does not wait for traces that no broker takes.
        """
        producer = self.traced()
        for number in range(3000):
            self.sent(producer).stored()
            self.successResultOf(self.sending)
            if number % 100 == 99:
                self.written(0)
        assert producer._trace is not None
        self.assertEqual(producer._trace.traces.dropped, 3000 - 2048)

    def test_retriedMessageHasOneTrace(self) -> None:
        """
        A retried message has one trace for all attempts.
        """
        self.sent(self.traced()).refuse(ResponseCode.SYSTEM_BUSY)
        self.clock.advance(1)
        again = self.network.only()
        again.stored()
        (written,) = self.written()
        (trace,) = tracesOf(written.request)
        assert isinstance(trace, Pub)
        self.assertEqual((trace.costTime, trace.storeHost), (1000, again.at))

    def test_traceNamesStoringBroker(self) -> None:
        """
        If a second broker was to store the message and has not, the trace names the broker
        that has stored it.
        """
        first = self.sent(self.traced(retryNotStored=True))
        first.stored(code=ResponseCode.FLUSH_DISK_TIMEOUT)
        second = self.network.only()
        self.assertNotEqual(first.at, second.at)
        second.refuse(ResponseCode.MESSAGE_ILLEGAL)
        self.successResultOf(self.sending)
        (written,) = self.written()
        (trace,) = tracesOf(written.request)
        assert isinstance(trace, Pub)
        self.assertEqual((trace.storeHost, trace.success), (first.at, False))

    def test_traceGroupIsUniqueAndShort(self) -> None:
        """
        The trace producer has a unique group name that is not too long, however long the
        producer's is.
        """
        cluster = self.network.cluster()
        long = "x" * 255
        producers = [Producer(cluster, each, trace=True) for each in (long, long[:-1] + "y")]
        for each in producers:
            self.successResultOf(each.start())
        self.assertEqual(len(cluster.producers), 4)
        for name in cluster.producers:
            checkGroupName(name)

    # --- stopping --------------------------------------------------------

    def test_producerStopWaitsForTraces(self) -> None:
        """
        A stop sends the remaining traces, and waits for them.
        """
        producer = self.traced()
        self.sent(producer).stored()
        stopping = producer.stop()
        written = self.network.only()
        self.assertEqual(len(tracesOf(written.request)), 1)
        self.assertNoResult(stopping)
        written.stored()
        self.network.run()
        self.successResultOf(stopping)
        self.assertEqual(self.cluster.producers, {})

    def test_stopKeepsItsTimeLimit(self) -> None:
        """
        A stop waits no longer than its time limit, messages included.
        """
        producer = self.traced()
        first, second = self.sent(producer), self.sent(producer)
        first.stored()
        stopping = producer.stop(2.0)
        self.clock.advance(1.5)
        second.stored()
        written = self.written(0)
        self.assertEqual([len(tracesOf(each.request)) for each in written], [1, 1])
        self.clock.advance(0.49)
        self.network.run()
        self.assertNoResult(stopping)
        self.clock.advance(0.01)
        self.network.run()
        self.successResultOf(stopping)

    def test_sendAfterStopIsNotTraced(self) -> None:
        """
        A message that is still in flight after the stop is not traced.
        """
        producer = self.traced()
        received = self.sent(producer)
        stopping = producer.stop(1.0)
        self.clock.advance(1.0)
        self.network.run()
        self.successResultOf(stopping)
        received.stored()
        self.successResultOf(self.sending)
        self.assertEqual(self.written(), [])

    def test_restartedProducerTraces(self) -> None:
        """
        A restarted producer traces again.
        """
        producer = self.traced()
        stopping = producer.stop()
        self.network.run()
        self.successResultOf(stopping)
        self.successResultOf(producer.start())
        self.sent(producer).stored()
        self.assertEqual(len(self.written()), 1)


class Stored(PushTests):
    """
    A broker that takes traces, and half messages.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ns.routes[TOPIC] = routeOf(a={0: "192.0.2.11:10911"})
        self.stored: list[RemotingCommand] = []
        self.told: dict[str, str] = {}
        self.silent = False
        self.a.answers[RequestCode.SEND_MESSAGE_V2] = self.store

    def store(self, request: RemotingCommand) -> Any:
        """
        A message comes.
        """
        self.stored.append(request)
        if self.silent:
            return Deferred()
        header = SendMessageResponseHeader(encodeMessageId(HOST, 1), 0, 1, transactionId="tx")
        response = responseCommand(0, None, header)
        response.extFields.update(self.told)
        return response

    def traces(self, seconds: float = 0.5) -> list[Trace]:
        """
        The traces that are sent after a while, since the last call.
        """
        self.network.advance(seconds)
        traces = [
            trace
            for each in self.stored
            if each.extFields["b"] == TOPIC
            for trace in tracesOf(each)
        ]
        self.stored.clear()
        return traces


class EndTraceTests(Stored):
    """
    A producer of transactions.
    """

    def setUp(self) -> None:
        super().setUp()
        self.a.answers[RequestCode.END_TRANSACTION] = lambda request: None  # type: ignore[return-value, assignment]
        self.state = LocalTransactionState.COMMIT_MESSAGE
        self.producer = TransactionProducer(
            self.cluster, "P", lambda message: self.state, trace=True
        )
        self.got(self.producer.start())
        self.addCleanup(lambda: self.got(self.producer.stop()))

    def send(self, **options: Any) -> Any:
        """
        A transaction takes place.
        """
        message = Message("T", b"hello", "tag", "k", **options)
        sending = self.producer.sendInTransaction(message, self.execute)
        self.network.flush()
        return sending

    def execute(self, message: Message) -> LocalTransactionState:
        """
        The local transaction.
        """
        self.network.clock.advance(0.25)
        return self.state

    def test_halfAndEndsAreTraced(self) -> None:
        """
        The half message of a transaction and each kind of end are traced.
        """
        self.told = {"MSG_REGION": "north"}
        for state in LocalTransactionState:
            self.state = state
            began = int(self.clock.seconds() * 1000)
            msgId = self.successResultOf(self.send()).sendResult.msgId
            half, end = self.traces()
            assert isinstance(half, Pub)
            self.assertEqual((half.msgType, half.msgId), (HALF, msgId))
            self.assertEqual(
                end,
                EndTransaction(
                    timeStamp=began + 250,
                    regionId="north",
                    groupName="P",
                    topic="T",
                    msgId=msgId,
                    tags="tag",
                    keys="k",
                    storeHost="192.0.2.11:10911",
                    msgType=COMMIT,
                    transactionId=msgId,
                    transactionState=state.name,
                    fromTransactionCheck=False,
                ),
            )

    def test_raisingTransactionEndsUnknown(self) -> None:
        """
        A local transaction that raises ends as unknown.
        """
        self.execute = lambda message: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        self.failureResultOf(self.send(), ZeroDivisionError)
        _, end = self.traces()
        assert isinstance(end, EndTransaction)
        self.assertEqual(end.transactionState, "UNKNOW")

    def test_endIsNotTracedIfUnwanted(self) -> None:
        """
        If the broker wants no traces, the end is not traced either.
        """
        self.told = {"TRACE_ON": "false"}
        self.successResultOf(self.send())
        self.assertEqual(self.traces(), [])

    def check(self, **properties: Any) -> list[Trace]:
        """
        The broker asks.
        """
        header = CheckTransactionStateRequestHeader(3, 4, "m", "tx", "off")
        self.producer.checkTransaction(
            header, pulled(0, UNIQ_KEY="ID", **properties), "192.0.2.11:10911"
        )
        return self.traces()

    def test_checkIsTraced(self) -> None:
        """
        A transaction check is traced as well, unless the message is not to be traced.
        """
        self.state = LocalTransactionState.ROLLBACK_MESSAGE
        now = int(self.clock.seconds() * 1000)
        self.assertEqual(
            self.check(TAGS="tag", MSG_REGION="south"),
            [
                EndTransaction(
                    timeStamp=now,
                    regionId="south",
                    groupName="P",
                    topic="T",
                    msgId="ID",
                    tags="tag",
                    keys=None,
                    storeHost="192.0.2.11:10911",
                    msgType=COMMIT,
                    transactionId="ID",
                    transactionState="ROLLBACK_MESSAGE",
                    fromTransactionCheck=True,
                )
            ],
        )
        self.assertEqual(self.check(TRACE_ON="false"), [])
        (end,) = self.check()
        assert isinstance(end, EndTransaction)
        self.assertEqual(end.regionId, "DefaultRegion")

    def test_untracedProducerWritesNone(self) -> None:
        """
        A producer without traces writes none.
        """
        plain = TransactionProducer(self.cluster, "Q", lambda message: self.state)
        self.got(plain.start())
        sending = plain.sendInTransaction(Message("T", b"hello"), lambda message: self.state)
        self.got(sending)
        header = CheckTransactionStateRequestHeader(3, 4, "m", "tx", "off")
        plain.checkTransaction(header, pulled(0, UNIQ_KEY="ID"), "192.0.2.11:10911")
        self.assertEqual(self.traces(), [])
        self.got(plain.stop())


class ConsumeTraceTests(Stored):
    """
    A consumer of which traces are written.
    """

    def consume(self, *messages: Any, result: Any = None, **options: Any) -> list[Trace]:
        """
        Give messages to a listener that takes 250 ms.
        """
        consumer = self.traced(batch=8, **options)
        called = consumer._consume._listener.call(messages)
        self.clock.advance(0.25)
        self.slow.end(-1, result)
        if isinstance(result, Exception):
            called.addErrback(lambda failure: None)
        traces = self.traces()
        self.got(consumer.stop())
        return traces

    def traced(self, **options: Any) -> PushConsumer:
        """
        A consumer that has traces.
        """
        return self.started(**{"trace": True, **options})

    def test_consumedMessageIsTraced(self) -> None:
        """
        For each message the beginning and the result of the listener's call are traced, and
        a call has one id.
        """
        verifyObject(IConsumeMessageHook, self.make(group="H", trace=True)._trace)
        began = int(self.clock.seconds() * 1000)
        one = pulled(0, UNIQ_KEY="ID1", KEYS="k1 k2", MSG_REGION="north")
        two = pulled(1, times=3, UNIQ_KEY="ID2")
        before1, before2, after1, after2 = self.consume(one, two)
        assert isinstance(before1, SubBefore)
        call = before1.requestId
        assert call is not None
        self.assertEqual(len(call), 32)
        self.assertEqual(before1, SubBefore(began, "north", "G", call, "ID1", 0, "k1 k2"))
        self.assertEqual(before2, SubBefore(began, "DefaultRegion", "G", call, "ID2", 3, None))
        # As in Java the time is divided by the messages.
        ended, cost = began + 250, 125
        self.assertEqual(after1, SubAfter(call, "ID1", cost, True, "k1 k2", 0, ended, "G"))
        self.assertEqual(after2, SubAfter(call, "ID2", cost, True, None, 0, ended, "G"))
        (other, *_) = self.consume(one)
        assert isinstance(other, SubBefore)
        self.assertNotEqual(other.requestId, call)

    def test_messageWithoutIdHasBrokersId(self) -> None:
        """
        A message without an id of its sender has the broker's.
        """
        before, after = self.consume(pulled(0))
        self.assertEqual((before.msgId, after.msgId), (pulled(0).offsetMsgId,) * 2)

    def test_resultHasJavasName(self) -> None:
        """
        The result has Java's name, for each message by itself.
        """
        failed, timeOut = ConsumeReturnType.FAILED, ConsumeReturnType.TIME_OUT
        for result, options, expected in (
            (None, {}, [(True, 0), (True, 0)]),
            (ConsumeLater(), {}, [(False, failed)] * 2),
            (ConsumeLater(done=1), {}, [(True, 0), (False, failed)]),
            (ValueError("bad"), {}, [(False, ConsumeReturnType.EXCEPTION)] * 2),
            (None, {"consumeTimeout": 0.25}, [(True, timeOut)] * 2),
            (ConsumeLater(done=1), {"consumeTimeout": 0.25}, [(True, timeOut), (False, timeOut)]),
        ):
            traces = self.consume(pulled(0), pulled(1), result=result, **options)
            after = [each for each in traces if isinstance(each, SubAfter)]
            self.assertEqual([(each.success, each.contextCode) for each in after], expected)

    def test_unwantedMessagesAreNotTraced(self) -> None:
        """
        Messages that say so, and traces, are not traced.  Others of the same call are.
        """
        messages = [
            pulled(0, TRACE_ON="false"),
            pulled(1, topic=TOPIC),
            pulled(2, TRACE_ON="true", UNIQ_KEY="ID"),
        ]
        self.assertEqual([each.msgId for each in self.consume(*messages)], ["ID", "ID"])

    def test_traceGroupDiffersFromConsumers(self) -> None:
        """
        The trace producer has a group of its own, which a traced producer of the same group
        does not use.
        """
        producer = Producer(self.cluster, "G", trace=True)
        self.got(producer.start())
        self.addCleanup(lambda: self.got(producer.stop()))
        self.traced()
        self.assertEqual(
            set(self.cluster.producers),
            {"G", "_INNER_TRACE_PRODUCER-G-PRODUCE-1", "_INNER_TRACE_PRODUCER-G-CONSUME-1"},
        )

    def test_consumerStopWaitsForTraces(self) -> None:
        """
        A stop sends the traces of the last calls and waits for them, no longer than its
        time limit.
        """
        consumer = self.traced()
        self.a.put(b"a")
        self.network.flush()
        stopping = self.stop(consumer, 2.0)
        self.assertNoResult(stopping)
        self.slow.end(0)
        self.assertEqual(len(self.traces(0)), 2)
        self.successResultOf(stopping)
        self.silent = True
        self.got(consumer.start())
        self.a.put(b"b")
        self.network.flush()
        stopping = self.stop(consumer, 2.0)
        self.network.advance(1.5)
        self.slow.end(1)
        self.network.advance(0.49)
        self.assertNoResult(stopping)
        self.network.advance(0.01)
        self.got(stopping)
        self.assertEqual(self.said("traces", LogLevel.warn), [])

    def test_consumerUsesOtherTraceTopic(self) -> None:
        """
        Traces go to the given topic.
        """
        self.ns.routes["Traces"] = self.ns.routes[TOPIC]
        consumer = self.traced(trace="Traces")
        consumer._consume._listener.call([pulled(0)])
        self.network.advance(0.5)
        self.assertEqual([each.extFields["b"] for each in self.stored], ["Traces"])
