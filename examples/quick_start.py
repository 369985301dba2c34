# SPDX-License-Identifier: Apache-2.0
"""
Send a message through the servers that C{make run} starts, and receive it::

    .venv/bin/python examples/quick_start.py 127.0.0.1:9876
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, Producer, PushConsumer


async def main(reactor: Any, nameServer: str) -> None:
    """
    Send a greeting, and wait until it is received.
    """
    heard: Deferred[None] = Deferred()

    def listen(message: MessageExt) -> None:
        print(f"received {message.body!r}, tagged {message.tags}")
        if not heard.called:
            heard.callback(None)

    async with Cluster(nameServer, reactor) as cluster:
        async with Producer(cluster, "greeters") as producer:
            result = await producer.send(Message("Greetings", b"hello", tags="english"))
            print(f"sent: {result.sendStatus.name}")

        consumer = PushConsumer(
            cluster,
            "listeners",
            listen,
            # A new group also receives the messages that were sent before it started.
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe("Greetings", "english || german")
        async with consumer:
            await heard


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
