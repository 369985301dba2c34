# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.pull.pullconsumer} and L{txrocket.client.consumer.pull.base}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.logger import LogLevel

from tests.client.brokers import ConsumerTests
from tests.client.network import routeTo
from txrocket.client.consumer.offsetstore import LocalOffsets
from txrocket.client.consumer.pull.pullconsumer import PullConsumer
from txrocket.client.sansio.results import PullStatus
from txrocket.errors import (
    ConfigError,
    InvalidMessage,
    RemoteSystemError,
    RequestTimedOut,
    ServiceNotAvailable,
    SubscriptionParseFailed,
    TopicNotExist,
)
from txrocket.model import ConsumeType, MessageModel, MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.compression import COMPRESSED_FLAG, deflate


class PullConsumerTestsBase(ConsumerTests):
    """
    A pull consumer of group g.
    """

    def setUp(self) -> None:
        super().setUp()
        self.consumer = self.started()

    def started(self, **options: Any) -> PullConsumer:
        """
        One that has started.
        """
        self.cluster.consumers.clear()
        consumer = PullConsumer(self.cluster, "g", **options)
        self.got(consumer.start())
        return consumer


class PullTests(PullConsumerTestsBase):
    """
    Pulling.
    """

    def test_pullCarriesExpressionAndWaitsNot(self) -> None:
        """
        The expression is in the request, and the broker does not hold it.
        """
        self.a.put(b"0", b"1", tags="x")
        result = self.got(self.consumer.pull(self.queue, 1, expression="x"))
        self.assertEqual([each.body for each in result.messages], [b"1"])
        (header,) = self.a.pulls
        self.assertEqual((header.sysFlag, header.subscription, header.maxMsgNums), (4, "x", 32))
        self.assertEqual(header.subVersion, 0)

    def test_sqlExpressionHasVersion(self) -> None:
        """
        An expression of another type has a version, by which the broker knows whether it
        has compiled it.
        """
        self.a.put(b"0")
        self.got(self.consumer.pull(self.queue, 1, 5, expression="a > 1", expressionType="SQL92"))
        (header,) = self.a.pulls
        self.assertEqual((header.expressionType, header.subVersion), ("SQL92", 1_000_000))

    def test_pullTimesOutAfterTenSeconds(self) -> None:
        """
        By default a pull may take 10 seconds.
        """
        self.a.mute = True
        pulling = self.consumer.pull(self.queue, 0)
        short = self.consumer.pull(self.queue, 0, timeout=1.0)
        self.network.advance(1.1)
        self.failed(short, RequestTimedOut)
        self.network.advance(8.8)
        self.assertNoResult(pulling)
        self.network.advance(0.2)
        self.failed(pulling, RequestTimedOut)

    def test_heldPullGetsMessageOrNothing(self) -> None:
        """
        A held pull gets the next message, or nothing after 20 seconds.
        """
        pulling = self.consumer.pullAndWait(self.queue, 0)
        self.network.advance(19)
        self.assertNoResult(pulling)
        self.a.put(b"0")
        self.assertEqual(len(self.got(pulling).messages), 1)
        pulling = self.consumer.pullAndWait(self.queue, 1)
        self.network.advance(20)
        self.assertEqual(self.got(pulling).pullStatus, PullStatus.NO_NEW_MSG)
        self.assertEqual([each.sysFlag for each in self.a.pulls], [6, 6])

    def test_heldPullTimesOutAfterThirtySeconds(self) -> None:
        """
        After 30 seconds a held pull fails.
        """
        self.a.mute = True
        pulling = self.consumer.pullAndWait(self.queue, 0)
        self.network.advance(29.9)
        self.assertNoResult(pulling)
        self.network.advance(0.2)
        self.failed(pulling, RequestTimedOut)

    def test_pullDecompressesAndSkipsDamage(self) -> None:
        """
        Bodies are decompressed; a damaged message is skipped, counted and logged.
        """
        self.a.put(b"plain")
        self.a.put(deflate(b"long"), b"damaged", sysFlag=COMPRESSED_FLAG)
        self.a.put(b"after")
        result = self.got(self.consumer.pull(self.queue, 0))
        self.assertEqual([each.body for each in result.messages], [b"plain", b"long", b"after"])
        self.assertEqual(result.nextBeginOffset, 4)
        [fault] = result.faults
        self.assertIn("message 2 in queue 0 of topic T", fault)
        result = self.got(self.consumer.pull(self.queue, 2, 1))
        self.assertEqual((result.messages, result.nextBeginOffset), ((), 3))
        self.assertEqual(self.consumer.unreadable, 2)
        self.assertEqual(self.consumer.runningInfo().properties["unreadableMessages"], "2")

    def test_invalidExpressionFailsDeferred(self) -> None:
        """
        An invalid expression fails the Deferred.
        """
        self.failed(self.consumer.pull(self.queue, 0, expression="||"), SubscriptionParseFailed)

    def test_cancelledPullFails(self) -> None:
        """
        A cancelled pull fails as cancelled.
        """
        pulling = self.consumer.pullAndWait(self.queue, 0)
        self.network.flush()
        pulling.cancel()
        self.failed(pulling, CancelledError)

    def test_sendBackNamesGroup(self) -> None:
        """
        A message is sent back for the consumer's group, up to 16 times.  Without an id of its
        sender it has the broker's.
        """
        self.a.put(b"0")
        (message,) = self.got(self.consumer.pull(self.queue, 0)).messages
        self.got(self.consumer.sendBack(message, 2))
        (back,) = self.a.backs
        self.assertEqual((back.group, back.delayLevel, back.maxReconsumeTimes), ("g", 2, 16))
        self.assertEqual(back.originMsgId, message.offsetMsgId)

    def test_pullNeedsStartedConsumer(self) -> None:
        """
        Before the start and after the stop nothing is pulled.
        """
        idle = PullConsumer(self.cluster, "h")
        self.failed(idle.pull(self.queue, 0), ServiceNotAvailable)
        self.got(self.consumer.stop())
        self.failed(self.consumer.pullAndWait(self.queue, 0), ServiceNotAvailable)
        self.assertEqual(self.a.pulls, [])


