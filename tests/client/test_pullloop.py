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
    What messages are given to.

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
        What pulls.
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

    def test_request(self) -> None:
        """
        A pull may be held for 15 seconds, and asks for a number of messages; the
        group's expression is in its heartbeat, and its version says which.
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

    def test_goesOn(self) -> None:
        """
        What is found is given away, and the next pull begins behind it, until one is
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

    def test_tags(self) -> None:
        """
        A broker finds by hashes: a message with another tag is not given away, and is
        dealt with once nothing before it is left.
        """
        self.subscriptions["T"] = buildSubscription("T", "x", None)
        self.a.put(b"0", tags="x")
        self.a.put(b"1", tags="y")
        window = self.begun(self.make())
        self.assertIsNone(self.offsets.get(self.queue))
        window.done(self.consuming.given[0])
        self.network.advance(15)
        self.assertEqual((self.consuming.offsets(), self.offsets.get(self.queue)), ([[0]], 2))

    def test_nothingWanted(self) -> None:
        """
        If nothing of what was found is wanted, that is passed over at once.
        """
        self.subscriptions["T"] = buildSubscription("T", "x", None)
        self.a.put(b"0", b"1", tags="y")
        self.begun(self.make())
        self.assertEqual((self.consuming.offsets(), self.offsets.get(self.queue)), ([], 2))

    def test_commits(self) -> None:
        """
        A pull tells the broker the group's offset, if there is one to tell; who
        broadcasts tells none.
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

    def test_interval(self) -> None:
        """
        Between two pulls that found something there may be a pause; one that found
        nothing was held anyway.
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

    def test_oneAtATime(self) -> None:
        """
        A queue that is being pulled is not pulled again.
        """
        pulls = self.make()
        window = self.begun(pulls)
        pulls.pull(window)
        self.network.flush()
        self.assertEqual(self.since(), [0])

    # --- room ------------------------------------------------------------

    def test_full(self) -> None:
        """
        If there is no room, the next pull waits until there is.
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

    def test_stillFull(self) -> None:
        """
        What is consumed does not always make room.
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

    def test_spanInOrder(self) -> None:
        """
        In order, the first is never left behind, and its distance does not count.
        """
        self.a.put(*BODIES)
        self.begun(self.make(Room(span=2), orderly=True))
        self.assertEqual(self.since(), [0, 4, 8])

    def test_size(self) -> None:
        """
        Bytes count as well.
        """
        self.a.put(*[b"x" * 100] * 8)
        self.begun(self.make(Room(size=400)))
        self.assertEqual(self.since(), [0])

    def test_consumedWithRoom(self) -> None:
        """
        Who has room is being pulled already.
        """
        pulls = self.make()
        window = self.begun(pulls)
        pulls.consumed(window)
        self.network.flush()
        self.assertEqual(self.since(), [0])

    # --- failures --------------------------------------------------------

    def test_failure(self) -> None:
        """
        After a failure the queue is pulled again in 3 seconds; that it failed is said
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

    def test_failureAgain(self) -> None:
        """
        If it has worked meanwhile, it is said again.
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

    def test_timeout(self) -> None:
        """
        A broker that says nothing is given up after 30 seconds.
        """
        self.a.mute = True
        self.begun(self.make())
        self.network.advance(30)
        self.a.mute = False
        self.network.advance(3)
        self.assertEqual(self.since(), [0])

    def test_flowControl(self) -> None:
        """
        A broker that asks for a rest is given 20 ms of it, and no words are made of
        it.
        """
        self.a.failing[RequestCode.PULL_MESSAGE] = FlowControl("slowly")
        self.begun(self.make())
        del self.a.failing[RequestCode.PULL_MESSAGE]
        self.network.advance(0.02)
        self.assertEqual((self.since(), self.logged(LogLevel.warn)), ([0], []))

    def test_unknownGroup(self) -> None:
        """
        A broker that has not heard of the group, or of its expression, is told of it.
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

    def test_fault(self) -> None:
        """
        A fault of who takes the messages does not end the pulling.
        """
        self.a.put(b"a")
        self.consuming.error = ZeroDivisionError()
        self.begun(self.make())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.since(), [0])
        self.network.advance(3)
        self.assertEqual(self.since(), [1])

    def test_noSubscription(self) -> None:
        """
        Without a subscription nothing is pulled, until there is one again or the queue
        is taken away.
        """
        subscription = self.subscriptions.pop("T")
        self.begun(self.make())
        self.network.advance(3)
        self.assertEqual(self.since(), [])
        self.subscriptions["T"] = subscription
        self.network.advance(3)
        self.assertEqual(self.since(), [0])

    # --- other offsets ---------------------------------------------------

    def test_illegal(self) -> None:
        """
        If the queue has no such offset, it is begun where the broker says, and the
        group is there, be it before.
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

    def test_illegalAhead(self) -> None:
        """
        What was pulled before the broker deleted what follows it is consumed all the
        same, and pulled on behind the gap.
        """
        self.a.put(*BODIES[:4])
        window = self.begun(self.make())
        self.since()
        self.movedTo(20)
        self.network.advance(20)
        self.assertEqual(self.since(), [4, 20])
        self.assertEqual((window.dropped, len(window), window.nextOffset), (False, 4, 20))

    def test_illegalBehind(self) -> None:
        """
        If the broker has lost messages, those of them that were pulled are consumed
        before any comes that has an offset of theirs; the group goes back then.
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

    def test_illegalBehindEnded(self) -> None:
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

    def test_contradiction(self) -> None:
        """
        A broker that says so of the offset which it names itself is asked again in 3
        seconds, and not as fast as it can answer.
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

    def test_move(self) -> None:
        """
        A queue that is moved has a new window there; what the old one has is nobody's
        any more, and its lock is the new one's.
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

    def test_moveOther(self) -> None:
        """
        A queue that is another's is not moved.
        """
        pulls = self.make()
        pulls.move(self.queues[1], 7)
        self.assertEqual((pulls.processQueues, self.offsets.get(self.queues[1])), ({}, None))

    # --- pause and end ---------------------------------------------------

    def test_end(self) -> None:
        """
        A queue that was lost is not pulled any more, and what is under way is given
        up.
        """
        pulls = self.make()
        window = self.begun(pulls)
        self.assertIs(pulls.end(self.queue), window)
        self.a.put(b"a")
        self.network.advance(100)
        self.assertEqual((self.since(), self.consuming.given), ([0], []))
        self.assertIsNone(pulls.end(self.queue))

    def test_pause(self) -> None:
        """
        In a pause nothing is pulled, not even for a queue that is new; afterwards all
        go on where they were.
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

    def test_pauseFull(self) -> None:
        """
        What is consumed in a pause makes room, and is not followed by a pull.
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

    def test_pauseLater(self) -> None:
        """
        A pull that was to come later does not come.
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
        A stop is no pause: who resumes then pulls nothing, and who was paused before
        is so afterwards.
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

    def test_each(self) -> None:
        """
        The windows of a topic, or all.
        """
        pulls = self.make()
        mine = pulls.begin(self.queue, 0)
        self.assertEqual(pulls.each(), [mine])
        self.assertEqual((pulls.each("T"), pulls.each("U")), ([mine], []))
