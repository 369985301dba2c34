# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.pull.litepull}, and with it for
L{txrocket.client.consumer.pull.prefetch}, L{txrocket.client.consumer.pull.pollbuffer} and
L{txrocket.client.consumer.startoffset}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from tests.client.brokers import ConsumerTests
from txrocket.client.consumer.offsetstore import MemoryOffsets
from txrocket.client.consumer.pull.litepull import LitePullConsumer
from txrocket.client.consumer.push.processqueue import Room
from txrocket.errors import (
    ConfigError,
    FlowControl,
    InvalidMessage,
    MalformedRecord,
    NotAssigned,
    PullOffsetMoved,
    RemoteSystemError,
    ServiceNotAvailable,
    SubscriptionGroupNotExist,
    SubscriptionParseFailed,
)
from txrocket.message import MessageExt
from txrocket.model import ConsumeFromWhere, ConsumeType, MessageModel, MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.compression import COMPRESSED_FLAG, deflate

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


class LiteTestsBase(ConsumerTests):
    """
    A consumer of group g that begins with the first message.
    """

    def made(self, **options: Any) -> LitePullConsumer:
        """
        One that has not started.
        """
        self.cluster.consumers.clear()
        consumer = LitePullConsumer(self.cluster, "g", **{"consumeFromWhere": FIRST, **options})
        self.addCleanup(consumer.stop)
        return consumer

    def subscribed(self, expression: str = "*", **options: Any) -> LitePullConsumer:
        """
        One that has started and subscribes to T.
        """
        consumer = self.made(**options)
        consumer.subscribe("T", expression)
        self.got(consumer.start())
        return consumer

    def assigned(self, *queues: MessageQueue, **options: Any) -> LitePullConsumer:
        """
        One that has started and is assigned queues, the first if none is named.
        """
        consumer = self.made(**options)
        consumer.assign(queues or [self.queue])
        self.got(consumer.start())
        return consumer

    def poll(self, consumer: LitePullConsumer, most: int | None = None) -> list[bytes]:
        """
        The present messages.
        """
        self.network.flush()
        return _bodies(self.got(consumer.poll(0, most)))

    def divide(self, consumer: LitePullConsumer, *ids: str) -> None:
        """
        The group changes.
        """
        self.a.ids = ids
        consumer.idsChanged()
        self.network.flush()

    def pulled(self) -> list[tuple[int, int]]:
        """
        Which queues were pulled from where since it was last asked.
        """
        self.network.flush()
        pulls, self.a.pulls = self.a.pulls, []
        return [(each.queueId, each.queueOffset) for each in pulls]


def _bodies(messages: Sequence[MessageExt]) -> list[bytes]:
    return [each.body for each in messages]


class PollTests(LiteTestsBase):
    """
    L{LitePullConsumer.poll}.
    """

    def test_pollGivesPresentMessages(self) -> None:
        """
        Present messages are given at once, up to the wanted number, in the order of each
        queue, each queue in turn.
        """
        self.a.put(b"0", b"1", b"2")
        self.a.put(b"x", b"y", queueId=1)
        consumer = self.assigned(*self.queues[:2])
        self.assertEqual(self.poll(consumer, 2), [b"0", b"1"])
        self.assertEqual(self.poll(consumer, 1), [b"x"])
        self.assertEqual(self.poll(consumer), [b"2", b"y"])
        self.assertEqual(self.poll(consumer), [])

    def test_queueHasOneTurnPerRound(self) -> None:
        """
        A queue whose messages came in several pulls has its turn no more often.
        """
        consumer = self.assigned(*self.queues[:2])
        for body in b"0", b"1":
            self.a.put(body)
            self.network.flush()
        self.a.put(b"x", queueId=1)
        self.assertEqual([self.poll(consumer, 1)[0] for _ in range(3)], [b"0", b"x", b"1"])

    def test_pollGivesBatchSizeByDefault(self) -> None:
        """
        Without a number, as many messages are given as are pulled at a time.
        """
        self.a.put(*[b"%d" % number for number in range(40)])
        self.assertEqual(len(self.poll(self.assigned())), 32)
        self.assertEqual(len(self.poll(self.assigned(pullBatch=7))), 7)

    def test_pollWaitsForMessage(self) -> None:
        """
        A message that comes within the time is given as it comes.
        """
        consumer = self.assigned()
        polling = consumer.poll()
        self.network.advance(4.9)
        self.assertNoResult(polling)
        self.a.put(b"0")
        self.assertEqual(_bodies(self.got(polling)), [b"0"])
        self.network.advance(5.0)

    def test_noMessageInTimeGivesEmptyList(self) -> None:
        """
        If no message comes in time, the list is empty, and the next message is for the next
        poll.
        """
        consumer = self.assigned()
        polling = consumer.poll(2.0)
        self.network.advance(2.0)
        self.assertEqual(self.got(polling), [])
        self.a.put(b"0")
        self.network.flush()
        self.assertEqual(self.poll(consumer), [b"0"])

    def test_cancelledPollFails(self) -> None:
        """
        A cancelled poll fails, and the reader may poll again.
        """
        consumer = self.assigned()
        polling = consumer.poll()
        polling.cancel()
        self.failed(polling, CancelledError)
        self.a.put(b"0")
        self.assertEqual(self.poll(consumer), [b"0"])

    def test_secondReaderIsRefused(self) -> None:
        """
        There is one reader: messages of a second one would count as consumed.
        """
        consumer = self.assigned()
        polling = consumer.poll()
        self.failed(consumer.poll(), ConfigError)
        self.a.put(b"0")
        self.assertEqual(_bodies(self.got(polling)), [b"0"])

    def test_pollNeedsStartedConsumer(self) -> None:
        """
        Before the start and after the stop there is nothing to read.
        """
        consumer = self.made()
        self.failed(consumer.poll(), ServiceNotAvailable)
        self.failed(ensureDeferred(consumer.__anext__()), ServiceNotAvailable)
        self.got(consumer.start())
        self.got(consumer.stop())
        self.failed(consumer.poll(), ServiceNotAvailable)

    def test_pollDecompressesAndTellsDamage(self) -> None:
        """
        Bodies are decompressed.  Messages before a damaged one are given, then an error
        that says where it is, and then those after it.
        """
        self.a.put(deflate(b"long"), b"damaged", deflate(b"after"), sysFlag=COMPRESSED_FLAG)
        consumer = self.assigned()
        self.assertEqual(self.poll(consumer), [b"long"])
        self.assertIn("message 1 in queue 0", self.failed(consumer.poll(), MalformedRecord))
        self.assertEqual(self.poll(consumer), [b"after"])
        self.got(consumer.commit())
        self.assertEqual(self.a.updates[-1], (0, 3))

    def test_damagedMessageFailsWaitingPoll(self) -> None:
        """
        A waiting poll fails with a damaged message, too.
        """
        consumer = self.assigned()
        polling = consumer.poll()
        self.network.flush()
        self.a.put(b"damaged", sysFlag=COMPRESSED_FLAG)
        self.failed(polling, MalformedRecord)

    def test_pollGivesSubscribedTags(self) -> None:
        """
        Only subscribed tags are given.
        """
        self.a.put(b"0", tags="x")
        self.a.put(b"1", tags="y")
        self.assertEqual(self.poll(self.subscribed("y || z")), [b"1"])
        self.assertEqual({each.subscription for each in self.a.pulls}, {"y || z"})