class QueueTests(PullConsumerTestsBase):
    """
    Requests about queues.
    """

    def test_queuesAreRequestedEachTime(self) -> None:
        """
        The queues are requested each time: there may be more by now.
        """
        self.assertEqual(self.got(self.consumer.queuesOf("T")), tuple(self.queues))
        self.ns.routes["T"] = routeTo(a={0: "192.0.2.11:10911"}, b={0: "192.0.2.13:10911"})
        self.assertEqual(len(self.got(self.consumer.queuesOf("T"))), 8)
        self.failed(self.consumer.queuesOf("U"), TopicNotExist)

    def test_queueTellsOffsetsAndTimes(self) -> None:
        """
        A queue's first and next offset, the offset of a time, and its earliest time are
        returned.
        """
        self.a.put(b"0", b"1", b"2")
        self.a.cut(1)
        asked: list[Deferred[Any]] = [
            self.consumer.minOffset(self.queue),
            self.consumer.maxOffset(self.queue),
            self.consumer.searchByTime(self.queue, 2.2),
            self.consumer.earliestTime(self.queue),
        ]
        self.assertEqual([self.got(each) for each in asked], [1, 3, 2, 1.5])


class OffsetTests(PullConsumerTestsBase):
    """
    The group's offsets.
    """

    def test_localOffsetComesFirst(self) -> None:
        """
        An offset that was set here is returned; else, or if wanted, the broker is asked.
        """
        self.assertIsNone(self.got(self.consumer.fetchOffset(self.queue)))
        self.a.offsets["g", "T", 0] = 4
        self.assertEqual(self.got(self.consumer.fetchOffset(self.queue)), 4)
        self.consumer.updateOffset(self.queue, 9)
        self.assertEqual(self.got(self.consumer.fetchOffset(self.queue)), 9)
        self.assertEqual(self.got(self.consumer.fetchOffset(self.queue, fromStore=True)), 4)

    def test_changedOffsetsAreSavedEachFiveSeconds(self) -> None:
        """
        Changed offsets are saved every five seconds, and may go back.
        """
        self.consumer.updateOffset(self.queue, 9)
        self.network.advance(4.9)
        self.assertEqual(self.a.updates, [])
        self.network.advance(0.1)
        self.assertEqual(self.a.updates, [(0, 9)])
        self.network.advance(5)
        self.assertEqual(self.a.updates, [(0, 9)])
        self.consumer.updateOffset(self.queue, 3)
        self.network.advance(5)
        self.assertEqual(self.a.updates, [(0, 9), (0, 3)])

    def test_persistSavesAtOnce(self) -> None:
        """
        Offsets are saved at once if wanted, and again if that failed.
        """
        self.consumer.updateOffset(self.queue, 9)
        self.a.failing[RequestCode.UPDATE_CONSUMER_OFFSET] = RemoteSystemError("no")
        self.got(self.consumer.persist())
        self.assertEqual(self.a.updates, [])
        self.a.failing.clear()
        self.network.advance(5)
        self.assertEqual(self.a.updates, [(0, 9)])

    def test_resetDropsOldOffsets(self) -> None:
        """
        After an administrator has moved the group, old offsets are not saved again.
        """
        self.consumer.updateOffset(self.queue, 9)
        self.consumer.resetOffsets("T", {self.queue: 2})
        self.assertEqual(self.got(self.consumer.fetchOffset(self.queue)), 2)

    def test_statusTellsKnownOffsets(self) -> None:
        """
        The known offsets of a topic's queues are returned.
        """
        self.assertEqual(self.consumer.status("T"), {})
        self.got(self.consumer.queuesOf("T"))
        self.consumer.updateOffset(self.queue, 9)
        self.assertEqual(self.consumer.status("T"), {self.queue: 9})

    def test_broadcastKeepsOwnOffsets(self) -> None:
        """
        A broadcast consumer keeps its own offsets, or keeps them in the given store.
        """
        consumer = self.started(messageModel=MessageModel.BROADCASTING)
        consumer.updateOffset(self.queue, 9)
        self.got(consumer.persist())
        self.assertEqual(self.got(consumer.fetchOffset(self.queue)), 9)
        path = self.mktemp()
        filed = self.started(messageModel=MessageModel.BROADCASTING, offsets=LocalOffsets(path))
        filed.updateOffset(self.queue, 9)
        self.got(filed.stop())
        again = self.started(messageModel=MessageModel.BROADCASTING, offsets=LocalOffsets(path))
        self.assertEqual(self.got(again.fetchOffset(self.queue)), 9)
        self.assertEqual(self.a.updates, [])


