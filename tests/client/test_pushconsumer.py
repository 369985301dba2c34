# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.push.pushconsumer}: messages in any order, and all that is the
same in order.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from twisted.logger import LogLevel
from zope.interface.verify import verifyObject

from tests.client.brokers import A
from tests.client.listeners import Threads
from tests.client.messages import pulled
from tests.client.network import routeTo
from tests.client.pushcase import PushTests
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.offsetstore import LocalOffsets
from txrocket.client.consumer.push.listener import ConsumeLater
from txrocket.client.consumer.push.listenercalls import prepared
from txrocket.client.consumer.push.processqueue import Room
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.errors import (
    ConfigError,
    InvalidMessage,
    MessageIllegal,
    RemoteSystemError,
    SubscriptionParseFailed,
)
from txrocket.message import MessageExt
from txrocket.model import ConsumeFromWhere, ConsumeType, MessageModel, MessageQueue
from txrocket.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ResetOffsetBody,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.compression import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE
from txrocket.protocol.headers import (
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)

BODIES = [b"%d" % each for each in range(40)]
BROADCASTING = MessageModel.BROADCASTING


class LifeTests(PushTests):
    """
    Start and stop.
    """

    def test_noSubscriptionRefusesStart(self) -> None:
        """
        A consumer without a subscription is not started.
        """
        consumer = self.make()
        consumer.unsubscribe("T")
        self.failed(consumer.start(), ConfigError)
        self.assertFalse(consumer.running)

    def test_secondConsumerOfGroupIsRefused(self) -> None:
        """
        A cluster has one consumer of a group.
        """
        self.started()
        self.assertIn("group G", self.failed(self.make().start(), ConfigError))

    def test_invalidNamesAreRefused(self) -> None:
        """
        Names and expressions are checked before any request.
        """
        self.assertRaises(InvalidMessage, self.make, group="no group")
        consumer = self.make()
        self.assertRaises(InvalidMessage, consumer.subscribe, "no topic")
        self.assertRaises(SubscriptionParseFailed, consumer.subscribe, "T", "||")

    def test_consumerIsService(self) -> None:
        """
        It is a service, which twistd can start and stop.
        """
        consumer = self.make()
        verifyObject(IService, consumer)
        consumer.startService()
        self.network.flush()
        self.assertEqual(self.had(consumer), [0, 1, 2, 3])
        self.got(consumer.stopService())
        self.assertEqual(self.had(consumer), [])

    def test_consumerIsContext(self) -> None:
        """
        It is an asynchronous context manager.
        """
        enough: Deferred[None] = Deferred()
        consumer = self.make()

        async def use() -> None:
            async with consumer as entered:
                self.assertIs(entered, consumer)
                await enough

        used = Deferred.fromCoroutine(use())
        self.network.flush()
        self.assertEqual(self.had(consumer), [0, 1, 2, 3])
        enough.callback(None)
        self.got(used)
        self.assertEqual((consumer.running, len(self.a.left)), (0, 1))

    def test_heartbeatHasSubscriptionsAndRetryTopic(self) -> None:
        """
        Brokers are told the group, its subscriptions and its retry topic.
        """
        self.clock.advance(1)
        consumer = self.make(consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)
        consumer.subscribe("T", "a || b")
        self.got(consumer.start())
        self.network.flush()
        (data,) = self.a.beats[-1].consumerDataSet
        self.assertEqual(
            (data.groupName, data.consumeType, data.messageModel, data.consumeFromWhere),
            (
                "G",
                ConsumeType.CONSUME_PASSIVELY,
                MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
            ),
        )
        self.assertEqual(
            {each.topic: (each.subString, each.subVersion) for each in data.subscriptionDataSet},
            {"T": ("a || b", 1_001_000), "%RETRY%G": ("*", 1_001_000)},
        )

    def test_stopPersistsAndLeaves(self) -> None:
        """
        A stop ends the pulls, saves the offsets, and leaves the group.
        """
        consumer = self.started(lambda message: None)
        self.a.put(b"a", b"b")
        self.network.flush()
        self.updates()
        self.got(self.stop(consumer))
        self.assertEqual(self.updates(), [2])
        (left,) = self.a.left
        self.assertEqual((left.clientID, left.consumerGroup), ("me", "G"))
        self.a.pulls = []
        self.a.put(b"c")
        self.network.advance(100)
        self.assertEqual(self.a.pulls, [])
        self.successResultOf(consumer.stop())

    def test_stopWaitsForListener(self) -> None:
        """
        A stop waits for the listener, whose last message is committed; messages not begun
        come again.
        """
        consumer = self.started(concurrency=1)
        self.a.put(b"a", b"b")
        self.network.flush()
        stopping = self.stop(consumer)
        self.network.advance(4.9)
        self.assertNoResult(stopping)
        self.slow.end(0)
        self.got(stopping)
        self.assertEqual((self.slow.offsets, self.updates()), ([0], [1]))

    def test_stopKeepsTimeLimit(self) -> None:
        """
        A stop does not wait longer than its limit, and unconsumed messages come again; the
        listener's later result does not count.
        """
        consumer = self.started()
        self.a.put(b"a", b"b")
        self.network.flush()
        stopping = self.stop(consumer, 2.0)
        self.slow.end(1)
        self.network.advance(2)
        self.got(stopping)
        self.assertEqual(len(self.said("while 1 calls", LogLevel.warn)), 1)
        self.slow.end(0)
        self.network.advance(100)
        self.assertEqual(self.updates(), [0])

    def test_stopLeavesNoTimer(self) -> None:
        """
        Messages that wait to be tried again here, or to be begun, leave no timer.
        """
        self.a.failing[RequestCode.GET_MIN_OFFSET] = RemoteSystemError("no")
        consumer = self.started()
        self.assertEqual(len(consumer._queues._later), 4)
        self.got(self.stop(consumer))
        self.got(self.cluster.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopBeginsNoQueue(self) -> None:
        """
        A queue whose first offset is being requested at the stop is not begun.
        """
        consumer = self.make()
        self.successResultOf(consumer.start())
        while not self.divisions:
            self.network.step()
        self.assertEqual(self.had(consumer), [])
        self.got(self.stop(consumer))
        self.assertEqual((self.had(consumer), self.a.pulls), ([], []))

    def test_restartGoesOnAtGroupOffset(self) -> None:
        """
        It can be started again, and goes on at the offset of the group, not at its own.
        """
        consumer = self.started(lambda message: None)
        self.a.put(*BODIES)
        self.network.flush()
        self.got(self.stop(consumer))
        self.a.offsets["G", "T", 0] = 30
        self.a.pulls = []
        self.got(consumer.start())
        self.network.flush()
        first = next(each for each in self.a.pulls if each.queueId == 0)
        self.assertEqual((first.queueOffset, first.sysFlag & 1), (30, 0))
        self.assertEqual(self.a.pulls[-1].queueOffset, 40)

    def test_brokenTaskIsLogged(self) -> None:
        """
        A task that raises is logged, and a stop goes on without it.
        """

        class Broken(LocalOffsets):
            def persist(self, queues: Any = None) -> Any:
                raise ZeroDivisionError

        consumer = self.started(offsets=Broken("unused"))
        self.network.advance(5)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(len(self.said("A task of consumer G", LogLevel.critical)), 1)
        self.got(self.stop(consumer))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(len(self.said("without having persisted", LogLevel.critical)), 1)
        self.assertEqual(len(self.a.left), 1)


class BeginTests(PushTests):
    """
    The first offset of a queue.
    """

    def begun(self, **options: Any) -> dict[int, int]:
        """
        The offsets of the first pulls of all queues, by their ids.
        """
        self.started(**options)
        first: dict[int, int] = {}
        for each in self.a.pulls:
            first.setdefault(each.queueId, each.queueOffset)
        return first

    def test_firstOffsetOrGroupsIsUsed(self) -> None:
        """
        CONSUME_FROM_FIRST_OFFSET begins with the first message, or at the offset of the
        group.
        """
        self.a.put(*BODIES)
        self.a.cut(7)
        self.a.offsets["G", "T", 1] = 0
        self.a.put(b"x", queueId=1)
        self.assertEqual(self.begun(), {0: 7, 1: 0, 2: 0, 3: 0})
        self.assertEqual(len(self.said("begins at 7 in queue 0 of T at a: the first message")), 1)
        self.assertEqual(len(self.said("begins at 0 in queue 1 of T at a: the group's offset")), 1)

    def test_lastOffsetIsDefault(self) -> None:
        """
        By default it begins with the messages that come from now on.
        """
        self.a.put(*BODIES)
        consumer = PushConsumer(self.cluster, "G", self.slow)
        self.assertIs(
            consumer.consumerData().consumeFromWhere, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        )
        self.assertEqual(
            self.begun(consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)[0], 40
        )
        self.assertEqual(len(self.said("begins at 40 in queue 0 of T at a: what comes")), 1)

    def test_timestampIsUsed(self) -> None:
        """
        CONSUME_FROM_TIMESTAMP begins with the messages of a time, by default half an hour
        before the consumer was made.
        """
        self.a.put(*BODIES)
        where = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
        self.assertEqual(self.begun(consumeFromWhere=where, consumeTimestamp=12.0)[0], 12)
        self.assertEqual(len(self.said("begins at 12 in queue 0 of T at a: the first since")), 1)
        self.clock.advance(1820 - self.clock.seconds())
        self.a.pulls = []
        self.assertEqual(self.begun(group="H", consumeFromWhere=where)[0], 20)

    def test_retryTopicBeginsAtFirst(self) -> None:
        """
        A retry topic begins with its first message, wherever the group begins.
        """
        self.ns.routes["%RETRY%G"] = routeTo(a={0: A})
        self.a.put(b"x", topic="%RETRY%G")
        self.started(consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
        self.assertEqual(self.slow.offsets, [0])

    def test_unknownStartIsTriedAgain(self) -> None:
        """
        If the broker does not tell the first offset, it is asked again after 3 seconds.
        """
        self.a.failing[RequestCode.GET_MIN_OFFSET] = RemoteSystemError("no")
        consumer = self.started()
        self.assertEqual(len(self.said("cannot be begun yet", LogLevel.warn)), 4)
        del self.a.failing[RequestCode.GET_MIN_OFFSET]
        self.network.advance(2.9)
        self.assertEqual(self.had(consumer), [])
        self.network.advance(0.1)
        self.assertEqual(self.had(consumer), [0, 1, 2, 3])

    def test_lostQueueIsNotTriedAgain(self) -> None:
        """
        If the queue is lost by then, the broker is not asked again.
        """
        self.a.failing[RequestCode.GET_MIN_OFFSET] = RemoteSystemError("no")
        consumer = self.started()
        del self.a.failing[RequestCode.GET_MIN_OFFSET]
        self.mine(consumer, 1)
        self.network.advance(3)
        self.assertEqual(self.had(consumer), [1])


class ConsumeTests(PushTests):
    """
    Messages and the listener.
    """

    def test_everyKindOfListenerIsCalled(self) -> None:
        """
        A plain function, one that returns a Deferred and an C{async def} get the messages,
        and consumed ones are committed within 5 seconds.
        """
        seen: list[bytes] = []

        async def coroutine(message: MessageExt) -> None:
            await self.slow(message)
            seen.append(message.body)

        def deferred(message: MessageExt) -> Deferred[None]:
            return self.slow(message).addCallback(lambda none: seen.append(message.body))

        for group, listener in (
            ("plain", lambda message: seen.append(message.body)),
            ("deferred", deferred),
            ("coroutine", coroutine),
        ):
            consumer = self.started(listener, group=group)
            self.a.records.clear()
            self.a.put(b"a", b"b")
            self.network.flush()
            for _, promise in self.slow.calls:
                promise.callback(None)
            self.slow.calls.clear()
            self.updates()
            self.network.advance(5)
            self.assertEqual((seen, self.updates()), ([b"a", b"b"], [2]))
            seen.clear()
            self.got(self.stop(consumer))

    def test_blockingListenerRunsInThread(self) -> None:
        """
        A blocking listener is called in a thread.
        """
        threads = Threads(self.clock)
        self.cluster = Cluster(
            "192.0.2.10:9876",
            threads,
            clientId="me",
            connect=self.network.endpoint,
            choose=lambda below: 0,
        )
        self.addCleanup(self.cluster.stop)
        seen = []
        consumer = self.started(lambda messages: seen.append(len(messages)), blocking=True, batch=2)
        self.a.put(b"a", b"b", b"c")
        self.network.flush()
        self.assertEqual((seen, len(threads.jobs)), ([], 2))
        for job in threads.jobs:
            job()
        self.network.flush()
        self.assertEqual(seen, [2, 1])
        self.assertEqual(consumer.status("T")[self.queue], 3)

    def test_blockingCoroutineIsRefused(self) -> None:
        """
        A blocking C{async def} is refused.
        """

        async def listen(message: MessageExt) -> None:
            """
            Never runs.
            """

        self.assertRaises(ConfigError, self.make, listen, blocking=True)

    def test_consumedOffsetsAreSavedEachFiveSeconds(self) -> None:
        """
        Offsets are saved every 5 seconds, and none of an unconsumed message.
        """
        self.started()
        self.a.put(b"a", b"b", b"c")
        self.network.flush()
        self.updates()
        self.slow.end(0)
        self.slow.end(2)
        self.network.advance(4.9)
        self.assertEqual(self.updates(), [])
        self.network.advance(0.1)
        self.assertEqual(self.updates(), [1])
        self.slow.end(1)
        self.network.advance(5)
        self.assertEqual(self.updates(), [3])

    def test_listenerGetsDecompressedBody(self) -> None:
        """
        A listener gets bodies as they were before compression.
        """
        self.started()
        self.a.put(zlib.compress(b"hello"), sysFlag=COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE)
        self.network.flush()
        self.assertEqual(self.slow.calls[0][0].body, b"hello")

    def test_damagedBodyIsSentBack(self) -> None:
        """
        A body that cannot be read is sent back, and delays no other.
        """
        self.started()
        self.a.put(b"no zlib", sysFlag=COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE)
        self.a.put(b"hello")
        self.network.flush()
        self.assertEqual([each.offset for each in self.a.backs], [1000])
        self.assertEqual(self.slow.offsets, [1])
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_pullsStayWithinLimits(self) -> None:
        """
        No more is pulled than the limits allow, and pulling goes on as soon as they do.
        """
        self.started(room=Room(count=8), pullBatch=4)
        self.a.put(*BODIES)
        self.network.flush()
        self.assertEqual(len(self.slow.calls), 8)
        self.slow.end(3)
        self.network.flush()
        self.assertEqual(len(self.slow.calls), 12)
        self.assertEqual(self.a.pulls[-1].maxMsgNums, 4)

    def test_retriedMessageHasOriginalTopic(self) -> None:
        """
        A retried message has the topic that the listener subscribed to.
        """
        self.ns.routes["%RETRY%G"] = routeTo(a={0: A})
        given = prepared(pulled(0, topic="%RETRY%G", times=1, RETRY_TOPIC="T"))
        self.assertEqual((given.topic, given.reconsumeTimes), ("T", 1))

    # --- not dealt with --------------------------------------------------

    def test_consumeLaterSendsBack(self) -> None:
        """
        A message to be consumed later is sent back to its broker with the listener's level
        and the maximum of times, and the queue goes on.
        """
        self.started(maxReconsumeTimes=3)
        self.a.put(b"a")
        self.network.flush()
        self.slow.end(0, ConsumeLater(delayLevel=7))
        self.network.flush()
        (back,) = self.a.backs
        self.assertEqual(
            (back.offset, back.group, back.delayLevel, back.maxReconsumeTimes), (1000, "G", 7, 3)
        )
        self.updates()
        self.network.advance(5)
        self.assertEqual(self.updates(), [1])

    def test_sixteenTimesIsDefault(self) -> None:
        """
        By default a message comes again 16 times.
        """
        self.started()
        self.a.put(b"a")
        self.network.flush()
        self.slow.end(0, ConsumeLater())
        self.network.flush()
        self.assertEqual(self.a.backs[0].maxReconsumeTimes, 16)

    def test_refusedSendBackGoesToRetryTopic(self) -> None:
        """
        If its broker does not take it back, it is sent to the retry topic; if that fails,
        it is tried again here.
        """
        self.ns.routes["%RETRY%G"] = routeTo(a={0: A})
        sent: list[str] = []

        def store(request: RemotingCommand) -> RemotingCommand:
            sent.append(request.decodeHeader(SendMessageRequestHeaderV2).topic)
            if len(sent) < 2:
                raise MessageIllegal("not now")
            return responseCommand(header=SendMessageResponseHeader("00", 0, 7))

        self.a.failing[RequestCode.CONSUMER_SEND_MSG_BACK] = RemoteSystemError("no")
        self.a.answers[RequestCode.SEND_MESSAGE_V2] = store
        consumer = self.started()
        self.a.put(b"a")
        self.network.flush()
        self.slow.end(0, ConsumeLater())
        self.network.flush()
        self.assertEqual((sent, self.slow.offsets), (["%RETRY%G"], [0]))
        self.network.advance(5)
        self.assertEqual(self.slow.offsets, [0, 0])
        self.assertEqual(consumer.status("T")[self.queue], 0)
        self.slow.end(1, ConsumeLater())
        self.network.flush()
        self.assertEqual((len(sent), consumer.status("T")[self.queue]), (2, 1))

    def test_lateMessageIsSentBack(self) -> None:
        """
        After 15 minutes with a listener a message is sent back; that is checked every
        minute.
        """
        self.started()
        self.a.put(b"a")
        self.network.flush()
        for _ in range(15):
            self.network.advance(60)
        self.assertEqual(self.a.backs, [])
        self.network.advance(60)
        self.assertEqual([each.delayLevel for each in self.a.backs], [3])
        self.network.advance(60)
        self.assertEqual(len(self.a.backs), 1)

    def test_shortTimeIsCheckedMoreOften(self) -> None:
        """
        A shorter time is checked more often.
        """
        self.started(consumeTimeout=2.0)
        self.a.put(b"a")
        self.network.flush()
        for _ in range(3):
            self.network.advance(1.5)
        self.assertEqual(len(self.a.backs), 1)


class GroupTests(PushTests):
    """
    Queues that come and go.
    """

    def test_lostQueueIsSavedAndDropped(self) -> None:
        """
        The offset of a lost queue is saved at once, and nothing more of it is consumed or
        committed.
        """
        consumer = self.started(concurrency=2)
        self.a.put(b"a", b"b", b"c")
        self.network.flush()
        self.slow.end(0)
        self.updates()
        self.mine(consumer, 1, 2)
        self.assertEqual((self.had(consumer), self.updates()), ([1, 2], [1]))
        self.slow.end(1)
        self.slow.end(2)
        self.network.advance(5)
        self.assertEqual((self.slow.offsets, self.updates()), ([0, 1, 2], []))
        self.assertNotIn(self.queue, consumer.status("T"))

    def test_returnedQueueBeginsAtGroupOffset(self) -> None:
        """
        A returned queue begins at the current offset of the group.
        """
        consumer = self.started(lambda message: None)
        self.a.put(*BODIES)
        self.network.flush()
        self.mine(consumer, 1)
        self.a.offsets["G", "T", 0] = 20
        self.a.pulls = []
        self.mine(consumer, 0, 1)
        first = next(each for each in self.a.pulls if each.queueId == 0)
        self.assertEqual((first.queueOffset, first.sysFlag & 1), (20, 0))

    def test_earlyReturnKeepsKnownOffset(self) -> None:
        """
        A queue that returns before its offset was saved begins there as well, and its known
        offset is not forgotten.
        """
        consumer = self.started(lambda message: None)
        self.a.put(b"a", b"b")
        self.network.flush()
        self.a.mute = True
        consumer._queues.changed("T", [], [self.queue])
        self.a.mute = False
        consumer._queues.changed("T", [self.queue], [])
        self.network.flush()
        self.network.advance(5)
        self.assertEqual(consumer.status("T")[self.queue], 2)

    def test_queueLostWhileBegunIsNotPulled(self) -> None:
        """
        A queue that is lost while its first offset is requested is not begun.
        """
        consumer = self.started()
        self.mine(consumer)
        consumer._rebalance.queues["T"] = frozenset({self.queue})
        consumer._queues.obtain([self.queue])
        self.mine(consumer)
        self.assertEqual(self.had(consumer), [])

    def test_begunQueueIsNotBegunAgain(self) -> None:
        """
        A begun queue is not begun again.
        """
        consumer = self.started()
        before, pulls = consumer.runningInfo().mqTable, len(self.a.pulls)
        consumer._queues.obtain([self.queue])
        self.network.flush()
        self.assertEqual((consumer.runningInfo().mqTable, len(self.a.pulls)), (before, pulls))

    def test_subscriptionsChangeWhileRunning(self) -> None:
        """
        A topic may be subscribed and unsubscribed while the consumer runs: brokers are
        told, and its queues are divided.
        """
        self.ns.routes["U"] = routeTo(a={0: A})
        self.a.put(b"u", topic="U")
        consumer = self.started()
        self.a.beats.clear()
        consumer.subscribe("U")
        self.network.flush()
        self.assertEqual([given.topic for given, _ in self.slow.calls], ["U"])
        (data,) = self.a.beats[-1].consumerDataSet
        self.assertEqual({each.topic for each in data.subscriptionDataSet}, {"T", "U", "%RETRY%G"})
        consumer.unsubscribe("U")
        self.network.flush()
        self.assertEqual({each.topic for each in consumer.runningInfo().mqTable}, {"T"})
        (data,) = self.a.beats[-1].consumerDataSet
        self.assertEqual({each.topic for each in data.subscriptionDataSet}, {"T", "%RETRY%G"})

    def test_newExpressionCountsFromNextPull(self) -> None:
        """
        A new expression of a topic counts from the next pull on.
        """
        consumer = self.started()
        self.clock.advance(1)
        consumer.subscribe("T", "x")
        self.network.advance(15)
        self.a.put(b"0", tags="y")
        self.a.put(b"1", tags="x")
        self.network.flush()
        self.assertEqual(self.slow.offsets, [1])
        self.assertEqual(self.a.pulls[-1].subVersion, 1_001_000)

    def test_pauseConsumesPulledMessages(self) -> None:
        """
        In a pause nothing is pulled, and pulled messages are consumed.
        """
        consumer = self.started(concurrency=1)
        self.a.put(b"a", b"b")
        self.network.flush()
        consumer.pause()
        self.a.put(b"c")
        self.network.flush()
        self.slow.end(0)
        self.slow.end(1)
        self.network.advance(60)
        self.assertEqual(self.slow.offsets, [0, 1])
        consumer.resume()
        self.network.flush()
        self.assertEqual(self.slow.offsets, [0, 1, 2])


class BroadcastTests(PushTests):
    """
    Every member gets every message.
    """

    def test_broadcastHasAllQueues(self) -> None:
        """
        It has all queues whatever other members exist, asks for no members, saves no offset
        at a broker, and has no retry topic.
        """
        self.a.ids = ("me", "you")
        consumer = self.started(lambda message: None, messageModel=BROADCASTING)
        self.a.put(b"a")
        self.network.flush()
        self.network.advance(5)
        self.assertEqual((self.had(consumer), self.a.asked, self.updates()), ([0, 1, 2, 3], [], []))
        self.assertEqual({each.sysFlag & 1 for each in self.a.pulls}, {0})
        (data,) = self.a.beats[-1].consumerDataSet
        self.assertEqual(
            (data.messageModel, {each.topic for each in data.subscriptionDataSet}),
            (BROADCASTING, {"T"}),
        )

    def test_broadcastDropsUnconsumed(self) -> None:
        """
        Unconsumed messages are dropped.
        """
        consumer = self.started(messageModel=BROADCASTING)
        self.a.put(b"a")
        self.network.flush()
        self.slow.end(0, ConsumeLater())
        self.network.flush()
        self.assertEqual((self.a.backs, consumer.status("T")[self.queue]), ([], 1))

    def test_fileKeepsOffsets(self) -> None:
        """
        With a file, the next consumer goes on at the offsets of this one.
        """
        path = Path(self.mktemp())
        self.a.put(b"a", b"b")
        for expected in ([0, 1], []):
            consumer = self.started(messageModel=BROADCASTING, offsets=LocalOffsets(path))
            self.assertEqual(self.slow.offsets, expected)
            for index in range(len(expected)):
                self.slow.end(index)
            self.slow.calls.clear()
            self.got(self.stop(consumer))

    def test_orderlyBroadcastNeedsNoLock(self) -> None:
        """
        In order, it needs no locks.
        """
        consumer = self.started(messageModel=BROADCASTING, orderly=True)
        self.a.put(b"a", b"b")
        self.network.advance(60)
        self.assertEqual((self.slow.offsets, self.locking), ([0], []))
        self.slow.end(0)
        self.mine(consumer)
        self.slow.end(1)
        self.got(self.stop(consumer))
        self.assertEqual(self.a.unlocked, [])


class AskedTests(PushTests):
    """
    Requests of administrators.
    """

    def ask(self, code: int, header: Any, body: bytes = b"") -> Deferred[RemotingCommand]:
        """
        The broker asks over the connection that the client opened.
        """
        return self.network.accepted[A][0].request(requestCommand(code, header, body), 3.0)

    def test_resetMovesGroup(self) -> None:
        """
        An administrator moves the group: pulled messages are not consumed any more, the
        queue is pulled from there on, and the broker knows at once.
        """
        consumer = self.started(concurrency=1)
        self.a.put(*BODIES[:10])
        self.network.flush()
        self.updates()
        self.a.pulls = []
        body = ResetOffsetBody({self.queue: 8, MessageQueue("T", "z", 0): 5})
        self.ask(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            ResetOffsetRequestHeader("T", "G", 0, True),
            encodeBody(body),
        ).addErrback(lambda failure: None)
        self.network.flush()
        self.assertEqual(self.updates(), [8])
        self.assertEqual(self.a.pulls[0].queueOffset, 8)
        self.slow.end(0)
        self.network.flush()
        self.slow.end(1)
        self.network.advance(5)
        self.assertEqual((self.slow.offsets, self.updates()), ([0, 8, 9], [9]))
        self.assertEqual(consumer.status("T")[self.queue], 9)

    def test_statusTellsOffsets(self) -> None:
        """
        It tells its offsets in the queues of a topic.
        """
        self.a.put(b"a", b"b")
        consumer = self.started()
        self.slow.end(0)
        self.mine(consumer, 0)
        self.assertEqual(dict(consumer.status("T")), {self.queue: 1})
        self.assertEqual(dict(consumer.status("U")), {})

    def test_runningInfoHasJavasNames(self) -> None:
        """
        It tells its state, by the names that Java's tools look for.
        """
        self.clock.advance(1)
        self.a.put(b"a", b"b")
        self.started()
        self.slow.end(0)
        header = GetConsumerRunningInfoRequestHeader("G", "me", False)
        answer = self.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        info = decodeBody(ConsumerRunningInfo, self.got(answer).body)
        for name, value in (
            ("PROP_NAMESERVER_ADDR", "192.0.2.10:9876"),
            ("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY"),
            ("PROP_CONSUME_ORDERLY", "false"),
            ("PROP_CONSUMER_START_TIMESTAMP", "1001000"),
            ("PROP_CLIENT_VERSION", "V4_9_7"),
            ("messageModel", "CLUSTERING"),
            ("consumeFromWhere", "CONSUME_FROM_FIRST_OFFSET"),
        ):
            self.assertEqual(info.properties[name], value)
        self.assertEqual([each.topic for each in info.subscriptionSet], ["%RETRY%G", "T"])
        self.assertEqual(list(info.mqTable), self.queues)
        told = info.mqTable[self.queue]
        self.assertEqual(
            (told.commitOffset, told.cachedMsgMinOffset, told.cachedMsgCount), (1, 1, 1)
        )
        self.assertEqual(told.lastPullTimestamp, 1_001_000)

    def test_orderlyRunningInfoTellsLocks(self) -> None:
        """
        In order it says so, and tells its locks.
        """
        info = self.started(orderly=True).runningInfo()
        self.assertEqual(info.properties["PROP_CONSUME_ORDERLY"], "true")
        told = info.mqTable[self.queue]
        self.assertEqual((told.locked, told.lastLockTimestamp), (True, 1_000_000))

    def directly(self, consumer: PushConsumer, result: Any) -> ConsumeMessageDirectlyResult:
        """
        A message is consumed that an administrator has chosen.
        """
        message = pulled(5, topic="%RETRY%G", RETRY_TOPIC="T")
        asked = consumer.consumeDirectly(message, "b")
        self.clock.advance(0.25)
        given, _ = self.slow.calls[-1]
        given = given[0] if isinstance(given, list) else given
        self.assertEqual((given.topic, given.brokerName), ("T", "b"))
        self.slow.end(-1, result)
        told: ConsumeMessageDirectlyResult = self.successResultOf(asked)
        return told

    def test_directMessageIsConsumed(self) -> None:
        """
        A message chosen by an administrator is consumed, and its result returned.
        """
        consumer = self.started()
        for result, what, remark in (
            (None, CMResult.CR_SUCCESS, None),
            (ConsumeLater(), CMResult.CR_LATER, None),
            (ZeroDivisionError("oh"), CMResult.CR_THROW_EXCEPTION, "oh"),
        ):
            told = self.directly(consumer, result)
            self.assertEqual(told, ConsumeMessageDirectlyResult(False, True, what, remark, 250))

    def test_directOrderlyMessageIsList(self) -> None:
        """
        In order it says so; a listener of batches gets a list.
        """
        told = self.directly(self.started(orderly=True, batch=3), None)
        self.assertEqual(told.order, True)

    def test_directMessageMayRaise(self) -> None:
        """
        A plain function may raise.
        """

        def listen(message: MessageExt) -> None:
            raise ZeroDivisionError("oh")

        told = self.successResultOf(self.started(listen).consumeDirectly(pulled(5), "a"))
        self.assertEqual(told.consumeResult, CMResult.CR_THROW_EXCEPTION)