class IterationTests(LiteTestsBase):
    """
    C{async for}.
    """

    def read(self, consumer: LitePullConsumer, seen: list[bytes]) -> Deferred[None]:
        """
        A reader that notes what it gets.
        """

        async def run() -> None:
            async for message in consumer:
                seen.append(message.body)

        return ensureDeferred(run())

    def test_iterationGivesMessagesUntilStop(self) -> None:
        """
        Present messages are given, and then those that come, until the stop.
        """
        self.a.put(b"0", b"1")
        consumer = self.subscribed()
        seen: list[bytes] = []
        reading = self.read(consumer, seen)
        self.network.flush()
        self.a.put(b"2", queueId=3)
        self.network.flush()
        self.assertEqual(seen, [b"0", b"1", b"2"])
        self.assertNoResult(reading)
        self.got(consumer.stop())
        self.got(reading)

    def test_stoppedConsumerEndsIteration(self) -> None:
        """
        A stopped consumer has no more messages.
        """
        self.a.put(b"0")
        consumer = self.subscribed()
        self.got(consumer.stop())
        seen: list[bytes] = []
        self.got(self.read(consumer, seen))
        self.assertEqual(seen, [])

    def test_damagedMessageEndsIteration(self) -> None:
        """
        A damaged message ends the loop with an error, and the next loop goes on after it.
        """
        self.a.put(b"0")
        self.a.put(b"damaged", sysFlag=COMPRESSED_FLAG)
        self.a.put(b"2")
        consumer = self.subscribed()
        seen: list[bytes] = []
        self.failed(self.read(consumer, seen), MalformedRecord)
        self.read(consumer, seen)
        self.assertEqual(seen, [b"0", b"2"])

    async def readUntilOne(self, error: Exception | None = None) -> None:
        """
        Read in a context up to the second message, and leave it.
        """
        consumer = self.made()
        consumer.assign([self.queue])
        async with consumer:
            async for message in consumer:
                if message.body == b"1":
                    if error is not None:
                        raise error
                    break

    def test_breakCommitsLastMessage(self) -> None:
        """
        A reader that leaves the context without an error has consumed the last message.
        """
        self.a.put(b"0", b"1", b"2")
        self.got(ensureDeferred(self.readUntilOne()))
        self.assertEqual(self.a.updates, [(0, 2)])

    def test_errorCommitsNotLastMessage(self) -> None:
        """
        A reader that leaves the context by an error gets the message again, and its error.
        """
        self.a.put(b"0", b"1", b"2")
        leaving = ensureDeferred(self.readUntilOne(ZeroDivisionError()))
        self.failed(leaving, ZeroDivisionError)
        self.assertEqual(self.a.updates, [(0, 1)])

    def test_readerMayStopConsumer(self) -> None:
        """
        A reader may stop the consumer while it has a message, and nothing is pulled after
        that.
        """
        consumer = self.assigned()

        async def run() -> None:
            async for _ in consumer:
                await consumer.stop()

        reading = ensureDeferred(run())
        self.network.flush()
        self.a.put(b"0")
        self.got(reading)
        pulls = len(self.a.pulls)
        self.a.put(b"1")
        self.network.advance(40)
        self.assertEqual(len(self.a.pulls), pulls)