class ListenTests(PullConsumerTestsBase):
    """
    Queues that are divided among the group.
    """

    def setUp(self) -> None:
        super().setUp()
        self.told: list[tuple[str, list[int], list[int]]] = []

    def changed(
        self, topic: str, added: Sequence[MessageQueue], removed: Sequence[MessageQueue]
    ) -> None:
        """
        Write down what has changed.
        """
        self.told.append(
            (topic, [each.queueId for each in added], [each.queueId for each in removed])
        )

    def test_listenerGetsItsQueues(self) -> None:
        """
        A listener gets its queues, at the start or later, and after each change of the
        group.  The offset of a lost queue is saved.
        """
        self.consumer.listen("T", self.changed)
        self.network.flush()
        self.assertEqual(self.told, [("T", [0, 1, 2, 3], [])])
        self.consumer.updateOffset(self.queues[3], 7)
        self.a.ids = ("me", "you")
        self.consumer.idsChanged()
        self.network.flush()
        self.assertEqual(self.told[1:], [("T", [], [2, 3])])
        self.assertEqual(self.a.updates, [(3, 7)])
        self.a.offsets["g", "T", 3] = 8
        self.assertEqual(self.got(self.consumer.fetchOffset(self.queues[3])), 8)

    def test_returnedQueueKeepsOffset(self) -> None:
        """
        A queue that returns before its offset was saved goes on at its offset.
        """
        self.consumer.listen("T", self.changed)
        self.network.flush()
        self.consumer.updateOffset(self.queues[3], 7)
        self.a.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda request: late
        late: Any = Deferred()
        for self.a.ids in ("me", "you"), ("me",):
            self.consumer.idsChanged()
            self.network.flush()
        late.errback(RemoteSystemError("no"))
        self.network.flush()
        self.assertEqual(self.got(self.consumer.fetchOffset(self.queues[3])), 7)

    def test_earlyListenersGetQueues(self) -> None:
        """
        Listeners from before the start get their queues as well, and the heartbeat
        subscribes to their topics.
        """
        self.cluster.consumers.clear()
        consumer = PullConsumer(self.cluster, "g")
        consumer.listen("T", self.changed)
        consumer.startService()
        self.network.flush()
        self.assertEqual(self.told, [("T", [0, 1, 2, 3], [])])
        (data,) = self.a.beats[-1].consumerDataSet
        (subscription,) = data.subscriptionDataSet
        self.assertEqual((subscription.topic, subscription.subString), ("T", "*"))

    def test_secondTopicIsDividedAtOnce(self) -> None:
        """
        A second topic is divided at once, too.
        """
        self.consumer.listen("T", self.changed)
        self.network.flush()
        self.ns.routes["U"] = self.ns.routes["T"]
        self.consumer.listen("U", self.changed)
        self.network.flush()
        self.assertEqual(self.told[1:], [("U", [0, 1, 2, 3], [])])

    def test_invalidTopicIsRefused(self) -> None:
        """
        An invalid topic name is refused.
        """
        self.assertRaises(InvalidMessage, self.consumer.listen, "no topic", self.changed)


