# SPDX-License-Identifier: Apache-2.0
"""
Consumers of a broker whose files are damaged, with both servers in a process of their own.
"""

from __future__ import annotations

from pathlib import Path

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from tests.live.servers import SMALL_LOG, Child, LiveTestCase, freePort, reactor, twistd
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.pull.pullconsumer import PullConsumer
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.client.routes import DEFAULT_TOPIC
from txrocket.errors import RemoteSystemError, TopicNotExist
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere, MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import UpdateConsumerOffsetRequestHeader
from txrocket.protocol.record import decodeRecord

TOPIC = "Damaged"
COUNT = 120


class DamagedTests(LiveTestCase):
    """
    A name server and a broker that is stopped, damaged and started again.
    """

    timeout = 120

    async def start(self) -> Child:
        """
        Start the servers.
        """
        command = twistd(
            "rocket",
            f"--data={self.folder / 'data'}",
            f"--namesrvPort={self.port}",
            f"--set=listenPort={self.brokerPort}",
            SMALL_LOG,
        )
        child = self.spawn(command, b"is reached at")
        await self.started(child)
        return child

    async def cluster(self) -> Cluster:
        """
        A client that knows the broker.
        """
        cluster = Cluster(f"127.0.0.1:{self.port}", reactor)
        self.addCleanup(cluster.stop)
        while True:
            try:
                await cluster.routes.refresh(DEFAULT_TOPIC)
            except TopicNotExist:
                await deferLater(reactor, 0.05)
            else:
                return cluster

    def file(self, pattern: str) -> Path:
        """
        A file of the store.
        """
        [found] = (self.folder / "data").glob(f"**/{pattern}/{'0' * 20}")
        return found

    def damage(self) -> set[int]:
        """
        Damage the log and the queue.

        @return: the numbers of the messages that are lost.
        """
        log = bytearray(self.file("commitlog").read_bytes())
        places: dict[int, int] = {}
        ends: dict[int, int] = {}
        at = 0
        while log[at + 4 : at + 8] == b"\xda\xa3\x20\xa7":
            record = decodeRecord(bytes(log[at : at + 4096]), readBody=False)
            if record.topic == TOPIC:
                places[record.queueOffset] = at
                ends[record.queueOffset] = at + record.storeSize
            at += record.storeSize
        self.assertEqual(len(places), COUNT)
        # A body, a queue offset, and a sector.
        log[places[10] + 100] ^= 4
        log[places[20] + 25] ^= 16
        start = places[40] + 30
        log[start : start + 512] = bytes(512)
        lost = {10, 20} | {
            each for each in places if ends[each] > start and places[each] < start + 512
        }
        self.file("commitlog").write_bytes(log)
        queue = bytearray(self.file(f"consumequeue/{TOPIC}/0").read_bytes())
        # One that no search by halves looks at, near the largest number that there is.
        queue[61 * 20 : 61 * 20 + 8] = (2**63 - 1).to_bytes(8, "big")
        self.file(f"consumequeue/{TOPIC}/0").write_bytes(queue)
        return lost

    def test_damageCostsWhatIsDamaged(self) -> Deferred[None]:
        """
        A push consumer gets every sound message, its group comes to the end and not beyond
        it, the broker tells of the damage once, and lives.
        """

        async def run() -> None:
            self.port, self.brokerPort = freePort(), freePort()
            child = await self.start()
            cluster = await self.cluster()
            producer = Producer(cluster)
            await producer.start()
            first = await producer.send(Message(TOPIC, b"first" + b" " * 200))
            queue = MessageQueue(TOPIC, first.messageQueue.brokerName, 0)
            already = int(first.messageQueue == queue)
            sends = [
                producer.send(Message(TOPIC, b"%d" % each + b" " * 200), queue)
                for each in range(already, COUNT)
            ]
            await gatherResults(sends)
            await producer.stop()
            await cluster.stop()
            self.assertEqual(await child.end(), 0)
            lost = self.damage()
            child = await self.start()
            await self.consume(queue, set(range(COUNT)) - lost)
            told = [each for each in child.faults if "is damaged and is not delivered" in each]
            self.assertEqual(len(told), len(lost), child.output)
            # Nothing else went wrong.
            child.faults = [each for each in child.faults if "is damaged" not in each]
            self.assertEqual(await child.end(), 0)

        return Deferred.fromCoroutine(run())

    async def consume(self, queue: MessageQueue, expected: set[int]) -> None:
        """
        Consume the queue from its beginning, and see where the group is then.
        """
        seen: list[int] = []
        cluster = await self.cluster()

        def listen(message: MessageExt) -> None:
            if message.queueId == 0:
                seen.append(message.queueOffset)

        consumer = PushConsumer(
            cluster,
            "listeners",
            listen,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe(TOPIC)
        await consumer.start()
        while not seen or max(seen) < COUNT - 1:
            await deferLater(reactor, 0.05)
        await consumer.stop()
        self.assertEqual(sorted(seen), sorted(expected))
        async with PullConsumer(cluster, "listeners") as reader:
            self.assertEqual(await reader.fetchOffset(queue, fromStore=True), COUNT)
            self.assertEqual(await reader.maxOffset(queue), COUNT)
        header = UpdateConsumerOffsetRequestHeader("listeners", TOPIC, 0, COUNT + 1)
        request = requestCommand(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        try:
            await cluster.ask(f"127.0.0.1:{self.brokerPort}", request, 10.0)
        except RemoteSystemError as error:
            self.assertIn(f"the next message in queue 0 of {TOPIC} gets {COUNT}", str(error))
        else:
            self.fail("a commit beyond the end was taken")
        await cluster.stop()
