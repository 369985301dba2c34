# SPDX-License-Identifier: Apache-2.0
"""
Messages that are delivered later: by a level, after a while, at a time::

    .venv/bin/python examples/delayed.py 127.0.0.1:9876

Brokers of RocketMQ 4.x know levels only, and deliver the others at once.
"""

import sys
import time
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, Producer, PushConsumer

# A level of the broker's setting messageDelayLevel, which begins 1s 5s 10s 30s 1m.
ONE_SECOND = 1


def alarms(now: int) -> list[Message]:
    """
    @param now: the time in milliseconds.
    """
    return [
        Message("Alarms", b"in a second and a half", delayTimeMs=1500),
        Message("Alarms", b"by level 1", delayTimeLevel=ONE_SECOND),
        Message("Alarms", b"half a second after now", deliverTimeMs=now + 500),
    ]


async def main(reactor: Any, nameServer: str) -> None:
    """
    Set alarms, and wait for them.
    """
    expected = alarms(int(time.time() * 1000))
    rung: Deferred[None] = Deferred()
    heard: set[str] = set()

    def ring(message: MessageExt) -> None:
        print(message.body.decode())
        # A message may arrive twice.
        heard.add(message.msgId)
        if len(heard) == len(expected) and not rung.called:
            rung.callback(None)

    async with Cluster(nameServer, reactor) as cluster:
        async with Producer(cluster, "alarms") as producer:
            for alarm in expected:
                await producer.send(alarm)
            print("the alarms are set")
        consumer = PushConsumer(
            cluster,
            "sleepers",
            ring,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe("Alarms")
        async with consumer:
            await rung


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
