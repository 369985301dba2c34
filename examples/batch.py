# SPDX-License-Identifier: Apache-2.0
"""
Many messages in few requests::

    .venv/bin/python examples/batch.py 127.0.0.1:9876
"""

import sys
from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket import Message
from txrocket.client import Cluster, Producer, SendStatus

# 64 KiB at a time, for the sake of the example; 4 MiB is what brokers take.
LIMIT = 64 * 1024


def measurements(count: int) -> Iterable[Message]:
    """
    Messages, made one by one as they are needed.
    """
    for number in range(count):
        yield Message("Measurements", b"%200d" % number, tags="temperature")


async def sendAll(producer: Producer, messages: Iterable[Message]) -> int:
    """
    Send messages of one topic, and say how many requests that took.
    """
    # They are divided so that no request is larger than the producer's limit.
    results = await producer.sendBatch(messages)
    for result in results:
        # One of all messages of a request: the queue is the same, and the offsets
        # follow each other from this one on.
        assert result.sendStatus is SendStatus.SEND_OK, result
    return len(results)


async def main(reactor: Any, nameServer: str) -> None:
    """
    Send a thousand messages.
    """
    cluster = Cluster(nameServer, reactor)
    async with cluster, Producer(cluster, "thermometers", maxMessageSize=LIMIT) as producer:
        requests = await sendAll(producer, measurements(1000))
        print(f"1000 messages in {requests} requests")


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
