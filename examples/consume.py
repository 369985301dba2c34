# SPDX-License-Identifier: Apache-2.0
"""
Deliver the messages of a topic to a listener, until one says goodbye::

    .venv/bin/python examples/consume.py 127.0.0.1:9876 Greetings
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react
from zope.interface import implementer

from txrocket import ConsumeFromWhere, MessageExt
from txrocket.client import (
    Cluster,
    ConsumeLater,
    Consuming,
    IConsumeMessageHook,
    PushConsumer,
)


async def consume(cluster: Cluster, topic: str) -> None:
    """
    Consume the messages with some tags, also the ones that exist already.
    """
    goodbye: Deferred[None] = Deferred()

    async def greet(message: MessageExt) -> None:
        print(f"{message.tags}: {message.body!r}")
        if message.body == b"goodbye" and not goodbye.called:
            goodbye.callback(None)

    consumer = PushConsumer(
        cluster, "greeters", greet, consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe(topic, "english || german")
    async with consumer:
        await goodbye


def deliver(message: MessageExt) -> ConsumeLater | None:
    """
    A listener that has failures to retry, and failures to give up.
    """
    if message.tags not in ("english", "german"):
        print(f"nobody understands {message.body!r}")
        return ConsumeLater(delayLevel=-1)
    if message.reconsumeTimes == 0:
        print(f"nobody is at home for {message.body!r}")
        return ConsumeLater(delayLevel=2)
    print(f"{message.body!r} is delivered")
    return None


def archiver(path: Path) -> Callable[[list[MessageExt]], ConsumeLater | None]:
    """
    A listener that writes to a file, which blocks, many messages at a time.
    """

    def archive(messages: list[MessageExt]) -> ConsumeLater | None:
        with path.open("ab") as file:
            for index, message in enumerate(messages):
                try:
                    file.write(message.body + b"\n")
                except OSError:
                    return ConsumeLater(done=index)
        return None

    return archive


def archiving(cluster: Cluster, topic: str, path: Path) -> PushConsumer:
    """
    A consumer that calls such a listener in threads, no two at a time.
    """
    consumer = PushConsumer(
        cluster,
        "archive",
        archiver(path),
        blocking=True,
        batch=100,
        concurrency=1,
        consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(topic)
    return consumer


@implementer(IConsumeMessageHook)
class Slowest:
    """
    A hook that remembers the slowest call.
    """

    name = "slowest"

    def __init__(self) -> None:
        self.seconds = 0.0
        self.call: Consuming | None = None

    def beforeConsume(self, consuming: Consuming) -> None:
        """
        Nothing to do before the call.
        """

    def afterConsume(self, consuming: Consuming) -> None:
        """
        Remember the call if it is the slowest.
        """
        assert consuming.ended is not None
        seconds = consuming.ended - consuming.began
        if seconds >= self.seconds:
            self.seconds, self.call = seconds, consuming


async def main(reactor: Any, nameServer: str, topic: str) -> None:
    """
    Consume until a message says goodbye.
    """
    async with Cluster(nameServer, reactor) as cluster:
        await consume(cluster, topic)


if __name__ == "__main__":
    address, name = (*sys.argv[1:], "127.0.0.1:9876", "Greetings")[:2]
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address, name)))
