# SPDX-License-Identifier: Apache-2.0
"""
Follow a message by its traces::

    .venv/bin/python examples/trace.py 127.0.0.1:9876
"""

import sys
from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, MessageTrace, Producer, PushConsumer, TraceReader


async def sendTraced(cluster: Cluster) -> str:
    """
    Send a message with a trace.
    """
    async with Producer(cluster, "writers", trace=True) as producer:
        result = await producer.send(Message("Letters", b"dear reader", keys="letter-1"))
    return result.msgId


async def consumeTraced(cluster: Cluster) -> None:
    """
    Consume it, with a trace.
    """
    read: Deferred[None] = Deferred()

    def listen(message: MessageExt) -> None:
        if not read.called:
            read.callback(None)

    consumer = PushConsumer(
        cluster,
        "readers",
        listen,
        trace=True,
        consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe("Letters")
    async with consumer:
        await read


def story(trace: MessageTrace) -> Iterator[str]:
    """
    The traces of a message, in words.
    """
    for sent in trace.sent:
        outcome = "sent" if sent.success else "sent, but not safe"
        yield f"{outcome} by {sent.group} at {sent.host}, {sent.cost * 1000:.0f} ms"
    for group, calls in trace.consumed.items():
        for call in calls:
            outcome = "in progress" if call.status is None else call.status.name
            yield f"given to {group} at {call.host}, time {call.retryTimes}: {outcome}"


async def look(reactor: Any, cluster: Cluster, msgId: str) -> MessageTrace:
    """
    Read the traces of a message, once a group's exist: the broker needs a moment to index
    them.
    """
    reader = TraceReader(cluster)
    while True:
        trace = await reader.byId(msgId)
        if trace is not None and trace.sent and trace.consumed:
            return trace
        await deferLater(reactor, 0.1)


async def main(reactor: Any, nameServer: str) -> None:
    """
    Send, consume and look.
    """
    async with Cluster(nameServer, reactor) as cluster:
        msgId = await sendTraced(cluster)
        await consumeTraced(cluster)
        for line in story(await look(reactor, cluster, msgId)):
            print(line)
        for trace in await TraceReader(cluster).byKey("letter-1"):
            print(f"letter-1 is {'the same' if trace.msgId == msgId else 'another'}")


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
