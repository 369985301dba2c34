# SPDX-License-Identifier: Apache-2.0
"""
Pulls that are held, over real sockets, by a broker in a process of its own.
"""

from __future__ import annotations

import time
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from tests.live.asking import SUSPEND, Pulled, pull, sendOne
from tests.live.servers import SMALL_LOG, Child, LiveTestCase, freePort, twistd
from txrocket.protocol.codes import ResponseCode
from txrocket.remoting.peers import Peers

TOPIC = "Held"
QUEUES = 4

# How often the time from a send to its arrival is measured.
MEASURED = 50

# How many seconds a pull is held that is not to end by its time limit, on however busy a
# machine.
LONG = 240.0

CONNECTIONS = 200
HELD_EACH = 10


class LongPollTests(LiveTestCase):
    """
    A broker without name servers.
    """

    timeout = 300
    broker: Child

    async def start(self) -> None:
        """
        Start the broker, and make the topic with a message in each queue.
        """
        port = freePort()
        settings = {
            "listenPort": str(port),
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": str(self.folder / "store"),
            "namesrvAddr": "",
        }
        options = [f"--set={key}={value}" for key, value in settings.items()]
        command = twistd("rocket-broker", *options, SMALL_LOG)
        self.broker = await self.started(self.spawn(command, b"is reached at"))
        self.address = f"127.0.0.1:{port}"
        self.sender = self.peers()
        for queueId in range(QUEUES):
            await self.send(queueId, b"first")

    async def send(self, queueId: int, body: bytes, tag: str = "") -> None:
        """
        Send a message, and see it taken.
        """
        properties = {"TAGS": tag} if tag else {}
        answer = await sendOne(self.sender, self.address, TOPIC, queueId, body, properties)
        self.assertEqual(answer.code, ResponseCode.SUCCESS, answer.remark)

    def hold(self, peers: Peers, queueId: int, offset: int = 1, **others: Any) -> Deferred[Pulled]:
        """
        Pull what is not there yet.
        """
        return Deferred.fromCoroutine(
            pull(peers, self.address, TOPIC, queueId, offset, flags=SUSPEND, **others)
        )

    async def settled(self, peers: Peers) -> None:
        """
        Wait until all that was asked on a connection has been looked at.
        """
        await pull(peers, self.address, TOPIC, 0, 0, count=1)

    async def test_messageEndsHeldPull(self) -> None:
        """
        A held pull gets a message that another connection sends, long before its time
        is over.
        """
        await self.start()
        puller = self.peers()
        took = []
        for number in range(MEASURED):
            held = self.hold(puller, 0, 1 + number, hold=LONG, limit=LONG)
            await self.settled(puller)
            self.assertFalse(held.called)
            timed = held.addCallback(lambda got: (got, time.perf_counter()))
            sent = time.perf_counter()
            await self.send(0, b"%d" % number)
            got, arrived = await timed
            self.assertEqual(got.code, ResponseCode.SUCCESS)
            self.assertEqual([each.body for each in got.messages], [b"%d" % number])
            self.assertEqual(got.nextOffset, 2 + number)
            took.append(arrived - sent)
        took.sort()
        print(
            f"\nFrom a send to its arrival at a held pull: {took[len(took) // 2] * 1000:.1f} ms,"
            f" the longest of {MEASURED} {took[-1] * 1000:.1f} ms"
        )

    async def test_otherTagsKeepPullHeld(self) -> None:
        """
        A held pull stays held while messages with other tags come, and gets the first that
        it wants.
        """
        await self.start()
        puller = self.peers()
        red = self.hold(puller, 1, tags="red", hold=LONG, limit=LONG)
        either = self.hold(puller, 1, tags="blue || green", hold=LONG, limit=LONG)
        otherQueue = self.hold(puller, 2, hold=LONG, limit=LONG)
        await self.settled(puller)
        await self.send(1, b"none")
        await self.send(1, b"blue", "blue")
        got = await either
        self.assertEqual([each.body for each in got.messages], [b"blue"])
        self.assertEqual(got.nextOffset, 3)
        await self.settled(puller)
        self.assertFalse(red.called)
        await self.send(1, b"red", "red")
        self.assertEqual([each.body for each in (await red).messages], [b"red"])
        await self.settled(puller)
        self.assertFalse(otherQueue.called)
        await self.send(2, b"other")
        self.assertEqual([each.body for each in (await otherQueue).messages], [b"other"])

    async def test_heldPullIsAnsweredInTime(self) -> None:
        """
        A held pull is answered PULL_NOT_FOUND when its time is over, and not before.
        """
        await self.start()
        start = time.perf_counter()
        got = await self.hold(self.peers(), 0, hold=0.4)
        took = time.perf_counter() - start
        self.assertEqual(got.code, ResponseCode.PULL_NOT_FOUND)
        self.assertEqual((got.nextOffset, got.maxOffset), (1, 1))
        self.assertGreater(took, 0.3)

    async def test_lostConnectionEndsPull(self) -> None:
        """
        A pull whose connection is lost ends, and its message is there for the next.
        """
        await self.start()
        gone = self.peers()
        held = self.hold(gone, 0)
        await self.settled(gone)
        held.addErrback(lambda failure: None)
        await gone.stop()
        await held
        await self.send(0, b"second")
        got = await self.hold(self.peers(), 0)
        self.assertEqual([each.body for each in got.messages], [b"second"])
        self.assertEqual(self.broker.faults, [])

    async def test_messageEndsOnlyItsOwnPulls(self) -> None:
        """
        Of 2,000 pulls that are held over 200 connections, each of the first half
        gets the one message that it wants, and the others are told when the broker
        stops how far they need not look again.
        """
        await self.start()
        held: list[Deferred[Pulled]] = []
        for _ in range(CONNECTIONS):
            peers = self.peers()
            for _ in range(HELD_EACH):
                number = len(held)
                held.append(
                    self.hold(peers, number % QUEUES, tags=f"tag{number}", hold=LONG, limit=LONG)
                )
            await self.settled(peers)
        half = len(held) // 2
        self.assertFalse(any(each.called for each in held))
        for number in range(half):
            await self.send(number % QUEUES, b"%d" % number, f"tag{number}")
        for number, got in enumerate(await gatherResults(held[:half])):
            self.assertEqual([each.body for each in got.messages], [b"%d" % number])
        self.assertFalse(any(each.called for each in held[half:]))
        code = Deferred.fromCoroutine(self.broker.end())
        for got in await gatherResults(held[half:]):
            self.assertEqual(got.code, ResponseCode.PULL_RETRY_IMMEDIATELY, got.remark)
            self.assertEqual(got.nextOffset, 1 + half // QUEUES)
        self.assertEqual(await code, 0)
        self.assertEqual(self.broker.faults, [])

    async def test_stopAnswersHeldPulls(self) -> None:
        """
        A broker that is stopped answers held pulls, long before their time is over, and
        ends.
        """
        await self.start()
        puller = self.peers()
        held = self.hold(puller, 0, hold=LONG, limit=LONG)
        await self.settled(puller)
        self.broker.signal("TERM")
        self.assertEqual((await held).code, ResponseCode.PULL_NOT_FOUND)
        self.assertEqual(await self.broker.whenEnded(), 0)
