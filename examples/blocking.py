# SPDX-License-Identifier: Apache-2.0
"""
Send and pull without a reactor, as a script does::

    .venv/bin/python examples/blocking.py 127.0.0.1:9876
"""

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from txrocket.blocking import Client, Settings
from txrocket.client.sansio.results import PullStatus
from txrocket.errors import SendFailed
from txrocket.message import Message, MessageExt
from txrocket.model import MessageQueue


def send(client: Client, topic: str, lines: Iterable[str]) -> None:
    """
    Send each line; all lines of a customer go to one queue.
    """
    for line in lines:
        customer = line.split()[0]
        message = Message(topic, line.encode(), tags="order", keys=customer)
        try:
            result = client.send(message, key=customer)
        except SendFailed as error:
            # If the route or the connection failed, nothing was sent; else it may have been.
            print(f"{line}: {error.phase}, {error.error}", file=sys.stderr)
            raise
        print(f"{line}: {result.sendStatus.name}")


def messages(client: Client, queue: MessageQueue, offset: int) -> Iterator[MessageExt]:
    """
    The messages of a queue from an offset on.
    """
    while True:
        result = client.pull(queue, offset, expression="order")
        yield from result.messages
        if result.pullStatus is PullStatus.NO_NEW_MSG:
            return
        offset = result.nextBeginOffset


def unread(client: Client, group: str, topic: str) -> Iterator[MessageExt]:
    """
    The messages that a group has not consumed yet.  A message counts as consumed when the
    caller asks for the next one.
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
    The number of messages in a queue; it runs in its own process.
    """
    with Client(settings) as client:
        return sum(1 for _ in messages(client, queue, client.minOffset(queue)))


def countAll(settings: Settings, topic: str) -> int:
    """
    The number of messages in a topic, counted by several processes: settings are pickled.
    """
    with Client(settings) as client:
        queues = client.queues(topic)
    with ProcessPoolExecutor(2) as workers:
        return sum(workers.map(count, [settings] * len(queues), queues))


def main(nameServer: str) -> None:
    """
    Send three orders, and read the new messages.
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
