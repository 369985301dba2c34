# SPDX-License-Identifier: Apache-2.0
"""
An asyncio program.  Twisted's asyncio reactor runs on the program's own event loop, so
nothing needs a thread::

    .venv/bin/python examples/asyncio_program.py 127.0.0.1:9876
"""

import asyncio
import sys
from typing import Any

from twisted.internet import asyncioreactor
from twisted.internet.defer import Deferred

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, Producer, PushConsumer


async def main(reactor: Any, nameServer: str) -> None:
    """
    A coroutine of asyncio: it awaits futures, and C{asFuture} turns a Deferred into one.
    """
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[bytes] = asyncio.Queue(1)

    async def take(message: MessageExt) -> None:
        await asyncio.sleep(0)
        await inbox.put(message.body)

    def listen(message: MessageExt) -> Deferred[None]:
        # A listener that is a coroutine belongs to Twisted, and awaits Deferreds.
        return Deferred.fromFuture(asyncio.ensure_future(take(message)))

    cluster = Cluster(nameServer, reactor)
    producer = Producer(cluster, "asyncio")
    consumer = PushConsumer(
        cluster,
        "asyncio",
        listen,
        consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe("Numbers")
    for each in producer, consumer:
        each.setServiceParent(cluster)
    cluster.startService()

    sends = [producer.send(Message("Numbers", b"%d" % number)) for number in range(10)]
    results = await asyncio.gather(*[each.asFuture(loop) for each in sends])
    print(f"sent {len(results)}")
    received = [await asyncio.wait_for(inbox.get(), 30) for _ in sends]
    print(f"received {b' '.join(sorted(received)).decode()}")

    await cluster.stopService().asFuture(loop)


def run(nameServer: str) -> None:
    """
    Install the reactor, before anything imports it, and run the program.
    """
    loop = asyncio.new_event_loop()
    asyncioreactor.install(loop)
    from twisted.internet.task import react

    react(lambda reactor: Deferred.fromFuture(loop.create_task(main(reactor, nameServer))))


if __name__ == "__main__":
    run(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