class PrefetchTests(LiteTestsBase):
    """
    Pulling ahead of the reader.
    """

    def test_queueHoldsThousandMessages(self) -> None:
        """
        A queue is pulled until 1,000 of its messages are held, consumed or not, and again
        when the reader has consumed some.
        """
        self.a.put(*[b""] * 1100)
        consumer = self.assigned()
        self.assertEqual(self.pulled()[-1], (0, 992))
        self.got(consumer.poll(0, 23))
        self.assertEqual(self.pulled(), [])
        # 1,024 are held until the reader comes back; then 1,001, 1,000 and 999.
        for _ in range(2):
            self.got(consumer.poll(0, 1))
            self.assertEqual(self.pulled(), [])
        self.got(consumer.poll(0, 1))
        self.assertEqual(self.pulled(), [(0, 1024)])

    def test_queueHoldsHundredMebibytes(self) -> None:
        """
        A queue is pulled until 100 MiB of its bodies are held.
        """
        self.a.put(*[bytes(100)] * 5)
        consumer = self.assigned(room=Room(size=250), pullBatch=1)
        self.assertEqual(self.pulled(), [(0, 0), (0, 1), (0, 2)])
        self.poll(consumer, 1)
        self.poll(consumer, 1)
        self.assertEqual(self.pulled(), [(0, 3)])
        self.assertEqual(Room(), Room(1000, 100 * 1024 * 1024, 2000))

    def test_queueHoldsTwoThousandOffsets(self) -> None:
        """
        A queue is pulled until more than 2,000 offsets lie between its first and last held
        messages.
        """
        for number in range(10):
            self.a.put(b"", tags="a" if number % 3 == 0 else "b")
        self.subscribed("a", room=Room(span=5), pullBatch=1)
        self.assertEqual([each for each in self.pulled() if not each[0]][-1], (0, 6))

    def test_boundsAreOfEachQueue(self) -> None:
        """
        Each queue has its own bounds.
        """
        for queueId in range(2):
            self.a.put(b"", b"", queueId=queueId)
        self.assigned(*self.queues[:2], room=Room(count=1), pullBatch=1)
        self.assertEqual(sorted(self.pulled()), [(0, 0), (1, 0)])

    def test_endOfQueueIsPolledForTwentySeconds(self) -> None:
        """
        At the end of a queue the broker holds the pull for 20 seconds, and is asked again.
        """
        self.assigned()
        self.assertEqual(self.pulled(), [(0, 0)])
        self.network.advance(19.9)
        self.assertEqual(self.pulled(), [])
        self.network.advance(0.1)
        self.assertEqual(self.pulled(), [(0, 0)])

    def test_pullCarriesExpression(self) -> None:
        """
        The expression is in the request, with a version only if it is not of tags.
        """
        consumer = self.assigned()
        (header,) = self.a.pulls
        self.assertEqual((header.sysFlag, header.subVersion), (6, 0))
        consumer.assign([self.queues[1]], "a > 1", "SQL92")
        self.network.flush()
        header = self.a.pulls[-1]
        self.assertEqual((header.subscription, header.expressionType), ("a > 1", "SQL92"))
        self.assertEqual(header.subVersion, 1_000_000)

    def test_failedPullIsTriedAgain(self) -> None:
        """
        A failed pull is tried again after a second, and the log says why.
        """
        self.a.failing[RequestCode.PULL_MESSAGE] = RemoteSystemError("broken")
        consumer = self.assigned()
        self.assertIn("broken", self.logged(LogLevel.warn)[-1])
        self.a.failing.clear()
        self.a.put(b"0")
        self.network.advance(0.9)
        self.assertEqual(self.poll(consumer), [])
        self.network.advance(0.1)
        self.assertEqual(self.poll(consumer), [b"0"])

    def test_busyBrokerIsAskedAfterTwentyMilliseconds(self) -> None:
        """
        A broker that sheds load is asked again after 20 ms.
        """
        self.a.failing[RequestCode.PULL_MESSAGE] = FlowControl("slower")
        consumer = self.assigned()
        self.a.failing.clear()
        self.a.put(b"0")
        self.network.advance(0.02)
        self.assertEqual(self.poll(consumer), [b"0"])

    def test_refusedPullFailsReaderOnce(self) -> None:
        """
        A final error is given to the reader once each time, and the pull is tried again all
        the same.
        """
        self.a.failing[RequestCode.PULL_MESSAGE] = SubscriptionGroupNotExist("no group g")
        consumer = self.assigned()
        self.assertIn("no group g", self.failed(consumer.poll(), SubscriptionGroupNotExist))
        self.assertEqual(self.poll(consumer), [])
        polling = consumer.poll()
        self.network.advance(1.0)
        self.failed(polling, SubscriptionGroupNotExist)
        self.a.failing.clear()
        self.a.put(b"0")
        self.network.advance(1.0)
        self.assertEqual(self.poll(consumer), [b"0"])

    def test_deletedMessagesAreSkipped(self) -> None:
        """
        If the wanted messages are deleted, it goes on with the first one present.
        """
        self.a.put(b"0", b"1", b"2")
        self.a.offsets["g", "T", 0] = 0
        self.a.cut(2)
        self.assertEqual(self.poll(self.assigned()), [b"2"])
        self.assertIn("going on at 2", self.logged(LogLevel.warn)[-1])

    def test_lostMessagesAreReplaced(self) -> None:
        """
        If a broker has fewer messages than before, the held ones are given first, and then
        the broker's new ones.
        """
        self.a.put(b"0", b"1", b"2")
        consumer = self.assigned()
        self.network.flush()
        del self.a.records["T", 0][1:]
        # The held pull finds itself beyond the end.
        self.network.advance(20.0)
        self.a.put(b"other 1")
        self.assertEqual(self.poll(consumer, 2), [b"0", b"1"])
        self.assertEqual(self.poll(consumer), [b"2"])
        self.assertEqual(self.poll(consumer), [])
        self.assertEqual(self.poll(consumer), [b"other 1"])