class MemberTests(PullConsumerTestsBase):
    """
    The consumer's data for the cluster.
    """

    def test_heartbeatIsOfActiveConsumer(self) -> None:
        """
        It is an active consumer, and subscribes to nothing by itself.
        """
        self.got(self.consumer.queuesOf("T"))
        self.network.flush()
        (data,) = self.a.beats[-1].consumerDataSet
        self.assertEqual(
            (data.groupName, data.consumeType, data.messageModel, data.subscriptionDataSet),
            ("g", ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING, frozenset()),
        )

    def test_usedTopicsAreRefreshed(self) -> None:
        """
        The routes of pulled and of divided topics are refreshed.
        """
        self.a.put(b"0")
        self.got(self.consumer.pull(self.queue, 0))
        self.ns.routes["U"] = self.ns.routes["T"]
        self.consumer.listen("U", lambda topic, added, removed: None)
        self.network.flush()
        asked = len(self.ns.asked)
        for _ in range(3):
            self.network.advance(10)
        self.assertEqual(sorted(self.ns.asked[asked:]), ["T", "U"])

    def test_runningInfoTellsStartAndKind(self) -> None:
        """
        It tells when it started and its kind.
        """
        self.consumer.listen("T", lambda topic, added, removed: None)
        info = self.consumer.runningInfo()
        self.assertEqual(info.properties["PROP_CONSUME_TYPE"], "CONSUME_ACTIVELY")
        self.assertEqual(info.properties["PROP_CONSUMER_START_TIMESTAMP"], "1000000")
        self.assertEqual([each.topic for each in info.subscriptionSet], ["T"])
        self.assertEqual(info.mqTable, {})

    def test_directConsumeIsRefused(self) -> None:
        """
        It has no listener for a direct message.
        """
        self.a.put(b"0")
        (message,) = self.got(self.consumer.pull(self.queue, 0)).messages
        self.failed(self.consumer.consumeDirectly(message, "a"), RemoteSystemError)


class LifeTests(PullConsumerTestsBase):
    """
    Starting and stopping.
    """

    def test_invalidOrSecondGroupIsRefused(self) -> None:
        """
        An invalid group name is refused, and so is a second consumer of a group.
        """
        self.assertRaises(InvalidMessage, PullConsumer, self.cluster, "no group")
        self.failed(PullConsumer(self.cluster, "g").start(), ConfigError)

    def test_stopPersistsAndFailsPulls(self) -> None:
        """
        A stop saves the offsets, fails held pulls, tells the brokers, and leaves nothing
        behind.  A second stop does nothing.
        """
        pulling = self.consumer.pullAndWait(self.queue, 0)
        self.network.flush()
        self.consumer.updateOffset(self.queue, 5)
        stopping = self.consumer.stop()
        self.assertIn("was stopped", self.failed(pulling, ServiceNotAvailable))
        self.got(stopping)
        self.assertEqual(self.a.updates, [(0, 5)])
        self.assertEqual([each.consumerGroup for each in self.a.left], ["g"])
        self.got(self.consumer.stop())
        self.got(self.cluster.stop())
        self.network.advance(20)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopKeepsTimeLimit(self) -> None:
        """
        A stop does not wait for ever for offsets that a broker does not take.
        """
        self.a.put(b"0")
        self.got(self.consumer.pull(self.queue, 0))
        self.consumer.updateOffset(self.queue, 5)
        self.a.mute = True
        stopping = self.consumer.stop(within=2.0)
        self.network.advance(1.9)
        self.assertNoResult(stopping)
        self.network.advance(0.2)
        self.assertIn("not all of its offsets", self.logged(LogLevel.warn)[-1])
        self.network.advance(5)
        self.got(stopping)

    def test_consumerIsServiceAndContext(self) -> None:
        """
        It is a service, and a context manager.
        """
        self.got(self.consumer.stopService())

        async def use() -> bool:
            async with PullConsumer(self.cluster, "h") as consumer:
                return bool(consumer.running)

        self.assertTrue(self.got(ensureDeferred(use())))
        self.assertEqual(self.cluster.consumers, {})

    def test_saveErrorIsLogged(self) -> None:
        """
        If saving raises an unexpected error, it is logged, and the stop still works.
        """
        consumer = self.consumer

        def broken() -> Deferred[None]:
            raise ZeroDivisionError

        self.patch(consumer, "_persist", broken)
        self.network.advance(5)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.got(consumer.stop())
