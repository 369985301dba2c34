# SPDX-License-Identifier: Apache-2.0
"""
The examples of producers and consumers run, against both servers, and the README
shows one of them as it is.
"""

from __future__ import annotations

import inspect
import io
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path
from textwrap import indent
from types import ModuleType
from typing import Any
from urllib.error import HTTPError

from twisted.internet import reactor as anyReactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from examples import (
    batch,
    broadcast,
    delayed,
    filter,
    filter_sql,
    order,
    quick_start,
    request_reply,
    sending,
    trace,
    transaction,
)
from tests.live.servers import LiveTestCase, twistd
from tests.test_examples import asDeferred
from txrocket import ConsumeFromWhere, Message, MessageQueue
from txrocket.client import Cluster, LitePullConsumer, LocalOffsets, MessageTrace, Producer
from txrocket.client.trace.view import TracedConsume, TracedSend
from txrocket.errors import InvalidMessage
from txrocket.protocol.tracebodies import ConsumeReturnType, MessageType
from txrocket.testing.trial import memoryCluster, realCluster

reactor: Any = anyReactor
ROOT = Path(__file__).parent.parent


class ClientExampleTests(TestCase):
    """
    Examples that are one program.
    """

    timeout = 300

    async def ran(self, example: ModuleType, **settings: Any) -> list[str]:
        """
        Run an example.

        @param settings: the servers'.
        @return: the lines that it printed.
        """
        servers = await realCluster(self, reactor, settings=settings)
        self.address = servers.nameServers[0]
        printed = io.StringIO()
        self.patch(sys, "stdout", printed)
        await example.main(reactor, self.address)
        return printed.getvalue().splitlines()

    @asDeferred
    async def test_quickStartIsAsInReadme(self) -> None:
        """
        A message is sent and received; the printed text is that of the README, and the
        README shows the code as it is.
        """
        lines = await self.ran(quick_start)
        readme = (ROOT / "README.rst").read_text()
        self.assertEqual(len(lines), 2)
        self.assertIn(indent("\n".join(lines), "    "), readme)
        shown, _ = re.findall(r"code-block:: python\n\n((?: {4}.*\n|\n)+)\n", readme)
        self.assertIn(shown, inspect.getsource(quick_start.main))

    @asDeferred
    async def test_orderStepsComeInOrder(self) -> None:
        """
        Each order goes through its steps one by one.
        """
        lines = await self.ran(order)
        steps = ", ".join(order.STEPS)
        self.assertEqual(sorted(lines), [f"order {number}: {steps}" for number in range(3)])

    @asDeferred
    async def test_batchArrivesInFewRequests(self) -> None:
        """
        All messages arrive, in as few requests as their size allows.
        """
        lines = await self.ran(batch)
        # 1,000 bodies of 200 bytes, and some 70 bytes beside each.
        self.assertEqual(lines, ["1000 messages in 5 requests"])
        cluster = Cluster(self.address, reactor)
        async with cluster, LitePullConsumer(cluster, "tests") as consumer:
            queues = await consumer.queuesOf("Measurements")
            ends = [await consumer.maxOffset(queue) for queue in queues]
            self.assertEqual(sum(ends), 1000)

    @asDeferred
    async def test_wantedTagsCome(self) -> None:
        """
        Messages of the wanted tags come, and no others.
        """
        lines = await self.ran(filter)
        self.assertEqual(sorted(lines), ["science: a comet", "weather: rain"])

    @asDeferred
    async def test_matchingMessagesCome(self) -> None:
        """
        Messages for which the expression is true come, and no others; an invalid one is
        refused with its place.
        """
        refused, *lines = await self.ran(filter_sql, enablePropertyFilter=True)
        self.assertEqual(
            refused,
            "SQL92 expression, line 1, column 8: the end, where a property or a value was expected",
        )
        self.assertEqual(
            sorted(lines), ["Florence: a room with a view", "Pisa: two rooms by the river"]
        )

    @asDeferred
    async def test_eachRadioGetsAll(self) -> None:
        """
        Each radio gets all broadcasts, and one that keeps its place only the new ones.
        """
        lines = await self.ran(broadcast)
        for name in "kitchen", "bath":
            self.assertEqual(
                [line for line in lines if line.startswith(name)],
                [f"{name}: {each}" for each in ("the news", "the weather", "good night")],
            )
        path = self.mktemp()
        for expected in (["the news", "the weather", "good night"], ["good night"]):
            printed = io.StringIO()
            self.patch(sys, "stdout", printed)
            async with Cluster(self.address, reactor) as cluster:
                radio = broadcast.Radio("car", cluster, LocalOffsets(path))
                async with radio.consumer:
                    await radio.over
                async with Producer(cluster, "station") as producer:
                    await producer.send(Message("Broadcasts", b"good night"))
            self.assertEqual(printed.getvalue(), "".join(f"car: {each}\n" for each in expected))

    @asDeferred
    async def test_delayedMessagesComeInTime(self) -> None:
        """
        Messages come after their level, their delay, and at their time.
        """
        began = time.monotonic()
        first, *lines = await self.ran(delayed)
        self.assertEqual(first, "the alarms are set")
        # Each in a queue of its own, so that they may be printed in any order.
        bodies = [each.body.decode() for each in delayed.alarms(0)]
        self.assertEqual(sorted(lines), sorted(bodies))
        self.assertGreaterEqual(time.monotonic() - began, 1.5)

    @asDeferred
    async def test_possibleTransferIsCommitted(self) -> None:
        """
        The possible transfer is committed, and the other is not.
        """
        lines = await self.ran(transaction)
        self.assertEqual(
            lines, ["70: COMMIT_MESSAGE", "70: ROLLBACK_MESSAGE", "alice has 30, bob has 70"]
        )
        async with Cluster(self.address, reactor) as cluster:
            reader = LitePullConsumer(
                cluster, "tests", consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            )
            reader.subscribe("Transfers")
            async with reader:
                self.assertEqual((await anext(aiter(reader))).body, b"alice gave bob 70")
                queues = await reader.queuesOf("Transfers")
                ends = [await reader.maxOffset(queue) for queue in queues]
        self.assertEqual(sum(ends), 1)

    @asDeferred
    async def test_requesterGetsReply(self) -> None:
        """
        The requester gets the reply.
        """
        lines = await self.ran(request_reply)
        self.assertEqual(lines, ["2+3 is 5"])

    @asDeferred
    async def test_traceShowsMessage(self) -> None:
        """
        The way of a message can be read, by its id and by its key.
        """
        sent, given, *rest = await self.ran(trace)
        self.assertRegex(sent, r"^sent by writers at 127\.0\.0\.1, \d+ ms$")
        self.assertEqual(given, "given to readers at 127.0.0.1, time 0: SUCCESS")
        self.assertEqual(rest, ["letter-1 is the same"])

    def test_traceShowsFailures(self) -> None:
        """
        So can its failures.
        """
        sent = TracedSend("P", "h", 1.0, 0.002, False, "b", 1, MessageType.Normal_Msg, "O")
        calls = (
            TracedConsume("G", "h", 1.0, 2.0, 1.0, False, ConsumeReturnType.EXCEPTION, 0),
            TracedConsume("G", "h", 3.0, retryTimes=1),
        )
        self.assertEqual(
            list(trace.story(MessageTrace("ID", sent=(sent,), consumed={"G": calls}))),
            [
                "sent, but not safe by P at h, 2 ms",
                "given to G at h, time 0: EXCEPTION",
                "given to G at h, time 1: in progress",
            ],
        )

    @asDeferred
    async def test_eachWayOfSendingSends(self) -> None:
        """
        Each way of sending sends.
        """
        lines = await self.ran(sending)
        self.assertEqual(
            lines,
            ["100 sent to 4 queues", "one more", "north is queue 0", "103 seen, 0 failures"],
        )

    def test_northHasFirstQueue(self) -> None:
        """
        The first queue is for the north, and the others are for the rest.
        """
        queues = [MessageQueue("Letters", "a", each) for each in range(3)]
        for body, key, expected in (
            (b"", "north", 0),
            (b"12", "south", 1),
            (b"123", "south", 2),
        ):
            chosen = sending.byRegion(queues, Message("Letters", body), key)
            self.assertEqual(chosen.queueId, expected)
        self.assertEqual(sending.byRegion(queues[:1], Message("Letters", b"1"), "south"), queues[0])

    @asDeferred
    async def test_unsentMessagesAreKept(self) -> None:
        """
        Messages that cannot be sent for now are kept, and those that never can be are not.
        """
        servers = await realCluster(self, reactor)
        cluster = Cluster(servers.nameServers[0], reactor)
        latencies = sending.Latencies(reactor)
        kept: list[Message] = []
        message = Message("Letters", b"dear")
        async with cluster, Producer(cluster, "tests", hooks=[latencies]) as producer:
            self.assertTrue(await sending.sendKept(producer, message, kept))
            with self.assertRaises(InvalidMessage):
                await sending.sendKept(producer, Message("Letters", b""), kept)
            await servers.stop()
            self.assertFalse(await sending.sendKept(producer, message, kept))
        self.assertEqual(kept, [message])
        self.assertEqual(latencies.failures, 1)

    def test_missingReplyIsTold(self) -> None:
        """
        A requester without a reply in time gets an error.
        """
        servers = memoryCluster(self)
        cluster = Cluster(servers.nameServers, servers.clock, connect=servers.connect)
        producer = Producer(cluster, "pupils")
        producer.startService()
        began = servers.clock.seconds()
        asked = Deferred.fromCoroutine(request_reply.ask(producer, b"2+3"))
        self.assertIsNone(servers.resultOf(asked))
        self.assertEqual(servers.clock.seconds() - began, request_reply.PATIENCE)
        servers.resultOf(producer.stop())
        servers.resultOf(cluster.stop())


