# SPDX-License-Identifier: Apache-2.0
"""
Every message to every member of a group::

    .venv/bin/python examples/broadcast.py 127.0.0.1:9876
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from txrocket import ConsumeFromWhere, Message, MessageExt, MessageModel
from txrocket.client import Cluster, LocalOffsets, Producer, PushConsumer


class Radio:
    """
    One listener.  Each has its own Cluster, as it would in its own program, because a
    Cluster has one member of a group.
    """

    def __init__(self, name: str, cluster: Cluster, offsets: LocalOffsets | None = None) -> None:
        """
        @param offsets: stores this member's offsets in a file; without it, the member
            starts from the beginning each time.
        """
        self.name = name
        self.over: Deferred[None] = Deferred()
        self.consumer = PushConsumer(
            cluster,
            "radios",
            self.listen,
            messageModel=MessageModel.BROADCASTING,
            offsets=offsets,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        self.consumer.subscribe("Broadcasts")

    def listen(self, message: MessageExt) -> None:
        """
        Receive a message.  If this fails, the message is not delivered again, because each
        member has its own offsets here, and no broker knows them.
        """
        print(f"{self.name}: {message.body.decode()}")
        if message.body == b"good night" and not self.over.called:
            self.over.callback(None)


async def main(reactor: Any, nameServer: str) -> None:
    """
    Broadcast to two radios.
    """
    async with Cluster(nameServer, reactor) as first, Cluster(nameServer, reactor) as second:
        async with Producer(first, "station") as producer:
            queue = None
            for body in b"the news", b"the weather", b"good night":
                # All go to the queue of the first, so that they arrive in order.
                queue = (await producer.send(Message("Broadcasts", body), queue)).messageQueue
        radios = Radio("kitchen", first), Radio("bath", second)
        async with radios[0].consumer, radios[1].consumer:
            await gatherResults([each.over for each in radios])


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