class FromWhereTests(LiteTestsBase):
    """
    The offset at which a consumer begins.
    """

    def setUp(self) -> None:
        super().setUp()
        self.a.put(b"0", b"1", b"2", b"3")
        self.a.cut(1)

    def begun(self, queue: MessageQueue | None = None, **options: Any) -> int:
        """
        Where a consumer begins.
        """
        self.assigned(queue or self.queue, **options)
        return self.pulled()[0][1]

    def test_groupOffsetComesFirst(self) -> None:
        """
        A consumer begins at the offset of the group, if there is one.
        """
        self.a.offsets["g", "T", 0] = 2
        self.assertEqual(self.begun(), 2)
        self.assertIn("begins at 2 in queue 0 of T at a", self.logged(LogLevel.info)[-1])

    def test_firstOffsetIsUsed(self) -> None:
        """
        CONSUME_FROM_FIRST_OFFSET begins with the first message.
        """
        self.assertEqual(self.begun(consumeFromWhere=FIRST), 1)

    def test_lastOffsetIsDefault(self) -> None:
        """
        By default it begins with the messages that come from now on.
        """
        consumer = LitePullConsumer(self.cluster, "g")
        consumer.assign([self.queue])
        self.got(consumer.start())
        self.assertEqual(self.pulled()[0], (0, 4))
        self.got(consumer.stop())

    def test_timestampIsUsed(self) -> None:
        """
        CONSUME_FROM_TIMESTAMP begins with the messages stored since a time; the broker has
        one message per second, from 0 on.
        """
        self.assertEqual(self.begun(consumeFromWhere=TIMESTAMP, consumeTimestamp=3.0), 3)

    def test_defaultTimestampIsHalfAnHourAgo(self) -> None:
        """
        Without a time it begins with the messages stored half an hour ago.
        """
        self.clock.advance(803)
        self.assertEqual(self.begun(consumeFromWhere=TIMESTAMP), 3)

    def test_retryTopicBeginsAtFirst(self) -> None:
        """
        A retry topic begins with its first message.
        """
        self.ns.routes["%RETRY%g"] = self.ns.routes["T"]
        queue = MessageQueue("%RETRY%g", "a", 0)
        self.a.put(b"0", b"1", topic="%RETRY%g")
        self.assertEqual(self.begun(queue, consumeFromWhere=TIMESTAMP), 0)

    def test_silentBrokerIsAskedAgain(self) -> None:
        """
        A broker that does not answer is asked again after three seconds.
        """
        self.a.failing[RequestCode.QUERY_CONSUMER_OFFSET] = RemoteSystemError("busy")
        consumer = self.assigned()
        self.assertEqual(self.pulled(), [])
        self.assertEqual(consumer.status("T"), {})
        self.a.failing.clear()
        self.network.advance(2.9)
        self.assertEqual(self.pulled(), [])
        self.network.advance(0.1)
        self.assertEqual(self.pulled()[0], (0, 1))

    def test_lostQueueIsNotBegun(self) -> None:
        """
        A queue that is lost before its first offset is known is not pulled.
        """
        self.a.failing[RequestCode.QUERY_CONSUMER_OFFSET] = RemoteSystemError("busy")
        consumer = self.assigned()
        consumer.assign([self.queues[1]])
        self.a.failing.clear()
        self.network.advance(5.0)
        self.assertEqual({queueId for queueId, _ in self.pulled()}, {1})


