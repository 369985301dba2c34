# SPDX-License-Identifier: Apache-2.0
"""
Pull consumers over real sockets, with both servers in a process of their own.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tests.live.servers import SMALL_LOG, LiveTestCase, freePort, reactor, twistd
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.pull.litepull import LitePullConsumer
from txrocket.client.consumer.pull.pullconsumer import PullConsumer
from txrocket.client.consumer.pull.pullschedule import PullSchedule
from txrocket.client.producer.producer import Producer
from txrocket.client.routes import DEFAULT_TOPIC
from txrocket.client.sansio.results import PullStatus
from txrocket.errors import TopicNotExist
from txrocket.message import Message
from txrocket.model import ConsumeFromWhere, MessageQueue

log = Logger()

TOPIC = "Pulled"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

# How many messages flow while members come and go.
FLOWING = 3000


class PullingTests(LiveTestCase):
    """
    A name server and a broker.
    """

    timeout = 300

    async def start(self, count: int, size: int = 10) -> None:
        """
        Start the servers, and have messages in all queues of the topic.
        """
        port = freePort()
        command = twistd(
            "rocket",
            f"--data={self.folder / 'data'}",
            f"--namesrvPort={port}",
            f"--set=listenPort={freePort()}",
            SMALL_LOG,
        )
        await self.started(self.spawn(command, b"is reached at"))
        self.nameServer = f"127.0.0.1:{port}"
        cluster = self.cluster()
        while True:
            # A broker listens before the name server knows of it.
            try:
                await cluster.routes.refresh(DEFAULT_TOPIC)
            except TopicNotExist:
                await deferLater(reactor, 0.05)
            else:
                break
        self.producer = Producer(cluster)
        await self.producer.start()
        self.addCleanup(self.producer.stop)
        await self.send(range(count), size)

    async def send(self, numbers: range, size: int = 10) -> None:
        """
        Send numbers, tagged in turn.
        """
        await gatherResults(
            [
                self.producer.send(Message(TOPIC, b"%d" % each + b" " * size, "ab"[each % 2]))
                for each in numbers
            ]
        )

    def cluster(self) -> Cluster:
        """
        A client of its own.
        """
        cluster = Cluster(self.nameServer, reactor)
        self.addCleanup(cluster.stop)
        return cluster

    def test_pullConsumerGetsAllOfTag(self) -> Deferred[None]:
        """
        A pull consumer finds the queues of a topic, pulls all messages of a tag, even
        those that were compressed, waits for one that is not there yet, and its
        offsets are there for the next of its group.
        """

        async def run() -> None:
            await self.start(40, size=5000)
            found = []
            async with PullConsumer(self.cluster(), "pullers") as consumer:
                queues = await consumer.queuesOf(TOPIC)
                for queue in queues:
                    low, high = await consumer.minOffset(queue), await consumer.maxOffset(queue)
                    result = await consumer.pull(queue, low, expression="a")
                    found += [int(each.body) for each in result.messages]
                    self.assertEqual((result.nextBeginOffset, result.maxOffset), (high, high))
                    consumer.updateOffset(queue, result.nextBeginOffset)
                empty = await consumer.pull(queues[0], high)
                self.assertEqual(empty.pullStatus, PullStatus.NO_NEW_MSG)
                moved = await consumer.pull(queues[0], high + 5)
                self.assertEqual(moved.pullStatus, PullStatus.OFFSET_ILLEGAL)
                self.assertEqual(await consumer.searchByTime(queues[0], 0.0), 0)
                waiting = consumer.pullAndWait(queues[1], high)
                await self.producer.send(Message(TOPIC, b"late"), queues[1])
                late = await waiting
                self.assertEqual([each.body for each in late.messages], [b"late"])
            self.assertEqual(sorted(found), list(range(0, 40, 2)))
            async with PullConsumer(self.cluster(), "pullers") as consumer:
                kept = [await consumer.fetchOffset(queue) for queue in queues]
                self.assertEqual(kept, [high] * len(queues))

        return Deferred.fromCoroutine(run())

    def test_everyQueueIsVisited(self) -> Deferred[None]:
        """
        Each queue is visited, by the member that has it.
        """

        async def run() -> None:
            await self.start(20)
            seen: list[int] = []
            done: Deferred[None] = Deferred()

            async def visit(queue: MessageQueue, consumer: PullConsumer) -> float:
                result = await consumer.pull(queue, await consumer.fetchOffset(queue) or 0, 2)
                seen.extend(int(each.body) for each in result.messages)
                consumer.updateOffset(queue, result.nextBeginOffset)
                if len(seen) == 20 and not done.called:
                    done.callback(None)
                return 0.0

            schedule = PullSchedule(PullConsumer(self.cluster(), "visitors"))
            schedule.register(TOPIC, visit)
            async with schedule:
                await done
            self.assertEqual(sorted(seen), list(range(20)))

        return Deferred.fromCoroutine(run())

    def test_nextReaderResumesOffset(self) -> Deferred[None]:
        """
        A reader gets all messages of its subscription, and the next of its group
        goes on where it was.
        """

        async def run() -> None:
            await self.start(60)
            first: list[int] = []
            second: list[int] = []
            consumer = LitePullConsumer(self.cluster(), "readers", consumeFromWhere=FIRST)
            consumer.subscribe(TOPIC, "b")
            async with consumer:
                async for message in consumer:
                    first.append(int(message.body))
                    if len(first) == 25:
                        break
            consumer = LitePullConsumer(self.cluster(), "readers", consumeFromWhere=FIRST)
            consumer.subscribe(TOPIC, "b")
            async with consumer:
                while len(first) + len(second) < 30:
                    second += [int(each.body) for each in await consumer.poll()]
            self.assertEqual(sorted(first + second), list(range(1, 60, 2)))

        return Deferred.fromCoroutine(run())

    def test_assignedReaderSeeks(self) -> Deferred[None]:
        """
        A reader of assigned queues goes to their beginnings and ends, and back.
        """

        async def run() -> None:
            await self.start(8)
            async with LitePullConsumer(self.cluster(), "assigned") as consumer:
                queue, other = (await consumer.queuesOf(TOPIC))[:2]
                consumer.assign([queue])
                await consumer.seekToBegin(queue)
                begun = await consumer.poll()
                self.assertEqual([each.queueOffset for each in begun], [0, 1])
                await consumer.seekToEnd(queue)
                await self.producer.send(Message(TOPIC, b"other"), other)
                await self.producer.send(Message(TOPIC, b"new"), queue)
                self.assertEqual([each.body for each in await consumer.poll()], [b"new"])
                await consumer.seek(queue, 1)
                again = await consumer.poll(most=1)
                self.assertEqual([each.queueOffset for each in again], [1])
                await consumer.commit()
                self.assertEqual(await consumer.committed(queue), 2)

        return Deferred.fromCoroutine(run())

    def test_changingGroupReadsEveryMessage(self) -> Deferred[None]:
        """
        While members of a group come and go, every message is read by one of them at
        least; how many by two is written to the log.
        """

        async def run() -> None:
            chance = Random(7)
            await self.start(1)
            read: Counter[int] = Counter()

            async def member(most: int) -> None:
                count = 0
                consumer = LitePullConsumer(self.cluster(), "flow", consumeFromWhere=FIRST)
                consumer.subscribe(TOPIC)
                async with consumer:
                    while count < most and len(read) < FLOWING:
                        for message in await consumer.poll(0.5):
                            read[int(message.body)] += 1
                            count += 1

            async def members() -> None:
                while len(read) < FLOWING:
                    await member(chance.randrange(50, 400))

            flowing = [Deferred.fromCoroutine(members()) for _ in range(3)]
            for first in range(1, FLOWING, 100):
                await self.send(range(first, min(first + 100, FLOWING)))
            await gatherResults(flowing)
            self.assertEqual(sorted(read), list(range(FLOWING)))
            log.info(
                "{count} of {all} messages came twice", count=read.total() - FLOWING, all=FLOWING
            )

        return Deferred.fromCoroutine(run())
