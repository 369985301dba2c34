# SPDX-License-Identifier: Apache-2.0
"""
Ask by a message, and wait for the reply::

    .venv/bin/python examples/request_reply.py 127.0.0.1:9876
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, Producer, PushConsumer
from txrocket.errors import RequestTimedOut

# The seconds to wait for a reply.
PATIENCE = 10.0


def calculator(cluster: Cluster, producer: Producer) -> PushConsumer:
    """
    A consumer that replies.
    """

    async def answer(message: MessageExt) -> None:
        first, second = map(int, message.body.split(b"+"))
        await producer.reply(message, b"%d" % (first + second))

    consumer = PushConsumer(
        cluster,
        "calculators",
        answer,
        # Otherwise requests from before its start would not be answered.
        consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe("Sums")
    return consumer


async def ask(producer: Producer, question: bytes) -> bytes | None:
    """
    The reply to a question, if it arrives in time.
    """
    try:
        reply = await producer.request(Message("Sums", question), timeout=PATIENCE)
    except RequestTimedOut:
        return None
    return reply.body


async def main(reactor: Any, nameServer: str) -> None:
    """
    Ask a calculator, which is in the same program here.
    """
    cluster = Cluster(nameServer, reactor)
    async with cluster, Producer(cluster, "pupils") as producer, calculator(cluster, producer):
        reply = await ask(producer, b"2+3")
        print(f"2+3 is {reply.decode() if reply else 'unknown'}")


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
