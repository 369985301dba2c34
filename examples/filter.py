# SPDX-License-Identifier: Apache-2.0
"""
Only messages of some tags.  The broker leaves the others out::

    .venv/bin/python examples/filter.py 127.0.0.1:9876
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, Producer, PushConsumer

NEWS = {"sports": b"a goal", "weather": b"rain", "politics": b"a vote", "science": b"a comet"}


async def main(reactor: Any, nameServer: str) -> None:
    """
    Send news of all kinds, and read some of them.
    """
    wanted = {"weather", "science"}
    read: Deferred[None] = Deferred()

    def listen(message: MessageExt) -> None:
        print(f"{message.tags}: {message.body.decode()}")
        wanted.discard(message.tags or "")
        if not wanted and not read.called:
            read.callback(None)

    async with Cluster(nameServer, reactor) as cluster:
        async with Producer(cluster, "journalists") as producer:
            for tags, body in NEWS.items():
                await producer.send(Message("News", body, tags))
        consumer = PushConsumer(
            cluster,
            "readers",
            listen,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        # A group has one expression for a topic; all members must use the same.
        consumer.subscribe("News", "weather || science")
        async with consumer:
            await read


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
