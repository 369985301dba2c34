# SPDX-License-Identifier: Apache-2.0
"""
Pull the messages of a topic that a group has not consumed yet, queue by queue::

    .venv/bin/python examples/pull.py 127.0.0.1:9876 Greetings
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.pull.pullconsumer import PullConsumer
from txrocket.client.consumer.pull.pullschedule import PullSchedule
from txrocket.client.sansio.results import PullStatus
from txrocket.model import MessageQueue


async def pullAll(consumer: PullConsumer, topic: str) -> int:
    """
    Pull until there is no new message, and return the number of messages.
    """
    count = 0
    for queue in await consumer.queuesOf(topic):
        offset = await consumer.fetchOffset(queue)
        if offset is None:
            offset = await consumer.minOffset(queue)
        while True:
            result = await consumer.pull(queue, offset)
            for message in result.messages:
                print(f"{message.queueId}/{message.queueOffset}: {message.body!r}")
            count += len(result.messages)
            offset = result.nextBeginOffset
            consumer.updateOffset(queue, offset)
            if result.pullStatus is PullStatus.NO_NEW_MSG:
                break
    return count


async def pullNext(consumer: PullConsumer, queue: MessageQueue) -> bytes | None:
    """
    Wait for the next message of a queue.
    """
    result = await consumer.pullAndWait(queue, await consumer.maxOffset(queue), 1)
    return result.messages[0].body if result.messages else None


async def visit(queue: MessageQueue, consumer: PullConsumer) -> float:
    """
    Pull a queue once, and return the seconds until the next pull.
    """
    offset = await consumer.fetchOffset(queue) or 0
    result = await consumer.pull(queue, offset)
    for message in result.messages:
        print(f"{message.queueId}/{message.queueOffset}: {message.body!r}")
    consumer.updateOffset(queue, result.nextBeginOffset)
    return 0.0 if result.messages else 1.0


def scheduled(cluster: Cluster, topic: str) -> PullSchedule:
    """
    A service that visits this member's queues of a topic.
    """
    schedule = PullSchedule(PullConsumer(cluster, "visitors"))
    schedule.register(topic, visit)
    return schedule


async def main(reactor: Any, nameServer: str, topic: str) -> None:
    """
    Pull, and commit the group's offsets to the brokers.
    """
    cluster = Cluster(nameServer, reactor)
    async with cluster, PullConsumer(cluster, "pullers") as consumer:
        count = await pullAll(consumer, topic)
    print(f"{count} messages")


if __name__ == "__main__":
    address, name = (*sys.argv[1:], "127.0.0.1:9876", "Greetings")[:2]
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address, name)))