class SubscriptionTests(LiteTestsBase):
    """
    Subscriptions, and the division of queues.
    """

    def test_memberReadsItsQueues(self) -> None:
        """
        A member reads its share of the queues.
        """
        self.a.ids = ("me", "you")
        consumer = self.subscribed()
        self.assertEqual(consumer.assignment, set(self.queues[:2]))
        self.assertEqual({queueId for queueId, _ in self.pulled()}, {0, 1})

    def test_lostQueueIsCommittedAndDropped(self) -> None:
        """
        Messages of a lost queue are not given any more.  Consumed ones are committed, and
        the others come to another member.
        """
        for queueId in range(4):
            self.a.put(b"%d0" % queueId, b"%d1" % queueId, queueId=queueId)
        consumer = self.subscribed()
        # One of each queue in turn: the last is not dealt with.
        for _ in range(4):
            self.poll(consumer, 1)
        self.divide(consumer, "me", "you")
        self.assertEqual(sorted(self.a.updates), [(2, 1), (3, 0)])
        self.assertEqual(sorted(self.poll(consumer)), [b"01", b"11"])

    def test_returnedQueueBeginsAtGroupOffset(self) -> None:
        """
        A returned queue begins at the current offset of the group.
        """
        self.a.put(b"0", b"1", b"2", queueId=3)
        consumer = self.subscribed()
        self.assertEqual(self.poll(consumer, 1), [b"0"])
        self.divide(consumer, "me", "you")
        self.a.offsets["g", "T", 3] = 2
        self.divide(consumer, "me")
        self.assertEqual(self.poll(consumer), [b"2"])

    def test_manualCommitLeavesLostQueue(self) -> None:
        """
        Without automatic commits, a lost queue stays at its committed offset.
        """
        self.a.put(b"0", b"1", queueId=3)
        consumer = self.subscribed(autoCommit=False)
        self.poll(consumer)
        self.poll(consumer)
        self.divide(consumer, "me", "you")
        self.assertEqual(self.a.updates, [])

    def test_broadcastReadsAllQueues(self) -> None:
        """
        A broadcast consumer has all queues, and keeps its own offsets.
        """
        self.a.ids = ("me", "you")
        self.a.put(b"0")
        consumer = self.subscribed(messageModel=MessageModel.BROADCASTING)
        self.assertEqual(consumer.assignment, set(self.queues))
        self.poll(consumer)
        self.got(consumer.commit())
        self.assertEqual(self.got(consumer.committed(self.queue)), 1)
        self.assertEqual(self.a.updates, [])

    def test_strategyDividesQueues(self) -> None:
        """
        The strategy decides.
        """
        consumer = self.subscribed(strategy=lambda group, me, queues, ids: queues[3:])
        self.assertEqual(consumer.assignment, {self.queues[3]})

    def test_subscriptionsChangeWhileRunning(self) -> None:
        """
        Topics may be subscribed and unsubscribed while the consumer runs, and the brokers
        are told.
        """
        self.ns.routes["U"] = self.ns.routes["T"]
        self.a.put(b"0", topic="U")
        consumer = self.subscribed()
        consumer.subscribe("U", "x || y")
        self.network.flush()
        self.assertEqual({each.topic for each in consumer.assignment}, {"T", "U"})
        (data,) = self.a.beats[-1].consumerDataSet
        self.assertEqual(
            {(each.topic, each.subString) for each in data.subscriptionDataSet},
            {("T", "*"), ("U", "x || y")},
        )
        consumer.unsubscribe("T")
        self.network.flush()
        self.assertEqual({each.topic for each in consumer.assignment}, {"U"})
        consumer.unsubscribe("V")

    def test_newExpressionIsPulled(self) -> None:
        """
        A topic with a new expression is pulled with it from then on.
        """
        consumer = self.subscribed("x")
        self.ns.routes["U"] = self.ns.routes["T"]
        consumer.subscribe("U", "z")
        self.network.flush()
        consumer.subscribe("T", "y")
        self.a.pulls.clear()
        self.network.advance(20.0)
        self.assertEqual(
            {(each.topic, each.subscription) for each in self.a.pulls}, {("T", "y"), ("U", "z")}
        )

    def test_invalidNamesAreRefused(self) -> None:
        """
        Names and expressions are checked, and a subscribed consumer is not assigned queues.
        """
        consumer = self.made()
        self.assertRaises(InvalidMessage, consumer.subscribe, "no topic")
        self.assertRaises(SubscriptionParseFailed, consumer.subscribe, "T", "||")
        self.assertRaises(InvalidMessage, consumer.assign, [MessageQueue("no topic", "a", 0)])
        consumer.subscribe("T")
        self.assertRaises(ConfigError, consumer.assign, self.queues)
        consumer = self.made()
        consumer.assign(self.queues)
        self.assertRaises(ConfigError, consumer.subscribe, "T")


class AssignTests(LiteTestsBase):
    """
    Queues that are assigned.
    """

    def test_onlyAssignedQueuesAreRead(self) -> None:
        """
        Assigned queues are read and no others, whatever the group has; before the start
        none is.
        """
        self.a.ids = ("you",)
        consumer = self.made()
        consumer.assign(self.queues[1:3])
        self.network.flush()
        self.assertEqual(consumer.assignment, frozenset())
        self.got(consumer.start())
        self.assertEqual(consumer.assignment, set(self.queues[1:3]))
        consumer.idsChanged()
        self.network.flush()
        self.assertEqual(self.a.asked, [])

    def test_newAssignmentLeavesCommonQueues(self) -> None:
        """
        A new assignment does not disturb the queues that it shares with the old one.
        """
        self.a.put(b"0", b"1", queueId=1)
        consumer = self.assigned(*self.queues[:2])
        self.assertEqual(self.poll(consumer, 1), [b"0"])
        self.pulled()
        consumer.assign(self.queues[1:3])
        self.assertEqual(self.pulled(), [(2, 0)])
        self.assertEqual(self.poll(consumer), [b"1"])

    def test_reassignedQueueKeepsOffset(self) -> None:
        """
        A queue that is assigned again before its offset was saved keeps its offset.
        """
        self.a.put(b"0")
        consumer = self.assigned()
        self.poll(consumer)
        self.poll(consumer)
        consumer.assign([])
        consumer.assign([self.queue])
        self.network.flush()
        self.assertEqual(self.a.updates, [(0, 1)])
        self.assertEqual(self.pulled()[-1][1], 1)

    def test_assignedConsumerHasNoSubscription(self) -> None:
        """
        As with Java, the heartbeat has no subscription.
        """
        self.assigned()
        (data,) = self.a.beats[-1].consumerDataSet
        self.assertEqual(data.consumeType, ConsumeType.CONSUME_ACTIVELY)
        self.assertEqual(data.subscriptionDataSet, frozenset())


