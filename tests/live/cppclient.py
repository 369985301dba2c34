# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's C++ client, as the Python package C{rocketmq} has it, in a process of its
own: it starts threads that do not know of ours, and ends the process when it
fails::

    python cppclient.py ask                                 can it be loaded?
    python cppclient.py send NAMESERVER TOPIC COUNT         one message each
    python cppclient.py batch NAMESERVER TOPIC COUNT        ten at a time
    python cppclient.py pull NAMESERVER TOPIC COUNT
    python cppclient.py push NAMESERVER TOPIC COUNT
    python cppclient.py orderly NAMESERVER TOPIC COUNT

It prints each sent or received message as a JSON array: body, tag, key, property.  A consumer
waits until it has as many messages as were sent, and then a little longer for messages
that should not arrive.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from typing import Any

# The package has no types, and need not be installed.
client: Any = importlib.import_module("rocketmq.client")

# The seconds to wait for messages that should not arrive.
LONGER = 1.0


def show(body: bytes, *others: bytes | None) -> None:
    """
    Print a message.
    """
    print(json.dumps([body.decode(), *[(each or b"").decode() for each in others]]), flush=True)


def message(topic: str, number: int) -> tuple[Any, list[bytes]]:
    """
    A message to send, and what is to come of it.
    """
    parts = [b"body %d" % number, b"tag%d" % (number % 3), b"key%d" % number, b"%d" % number]
    result = client.Message(topic)
    result.set_body(parts[0])
    result.set_tags(parts[1])
    result.set_keys(parts[2])
    result.set_property("number", parts[3])
    return result, parts


def send(address: str, topic: str, count: int, atATime: int = 1) -> None:
    """
    Send messages.
    """
    producer = client.Producer("cpp-producers")
    producer.set_namesrv_addr(address)
    producer.start()
    for start in range(0, count, atATime):
        messages = [message(topic, number) for number in range(start, start + atATime)]
        if atATime == 1:
            result = producer.send_sync(messages[0][0])
        else:
            result = producer.send_batch([each for each, _ in messages])
        if result.status != client.SendStatus.OK:
            raise SystemExit(f"not sent: {result}")
        for _, parts in messages:
            show(*parts)
    producer.shutdown()


def got(each: Any) -> None:
    """
    Print a message that was got.
    """
    show(each.body, each.tags, each.keys, each.get_property("number"))


def pull(address: str, topic: str, count: int) -> None:
    """
    Get messages by pulling until there are no more.
    """
    consumer = client.PullConsumer("cpp-pullers")
    consumer.set_namesrv_addr(address)
    consumer.start()
    for each in consumer.pull(topic):
        got(each)
    consumer.shutdown()


def push(address: str, topic: str, count: int, orderly: bool = False) -> None:
    """
    Have messages pushed.
    """
    lock = threading.Lock()
    enough = threading.Event()
    pushed = 0

    def take(each: Any) -> None:
        nonlocal pushed
        with lock:
            got(each)
            pushed += 1
            if pushed == count:
                enough.set()

    consumer = client.PushConsumer("cpp-orderly" if orderly else "cpp-pushed", orderly)
    consumer.set_namesrv_addr(address)
    consumer.subscribe(topic, take)
    consumer.start()
    enough.wait()
    time.sleep(LONGER)
    consumer.shutdown()


def main(what: str, address: str = "", topic: str = "", count: str = "0") -> None:
    """
    Do what the command line says.
    """
    number = int(count)
    match what:
        case "send":
            send(address, topic, number)
        case "batch":
            send(address, topic, number, 10)
        case "pull":
            pull(address, topic, number)
        case "push":
            push(address, topic, number)
        case "orderly":
            push(address, topic, number, orderly=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
