# SPDX-License-Identifier: Apache-2.0
"""
Send and pull without a reactor, as a script does::

    .venv/bin/python examples/blocking.py 127.0.0.1:9876
"""

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from txrocket.blocking import Client, Settings
from txrocket.client.results import PullStatus
from txrocket.errors import SendFailed
from txrocket.message import Message, MessageExt
from txrocket.model import MessageQueue


def send(client: Client, topic: str, lines: Iterable[str]) -> None:
    """
    Send each line, all of one customer to one queue.
    """
    for line in lines:
        customer = line.split()[0]
        message = Message(topic, line.encode(), tags="order", keys=customer)
        try:
            result = client.send(message, key=customer)
        except SendFailed as error:
            # After "route" and "connect" nothing was sent; else it may have been.
            print(f"{line}: {error.phase}, {error.error}", file=sys.stderr)
            raise
        print(f"{line}: {result.sendStatus.name}")


def messages(client: Client, queue: MessageQueue, offset: int) -> Iterator[MessageExt]:
    """
    What a queue has from an offset on.
    """
    while True:
        result = client.pull(queue, offset, expression="order")
        yield from result.messages
        if result.pullStatus is PullStatus.NO_NEW_MSG:
            return
        offset = result.nextBeginOffset


def unread(client: Client, group: str, topic: str) -> Iterator[MessageExt]:
    """
    What a group has not had yet.  A message counts as had when the next one is asked
    for.
    """
    for queue in client.queues(topic):
        offset = client.offset(group, queue)
        if offset is None:
            offset = client.minOffset(queue)
        for message in messages(client, queue, offset):
            yield message
            client.commit(group, queue, message.queueOffset + 1)


def count(settings: Settings, queue: MessageQueue) -> int:
    """
    How many messages a queue has; for a process of its own.
    """
    with Client(settings) as client:
        return sum(1 for _ in messages(client, queue, client.minOffset(queue)))


def countAll(settings: Settings, topic: str) -> int:
    """
    The same for a topic, by several processes: settings can be pickled.
    """
    with Client(settings) as client:
        queues = client.queues(topic)
    with ProcessPoolExecutor(2) as workers:
        return sum(workers.map(count, [settings] * len(queues), queues))


def main(nameServer: str) -> None:
    """
    Send three orders, and read what is new.
    """
    settings = Settings(nameServer, timeout=5.0)
    with Client(settings) as client:
        client.createTopic("Orders", 2)
        send(client, "Orders", ["ann tea", "bob coffee", "ann cake"])
        for message in unread(client, "billing", "Orders"):
            print(f"{message.body.decode()}, stored at {message.storeTimestamp}")
    print(countAll(settings, "Orders"), "orders in all")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