class SeekTests(LiteTestsBase):
    """
    Going elsewhere.
    """

    def setUp(self) -> None:
        super().setUp()
        self.a.put(b"0", b"1", b"2", b"3")
        self.a.cut(1)
        self.consumer = self.assigned()

    def test_seekGoesToOffset(self) -> None:
        """
        The consumer goes on at the offset, back or forth, and held messages are dropped.
        """
        self.assertEqual(self.poll(self.consumer, 1), [b"1"])
        self.got(self.consumer.seek(self.queue, 3))
        self.assertEqual(self.poll(self.consumer), [b"3"])
        self.got(self.consumer.seek(self.queue, 2))
        self.assertEqual(self.poll(self.consumer), [b"2", b"3"])

    def test_offsetOutsideQueueIsRefused(self) -> None:
        """
        An offset outside the queue is refused; its end is inside.
        """
        for offset in 0, 5:
            error = self.failed(self.consumer.seek(self.queue, offset), PullOffsetMoved)
            self.assertIn("has 1 to 4", error)
        self.got(self.consumer.seek(self.queue, 4))
        self.assertEqual(self.poll(self.consumer), [])

    def test_seekGoesToBeginningEndOrTime(self) -> None:
        """
        The beginning, the end and a time can be sought.
        """
        self.poll(self.consumer)
        self.got(self.consumer.seekToBegin(self.queue))
        self.assertEqual(self.poll(self.consumer, 1), [b"1"])
        self.got(self.consumer.seekToTime(self.queue, 3.9))
        self.assertEqual(self.poll(self.consumer), [b"3"])
        self.got(self.consumer.seekToEnd(self.queue))
        self.a.put(b"4")
        self.assertEqual(self.poll(self.consumer), [b"4"])

    def test_seekNeedsAssignedQueue(self) -> None:
        """
        Only assigned queues can be sought.
        """
        other = self.queues[1]
        for seeking in (
            self.consumer.seek(other, 0),
            self.consumer.seekToBegin(other),
            self.consumer.seekToEnd(other),
            self.consumer.seekToTime(other, 0.0),
        ):
            self.assertIn("does not read queue 1", self.failed(seeking, NotAssigned))

    def test_seekFailsIfQueueIsLost(self) -> None:
        """
        A queue may be lost while the broker is asked.
        """
        for seeking in self.consumer.seek(self.queue, 2), self.consumer.seekToEnd(self.queue):
            self.consumer.assign([])
            self.failed(seeking, NotAssigned)
            self.consumer.assign([self.queue])
            self.network.flush()

    def test_refusedSeekStays(self) -> None:
        """
        If the broker refuses, the reader stays at its place.
        """
        self.a.failing[RequestCode.GET_MAX_OFFSET] = RemoteSystemError("busy")
        self.failed(self.consumer.seekToEnd(self.queue), RemoteSystemError)
        self.assertEqual(self.poll(self.consumer, 1), [b"1"])

    def test_pullInFlightIsDroppedBySeek(self) -> None:
        """
        The messages of a pull that is in flight during a seek are dropped.
        """
        self.poll(self.consumer)
        self.network.flush()
        self.got(self.consumer.seek(self.queue, 2))
        self.a.put(b"4")
        self.assertEqual(self.poll(self.consumer), [b"2", b"3", b"4"])

    def test_seekMovesGroupOffset(self) -> None:
        """
        The group's offset goes there as well, also back.
        """
        self.poll(self.consumer)
        self.got(self.consumer.commit())
        self.got(self.consumer.seek(self.queue, 2))
        self.network.advance(5.0)
        self.assertEqual(self.a.updates, [(0, 4), (0, 2)])

    def test_seekNeedsNoGroupOffset(self) -> None:
        """
        A seek need not wait until the offset of the group is known.
        """
        self.a.failing[RequestCode.QUERY_CONSUMER_OFFSET] = RemoteSystemError("busy")
        consumer = self.assigned()
        self.got(consumer.seek(self.queue, 3))
        self.assertEqual(self.poll(consumer), [b"3"])
        self.a.failing.clear()
        self.network.advance(5.0)
        self.assertEqual(self.poll(consumer), [])

    def test_resetMovesAssignedQueues(self) -> None:
        """
        An administrator moves the group at once; queues of other members are left alone.
        """
        self.poll(self.consumer)
        self.consumer.resetOffsets("T", {self.queue: 2, self.queues[1]: 9})
        self.assertEqual(self.poll(self.consumer), [b"2", b"3"])
        self.assertEqual(self.got(self.consumer.committed(self.queue)), 2)
        self.network.advance(5.0)
        self.assertNotIn((1, 9), self.a.updates)


