# SPDX-License-Identifier: Apache-2.0
"""
What happens to each order, in order::

    .venv/bin/python examples/order.py 127.0.0.1:9876
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, ConsumeLater, Producer, PushConsumer

STEPS = b"created", b"paid", b"shipped"


async def send(producer: Producer, orders: list[str]) -> None:
    """
    Send what happens.  All of an order goes to one queue, and one after the other.
    """
    for step in STEPS:
        for order in orders:
            await producer.send(Message("Orders", step, keys=order), key=order)


class Clerk:
    """
    Follows orders.

    @ivar seen: what has happened to each, by its number.
    @ivar all: fires once so many are shipped.
    """

    def __init__(self, count: int) -> None:
        self._left = count
        self.seen: dict[str, list[bytes]] = {}
        self.all: Deferred[None] = Deferred()

    def listen(self, message: MessageExt) -> ConsumeLater | None:
        """
        The next thing that has happened to an order.
        """
        (order,) = message.keys
        if message.body == b"paid" and not message.reconsumeTimes:
            # The queue waits: nothing is shipped before this is dealt with.
            return ConsumeLater(seconds=0.1)
        self.seen.setdefault(order, []).append(message.body)
        print(f"order {order} is {message.body.decode()}")
        if message.body == b"shipped":
            self._left -= 1
            if not self._left:
                self.all.callback(None)
        return None


def follow(cluster: Cluster, clerk: Clerk) -> PushConsumer:
    """
    A consumer that takes the messages of each queue one after the other.
    """
    consumer = PushConsumer(
        cluster,
        "clerks",
        clerk.listen,
        orderly=True,
        consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe("Orders")
    return consumer


async def main(reactor: Any, nameServer: str) -> None:
    """
    Send three orders, and follow them.
    """
    clerk = Clerk(3)
    async with Cluster(nameServer, reactor) as cluster:
        async with Producer(cluster, "shop") as producer:
            await send(producer, ["1", "2", "3"])
        async with follow(cluster, clerk):
            await clerk.all


if __name__ == "__main__":
    address = (*sys.argv[1:], "127.0.0.1:9876")[0]
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
