# SPDX-License-Identifier: Apache-2.0
"""
Read the messages of a topic as they arrive, until the program is stopped::

    .venv/bin/python examples/stream.py 127.0.0.1:9876 Greetings
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.pull.litepull import LitePullConsumer
from txrocket.model import ConsumeFromWhere


async def read(cluster: Cluster, topic: str) -> None:
    """
    Read the messages with one of two tags.
    """
    consumer = LitePullConsumer(
        cluster, "readers", consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe(topic, "english || german")
    async with consumer:
        async for message in consumer:
            print(f"{message.tags}: {message.body!r}")
            if message.body == b"goodbye":
                break


async def readInBatches(consumer: LitePullConsumer, count: int) -> list[bytes]:
    """
    Read at least a number of messages, and commit each batch once it is processed.
    """
    kept: list[bytes] = []
    while len(kept) < count:
        batch = await consumer.poll(timeout=1.0, most=100)
        kept += [message.body for message in batch]
        await consumer.commit()
    return kept


async def replay(cluster: Cluster, topic: str, since: float) -> list[bytes]:
    """
    Read the messages of a topic since a time again.
    """
    bodies = []
    async with LitePullConsumer(cluster, "replay", autoCommit=False) as consumer:
        queues = await consumer.queuesOf(topic)
        consumer.assign(queues)
        for queue in queues:
            await consumer.seekToTime(queue, since)
        while batch := await consumer.poll(timeout=0.5):
            bodies += [message.body for message in batch]
    return bodies


async def main(reactor: Any, nameServer: str, topic: str) -> None:
    """
    Read until a message says goodbye.
    """
    async with Cluster(nameServer, reactor) as cluster:
        await read(cluster, topic)


if __name__ == "__main__":
    address, name = (*sys.argv[1:], "127.0.0.1:9876", "Greetings")[:2]
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address, name)))
