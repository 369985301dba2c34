# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's C++ client, from the Python package C{rocketmq}, sending and consuming like
L{benchmarks.clients}, in a process of its own::

    python -m benchmarks.cpp send NAMESERVER TOPIC REQUESTS IN_FLIGHT...
    python -m benchmarks.cpp consume NAMESERVER TOPIC COUNT GROUP

It prints lines of a L{Meter}; the CPU time is that of all threads.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.meter import WARM_UP, Meter

BODY = b"x" * 1024


class References:
    """
    Replaces the package's list of callbacks of sends.  The package searches the list for
    each message and never removes callbacks that are not called, so that each message
    would take longer than the one before.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Any] = {}

    def append(self, callback: Any) -> None:
        """
        Keep a callback.
        """
        self._kept[id(callback)] = callback

    def remove(self, callback: Any) -> None:
        """
        A callback was called.
        """
        del self._kept[id(callback)]


def send(client: Any, address: str, topic: str, requests: int, inFlight: list[int]) -> None:
    """
    Send messages: with the given numbers in flight, one after the other, and oneway.
    """
    producer = client.Producer("bench_cpp")
    producer.set_namesrv_addr(address)
    producer._callback_refs = References()
    producer.start()

    def message() -> Any:
        message = client.Message(topic)
        message.set_tags("TagA")
        message.set_body(BODY)
        return message

    def sendAll(count: int, most: int) -> None:
        room = threading.Semaphore(most)

        def sent(result: Any) -> None:
            room.release()

        def failed(error: Exception) -> None:
            raise SystemExit(f"not sent: {error}")

        for _ in range(count):
            room.acquire()
            producer.send_async(message(), sent, failed)
        for _ in range(most):
            room.acquire()

    def sendEach() -> None:
        for _ in range(requests):
            producer.send_sync(message())

    def sendOneway() -> None:
        for _ in range(requests):
            producer.send_oneway(message())
        # The answer to this message shows that the broker has all of them.
        producer.send_sync(message())

    def measure(name: str, send: Callable[[], None]) -> None:
        meter = Meter()
        meter.begin()
        send()
        meter.end(requests)
        meter.tell(name)

    sendAll(WARM_UP, 16)
    for most in inFlight:
        measure(f"send_{most}", partial(sendAll, requests, most))
    measure("awaited", sendEach)
    measure("oneway", sendOneway)
    producer.shutdown()


def consume(client: Any, address: str, topic: str, count: int, group: str) -> None:
    """
    Consume messages.
    """
    lock = threading.Lock()
    done = threading.Event()
    consumed = 0
    meter = Meter()

    def take(message: Any) -> None:
        nonlocal consumed
        with lock:
            consumed += 1
            if consumed == WARM_UP:
                meter.begin()
            elif consumed == WARM_UP + count:
                meter.end(count)
                done.set()

    consumer = client.PushConsumer(group)
    consumer.set_namesrv_addr(address)
    consumer.subscribe(topic, take)
    consumer.start()
    done.wait()
    consumer.shutdown()
    meter.tell("consumed")


def main(what: str, address: str, topic: str, count: str, *others: str) -> None:
    """
    Run the command line.
    """
    # The package has no types, and need not be installed.
    client = importlib.import_module("rocketmq.client")
    if what == "send":
        send(client, address, topic, int(count), [int(each) for each in others])
    else:
        consume(client, address, topic, int(count), others[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
