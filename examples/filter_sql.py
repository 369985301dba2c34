# SPDX-License-Identifier: Apache-2.0
"""
Only messages with certain properties, selected by SQL92.  The broker leaves the others out,
if its settings allow it::

    .venv/bin/twistd --nodaemon rocket --set enablePropertyFilter=true
    .venv/bin/python examples/filter_sql.py 127.0.0.1:9876
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, Producer, PushConsumer
from txrocket.errors import SubscriptionParseFailed

FLATS = [
    ("a room with a view", {"city": "Florence", "rent": "500", "rooms": "1"}),
    ("a house with a garden", {"city": "Florence", "rent": "2500", "rooms": "5"}),
    ("two rooms by the river", {"city": "Pisa", "rent": "700", "rooms": "2"}),
    ("a castle", {"city": "Siena", "rent": "on request", "rooms": "40"}),
]

# Properties are text.  A property that is compared with a number is parsed as one; if that
# fails, the message is left out.
WANTED = "rent <= 1000 AND (city IN ('Florence', 'Siena') OR rooms BETWEEN 2 AND 3)"


async def consume(cluster: Cluster, expression: str, count: int) -> None:
    """
    Read the messages that an expression selects.
    """
    read: Deferred[None] = Deferred()
    left = count

    def listen(message: MessageExt) -> None:
        nonlocal left
        print(f"{message.properties['city']}: {message.body.decode()}")
        left -= 1
        if not left:
            read.callback(None)

    consumer = PushConsumer(
        cluster,
        "tenants",
        listen,
        consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe("Flats", expression, expressionType="SQL92")
    async with consumer:
        await read


async def main(reactor: Any, nameServer: str) -> None:
    """
    Offer flats, and read some of the offers.
    """
    async with Cluster(nameServer, reactor) as cluster:
        async with Producer(cluster, "landlords") as producer:
            for text, properties in FLATS:
                await producer.send(Message("Flats", text.encode(), properties=properties))
        try:
            await consume(cluster, "rent <= ", 1)
        except SubscriptionParseFailed as error:
            print(error.remark)
        await consume(cluster, WANTED, 2)


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