class PauseTests(LiteTestsBase):
    """
    Pausing.
    """

    def test_pausedQueueGivesAndPullsNothing(self) -> None:
        """
        Nothing of a paused queue is given or pulled; then it goes on at its place.
        """
        self.a.put(b"0", b"1")
        self.a.put(b"x", queueId=1)
        consumer = self.assigned(*self.queues[:2])
        self.network.flush()
        consumer.pause(self.queue)
        self.assertEqual(self.poll(consumer), [b"x"])
        polling = consumer.poll(100.0)
        self.a.put(b"2")
        self.network.flush()
        self.assertNoResult(polling)
        self.pulled()
        for _ in range(3):
            self.network.advance(20.0)
        self.assertEqual({queueId for queueId, _ in self.pulled()}, {1})
        consumer.resume(self.queue)
        self.assertEqual(_bodies(self.got(polling)), [b"0", b"1", b"2"])
        self.assertEqual(self.pulled(), [(0, 3)])

    def test_emptyQueueCanBePaused(self) -> None:
        """
        A queue without held messages, or without a known offset, can be paused as well.
        """
        self.a.failing[RequestCode.QUERY_CONSUMER_OFFSET] = RemoteSystemError("busy")
        consumer = self.assigned()
        consumer.pause(self.queue)
        consumer.resume(self.queue)
        consumer.pause(self.queue)
        self.a.failing.clear()
        self.network.advance(3.0)
        self.assertEqual(self.pulled(), [])
        consumer.resume(self.queue)
        self.assertEqual(self.pulled(), [(0, 0)])

    def test_pauseNeedsAssignedQueue(self) -> None:
        """
        Only assigned queues can be paused.
        """
        consumer = self.assigned()
        self.assertRaises(NotAssigned, consumer.pause, self.queue, self.queues[1])
        self.assertRaises(NotAssigned, consumer.resume, self.queues[1])
        self.a.put(b"0")
        self.assertEqual(self.poll(consumer), [b"0"])


class CommitTests(LiteTestsBase):
    """
    The group's offsets.
    """

    def setUp(self) -> None:
        super().setUp()
        self.a.put(b"0", b"1", b"2")

    def test_consumedMessagesAreCommittedEachFiveSeconds(self) -> None:
        """
        Consumed messages are committed every five seconds.  Those of the reader's last poll
        are not, until it polls again.
        """
        consumer = self.assigned()
        self.poll(consumer, 1)
        self.poll(consumer, 1)
        self.network.advance(4.9)
        self.assertEqual(self.a.updates, [])
        self.network.advance(0.1)
        self.assertEqual(self.a.updates, [(0, 1)])
        self.poll(consumer, 1)
        self.network.advance(5.0)
        self.assertEqual(self.a.updates, [(0, 1), (0, 2)])
        self.network.advance(5.0)
        self.assertEqual(len(self.a.updates), 2)

    def test_unwantedMessagesAreCommitted(self) -> None:
        """
        Unwanted messages are committed once all before them are consumed.
        """
        consumer = self.subscribed("x")
        self.network.advance(5.0)
        self.assertIn((0, 3), self.a.updates)
        self.assertEqual(self.poll(consumer), [])

    def test_manualCommitCoversGivenMessages(self) -> None:
        """
        Without automatic commits, only a commit saves an offset: that of all given
        messages.
        """
        consumer = self.assigned(autoCommit=False)
        self.poll(consumer, 1)
        self.poll(consumer, 1)
        self.network.advance(10.0)
        self.assertEqual(self.a.updates, [])
        self.got(consumer.commit())
        self.assertEqual(self.a.updates, [(0, 2)])
        self.poll(consumer, 1)
        self.poll(consumer, 1)
        self.got(consumer.stop())
        self.assertEqual(self.a.updates, [(0, 2)])

    def test_namedOffsetsAreCommitted(self) -> None:
        """
        Offsets of assigned queues can be named.
        """
        consumer = self.assigned(autoCommit=False)
        self.got(consumer.commit({self.queue: 1}))
        self.assertEqual(self.a.updates, [(0, 1)])
        self.failed(consumer.commit({self.queue: 2, self.queues[1]: 2}), NotAssigned)
        self.assertEqual(self.got(consumer.committed(self.queue)), 1)

    def test_refusedCommitIsTriedAgain(self) -> None:
        """
        A commit that a broker refuses is tried again.
        """
        consumer = self.assigned(autoCommit=False)
        self.a.failing[RequestCode.UPDATE_CONSUMER_OFFSET] = RemoteSystemError("busy")
        self.got(consumer.commit({self.queue: 1}))
        self.a.failing.clear()
        self.network.advance(5.0)
        self.assertEqual(self.a.updates, [(0, 1)])

    def test_unknownOffsetIsAskedFromBroker(self) -> None:
        """
        An offset that is not known here is requested from the broker.
        """
        consumer = self.assigned(autoCommit=False)
        self.assertIsNone(self.got(consumer.committed(self.queue)))
        self.a.offsets["g", "T", 0] = 2
        self.assertEqual(self.got(consumer.committed(self.queue)), 2)

    def test_otherStoreIsUsed(self) -> None:
        """
        Offsets can be kept in another store.
        """
        offsets = MemoryOffsets()
        consumer = self.assigned(offsets=offsets)
        self.poll(consumer)
        self.got(consumer.commit())
        self.assertEqual(offsets.get(self.queue), 3)
        self.assertEqual(self.a.updates, [])


