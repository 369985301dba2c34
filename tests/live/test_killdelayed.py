# SPDX-License-Identifier: Apache-2.0
"""
A broker that is killed while messages wait, and while they are delivered.
"""

from __future__ import annotations

import os
import time
from random import Random

from twisted.internet.defer import gatherResults
from twisted.internet.task import deferLater

from tests.live.asking import SUSPEND, pull, sendOne
from tests.live.servers import SMALL_LOG, Child, LiveTestCase, freePort, reactor, twistd
from txrocket.protocol.codes import ResponseCode

KILLS = int(os.environ.get("TXROCKET_DELAYED_KILLS", "4"))
SEED = int(os.environ.get("TXROCKET_SEED") or Random().randrange(10**6))

# Messages each time, and how long they wait at most, in seconds.
MESSAGES = 60
LONGEST = 3.0

SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "messageDelayLevel": "1s 2s",
    "flushDelayOffsetInterval": 300,
    "timerFlushIntervalMs": 300,
    "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "namesrvAddr": "",
}


class KillDelayedTests(LiveTestCase):
    """
    kill -9.
    """

    timeout = 300 + 60 * KILLS

    def setUp(self) -> None:
        super().setUp()
        self.chance = Random(SEED)
        port = freePort()
        self.address = f"127.0.0.1:{port}"
        settings = {**SETTINGS, "listenPort": port, "storePathRootDir": self.folder / "store"}
        self.command = twistd(
            "rocket-broker",
            *[f"--set={key}={value}" for key, value in settings.items()],
            SMALL_LOG,
        )
        # When each message was due that was taken, in milliseconds.
        self.due: dict[bytes, int] = {}

    async def start(self) -> Child:
        """
        Start the broker.
        """
        return await self.started(self.spawn(self.command, b"is reached at"))

    async def send(self) -> None:
        """
        Have messages wait, one half for times and one half by levels.
        """
        peers = self.peers()
        sending = []
        for number in range(MESSAGES):
            body = b"%d-%d" % (len(self.due), number)
            now = int(time.time() * 1000)
            if number % 2:
                level = self.chance.randrange(1, 3)
                properties, due = {"DELAY": str(level)}, now + level * 1000
            else:
                due = now + self.chance.randrange(1, int(LONGEST * 1000))
                properties = {"TIMER_DELIVER_MS": str(due)}
            self.due[body] = due
            sending.append(sendOne(peers, self.address, "Late", 0, body, properties))
        for answer in await gatherResults(sending, consumeErrors=True):
            self.assertEqual(answer.code, ResponseCode.SUCCESS, answer.remark)
        await peers.stop()

    async def check(self) -> None:
        """
        See all messages come.
        """
        peers = self.peers()
        found: dict[bytes, int] = {}
        offset = 0
        end = time.monotonic() + LONGEST + 240
        while len(found) < len(self.due) and time.monotonic() < end:
            pulled = await pull(peers, self.address, "Late", 0, offset, flags=SUSPEND, hold=1.0)
            for message in pulled.messages:
                found.setdefault(message.body, message.storeTimestamp)
            offset = max(offset, pulled.nextOffset)
        await peers.stop()
        self.assertEqual(set(self.due) - set(found), set())
        early = {body: self.due[body] - at for body, at in found.items() if at < self.due[body]}
        self.assertEqual(early, {})

    async def test_delayedMessagesSurviveKills(self) -> None:
        """
        Whenever a broker with SYNC_FLUSH is killed, all messages come that it took, and
        none before its time.
        """
        try:
            for _ in range(KILLS):
                broker = await self.start()
                await self.send()
                await deferLater(reactor, self.chance.uniform(0, LONGEST))
                await broker.end("KILL")
                self.assertEqual(broker.faults, [])
            broker = await self.start()
            await self.check()
            await broker.end()
            self.assertEqual(broker.faults, [])
        except BaseException:
            print(f"\nTXROCKET_SEED={SEED}")
            raise
