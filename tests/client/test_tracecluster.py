# SPDX-License-Identifier: Apache-2.0
"""
Traces from the producer to the reader, through servers in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SynchronousTestCase

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.listener import ConsumeLater
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.client.trace.view import MessageTrace, TraceReader
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere, MessageModel
from txrocket.protocol.tracebodies import ConsumeReturnType, MessageType
from txrocket.testing.trial import memoryCluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

# The address of clients in memory.
HERE = "203.0.113.1"


class TraceClusterTests(SynchronousTestCase):
    """
    A producer, consumers and a reader.
    """

    def start(self, **options: Any) -> None:
        """
        Start servers and a client.
        """
        settings = {"traceTopicEnable": True, **options.pop("settings", {})}
        self.servers = memoryCluster(self, settings=settings, **options)
        self.cluster = self.client()
        self.reader = TraceReader(self.cluster)

    def client(self) -> Cluster:
        """
        A client of the servers.
        """
        cluster = Cluster(
            self.servers.nameServers, self.servers.clock, connect=self.servers.connect
        )
        self.addCleanup(lambda: self.servers.resultOf(cluster.stop()))
        return cluster

    def producer(self, **options: Any) -> Producer:
        """
        A producer that has traces.
        """
        producer = Producer(self.cluster, "P", **{"trace": True, **options})
        producer.startService()
        self.addCleanup(lambda: self.servers.resultOf(producer.stop()))
        return producer

    def consumer(
        self,
        listener: Callable[[Any], Any] = lambda message: None,
        group: str = "G",
        cluster: Cluster | None = None,
        **options: Any,
    ) -> PushConsumer:
        """
        A consumer that has traces.
        """
        options = {"trace": True, "consumeFromWhere": FIRST, **options}
        consumer = PushConsumer(cluster or self.cluster, group, listener, **options)
        consumer.subscribe("T")
        consumer.startService()
        self.addCleanup(lambda: self.servers.resultOf(consumer.stop()))
        return consumer

    def send(self, producer: Producer, message: Message | None = None) -> str:
        """
        Send a message.

        @return: its id.
        """
        sending = producer.send(message or Message("T", b"tea", "new", "order-17"))
        return self.servers.resultOf(sending).msgId

    def trace(self, msgId: str) -> MessageTrace:
        """
        The trace of a message.
        """
        trace = self.servers.resultOf(self.reader.byId(msgId))
        assert trace is not None
        return trace

    def test_wholeWayIsRead(self) -> None:
        """
        A message's way from its sender to two groups can be read by its id and its key.
        """
        self.start()
        now = self.servers.clock.seconds()
        msgId = self.send(self.producer())
        slow: list[Deferred[None]] = []

        def listen(message: MessageExt) -> Deferred[None]:
            slow.append(Deferred())
            return slow[-1]

        self.consumer()
        self.consumer(listen, "H")
        self.servers.advance(5)
        trace = self.trace(msgId)
        self.assertEqual((trace.topic, trace.tags, trace.keys), ("T", "new", ("order-17",)))
        (sent,) = trace.sent
        self.assertEqual((sent.group, sent.host, sent.success), ("P", HERE, True))
        self.assertEqual((sent.time, sent.bodyLength), (now, 3))
        self.assertEqual(sent.broker, self.servers.brokers[0])
        self.assertIs(sent.msgType, MessageType.Normal_Msg)
        (dealt,) = trace.consumed["G"]
        self.assertEqual((dealt.host, dealt.success, dealt.retryTimes), (HERE, True, 0))
        self.assertIs(dealt.status, ConsumeReturnType.SUCCESS)
        (busy,) = trace.consumed["H"]
        self.assertEqual((busy.ended, busy.success, busy.status), (None, None, None))
        slow[0].callback(None)
        self.servers.advance(1)
        (busy,) = self.trace(msgId).consumed["H"]
        assert busy.began is not None and busy.ended is not None and busy.cost is not None
        self.assertAlmostEqual(busy.cost, busy.ended - busy.began, 3)
        self.assertGreater(busy.cost, 1)
        self.assertIs(busy.success, True)
        (byKey,) = self.servers.resultOf(self.reader.byKey("order-17"))
        self.assertEqual(byKey, self.trace(msgId))
        self.assertIsNone(self.servers.resultOf(self.reader.byId("0" * 32)))

    def test_traceTopicIsCreated(self) -> None:
        """
        A missing trace topic is created, if topics may be.
        """
        self.start(settings={"traceTopicEnable": False})
        msgId = self.send(self.producer())
        self.servers.advance(1)
        self.assertEqual(len(self.trace(msgId).sent), 1)

    def test_otherTraceTopicIsUsed(self) -> None:
        """
        Traces may be kept in another topic.
        """
        self.start()
        self.reader = TraceReader(self.cluster, "Traces")
        msgId = self.send(self.producer(trace="Traces"))
        self.servers.advance(1)
        self.assertEqual(len(self.trace(msgId).sent), 1)

    def test_eachTryIsTraced(self) -> None:
        """
        A failing listener that gets the message again has a trace of each time.
        """
        self.start()
        results: list[Any] = [ConsumeLater(), ValueError("bad"), None]

        def listen(message: MessageExt) -> Any:
            result = results.pop(0)
            if isinstance(result, Exception):
                raise result
            return result

        self.consumer(listen)
        msgId = self.send(self.producer())
        self.servers.advance(120)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        calls = self.trace(msgId).consumed["G"]
        self.assertEqual(
            [(each.status, each.success, each.retryTimes) for each in calls],
            [
                (ConsumeReturnType.FAILED, False, 0),
                (ConsumeReturnType.EXCEPTION, False, 1),
                (ConsumeReturnType.SUCCESS, True, 2),
            ],
        )

    def test_orderlyTryIsTraced(self) -> None:
        """
        So has an orderly listener.
        """
        self.start()
        results = [ConsumeLater(seconds=1.0), None]
        self.consumer(lambda message: results.pop(0), orderly=True)
        msgId = self.send(self.producer())
        self.servers.advance(30)
        calls = self.trace(msgId).consumed["G"]
        self.assertEqual([each.success for each in calls], [False, True])
        first, second = calls
        assert first.ended is not None and second.began is not None
        self.assertAlmostEqual(second.began - first.ended, 1.0, 2)

    def test_eachBroadcastMemberTraces(self) -> None:
        """
        Each broadcast consumer writes its own result, which need not be the same.
        """
        self.start()
        for result in None, ConsumeLater():
            self.consumer(
                lambda message, result=result: result,  # type: ignore[misc]
                cluster=self.client(),
                messageModel=MessageModel.BROADCASTING,
            )
        self.servers.advance(1)
        msgId = self.send(self.producer())
        self.servers.advance(60)
        calls = self.trace(msgId).consumed["G"]
        self.assertEqual(sorted(each.success or False for each in calls), [False, True])

    def test_batchMessagesAreFoundById(self) -> None:
        """
        The messages of a batch are found each by its own id.
        """
        self.start()
        self.consumer(batch=10)
        messages = [Message("T", b"%d" % number, keys=f"k{number}") for number in range(5)]
        (result,) = self.servers.resultOf(self.producer().sendBatch(messages))
        self.servers.advance(60)
        offsets = set()
        for number, msgId in enumerate(result.msgId.split(",")):
            trace = self.trace(msgId)
            self.assertEqual(trace.keys, (f"k{number}",))
            offsets.add(trace.sent[0].offsetMsgId)
            self.assertEqual([each.success for each in trace.consumed["G"]], [True])
        self.assertEqual(len(offsets), 5)

    def test_traceOffBrokerGetsNone(self) -> None:
        """
        A broker with traceOn=false gets no traces.
        """
        self.start(settings={"traceOn": False})
        msgId = self.send(self.producer())
        self.servers.advance(10)
        self.assertIsNone(self.servers.resultOf(self.reader.byId(msgId)))
        queue = self.servers.broker().store.queues.get("RMQ_SYS_TRACE_TOPIC", 0)
        self.assertTrue(queue is None or queue.maxOffset == 0)

    def test_thousandTracesTakeFewMessages(self) -> None:
        """
        A thousand messages have a thousand traces, in few messages.
        """
        self.start(brokers=2)
        producer = self.producer()
        seen: list[MessageExt] = []
        self.consumer(seen.append)
        self.servers.advance(1)
        sends = [producer.send(Message("T", b"%d" % each)) for each in range(1000)]
        results = self.servers.resultOf(gatherResults(sends))
        self.servers.advance(60)
        self.assertEqual(len(seen), 1000)
        for each in results[::97]:
            trace = self.trace(each.msgId)
            self.assertEqual(len(trace.sent), 1)
            self.assertEqual(len(trace.consumed["G"]), 1)
        written = 0
        for address in self.servers.brokers:
            queue = self.servers.broker(address).store.queues.get("RMQ_SYS_TRACE_TOPIC", 0)
            written += 0 if queue is None else queue.maxOffset
        self.assertLess(written, 60)

    def test_tracesAreNotTraced(self) -> None:
        """
        A traced consumer of traces causes no further traces.
        """
        self.start()
        consumer = self.consumer()
        consumer.subscribe("RMQ_SYS_TRACE_TOPIC")
        self.send(self.producer())
        self.servers.advance(60)
        queue = self.servers.broker().store.queues.get("RMQ_SYS_TRACE_TOPIC", 0)
        assert queue is not None
        written = queue.maxOffset
        self.servers.advance(60)
        self.assertEqual(queue.maxOffset, written)

    def test_stopWritesAllTraces(self) -> None:
        """
        A producer that stops at once has written all traces.
        """
        self.start()
        producer = Producer(self.cluster, "Q", trace=True)
        producer.startService()
        msgId = self.send(producer)
        began = self.servers.clock.seconds()
        self.servers.resultOf(producer.stop())
        self.assertLess(self.servers.clock.seconds() - began, 0.5)
        self.servers.advance(0.1)
        self.assertEqual(len(self.trace(msgId).sent), 1)

    def test_missingBrokerLosesTraces(self) -> None:
        """
        While the only broker is gone, traces are lost, and no stop waits longer for them
        than for messages; once it is back, there are traces again.
        """
        self.start()
        producer = self.producer()
        self.send(producer)
        broker = self.servers.brokers[0]
        self.servers.crash(broker)
        self.servers.advance(30)
        assert producer._trace is not None
        self.assertEqual(producer._trace.traces.dropped, 1)
        self.servers.start(broker)
        self.servers.advance(60)
        msgId = self.send(producer)
        self.servers.advance(1)
        self.assertEqual(len(self.trace(msgId).sent), 1)
