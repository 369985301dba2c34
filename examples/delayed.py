# SPDX-License-Identifier: Apache-2.0
"""
A message that is delivered later::

    .venv/bin/python examples/delayed.py 127.0.0.1:9876
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, Producer, PushConsumer

# A level of the broker's setting messageDelayLevel, which begins 1s 5s 10s 30s 1m.
ONE_SECOND = 1


async def main(reactor: Any, nameServer: str) -> None:
    """
    Set an alarm, and wait for it.
    """
    rung: Deferred[None] = Deferred()

    def ring(message: MessageExt) -> None:
        print(message.body.decode())
        if not rung.called:
            rung.callback(None)

    async with Cluster(nameServer, reactor) as cluster:
        async with Producer(cluster, "alarms") as producer:
            alarm = Message("Alarms", b"wake up", delayTimeLevel=ONE_SECOND)
            await producer.send(alarm)
            print("the alarm is set")
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
