# SPDX-License-Identifier: Apache-2.0
"""
How bytes travel, and what happens when the broker goes away.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from tests.interop.cells import Cell, scenario, sleep
from tests.interop.driver import Refused, Shown
from tests.interop.messages import PROPERTIES, bodies, check, checkResults, many
from tests.live.servers import reactor
from txrocket.errors import RemotingError
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.tls import ClientTLS


async def _traffic(cell: Cell) -> None:
    """
    Some of everything.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    consumer = await cell.consumer(topic, properties=PROPERTIES)
    sent = many(topic, 30)
    sent[7]["body"] = b"the same again and again; " * 5000
    sent[8]["tags"] = "中文标签🍵"
    results = await producer.send(sent)
    batch = many(topic, 10, start=30)
    await producer.send(batch, "batch")
    oneway = many(topic, 10, start=40)
    await producer.send(oneway, "oneway")
    await consumer.until(50)
    await sleep(1.0)
    check(sent + batch + oneway, consumer.got)
    checkResults(sent, results, consumer.got)
    got = await cell.read(topic, 50, properties=PROPERTIES)
    check(sent + batch + oneway, got)


@scenario(
    "TLS, both sides with certificates",
    "sync batch oneway tls",
    "push pull tls",
    configuration="tls",
)
async def tls(cell: Cell) -> None:
    """
    The servers take nothing else, and each side checks the other's certificate.
    """
    await _traffic(cell)
    for name, other in (("plain text", None), ("a client without a certificate", ClientTLS())):
        peers = Peers(Remoting(reactor), endpoints(reactor, other))
        request = requestCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
        try:
            await peers.request(cell.servers.broker, request, 2.0)
        except RemotingError:
            pass
        else:
            raise AssertionError(f"{name} was served")
        finally:
            await peers.stop()


@scenario("Binary headers", "sync batch oneway binary", "push pull binary", configuration="binary")
async def binary(cell: Cell) -> None:
    """
    C{rocketmq.serialize.type=ROCKETMQ} on both sides.
    """
    await _traffic(cell)


@scenario("Broker restart under load", "sync", "push", own=True, limit=500.0)
async def restart(cell: Cell) -> None:
    """
    Messages acknowledged before, during and after the broker's absence come at least once,
    and clients reconnect by themselves.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    consumer = await cell.consumer(topic, properties=PROPERTIES)
    acknowledged: list[Shown] = []
    number, over = 0, False

    async def load() -> None:
        nonlocal number
        while not over:
            [each] = many(topic, 1, start=number)
            number += 1
            try:
                await producer.send([each])
            except Refused:
                await sleep(0.2)
            else:
                acknowledged.append(each)
                await sleep(0.01)

    loading = Deferred.fromCoroutine(load())
    await consumer.until(50)
    for signal in ("TERM", "KILL"):
        await cell.servers.stopBroker(signal)
        await sleep(1.0)
        await cell.servers.startBroker()
        before = len(acknowledged)
        for _ in range(900):
            if len(acknowledged) > before + 50:
                break
            await sleep(0.1)
        else:
            raise AssertionError(f"after {signal}, nothing can be sent")
    over = True
    await loading
    wanted = set(bodies(acknowledged))
    await consumer.until(lambda: wanted <= {each["body"] for each in consumer.got}, 150.0)