class LifeTests(LiteTestsBase):
    """
    Start and stop, and the consumer's data for the cluster.
    """

    def test_stopPersistsAndWakesReader(self) -> None:
        """
        A stop saves the offsets, ends a waiting poll, and leaves nothing behind.
        """
        self.a.put(b"0", b"1")
        consumer = self.subscribed()
        self.poll(consumer, 1)
        self.poll(consumer)
        polling = consumer.poll(100.0)
        self.network.flush()
        self.got(consumer.stop())
        self.assertEqual(self.got(polling), [])
        self.assertIn((0, 2), self.a.updates)
        self.assertEqual([each.consumerGroup for each in self.a.left], ["g"])
        self.assertEqual(consumer.assignment, frozenset())
        self.got(self.cluster.stop())
        self.network.advance(30.0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_restartGoesOnAtItsOffset(self) -> None:
        """
        It may start again, and goes on at its offset.
        """
        self.a.put(b"0", b"1")
        for made in self.assigned, self.subscribed:
            consumer = made()
            self.assertEqual(self.poll(consumer, 1), [b"0"])
            self.poll(consumer, 1)
            self.got(consumer.stop())
            self.got(consumer.start())
            self.assertEqual(self.poll(consumer), [b"1"])
            self.got(consumer.stop())
            self.a.offsets.clear()

    def test_statusTellsOffsetsAndQueues(self) -> None:
        """
        It tells its offsets and its held messages.
        """
        self.a.put(b"0", b"1")
        consumer = self.subscribed("*")
        self.poll(consumer, 1)
        self.poll(consumer, 1)
        self.assertEqual(consumer.status("T")[self.queue], 1)
        self.assertEqual(consumer.status("U"), {})
        info = consumer.runningInfo()
        self.assertEqual([each.topic for each in info.subscriptionSet], ["T"])
        held = info.mqTable[self.queue]
        self.assertEqual((held.commitOffset, held.transactionMsgCount), (1, 1))
        self.assertEqual(set(consumer.topics()), {"T"})

    def test_noSubscriptionGivesNothing(self) -> None:
        """
        Without subscription and assignment no message comes, and no error.
        """
        consumer = self.made()
        self.got(consumer.start())
        self.assertEqual(self.poll(consumer), [])


class Reader(RuleBasedStateMachine):
    """
    Whatever happens to a group of one, whose broker has one queue of interest.
    """

    def __init__(self) -> None:
        super().__init__()
        self.test = LiteTestsBase()
        self.test.setUp()
        self.sent = 0
        self.expected = 0

    @initialize(count=st.integers(1, 5), batch=st.integers(1, 4))
    def start(self, count: int, batch: int) -> None:
        """
        The bounds are any.
        """
        self.consumer = self.test.subscribed(room=Room(count=count), pullBatch=batch)

    @rule(count=st.integers(1, 6))
    def send(self, count: int) -> None:
        """
        Messages come.
        """
        self.test.a.put(*[b"%d" % (self.sent + each) for each in range(count)])
        self.sent += count
        self.test.network.flush()

    @rule(most=st.integers(1, 9))
    def poll(self, most: int) -> None:
        """
        Each message is given once, in order.
        """
        polling = self.consumer.poll(1.0, most)
        self.test.network.flush()
        if not polling.called:
            self.test.network.advance(1.0)
        bodies = _bodies(self.test.got(polling))
        assert bodies == [b"%d" % (self.expected + each) for each in range(len(bodies))]
        assert bodies or self.expected == self.sent
        self.expected += len(bodies)

    @rule(offset=st.integers(0, 100))
    def seek(self, offset: int) -> None:
        """
        From there on, after a seek.
        """
        self.expected = min(offset, self.sent)
        self.test.got(self.consumer.seek(self.test.queue, self.expected))

    @rule()
    def commit(self) -> None:
        """
        The given messages are committed.
        """
        self.test.got(self.consumer.commit())
        assert self.test.a.offsets["g", "T", 0] == self.expected

    @rule()
    def loseAndGet(self) -> None:
        """
        A queue that returns goes on with the unconsumed messages.
        """
        self.test.divide(self.consumer, "a", "b", "c", "me")
        self.expected = self.test.a.offsets["g", "T", 0]
        self.test.divide(self.consumer, "me")

    def teardown(self) -> None:
        """
        Stop.
        """
        self.test.doCleanups()


class ReaderTests(SynchronousTestCase):
    """
    All of it together.
    """

    def test_readerMatchesModel(self) -> None:
        """
        See L{Reader}.
        """
        run_state_machine_as_test(
            Reader, settings=settings(max_examples=40, stateful_step_count=20, deadline=None)
        )
