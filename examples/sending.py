# SPDX-License-Identifier: Apache-2.0
"""
Ways to send::

    .venv/bin/python examples/sending.py 127.0.0.1:9876
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react
from zope.interface import implementer

from txrocket import Message, MessageQueue
from txrocket.client import Cluster, FaultTable, ISendMessageHook, Producer, Sending, SendResult
from txrocket.errors import InvalidMessage, SendFailed


async def sendAll(producer: Producer, messages: Iterable[Message]) -> list[SendResult]:
    """
    Send messages without waiting for each answer.
    """
    return await gatherResults([producer.send(each) for each in messages])


async def sendKept(producer: Producer, message: Message, kept: list[Message]) -> bool:
    """
    Send a message, or keep it for later.
    """
    try:
        await producer.send(message)
    except InvalidMessage:
        # Refused before any request: too large, without a body, or a topic name not valid.
        raise
    except SendFailed as error:
        if error.retriable or error.phase == "route":
            kept.append(message)
            return False
        raise
    return True


async def sendLeast(producer: Producer, message: Message) -> None:
    """
    Send a message that may as well be lost.
    """
    await producer.sendOneway(message)


def byRegion(queues: Sequence[MessageQueue], message: Message, key: str) -> MessageQueue:
    """
    A selector: the first queue is for one region, the others are for the rest.
    """
    if key == "north" or len(queues) == 1:
        return queues[0]
    return queues[1 + len(message.body) % (len(queues) - 1)]


@implementer(ISendMessageHook)
class Latencies:
    """
    A hook that records the times of sends.
    """

    name = "latencies"

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self.seconds: list[float] = []
        self.failures = 0

    def beforeSend(self, sending: Sending) -> None:
        """
        Nothing to do before the send.
        """

    def afterSend(self, sending: Sending) -> None:
        """
        Record the time of a send, successful or not.
        """
        self.seconds.append(self._reactor.seconds() - sending.began)
        if sending.error is not None:
            self.failures += 1


def careful(cluster: Cluster, latencies: Latencies) -> Producer:
    """
    A producer with more retries, which avoids slow brokers.
    """
    return Producer(
        cluster,
        "careful",
        timeout=10.0,
        retries=5,
        faults=FaultTable(),
        retryNotStored=True,
        hooks=[latencies],
    )


async def main(reactor: Any, nameServer: str) -> None:
    """
    Send in each of these ways.
    """
    latencies = Latencies(reactor)
    cluster = Cluster(nameServer, reactor)
    async with cluster, careful(cluster, latencies) as producer:
        results = await sendAll(producer, [Message("Letters", b"%d" % each) for each in range(100)])
        print(f"{len(results)} sent to {len({each.messageQueue for each in results})} queues")
        if await sendKept(producer, Message("Letters", b"dear"), []):
            print("one more")
        await sendLeast(producer, Message("Letters", b"a postcard"))
        north = await producer.send(Message("Letters", b"brr"), selector=byRegion, key="north")
        print(f"north is queue {north.messageQueue.queueId}")
    print(f"{len(latencies.seconds)} seen, {latencies.failures} failures")


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