class ProgramExampleTests(LiveTestCase):
    """
    Examples that need a process of their own.
    """

    timeout = 300

    async def start(self) -> str:
        """
        Start the servers, and give the address of the name server.
        """
        servers = await realCluster(self, reactor)
        return servers.nameServers[0]

    @asDeferred
    async def test_twistdProgramPassesMessages(self) -> None:
        """
        The program under twistd passes messages on, and has finished them when it ends.
        """
        address = await self.start()
        async with Cluster(address, reactor) as cluster, Producer(cluster, "tests") as producer:
            # The first has the topic made, so that the reader finds it at once.
            await producer.send(Message("Capitals", b"FIRST"))
            await producer.send(Message("Words", b"tea", tags="drinks"))
            program = self.spawn(
                twistd("--python", str(ROOT / "examples" / "relay.tac")),
                b"starting up",
                NAMESRV_ADDR=address,
            )
            await self.started(program)
            reader = LitePullConsumer(
                cluster, "tests", consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            )
            reader.subscribe("Capitals", "drinks")
            async with reader:
                self.assertEqual((await anext(aiter(reader))).body, b"TEA")
            # As twistd ends after a signal.
            self.assertEqual(await program.end(), -signal.SIGTERM, program.output)
            self.assertEqual(program.faults, [])
            # It has left its group's offset with the broker.
            async with LitePullConsumer(cluster, "relays") as group:
                queues = await group.queuesOf("Words")
                offsets = [await group.committed(queue) for queue in queues]
                self.assertEqual(sum(each or 0 for each in offsets), 1)

    @asDeferred
    async def test_asyncioProgramUsesItsLoop(self) -> None:
        """
        An asyncio program sends and receives on its own event loop.
        """
        address = await self.start()
        program = self.spawn([sys.executable, str(ROOT / "examples/asyncio_program.py"), address])
        await self.finished(program, 60)
        self.assertEqual(program.lines, [b"sent 10", b"received 0 1 2 3 4 5 6 7 8 9"])

    @asDeferred
    async def test_postIsSentByItsThread(self) -> None:
        """
        A post is sent by the thread that serves it; an invalid one is the client's fault.
        """
        address = await self.start()
        program = self.spawn(
            [sys.executable, str(ROOT / "examples/web_app.py"), address, "0"], b"http://"
        )
        await self.started(program)
        url = program.lines[0].decode()

        def post(path: str, body: bytes) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(url + path, body, timeout=30) as answer:
                    return answer.status, answer.read().decode()
            except HTTPError as error:
                return error.code, error.read().decode()

        status, msgId = await deferToThread(post, "Orders", b"a cup of tea")
        self.assertEqual(status, 202)
        async with Cluster(address, reactor) as cluster:
            reader = LitePullConsumer(
                cluster, "tests", consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            )
            reader.subscribe("Orders")
            async with reader:
                message = await anext(aiter(reader))
        self.assertEqual((message.body, message.msgId), (b"a cup of tea", msgId.strip()))
        refused = await deferToThread(post, "no/topic", b"a cup of tea")
        self.assertEqual(refused[0], 400)
        self.assertEqual(await program.end("INT"), 0, program.output)
        self.assertEqual(program.faults, [])
