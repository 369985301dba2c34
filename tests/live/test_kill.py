# SPDX-License-Identifier: Apache-2.0
"""
A broker that is killed again and again under load.

What L{txrocket.store} keeps when the power is lost is shown by
L{tests.store.test_power}; here is the whole broker, in a process of its own, and
what its clients were told.
"""

from __future__ import annotations

import os
import sys
import time
from random import Random

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from tests.live.load import GROUP, Load, Queue, Said
from tests.live.servers import Child, LiveTestCase, freePort, reactor, twistd
from txrocket.protocol.bodies import ConsumerOffsetSerializeWrapper
from txrocket.protocol.bodies.codec import decodeBody

KILLS = int(os.environ.get("TXROCKET_KILLS", "20"))
SEED = int(os.environ.get("TXROCKET_SEED") or Random().randrange(10**6))

PRODUCERS = 24

# How often the broker writes the groups' offsets, in milliseconds, and within how
# many seconds it has done so even on a busy machine.
INTERVAL = 300
WRITTEN = 3.0

# Files so small that all of them are begun anew several times.
SLOTS = 500
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "flushConsumerOffsetInterval": INTERVAL,
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 100,
    "maxHashSlotNum": SLOTS,
    "maxIndexNum": 4 * SLOTS,
    "maxMessageSize": 1 << 19,
    # So that a check takes few pulls.
    "maxTransferCountOnMessageInMemory": 1000,
    "maxTransferBytesOnMessageInMemory": 1 << 22,
    "maxTransferCountOnMessageInDisk": 1000,
    "maxTransferBytesOnMessageInDisk": 1 << 22,
    # However full the disk is.
    "cleanFileForciblyEnable": "false",
    "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "namesrvAddr": "",
}


class KillTests(LiveTestCase):
    """
    kill -9.
    """

    timeout = 300 + 60 * KILLS

    def setUp(self) -> None:
        super().setUp()
        # What is reached here is not measured: it is the clients that would take
        # twice as long, and other tests reach it, too.
        self.addCleanup(sys.settrace, sys.gettrace())
        sys.settrace(None)
        self.store = self.folder / "store"
        self.chance = Random(SEED)
        self.said = Said()
        port = freePort()
        self.address = f"127.0.0.1:{port}"
        settings = {**SETTINGS, "listenPort": port, "storePathRootDir": self.store}
        self.command = twistd(
            "rocket-broker", *[f"--set={key}={value}" for key, value in settings.items()]
        )

    async def start(self) -> Child:
        """
        Start the broker, one time in four after it was killed while starting.
        """
        if not self.chance.randrange(4):
            torn = self.spawn(self.command)
            await deferLater(reactor, self.chance.uniform(0.2, 1.2))
            await torn.end("KILL")
        return await self.started(self.spawn(self.command, b"is reached at"))

    async def check(self, *, anew: bool) -> None:
        """
        Hold the broker to what was said.
        """
        peers = self.peers()
        await self.said.check(peers, self.address, self.chance, anew=anew)
        await peers.stop()

    def written(self) -> dict[Queue, int]:
        """
        The group's offsets in the broker's file.
        """
        path = self.store / "config" / "consumerOffset.json"
        if not path.exists():
            return {}
        saved = decodeBody(ConsumerOffsetSerializeWrapper, path.read_bytes())
        return {
            (topic, queueId): offset
            for key, offsets in saved.offsetTable.items()
            for topic, _, group in [key.partition("@")]
            if group == GROUP
            for queueId, offset in offsets.items()
        }

    async def loaded(self, broker: Child, seconds: float) -> None:
        """
        Put load on the broker, and kill it after a while.
        """
        load = Load(self.said, self.address, self.chance)
        clients = [self.peers() for _ in range(PRODUCERS + 1)]
        working = gatherResults(
            [
                *[Deferred.fromCoroutine(load.produce(each)) for each in clients[1:]],
                Deferred.fromCoroutine(load.consume(clients[0], self.said.kept)),
            ],
            consumeErrors=True,
        )
        await deferLater(reactor, seconds)
        if not self.chance.randrange(3):
            # Many a topic is new when the broker is killed.
            load.newTopic = 1
            await deferLater(reactor, self.chance.uniform(0, 0.05))
        load.expectEnd()
        soon = time.monotonic() - WRITTEN
        await broker.end("KILL")
        await working
        for each in clients:
            await each.stop()
        for queue, offset in load.committedBefore(soon).items():
            self.said.kept[queue] = max(offset, self.said.kept.get(queue, 0))
        self.assertEqual(broker.faults, [])

    async def kill(self, number: int) -> None:
        """
        Start the broker, hold it to what was said, and kill it.
        """
        broker = await self.start()
        # After so many kills, to look at everything takes longer than all else.
        await self.check(anew=number <= 20 or number % 20 == 0)
        # Now and then so long that offsets must have been written.
        least = WRITTEN if number % 8 == 7 else 0
        await self.loaded(broker, least + self.chance.uniform(0.02, 0.8))
        self.said.keeps(self.written())

    async def test_acknowledgedMessagesSurviveKills(self) -> None:
        """
        However often a broker with SYNC_FLUSH is killed, at any moment: an acknowledged
        message is there once, at its offset, in a topic that exists.  No queue's max offset
        and no group's offset moves back, and the files are sound.
        """
        try:
            for number in range(KILLS):
                await self.kill(number)
            broker = await self.start()
            await self.check(anew=True)
            await broker.end()
            self.assertEqual(broker.faults, [])
            verify = [sys.executable, "-m", "txrocket.store", "verify", f"--slots={SLOTS}"]
            await self.finished(self.spawn([*verify, str(self.store)]), 300.0)
        except BaseException:
            print(f"\nTXROCKET_SEED={SEED}")
            raise
        # There was something to lose; how much depends on the machine.
        self.assertGreater(len(self.said.acknowledged), KILLS)
