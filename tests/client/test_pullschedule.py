# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.pull.pullschedule}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import LogLevel

from tests.client.brokers import ConsumerTests
from txrocket.client.consumer.pull.pullconsumer import PullConsumer
from txrocket.client.consumer.pull.pullschedule import PullSchedule
from txrocket.errors import ConfigError, InvalidMessage
from txrocket.model import MessageQueue


class PullScheduleTests(ConsumerTests):
    """
    A schedule of group g.
    """

    def setUp(self) -> None:
        super().setUp()
        self.a.ids = ("me", "you", "z")
        self.consumer = PullConsumer(self.cluster, "g")
        self.schedule = PullSchedule(self.consumer)
        self.visits: list[int] = []
        self.returned: Any = None

    def visit(self, queue: MessageQueue, consumer: PullConsumer) -> Any:
        """
        Write a visit down.
        """
        self.assertIs(consumer, self.consumer)
        self.visits.append(queue.queueId)
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned

    def start(self) -> None:
        """
        Have the two queues of this member visited.
        """
        self.schedule.register("T", self.visit)
        self.got(self.schedule.start())
        self.assertEqual(self.seen(), [0, 1])

    def seen(self, after: float = 0.0) -> list[int]:
        """
        The queues that were visited since the last call, after some time.
        """
        self.network.advance(after)
        self.network.flush()
        visits, self.visits = sorted(self.visits), []
        return visits

    def test_visitSaysWhenTheNextIs(self) -> None:
        """
        The next visit is when the last one said, or after 0.2 seconds.
        """
        self.start()
        self.returned = 3.0
        self.assertEqual(self.seen(0.19), [])
        self.assertEqual(self.seen(0.01), [0, 1])
        self.assertEqual(self.seen(2.9), [])
        self.assertEqual(self.seen(0.1), [0, 1])

    def test_failedVisitIsRepeated(self) -> None:
        """
        A failed visit is logged, and the next is after one second.
        """
        self.returned = ZeroDivisionError()
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)
        self.returned = 100.0
        self.assertEqual(self.seen(0.99), [])
        self.assertEqual(self.seen(0.01), [0, 1])

    def test_nextVisitWaitsForDeferred(self) -> None:
        """
        A visit may take its time: the delay begins at its end.
        """
        done: Deferred[Any] = Deferred()
        self.returned = done
        self.schedule.register("T", self.visit)
        self.a.ids = ("me", "n", "o", "p")
        self.got(self.schedule.start())
        self.assertEqual(self.seen(10.0), [0])
        self.returned = None
        done.callback(2.0)
        self.assertEqual(self.seen(1.9), [])
        self.assertEqual(self.seen(0.1), [0])

    def test_visitMayBeCoroutine(self) -> None:
        """
        A visit may be a coroutine, which pulls.
        """
        bodies: list[bytes] = []

        async def visit(queue: MessageQueue, consumer: PullConsumer) -> float:
            offset = await consumer.fetchOffset(queue) or 0
            result = await consumer.pull(queue, offset)
            bodies.extend(each.body for each in result.messages)
            consumer.updateOffset(queue, result.nextBeginOffset)
            return 1.0

        self.a.put(b"0")
        self.schedule.register("T", visit)
        self.got(self.schedule.start())
        self.a.put(b"1")
        self.network.advance(1.0)
        self.assertEqual(bodies, [b"0", b"1"])

    def test_lostQueueIsNotVisited(self) -> None:
        """
        A lost queue is not visited any more, and a new one is.
        """
        self.start()
        self.a.ids = ("a", "me", "z")
        self.consumer.idsChanged()
        # Of three members the second has the third queue alone.
        self.assertEqual(self.seen(), [2])
        self.assertEqual(self.seen(0.2), [2])

    def test_visitedQueueMayBeLostAndReturn(self) -> None:
        """
        A queue that is lost during its visit is visited no more.  If it has returned
        meanwhile it goes on, and is never visited twice at a time.
        """
        done: Deferred[Any] = Deferred()
        self.returned = done
        self.a.ids = ("me", "n", "o", "p")
        self.schedule.register("T", self.visit)
        self.got(self.schedule.start())
        self.assertEqual(self.seen(), [0])
        self.a.ids = ("a", "b", "c", "me")
        self.consumer.idsChanged()
        other: Deferred[Any] = Deferred()
        self.returned = other
        self.assertEqual(self.seen(), [3])
        self.a.ids = ("me", "n", "o", "p")
        self.consumer.idsChanged()
        self.assertEqual(self.seen(), [])
        self.returned = None
        other.callback(0.0)
        self.assertEqual(self.seen(), [])
        done.callback(0.0)
        self.assertEqual(self.seen(), [0])

    def test_topicMayBeRegisteredLater(self) -> None:
        """
        A topic may be registered after the start; its name is checked.
        """
        self.got(self.schedule.start())
        self.assertEqual(self.seen(), [])
        self.schedule.register("T", self.visit)
        self.assertEqual(self.seen(), [0, 1])
        self.assertRaises(InvalidMessage, self.schedule.register, "no topic", self.visit)

    def test_stopWaitsForVisits(self) -> None:
        """
        A stop waits for visits, begins no more, and stops the consumer.  A second stop does
        nothing.
        """
        self.start()
        done: Deferred[Any] = Deferred()
        self.returned = done
        self.a.ids = ("me", "n", "o", "p")
        self.consumer.idsChanged()
        self.assertEqual(self.seen(0.2), [0])
        stopping = self.schedule.stop()
        self.network.advance(4.0)
        self.assertNoResult(stopping)
        self.assertTrue(self.consumer.running)
        done.callback(None)
        self.got(stopping)
        self.assertFalse(self.consumer.running)
        self.assertEqual(self.seen(10.0), [])
        self.got(self.schedule.stop())

    def test_stopCancelsDelayedVisit(self) -> None:
        """
        A delayed visit is not made after a stop.
        """
        self.start()
        self.got(self.schedule.stop())
        self.assertEqual(self.seen(1.0), [])
        self.got(self.cluster.stop())
        self.network.advance(20.0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopKeepsTimeLimit(self) -> None:
        """
        A stop does not wait long for a visit that waits for a message, and that visit's
        failure is not logged.
        """
        self.schedule.register(
            "T", lambda queue, consumer: consumer.pullAndWait(queue, 0).addCallback(lambda r: 0)
        )
        self.got(self.schedule.start())
        stopping = self.schedule.stopService()
        self.network.advance(5.0)
        self.got(stopping)
        self.assertIn("stops while 2 queues are visited", self.logged(LogLevel.warn)[-1])
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_scheduleIsContext(self) -> None:
        """
        It is a context manager, and cannot start if its consumer cannot.
        """

        async def use() -> bool:
            async with self.schedule as schedule:
                return bool(schedule.running)

        self.assertTrue(self.got(ensureDeferred(use())))
        self.assertEqual(self.cluster.consumers, {})
        self.got(PullConsumer(self.cluster, "g").start())
        self.failed(self.schedule.start(), ConfigError)
        self.assertFalse(self.schedule.running)
