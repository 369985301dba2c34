# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.push.concurrently}.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel

from tests.client import consumecontract
from tests.client.messages import QUEUE, offsetsOf, pulled, several
from tests.remoting.doubles import RemotingTests
from txrocket.client.consumer.push.concurrently import Concurrently
from txrocket.client.consumer.push.listener import ConsumeLater, ListenerCaller
from txrocket.client.consumer.push.processqueue import ProcessQueue
from txrocket.errors import ConnectFailed
from txrocket.message import MessageExt
from txrocket.model import MessageQueue


class ConcurrentlyTests(consumecontract.ConsumeContract):
    """
    Messages in any order.
    """

    def make(
        self, listener: Any, batch: int = 0, limit: int = 20, *, broadcast: bool = False
    ) -> Concurrently:
        """
        A consume service for a listener.
        """
        return Concurrently(
            self.clock,
            ListenerCaller(listener, batch, self.clock, blocking=False),
            limit,
            lambda window, offset: self.commits.append(offset),
            None if broadcast else self.sendBack,
            self.prepare,
        )

    def prepare(self, message: MessageExt) -> MessageExt:
        """
        One body is damaged.
        """
        if message.body == b"damaged":
            raise ValueError("damaged")
        return message

    # --- calls -----------------------------------------------------------

    def test_offsetFollowsFirstUnconsumed(self) -> None:
        """
        Messages are given at once, and the committed offset is that of the first message
        that is not consumed.
        """
        self.came(0, 1, 2)
        self.assertEqual(self.slow.offsets, [0, 1, 2])
        for index in (2, 0, 1):
            self.slow.end(index)
        self.assertEqual(self.commits, [0, 1, 3])

    def test_callsStayWithinLimit(self) -> None:
        """
        No more calls run than the limit allows, and the next begins when one ends.
        """
        self.consuming = self.make(self.slow, limit=2)
        self.came(0, 1, 2, 3)
        self.assertEqual((self.slow.offsets, self.consuming.running), ([0, 1], 2))
        self.slow.end(1)
        self.assertEqual((self.slow.offsets, self.consuming.running), ([0, 1, 2], 2))

    def test_plainResultCountsAtOnce(self) -> None:
        """
        The result of a plain function counts at once, for all messages of a pull.
        """
        seen: list[MessageExt] = []
        self.came(0, 1, 2, consuming=self.make(seen.append))
        self.assertEqual((offsetsOf(seen), self.commits), ([0, 1, 2], [3]))

    def test_batchIsFilledFromPresentMessages(self) -> None:
        """
        A batch is not larger than wanted, and is not delayed until it is full.
        """
        self.consuming = self.make(self.slow, batch=2)
        self.came(0, 1, 2)
        self.assertEqual(self.slow.offsets, [[0, 1], [2]])
        self.slow.end(1)
        self.slow.end(0)
        self.assertEqual(self.commits, [0, 3])

    def test_manyMessagesDoNotGrowStack(self) -> None:
        """
        However many messages wait when a call ends, all are given and the stack does not
        grow, also with Deferreds that have fired.
        """
        slow = self.slow
        seen = []

        def listen(message: MessageExt) -> Deferred[None]:
            seen.append(message.queueOffset)
            return slow(message) if not message.queueOffset else succeed(None)

        self.came(*range(5000), consuming=self.make(listen, limit=1))
        self.assertEqual(seen, [0])
        slow.end(0)
        self.assertEqual(seen, list(range(5000)))
        self.assertEqual(self.commits[-1], 5000)

    def test_manyCoroutinesDoNotGrowStack(self) -> None:
        """
        The same holds for coroutines that do not wait.
        """
        seen = []

        async def listen(message: MessageExt) -> None:
            seen.append(message.queueOffset)

        self.came(*range(5000), consuming=self.make(listen, limit=1))
        self.assertEqual(len(seen), 5000)

    def test_lostQueueIsNotSentBack(self) -> None:
        """
        Messages of a lost queue are neither given to the listener, committed nor sent back.
        """
        self.consuming = self.make(self.slow, limit=2)
        self.came(0, 1, 2)
        self.window.dropped = True
        self.slow.end(0)
        self.slow.end(1, ConsumeLater())
        self.assertEqual((self.slow.offsets, self.commits, self.backs), ([0, 1], [], []))
        self.assertEqual(self.consuming.running, 0)

    # --- messages that were not dealt with -------------------------------

    def test_consumeLaterSendsBack(self) -> None:
        """
        A message to be consumed later is sent back with the listener's level, and counts as
        consumed once its broker has it.
        """
        self.came(0)
        self.slow.end(0, ConsumeLater(delayLevel=5))
        self.assertEqual([each[:2] for each in self.backs], [(0, 5)])
        self.assertEqual(self.commits, [])
        self.returned(0)
        self.assertEqual(self.commits, [1])

    def test_unconsumedRestIsSentBack(self) -> None:
        """
        If a listener consumed the first messages of a batch, only the rest is sent back.
        """
        self.consuming = self.make(self.slow, batch=4)
        self.came(0, 1, 2, 3)
        self.slow.end(0, ConsumeLater(done=2))
        self.assertEqual(self.commits, [2])
        self.assertEqual([each[:2] for each in self.backs], [(2, 0), (3, 0)])
        self.returned(1)
        self.assertEqual(self.commits, [2, 2])
        self.returned(0)
        self.assertEqual(self.commits, [2, 2, 4])

    def test_wholeBatchConsumedSendsNoneBack(self) -> None:
        """
        If the listener says that it consumed as many as the batch has, or more, none is
        sent back.
        """
        self.consuming = self.make(self.slow, batch=2)
        self.came(0, 1)
        self.slow.end(0, ConsumeLater(done=9))
        self.assertEqual((self.commits, self.backs), ([2], []))

    def test_failingListenerSendsBack(self) -> None:
        """
        If a listener fails, its messages are sent back, and the error is logged with them.
        """
        self.came(0)
        self.slow.end(0, ZeroDivisionError("oh"))
        self.assertEqual([each[:2] for each in self.backs], [(0, 0)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertIn("1 messages of", self.logged(LogLevel.critical)[0])

    def test_raisingFunctionSendsBack(self) -> None:
        """
        The same holds for a plain function that raises, and for a body that cannot be read.
        """

        def listen(message: MessageExt) -> None:
            raise ZeroDivisionError

        self.consuming = self.make(listen)
        self.consuming.submit(self.window, self.window.add([pulled(0), pulled(1, b"damaged")]))
        self.assertEqual([each[0] for each in self.backs], [0, 1])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError, ValueError)), 2)

    def test_failedSendBackIsTriedHere(self) -> None:
        """
        A message that cannot be sent back is given to the listener again after five
        seconds, with its count increased.
        """
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.assertIn("could not be sent back: gone", self.logged(LogLevel.warn)[0])
        self.clock.advance(4.9)
        self.assertEqual(self.slow.offsets, [0])
        self.clock.advance(0.1)
        self.assertEqual(self.slow.offsets, [0, 0])
        self.assertEqual(self.slow.calls[1][0].reconsumeTimes, 1)
        self.assertEqual(self.commits, [])
        self.slow.end(1)
        self.assertEqual((self.commits, len(self.window), self.window.size), ([1], 0, 0))

    def test_onlyUnsentAreTriedAgain(self) -> None:
        """
        Only the messages that could not be sent back are given again.
        """
        self.consuming = self.make(self.slow, batch=2)
        self.came(0, 1)
        self.slow.end(0, ConsumeLater())
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.returned(1)
        self.clock.advance(5)
        self.assertEqual(self.slow.offsets, [[0, 1], [0]])

    def test_lostQueueIsNotTriedAgain(self) -> None:
        """
        If the queue was lost meanwhile, they are not given again.
        """
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.window.dropped = True
        self.clock.advance(5)
        self.assertEqual(self.slow.offsets, [0])

    def test_broadcastDropsUnconsumed(self) -> None:
        """
        A broadcast consumer cannot send back: unconsumed messages are dropped and logged.
        """
        self.consuming = self.make(self.slow, broadcast=True)
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.assertEqual((self.commits, self.backs), ([1], []))
        self.assertIn("1 messages of", self.logged(LogLevel.warn)[0])

    # --- messages that take too long -------------------------------------

    def expire(self, limit: float = 900.0) -> None:
        """
        Look for late messages.
        """
        self.consuming.expire([self.window], limit)

    def test_lateListenerSendsBack(self) -> None:
        """
        A message that a listener has for longer than allowed is sent back with level 3, and
        the offset goes on.  The listener's result changes nothing.
        """
        self.came(0, 1)
        self.slow.end(1)
        self.clock.advance(900)
        self.expire()
        self.assertEqual(self.backs, [])
        self.clock.advance(0.1)
        self.expire()
        self.assertEqual([each[:2] for each in self.backs], [(0, 3)])
        self.assertIn("within 900 s", self.logged(LogLevel.warn)[0])
        self.returned(0)
        self.assertEqual(self.commits, [0, 2])
        self.slow.end(0, ConsumeLater())
        self.assertEqual((len(self.backs), self.consuming.running), (1, 0))

    def test_lateMessageIsSentBackOnce(self) -> None:
        """
        It is sent back once, however long that takes.
        """
        self.came(0)
        for _ in range(3):
            self.clock.advance(10)
            self.expire(5.0)
        self.slow.end(0, ConsumeLater())
        self.assertEqual(len(self.backs), 1)

    def test_unsentLateMessageStaysWithListener(self) -> None:
        """
        If it cannot be sent back, the listener keeps it, and its time begins again.
        """
        self.came(0)
        self.clock.advance(901)
        self.expire()
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.clock.advance(900)
        self.expire()
        self.assertEqual((self.slow.offsets, len(self.backs)), ([0], 1))
        self.clock.advance(1)
        self.expire()
        self.assertEqual((self.slow.offsets, len(self.backs)), ([0], 2))

    def test_consumedLateMessageCounts(self) -> None:
        """
        If the listener consumes it meanwhile, it counts as consumed, sent back or not.
        """
        self.came(0)
        self.clock.advance(901)
        self.expire()
        self.slow.end(0)
        self.assertEqual(self.commits, [1])
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.clock.advance(901)
        self.expire()
        self.assertEqual(len(self.backs), 1)

    def test_waitingMessageIsNotLate(self) -> None:
        """
        A message that waits to be given again is not late: no listener has it.
        """
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.clock.advance(4)
        self.expire(1.0)
        self.assertEqual(len(self.backs), 1)

    def test_broadcastListenerIsNeverLate(self) -> None:
        """
        A broadcast consumer can only wait.
        """
        self.consuming = self.make(self.slow, broadcast=True)
        self.came(0)
        self.clock.advance(901)
        self.expire()
        self.slow.end(0)
        self.assertEqual(self.commits, [1])

    # --- stop ------------------------------------------------------------

    def test_stopWaitsForSendBack(self) -> None:
        """
        A stop waits for messages that are being sent back.  One that cannot be sent stays
        for the next consumer, and no timer is left.
        """
        self.came(0, 1)
        self.slow.end(0, ConsumeLater())
        self.slow.end(1, ConsumeLater())
        stopped = self.consuming.stop()
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.assertNoResult(stopped)
        self.returned(1)
        self.successResultOf(stopped)
        self.assertEqual((self.window.commitOffset, self.clock.getDelayedCalls()), (0, []))

    def test_stopCancelsRetries(self) -> None:
        """
        A message that waits to be given again is not given after a stop.
        """
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.successResultOf(self.consuming.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stoppedServiceStartsAgain(self) -> None:
        """
        After a stop it can start again.
        """
        self.successResultOf(self.consuming.stop())
        self.consuming.start()
        self.came(0)
        self.slow.end(0, ConsumeLater())
        self.returned(0, ConnectFailed("a:1", "gone"))
        self.clock.advance(5)
        self.assertEqual(self.slow.offsets, [0, 0])


class Story:
    """
    A listener that does with each message what is written, and what follows.
    """

    def __init__(self, whats: list[str], limit: int) -> None:
        self.whats = whats
        self.limit = limit
        self.clock = Clock()
        self.windows = [ProcessQueue(QUEUE, 0), ProcessQueue(MessageQueue("T", "a", 1), 0)]
        listening = ListenerCaller(self.listen, 0, self.clock, blocking=False)
        self.consuming = Concurrently(
            self.clock, listening, limit, self.consumed, self.sendBack, lambda message: message
        )
        self.calls: list[Any] = []
        self.commits: dict[MessageQueue, int] = {}
        self.promises: list[Deferred[Any]] = []
        self.stopped: list[bool] = []

    def consumed(self, window: ProcessQueue, offset: int) -> None:
        self.commits[window.queue] = offset

    def sendBack(self, message: MessageExt, delayLevel: int) -> Deferred[None]:
        self.calls.append(("back", message.queueOffset, delayLevel))
        promise: Deferred[None] = Deferred()
        self.promises.append(promise)
        return promise

    def listen(self, message: MessageExt) -> Any:
        self.calls.append((message.queueId, message.queueOffset, self.clock.seconds()))
        what = self.whats[message.queueOffset % len(self.whats)]
        if what == "raise":
            raise ZeroDivisionError
        if what == "stop":
            self.consuming.stop().addCallback(
                # Who waits for it keeps the offsets next.
                lambda none: self.stopped.append(dict(self.commits) != {})
            )
        if what == "start":
            self.consuming.stop()
            self.consuming.start()
        if what == "promise":
            self.promises.append(Deferred())
            return self.promises[-1]

        async def coroutine() -> None:
            await succeed(None)

        results: dict[str, Any] = {
            "value": 1,
            "later": ConsumeLater(3),
            "fired": succeed(ConsumeLater(2)),
        }
        return coroutine() if what == "coroutine" else results.get(what)

    def run(self, steps: list[tuple[str, int]]) -> None:
        """
        Let all happen.
        """
        for what, number in steps:
            if what == "pull":
                window = self.windows[number % 2]
                first = window.nextOffset
                window.nextOffset += number
                queueId = window.queue.queueId
                fresh = [
                    replace(each, queueId=queueId) for each in several(range(first, first + number))
                ]
                self.consuming.submit(window, window.add(fresh))
            elif what == "wait":
                self.clock.advance(number)
            elif self.promises:
                promise = self.promises.pop(number % len(self.promises))
                if what == "fire":
                    promise.callback(None)
                else:
                    promise.errback(ConnectFailed("a:1", "refused"))
            self.check()

    def check(self) -> None:
        """
        See that no more calls run than may, that each queue is given in order, and that no
        offset is committed beyond a message that is not consumed.
        """
        assert 0 <= self.consuming.running <= self.limit
        for window in self.windows:
            queueId = window.queue.queueId
            given = dict.fromkeys(each[1] for each in self.calls if each[0] == queueId)
            assert list(given) == sorted(given)
            assert self.commits.get(window.queue, 0) <= window.commitOffset


class StoryTests(RemotingTests):
    """
    Listeners of all kinds in one story.
    """

    @settings(max_examples=300, deadline=None)
    @given(
        st.lists(
            st.sampled_from(
                ["done"] * 6
                + ["value", "raise", "later", "promise", "fired", "coroutine", "stop", "start"]
            ),
            min_size=1,
            max_size=8,
        ),
        st.integers(1, 3),
        st.lists(
            st.tuples(st.sampled_from(["pull", "pull", "wait", "fire", "fail"]), st.integers(1, 8)),
            max_size=15,
        ),
    )
    def test_anyListenerKeepsOrderLimitAndOffsets(
        self, whats: list[str], limit: int, steps: list[tuple[str, int]]
    ) -> None:
        """
        Whatever a listener does, no more calls run than may, each queue is given in order,
        and only consumed messages are committed.
        """
        Story(whats, limit).run(steps)
        self.flushLoggedErrors(ZeroDivisionError, ConnectFailed)
