# SPDX-License-Identifier: Apache-2.0
"""
Our clients, and the bare minimum of one, in a process of their own::

    python -m benchmarks.clients send NAMESERVER TOPIC ECHO REQUESTS IN_FLIGHT...
    python -m benchmarks.clients consume NAMESERVER TOPIC ECHO COUNT KIND GROUP

C{ECHO} is the port of an echo.  With it the same process measures the echo's client
side: frames that are built already are written, one write per read, and those that
come back are cut and counted.  Both take turns, so that whatever disturbs one
disturbs the other.  Each line that is printed is that of a L{Meter}.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as anyReactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater, react

from benchmarks.meter import WARM_UP, Meter
from benchmarks.remoting import BODY, sendRequest
from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, LitePullConsumer, Producer, PushConsumer, SendResult
from txrocket.protocol.frames import FrameBuffer

# How often the echo and what is compared with it take turns.
_TURNS = 5

# How many oneway messages are sent in a turn of the reactor.
_BURST = 64

# What a consumer is compared with.
_CONSUMING = 64


# --- the echo's client side -----------------------------------------------


class Echoed(Protocol):
    """
    The bare minimum of a client.
    """

    frame = sendRequest().encode()

    def connectionMade(self) -> None:
        """
        Get ready.
        """
        self.frames = FrameBuffer()

    def send(self, count: int, most: int) -> Deferred[None]:
        """
        Have so many frames echoed, and so many in flight.
        """
        self.toSend, self.missing = count - most, count
        self.done: Deferred[None] = Deferred()
        self.write(most)
        return self.done

    def write(self, count: int) -> None:
        """
        Send frames.
        """
        assert self.transport is not None
        self.transport.write(self.frame * count)

    def dataReceived(self, data: bytes) -> None:
        """
        Send as many as came back.
        """
        size = len(self.frame)
        came = sum((end - start) // size for _, _, start, end in self.frames.runs(data))
        self.missing -= came
        if count := min(came, self.toSend):
            self.toSend -= count
            self.write(count)
        if not self.missing:
            self.done.callback(None)


async def connectEcho(reactor: Any, port: int) -> Echoed:
    """
    The echo's client side, warmed up.
    """
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port)
    echo: Echoed = await connectProtocol(endpoint, Echoed())
    await echo.send(WARM_UP, 16)
    return echo


async def measured(meter: Meter, echo: Echoed, count: int, most: int) -> None:
    """
    Have frames echoed, and count what that takes.
    """
    # A frame takes a tenth of a message, if there are many in a read.
    frames = count if most == 1 else 10 * count
    meter.begin()
    await echo.send(frames, most)
    meter.end(frames)


# --- sending --------------------------------------------------------------


def flight(send: Callable[[], Deferred[SendResult]], count: int, most: int) -> Deferred[None]:
    """
    Send messages, so many in flight: the next one when one is answered.
    """
    done: Deferred[None] = Deferred()
    missing = count

    def sent(result: SendResult) -> None:
        nonlocal missing
        missing -= 1
        if missing >= most:
            send().addCallbacks(sent, done.errback)
        elif missing == 0:
            done.callback(None)

    for _ in range(most):
        send().addCallbacks(sent, done.errback)
    return done


async def send(
    reactor: Any, address: str, topic: str, port: int, requests: int, inFlight: list[int]
) -> None:
    """
    Send with a producer.
    """
    count = max(requests // _TURNS, *inFlight)
    cluster = Cluster(address, reactor)
    async with cluster, Producer(cluster, "bench_producer") as producer:

        def one() -> Deferred[SendResult]:
            return producer.send(Message(topic, BODY, "TagA"))

        await flight(one, WARM_UP, 16)
        echo = await connectEcho(reactor, port)
        for most in inFlight:
            bare, sending = Meter(), Meter()
            for _ in range(_TURNS):
                await measured(bare, echo, count, most)
                sending.begin()
                await flight(one, count, most)
                sending.end(count)
            bare.tell(f"echo_{most}")
            sending.tell(f"send_{most}")
        # One after the other, as who awaits them sends them.
        meter = Meter()
        meter.begin()
        for _ in range(requests):
            await one()
        meter.end(requests)
        meter.tell("awaited")
        meter = Meter()
        meter.begin()
        for number in range(requests):
            await producer.sendOneway(Message(topic, BODY, "TagA"))
            if number % _BURST == 0:
                await deferLater(reactor, 0, lambda: None)
        # This one is answered when the broker has them all.
        await one()
        meter.end(requests)
        meter.tell("oneway")
        # It is left alone while the connection closes.
        assert echo.transport is not None
        echo.transport.loseConnection()


# --- consuming ------------------------------------------------------------


class Taken:
    """
    Messages that were consumed.

    @ivar done: fires when it is enough.
    """

    def __init__(self, count: int) -> None:
        self._enough = WARM_UP + count
        self._number = itertools.count(1)
        self.meter = Meter()
        self.done: Deferred[None] = Deferred()

    def take(self, message: MessageExt) -> bool:
        """
        A message was consumed.

        @return: whether it is enough.
        """
        number = next(self._number)
        if number == WARM_UP:
            self.meter.begin()
        elif number == self._enough:
            self.meter.end(self._enough - WARM_UP)
            self.done.callback(None)
            return True
        return False


async def push(cluster: Cluster, topic: str, group: str, taken: Taken, kind: str) -> None:
    """
    Consume with a push consumer.
    """

    def plain(message: MessageExt) -> None:
        taken.take(message)

    async def coroutine(message: MessageExt) -> None:
        taken.take(message)

    consumer = PushConsumer(
        cluster,
        group,
        plain if kind == "plain" else coroutine,
        consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(topic)
    async with consumer:
        await taken.done


async def iterate(cluster: Cluster, topic: str, group: str, taken: Taken) -> None:
    """
    Consume with C{async for}.
    """
    consumer = LitePullConsumer(
        cluster, group, consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe(topic)
    async with consumer:
        async for message in consumer:
            if taken.take(message):
                break


async def consume(
    reactor: Any, address: str, topic: str, port: int, count: int, kind: str, group: str
) -> None:
    """
    Consume what a topic holds.
    """
    bare, taken = Meter(), Taken(count)
    echo = await connectEcho(reactor, port)
    await measured(bare, echo, count // 10, _CONSUMING)
    async with Cluster(address, reactor) as cluster:
        if kind == "iterated":
            await iterate(cluster, topic, group, taken)
        else:
            await push(cluster, topic, group, taken, kind)
    await measured(bare, echo, count // 10, _CONSUMING)
    bare.tell("echo")
    taken.meter.tell(kind)


async def main(reactor: Any, what: str, address: str, topic: str, *others: str) -> None:
    """
    Do what the command line says.
    """
    match what, *others:
        case "send", port, requests, *inFlight:
            most = [int(each) for each in inFlight]
            await send(reactor, address, topic, int(port), int(requests), most)
        case "consume", port, count, kind, group:
            await consume(reactor, address, topic, int(port), int(count), kind, group)


if __name__ == "__main__":
    react(
        lambda reactor: Deferred.fromCoroutine(main(reactor, *sys.argv[1:])),
        [],
        anyReactor,
    )
