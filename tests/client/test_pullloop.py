# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.push.pullloop}.
"""

from __future__ import annotations

from twisted.logger import LogLevel

from tests.client.brokers import ConsumerTests
from tests.client.members import FakeConsumer
from tests.client.messages import offsetsOf
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.offsetstore import RemoteOffsets
from txrocket.client.consumer.options import PushOptions
from txrocket.client.consumer.push.processqueue import ProcessQueue, Room
from txrocket.client.consumer.push.pullloop import PullLoop
from txrocket.errors import (
    FilterDataNotExist,
    FilterDataNotLatest,
    FlowControl,
    RemoteSystemError,
    SubscriptionNotExist,
    SubscriptionNotLatest,
)
from txrocket.filters.expressions import buildSubscription
from txrocket.message import MessageExt
from txrocket.model import MessageModel
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader

COMMIT = 1

BODIES = [b"%d" % each for each in range(8)]


class FakeConsuming:
    """
    A consume service that keeps its messages.

    @ivar given: those of each time.
    @ivar error: what it raises, once.
    """

    def __init__(self) -> None:
        self.given: list[list[MessageExt]] = []
        self.error: Exception | None = None

    def submit(self, window: ProcessQueue, messages: list[MessageExt]) -> None:
        self.given.append(messages)
        error, self.error = self.error, None
        if error is not None:
            raise error

    def offsets(self) -> list[list[int]]:
        """
        The offsets of what was given since it was last asked.
        """
        given, self.given = self.given, []
        return [offsetsOf(each) for each in given]


class PullsTests(ConsumerTests):
    """
    Queues that are pulled.
    """

    def setUp(self) -> None:
        super().setUp()
        self.got(self.cluster.routes.find("T"))
        self.addCleanup(self.cluster.stop)
        self.offsets = RemoteOffsets(GroupCalls(self.cluster, "G"))
        self.subscriptions = {"T": buildSubscription("T", "*", None)}
        self.consuming = FakeConsuming()

    def make(
        self,
        room: Room | None = None,
        *,
        interval: float = 0.0,
        orderly: bool = False,
        broadcast: bool = False,
    ) -> PullLoop:
        """
        A pull loop.
        """
        model = MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING
        options = PushOptions(
            room=room or Room(),
            pullBatch=4,
            pullInterval=interval,
            orderly=orderly,
            messageModel=model,
        )
        pulls = PullLoop(
            self.cluster, "G", self.offsets, self.subscriptions, self.consuming.submit, options
        )
        self.addCleanup(self.ended, pulls)
        return pulls

    def ended(self, pulls: PullLoop) -> None:
        """
        No timer outlives the queues.
        """
        for queue in list(pulls.processQueues):
            pulls.end(queue)
        self.assertEqual((pulls._later, pulls._inFlight, pulls._throttled), ({}, {}, set()))

    def begun(self, pulls: PullLoop, offset: int = 0) -> ProcessQueue:
        """
        A queue, pulled as far as there is something to pull.
        """
        window = pulls.begin(self.queue, offset)
        pulls.pull(window)
        self.network.flush()
        return window

    def since(self) -> list[int]:
        """
        The offsets of the pulls since it was last asked.
        """
        seen, self.a.pulls = self.a.pulls, []
        return [each.queueOffset for each in seen]

    # --- pulling ---------------------------------------------------------

    def test_pullIsHeldFifteenSeconds(self) -> None:
        """
        A pull may be held for 15 seconds and names a number of messages.  The group's
        expression is in its heartbeat, and the version says which.
        """
        self.clock.advance(5)
        self.a.put(*BODIES[:3])
        window = self.begun(self.make(), 3)
        (header,) = self.a.pulls
        self.assertEqual(
            header,
            PullMessageRequestHeader(
                "G",
                "T",
                0,
                3,
                4,
                sysFlag=2,
                commitOffset=0,
                suspendTimeoutMillis=15_000,
                subVersion=self.subscriptions["T"].subVersion,
                subscription=None,
                expressionType="TAG",
                bname="a",
            ),
        )
        self.assertEqual(window.pulledAt, 1005)

    def test_foundMessagesArePassedOn(self) -> None:
        """
        Found messages are passed on, and the next pull begins behind them, until one is
        held.
        """
        self.a.put(*BODIES[:6])
        window = self.begun(self.make())
        self.assertEqual(self.consuming.offsets(), [[0, 1, 2, 3], [4, 5]])
        self.assertEqual((self.since(), window.nextOffset), ([0, 4, 6], 6))
        self.network.advance(15)
        self.assertEqual(self.since(), [6])
        self.a.put(b"g")
        self.network.flush()
        self.assertEqual((self.consuming.offsets(), self.since()), ([[6]], [7]))

    def test_otherTagIsNotPassedOn(self) -> None:
        """
        A broker finds by hashes: a message with another tag is not passed on, and is
        committed once all before it are consumed.
        """
        self.subscriptions["T"] = buildSubscription("T", "x", None)
        self.a.put(b"0", tags="x")
        self.a.put(b"1", tags="y")
        window = self.begun(self.make())
        self.assertIsNone(self.offsets.get(self.queue))
        window.done(self.consuming.given[0])
        self.network.advance(15)
        self.assertEqual((self.consuming.offsets(), self.offsets.get(self.queue)), ([[0]], 2))

    def test_unwantedPullIsPassedAtOnce(self) -> None:
        """
        If no found message is wanted, they are passed over at once.
        """
        self.subscriptions["T"] = buildSubscription("T", "x", None)
        self.a.put(b"0", b"1", tags="y")
        self.begun(self.make())
        self.assertEqual((self.consuming.offsets(), self.offsets.get(self.queue)), ([], 2))

    def test_pullCarriesGroupOffset(self) -> None:
        """
        A pull carries the offset of the group, if there is one; that of a broadcast
        consumer does not.
        """
        self.a.put(*BODIES[:3])
        self.offsets.update(self.queue, 2)
        for broadcast, expected in ((False, (COMMIT, 2)), (True, (0, 0))):
            self.a.pulls = []
            pulls = self.make(broadcast=broadcast)
            self.begun(pulls, 3)
            (header,) = self.a.pulls
            self.assertEqual((header.sysFlag & COMMIT, header.commitOffset), expected)
            pulls.end(self.queue)

    def test_intervalDelaysNextPull(self) -> None:
        """
        After a pull that found messages there may be a pause; one without messages was held
        anyway.
        """
        self.a.put(*BODIES[:6])
        self.begun(self.make(interval=2.0))
        self.assertEqual(self.since(), [0])
        self.network.advance(1.9)
        self.assertEqual(self.since(), [])
        self.network.advance(0.1)
        self.assertEqual(self.since(), [4])
        self.network.advance(2)
        self.network.advance(15)
        self.assertEqual(self.since(), [6, 6])

    def test_pulledQueueIsNotPulledTwice(self) -> None:
        """
        A queue that is being pulled is not pulled again.
        """
        pulls = self.make()
        window = self.begun(pulls)
        pulls.pull(window)
        self.network.flush()
        self.assertEqual(self.since(), [0])

    # --- room ------------------------------------------------------------

    def test_fullWindowDelaysPull(self) -> None:
        """
        If the window is full, the next pull waits until it is not.
        """
        self.a.put(*BODIES)
        pulls = self.make(Room(count=4))
        window = self.begun(pulls)
        self.assertEqual(self.since(), [0])
        self.network.advance(100)
        self.assertEqual(self.since(), [])
        (messages,) = self.consuming.given
        window.done(messages[:1])
        pulls.consumed(window)
        self.network.flush()
        self.assertEqual(self.since(), [4])

    def test_fullWindowStaysFull(self) -> None:
        """
        Consumed messages do not always make room.
        """
        self.a.put(*BODIES)
        pulls = self.make(Room(span=2))
        window = self.begun(pulls)
        (messages,) = self.consuming.given
        window.done(messages[1:])
        pulls.consumed(window)
        self.network.flush()
        self.assertEqual(self.since(), [0])
        window.done(messages)
        pulls.consumed(window)
        self.network.flush()
        self.assertEqual(self.since(), [4])

    def test_orderlyPullIgnoresSpan(self) -> None:
        """
        In order, the first message is never left behind, and the span does not count.
        """
        self.a.put(*BODIES)
        self.begun(self.make(Room(span=2), orderly=True))
        self.assertEqual(self.since(), [0, 4, 8])

    def test_fullBytesDelayPull(self) -> None:
        """
        The size counts as well.
        """
        self.a.put(*[b"x" * 100] * 8)
        self.begun(self.make(Room(size=400)))
        self.assertEqual(self.since(), [0])

    def test_roomNeedsNoNewPull(self) -> None:
        """
        A window with room is being pulled already.
        """
        pulls = self.make()
        window = self.begun(pulls)
        pulls.consumed(window)
        self.network.flush()
        self.assertEqual(self.since(), [0])

    # --- failures --------------------------------------------------------

    def test_failedPullIsRepeatedAfterThreeSeconds(self) -> None:
        """
        After a failure the queue is pulled again in 3 seconds, and the failure is logged
        once.
        """
        self.a.failing[RequestCode.PULL_MESSAGE] = RemoteSystemError("no")
        self.begun(self.make())
        self.network.advance(3)
        self.network.advance(3)
        self.assertEqual(len(self.logged(LogLevel.warn)), 1)
        self.assertIn("could not be pulled, trying again: ", self.logged(LogLevel.warn)[0])
        del self.a.failing[RequestCode.PULL_MESSAGE]
        self.network.advance(2.9)
        self.assertEqual(self.since(), [])
        self.network.advance(0.1)
        self.assertEqual(self.since(), [0])

    def test_newFailureIsLoggedAgain(self) -> None:
        """
        If a pull has worked meanwhile, the next failure is logged again.
        """
        self.a.put(b"a")
        self.begun(self.make())
        for _ in range(2):
            self.a.failing[RequestCode.PULL_MESSAGE] = RemoteSystemError("no")
            self.a.put(b"b")
            self.network.flush()
            del self.a.failing[RequestCode.PULL_MESSAGE]
            self.network.advance(3)
        self.assertEqual(len(self.logged(LogLevel.warn)), 2)

    def test_silentBrokerTimesOut(self) -> None:
        """
        A pull without an answer fails after 30 seconds.
        """
        self.a.mute = True
        self.begun(self.make())
        self.network.advance(30)
        self.a.mute = False
        self.network.advance(3)
        self.assertEqual(self.since(), [0])

    def test_busyBrokerIsAskedSoon(self) -> None:
        """
        A broker that sheds load is asked again after 20 ms, without a log line.
        """
        self.a.failing[RequestCode.PULL_MESSAGE] = FlowControl("slowly")
        self.begun(self.make())
        del self.a.failing[RequestCode.PULL_MESSAGE]
        self.network.advance(0.02)
        self.assertEqual((self.since(), self.logged(LogLevel.warn)), ([0], []))

    def test_unknownGroupSendsHeartbeat(self) -> None:
        """
        A broker that does not know the group or its expression gets a heartbeat.
        """
        self.cluster.addConsumer(FakeConsumer("G", "T"))
        self.network.flush()
        self.a.groups()
        self.a.failing[RequestCode.PULL_MESSAGE] = SubscriptionNotExist("who?")
        self.begun(self.make())
        self.assertEqual(self.a.groups(), [(set(), {"G"})])
        for error in (SubscriptionNotLatest, FilterDataNotExist, FilterDataNotLatest):
            self.a.failing[RequestCode.PULL_MESSAGE] = error("what?")
            self.network.advance(3)
            self.assertEqual(self.a.groups(), [(set(), {"G"})], error)

    def test_consumeErrorDoesNotEndPulling(self) -> None:
        """
        An error of the consume service does not end the pulling.
        """
        self.a.put(b"a")
        self.consuming.error = ZeroDivisionError()
        self.begun(self.make())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.since(), [0])
        self.network.advance(3)
        self.assertEqual(self.since(), [1])

    def test_missingSubscriptionPausesPull(self) -> None:
        """
        Without a subscription nothing is pulled, until there is one again or the queue is
        lost.
        """
        subscription = self.subscriptions.pop("T")
        self.begun(self.make())
        self.network.advance(3)
        self.assertEqual(self.since(), [])
        self.subscriptions["T"] = subscription
        self.network.advance(3)
        self.assertEqual(self.since(), [0])

    # --- other offsets ---------------------------------------------------

    def test_illegalOffsetBeginsAtBrokers(self) -> None:
        """
        If the queue has no such offset, it begins at the broker's, and so does the group,
        also if it is lower.
        """
        self.a.put(*BODIES[:3])
        self.offsets.update(self.queue, 9)
        pulls = self.make()
        window = self.begun(pulls, 9)
        self.assertEqual((self.since(), self.offsets.get(self.queue)), ([9, 3], 3))
        self.assertTrue(window.dropped)
        self.assertIn(
            "offsets from 0 to 3, and not 9: going on at 3", self.logged(LogLevel.warn)[0]
        )

    def test_gapIsPassedAfterHeldMessages(self) -> None:
        """
        Messages from before a deleted part are consumed all the same, and the pull goes on
        behind the gap.
        """
        self.a.put(*BODIES[:4])
        window = self.begun(self.make())
        self.since()
        self.movedTo(20)
        self.network.advance(20)
        self.assertEqual(self.since(), [4, 20])
        self.assertEqual((window.dropped, len(window), window.nextOffset), (False, 4, 20))

    def test_lostMessagesAreConsumedFirst(self) -> None:
        """
        If the broker has lost messages, pulled ones are consumed before any new one with
        such an offset.  Then the group goes back.
        """
        self.a.put(*BODIES[:4])
        pulls = self.make()
        window = self.begun(pulls)
        [held] = self.consuming.given
        self.since()
        self.movedTo(2)
        self.network.advance(20)
        for count in (1, 3):
            self.assertEqual((self.since(), window.dropped), ([4] if count == 1 else [], False))
            done, held = held[:count], held[count:]
            self.offsets.update(self.queue, window.done(done))
            pulls.consumed(window)
            self.network.flush()
        self.assertEqual((self.since(), window.dropped), ([2, 4], True))
        self.assertEqual(self.offsets.get(self.queue), 2)
        self.assertEqual(self.consuming.offsets(), [[0, 1, 2, 3], [2, 3]])

    def test_lostQueueIsNotBegunAgain(self) -> None:
        """
        A queue that is lost meanwhile is not begun again.
        """
        self.a.put(*BODIES[:4])
        pulls = self.make()
        window = self.begun(pulls)
        self.movedTo(2)
        self.network.advance(20)
        pulls.end(self.queue)
        self.since()
        window.done(self.consuming.given[0])
        pulls.consumed(window)
        self.network.flush()
        self.assertEqual((self.since(), pulls.processQueues), ([], {}))

    def movedTo(self, offset: int) -> None:
        """
        Have the broker say, once, that a queue does not have what it is asked for.
        """

        def answer(request: RemotingCommand) -> RemotingCommand:
            del self.a.answers[RequestCode.PULL_MESSAGE]
            self.a.pulls.append(request.decodeHeader(PullMessageRequestHeader))
            header = PullMessageResponseHeader(0, offset, 0, offset)
            return responseCommand(ResponseCode.PULL_OFFSET_MOVED, None, header)

        self.a.answers[RequestCode.PULL_MESSAGE] = answer

    def test_contradictingBrokerIsAskedLater(self) -> None:
        """
        A broker that refuses the offset that it named is asked again in 3 seconds, and not
        as fast as it can answer.
        """

        def moved(request: RemotingCommand) -> RemotingCommand:
            self.a.pulls.append(request.decodeHeader(PullMessageRequestHeader))
            header = PullMessageResponseHeader(0, 9, 0, 3)
            return responseCommand(ResponseCode.PULL_OFFSET_MOVED, None, header)

        self.a.answers[RequestCode.PULL_MESSAGE] = moved
        self.begun(self.make(), 9)
        self.assertEqual(self.since(), [9])
        self.network.advance(3)
        self.assertEqual(self.since(), [9])

    def test_movedQueueHasNewWindow(self) -> None:
        """
        A moved queue has a new window with the old one's lock, and the old window is
        dropped.
        """
        self.a.put(*BODIES[:4])
        pulls = self.make()
        old = self.begun(pulls)
        old.locked, old.lockedAt = True, 5.0
        self.since()
        pulls.move(self.queue, 1)
        self.network.flush()
        new = pulls.processQueues[self.queue]
        self.assertEqual((old.dropped, new.dropped, new.locked), (True, False, True))
        self.assertEqual((new.lockedAt, self.offsets.get(self.queue)), (5.0, 1))
        self.assertEqual(self.consuming.offsets(), [[0, 1, 2, 3], [1, 2, 3]])
        self.assertEqual(self.since(), [1, 4])

    def test_foreignQueueIsNotMoved(self) -> None:
        """
        A queue of another member is not moved.
        """
        pulls = self.make()
        pulls.move(self.queues[1], 7)
        self.assertEqual((pulls.processQueues, self.offsets.get(self.queues[1])), ({}, None))

    # --- pause and end ---------------------------------------------------

    def test_lostQueueIsNotPulled(self) -> None:
        """
        A lost queue is not pulled any more, and its pull in flight is cancelled.
        """
        pulls = self.make()
        window = self.begun(pulls)
        self.assertIs(pulls.end(self.queue), window)
        self.a.put(b"a")
        self.network.advance(100)
        self.assertEqual((self.since(), self.consuming.given), ([0], []))
        self.assertIsNone(pulls.end(self.queue))

    def test_pauseStopsPulling(self) -> None:
        """
        In a pause nothing is pulled, also for a new queue; afterwards all go on at their
        places.
        """
        self.a.put(b"a")
        pulls = self.make()
        window = self.begun(pulls)
        pulls.pause()
        pulls.pull(pulls.begin(self.queues[1], 0))
        self.since()
        self.a.put(b"b")
        self.network.advance(100)
        self.assertEqual(self.since(), [])
        pulls.resume()
        self.network.flush()
        self.assertEqual(sorted(self.since()), [0, 1, 2])
        self.assertEqual(self.consuming.offsets(), [[0], [1]])
        self.assertFalse(window.dropped)

    def test_pauseIgnoresRoom(self) -> None:
        """
        In a pause, consumed messages make room, and no pull follows.
        """
        self.a.put(*BODIES)
        pulls = self.make(Room(count=4))
        window = self.begun(pulls)
        self.since()
        pulls.pause()
        window.done(self.consuming.given[0])
        pulls.consumed(window)
        self.network.flush()
        self.assertEqual(self.since(), [])
        pulls.resume()
        self.network.flush()
        self.assertEqual(self.since(), [4])

    def test_pauseCancelsDelayedPull(self) -> None:
        """
        A delayed pull does not come in a pause.
        """
        self.a.failing[RequestCode.PULL_MESSAGE] = RemoteSystemError("no")
        pulls = self.make()
        self.begun(pulls)
        pulls.pause()
        del self.a.failing[RequestCode.PULL_MESSAGE]
        self.network.advance(10)
        self.assertEqual(self.since(), [])

    def test_stopIsNoPause(self) -> None:
        """
        A resume after a stop pulls nothing, and a pause from before the stop holds after
        it.
        """
        pulls = self.make()
        window = self.begun(pulls)
        pulls.stop()
        self.since()
        pulls.resume()
        self.network.flush()
        self.assertEqual((self.since(), window.dropped), ([], False))
        pulls.pause()
        pulls.start()
        pulls.pull(window)
        self.network.flush()
        self.assertEqual(self.since(), [])
        pulls.resume()
        self.network.flush()
        self.assertEqual(self.since(), [0])

    def test_eachGivesWindowsOfTopic(self) -> None:
        """
        The windows of one topic are returned, or all.
        """
        pulls = self.make()
        mine = pulls.begin(self.queue, 0)
        self.assertEqual(pulls.each(), [mine])
        self.assertEqual((pulls.each("T"), pulls.each("U")), ([mine], []))
