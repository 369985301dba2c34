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

# A small limit of 64 KiB for the example; brokers accept 4 MiB.
LIMIT = 64 * 1024


def measurements(count: int) -> Iterable[Message]:
    """
    Messages, made one by one as they are needed.
    """
    for number in range(count):
        yield Message("Measurements", b"%200d" % number, tags="temperature")


async def sendAll(producer: Producer, messages: Iterable[Message]) -> int:
    """
    Send messages of one topic, and return the number of requests.
    """
    # The producer splits them so that no request exceeds its limit.
    results = await producer.sendBatch(messages)
    for result in results:
        # One result for all messages of a request: they are in one queue, and this is the
        # offset of the first.
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
