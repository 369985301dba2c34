# SPDX-License-Identifier: Apache-2.0
"""
What clients cost, with bodies of 1 KiB, over loopback, on one connection:

  - the echo's client side: frames that are built already are written, one write per
    read, and those that come back are cut and counted.  The same with 1, 64 and 512
    in flight;
  - sending with a L{Producer<txrocket.client.producer.Producer>}: the next message is
    sent when one is answered;
  - consuming with a L{PushConsumer<txrocket.client.pushconsumer.PushConsumer>} what a
    topic holds, with a plain listener and one that is a coroutine;
  - both with RocketMQ's C++ client, as the package C{rocketmq} has it for Python, if it
    is installed.

Each client has a process of its own, whose CPU time counts.  All talk to one broker
but the echo's, which talks to an echo.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs

from benchmarks.load import drive
from benchmarks.meter import WARM_UP, Meter
from benchmarks.remoting import BODY, ECHO, Server, sendRequest
from txrocket.surroundings import freePort

TOPIC = "bench_topic"
IN_FLIGHT = 1, 64, 512

# RocketMQ's C++ client for Python.
BINDING = "rocketmq"

# How many times the cost of the echo's client side a send may cost.
AIM = 5


@attrs.frozen
class Size:
    """
    How much is done.
    """

    rounds: int = 3
    requests: int = 10_000
    consumed: int = 40_000


# --- the processes under test ---------------------------------------------


def echo(port: int, requests: int, inFlight: list[int]) -> None:
    """
    The bare minimum of a client.
    """
    from twisted.internet import reactor as anyReactor
    from twisted.internet.defer import Deferred
    from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
    from twisted.internet.protocol import Protocol
    from twisted.internet.task import react

    from txrocket.protocol.frames import FrameBuffer

    frame = sendRequest().encode()

    class Echoed(Protocol):
        def connectionMade(self) -> None:
            self.frames = FrameBuffer(lambda data, start, stop: data[start - 4 : stop])

        def send(self, count: int, most: int) -> Deferred[None]:
            self.toSend, self.missing = count - most, count
            self.done: Deferred[None] = Deferred()
            self.write(most)
            return self.done

        def write(self, count: int) -> None:
            assert self.transport is not None
            self.transport.write(frame * count)

        def dataReceived(self, data: bytes) -> None:
            came = len(self.frames.feed(data))
            self.missing -= came
            if count := min(came, self.toSend):
                self.toSend -= count
                self.write(count)
            if not self.missing:
                self.done.callback(None)

    async def main(reactor: Any) -> None:
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port)
        protocol = await connectProtocol(endpoint, Echoed())
        await protocol.send(WARM_UP, 16)
        for most in inFlight:
            meter = Meter()
            await protocol.send(requests, most)
            meter.tell(requests)

    react(lambda reactor: Deferred.fromCoroutine(main(reactor)), [], anyReactor)


def send(address: str, topic: str, requests: int, inFlight: list[int]) -> None:
    """
    Send with a producer.
    """
    from twisted.internet import reactor as anyReactor
    from twisted.internet.defer import Deferred
    from twisted.internet.task import react

    from txrocket import Message
    from txrocket.client import Cluster, Producer, SendResult

    def flight(producer: Producer, count: int, most: int) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        missing = count

        def sent(result: SendResult) -> None:
            nonlocal missing
            missing -= 1
            if missing >= most:
                one()
            elif missing == 0:
                done.callback(None)

        def one() -> None:
            producer.send(Message(topic, BODY, "TagA")).addCallbacks(sent, done.errback)

        for _ in range(most):
            one()
        return done

    async def main(reactor: Any) -> None:
        cluster = Cluster(address, reactor)
        async with cluster, Producer(cluster, "bench_producer") as producer:
            await flight(producer, WARM_UP, 16)
            for most in inFlight:
                meter = Meter()
                await flight(producer, requests, most)
                meter.tell(requests)

    react(lambda reactor: Deferred.fromCoroutine(main(reactor)), [], anyReactor)


def consume(address: str, topic: str, count: int, group: str, kind: str) -> None:
    """
    Consume with a push consumer.
    """
    from twisted.internet import reactor as anyReactor
    from twisted.internet.defer import Deferred
    from twisted.internet.task import react

    from txrocket import ConsumeFromWhere, MessageExt
    from txrocket.client import Cluster, PushConsumer

    consumed = itertools.count(1)
    done: Deferred[None] = Deferred()
    meters: list[Meter] = []

    def plain(message: MessageExt) -> None:
        number = next(consumed)
        if number == WARM_UP:
            meters.append(Meter())
        elif number == WARM_UP + count:
            meters[0].tell(count)
            done.callback(None)

    async def coroutine(message: MessageExt) -> None:
        plain(message)

    async def main(reactor: Any) -> None:
        cluster = Cluster(address, reactor)
        consumer = PushConsumer(
            cluster,
            group,
            plain if kind == "plain" else coroutine,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe(topic)
        async with cluster, consumer:
            await done

    react(lambda reactor: Deferred.fromCoroutine(main(reactor)), [], anyReactor)


# --- the measurements ------------------------------------------------------


@contextmanager
def servers() -> Iterator[tuple[str, int, str]]:
    """
    A name server and a broker in one process, with an empty folder.

    @return: the name server's address, the broker's port, and the folder.
    """
    nameServer, broker = freePort(), freePort(2)
    program = [os.path.join(os.path.dirname(sys.executable), "twistd"), "--nodaemon"]
    program += ["--pidfile=", "rocket", "--namesrvPort", str(nameServer)]
    program += [f"--set=listenPort={broker}"]
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        process = subprocess.Popen([*program, "--data", folder], stdout=subprocess.DEVNULL)
        try:
            for port in nameServer, broker:
                while not _accepts(port):
                    if process.poll() is not None:
                        raise AssertionError("the servers have ended")
                    time.sleep(0.01)
            yield f"127.0.0.1:{nameServer}", broker, folder
        finally:
            process.terminate()
            process.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def _fill(broker: int, count: int) -> None:
    """
    Send messages to all four queues of the topic.
    """
    requests = []
    for number in range(4000):
        request = sendRequest(number)
        request.extFields["e"] = str(number % 4)
        requests.append(request.encode())
    drive(broker, requests, count, 4, 64)


def _ran(home: str, module: str, *arguments: object) -> list[tuple[float, float]]:
    """
    What a process under test printed: for each load, CPU microseconds of a message,
    and messages of a second.

    @param home: its home folder; the C++ client writes its log there.
    """
    ran = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "HOME": home},
    )
    return [(float(cpu), float(rate)) for cpu, rate in map(str.split, ran.stdout.splitlines())]


def _measure(size: Size) -> Iterator[dict[str, list[tuple[float, float]]]]:
    """
    All cases in turn, round by round: each case's figures, by its name.
    """
    cpp = importlib.util.find_spec(BINDING) is not None
    bare = Server(ECHO)
    try:
        with servers() as (address, broker, folder):
            _fill(broker, size.consumed + 2 * WARM_UP)
            ran = partial(_ran, os.path.abspath(folder))
            for number in range(size.rounds):
                sent = address, "bench_sent", size.requests, *IN_FLIGHT
                held = address, TOPIC, size.consumed
                found = {
                    "echo": ran("client", "echo", bare.port, size.requests, *IN_FLIGHT),
                    "send": ran("client", "send", *sent),
                }
                for kind in "plain", "coroutine":
                    found[kind] = ran("client", "consume", *held, f"{kind}_{number}", kind)
                if cpp:
                    found["C++ send"] = ran("cpp", "send", *sent)
                    found["C++ consume"] = ran("cpp", "consume", *held, f"cpp_{number}")
                yield found
    finally:
        bare.stop()


def _medians(rounds: list[list[tuple[float, float]]]) -> list[tuple[float, float]]:
    return [
        (statistics.median(cpu for cpu, _ in each), statistics.median(rate for _, rate in each))
        for each in zip(*rounds, strict=True)
    ]


def main(size: Size | None = None) -> None:
    """
    Measure, and print the medians.
    """
    size = size or Size()
    rounds = list(_measure(size))
    found = {name: _medians([each[name] for each in rounds]) for name in rounds[0]}
    title = f"client, CPU us per message, median of {size.rounds}"
    print(f"{title:40} {'us':>9} {'ratio':>6} {'aim':>5} {'a second':>12}")
    for index, most in enumerate(IN_FLIGHT):
        base = found["echo"][index][0]
        for name, title, aim in (
            ("echo", "a  echo's client side", "1"),
            ("send", "b  send", str(AIM)),
            ("C++ send", "c  send, C++ binding", ""),
        ):
            if name in found:
                cpu, rate = found[name][index]
                shown = f"{title}, {most} in flight"
                print(f"{shown:40} {cpu:9.2f} {cpu / base:6.2f} {aim:>5} {rate:12,.0f}")
    base = found["echo"][1][0]
    for name, title in (
        ("plain", "d  consume, plain listener"),
        ("coroutine", "e  consume, async def listener"),
        ("C++ consume", "f  consume, C++ binding"),
    ):
        if name in found:
            cpu, rate = found[name][0]
            print(f"{title:40} {cpu:9.2f} {cpu / base:6.2f} {'':5} {rate:12,.0f}")
    if "C++ send" not in found:
        print(
            f"the package {BINDING} is not installed (make test does that): nothing to compare with"
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["echo", port, requests, *inFlight]:
            echo(int(port), int(requests), [int(each) for each in inFlight])
        case ["send", address, topic, requests, *inFlight]:
            send(address, topic, int(requests), [int(each) for each in inFlight])
        case ["consume", address, topic, count, group, kind]:
            consume(address, topic, int(count), group, kind)
        case _:
            main()
