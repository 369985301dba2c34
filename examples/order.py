# SPDX-License-Identifier: Apache-2.0
"""
Messages in order: the messages of a key go to one queue, and each queue is consumed one
message after the other::

    .venv/bin/python examples/order.py 127.0.0.1:9876
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, Producer, PushConsumer

STEPS = "ordered", "paid", "packed", "sent"


async def send(producer: Producer, orders: int) -> None:
    """
    Send each step of each order.
    """
    for step in STEPS:
        for order in range(orders):
            message = Message("OrderSteps", f"{order} {step}".encode())
            # One key goes to one queue, and waiting for each send keeps the order.
            await producer.send(message, key=order)


class Orders:
    """
    The steps of each order so far.

    @ivar done: fires when all orders are done.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._steps: dict[str, list[str]] = {}
        self.done: Deferred[None] = Deferred()

    async def take(self, message: MessageExt) -> None:
        """
        Record the next step.  While this waits, no other message of the same queue is
        delivered, to this member of the group or to any other.
        """
        order, step = message.body.decode().split()
        steps = self._steps.setdefault(order, [])
        steps.append(step)
        if step == STEPS[-1]:
            print(f"order {order}: {', '.join(steps)}")
            self._count -= 1
        if self._count == 0 and not self.done.called:
            self.done.callback(None)


async def main(reactor: Any, nameServer: str) -> None:
    """
    Send the steps of three orders, and follow them.
    """
    orders = Orders(3)
    async with Cluster(nameServer, reactor) as cluster:
        async with Producer(cluster, "shop") as producer:
            await send(producer, 3)
        consumer = PushConsumer(
            cluster,
            "clerks",
            orders.take,
            orderly=True,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe("OrderSteps")
        async with consumer:
            await orders.done


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
