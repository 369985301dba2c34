# SPDX-License-Identifier: Apache-2.0
"""
A broker in a process of its own, whose tables are damaged while it is down.
"""

from __future__ import annotations

import io
from pathlib import Path

from twisted.internet.defer import Deferred

from tests.live.asking import commit, committed, pull, sendOne
from tests.live.servers import LiveTestCase, freePort, twistd
from txrocket.protocol.codes import ResponseCode
from txrocket.store.__main__ import main

SLOTS = 500
TOPICS = ("first", "second", "third")


class DamagedTablesTests(LiveTestCase):
    """
    Tables that are damaged between two starts.
    """

    timeout = 180

    def setUp(self) -> None:
        super().setUp()
        port = freePort()
        self.address = f"127.0.0.1:{port}"
        self.store = self.folder / "store"
        settings = {
            "listenPort": port,
            "storePathRootDir": self.store,
            "mappedFileSizeCommitLog": 1 << 20,
            "maxHashSlotNum": SLOTS,
            "maxIndexNum": 4 * SLOTS,
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": "",
            # However full the disk is.
            "cleanFileForciblyEnable": "false",
            "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
        }
        self.command = twistd(
            "rocket-broker", *[f"--set={key}={value}" for key, value in settings.items()]
        )

    def tables(self, *endings: str) -> list[Path]:
        """
        The files of tables.
        """
        names = sorted((self.store / "config").iterdir())
        return [each for each in names if each.name.endswith(endings)]

    def verify(self) -> int:
        """
        The exit code of C{verify}.
        """
        arguments = ["verify", "--slots", str(SLOTS), str(self.store)]
        return main(arguments, io.StringIO(), io.StringIO())

    async def filled(self) -> None:
        """
        Have a broker take messages of several topics, and a group commit.
        """
        broker = await self.started(self.spawn(self.command, b"is reached at"))
        peers = self.peers()
        for topic in TOPICS:
            answer = await sendOne(peers, self.address, topic, 3, topic.encode())
            self.assertEqual(ResponseCode.SUCCESS, answer.code)
        await commit(peers, self.address, "readers", "first", 3, 1)
        await peers.stop()
        await broker.end()
        self.assertEqual(0, self.verify())

    async def served(self) -> str:
        """
        Start the broker anew, and find all messages.

        @return: what the broker logged at error level.
        """
        broker = await self.started(self.spawn(self.command, b"is reached at"))
        peers = self.peers()
        for topic in TOPICS:
            pulled = await pull(peers, self.address, topic, 3, 0)
            self.assertEqual([topic.encode()], [each.body for each in pulled.messages])
        self.assertIn(await committed(peers, self.address, "readers", "first", 3), (0, 1))
        await peers.stop()
        await broker.end()
        return "\n".join(broker.faults)

    def test_flippedBitInTableIsMended(self) -> Deferred[None]:
        """
        One bit in every table is told by C{verify} and by the next start, all messages can
        be pulled, and after a stop the folder is sound.
        """

        async def run() -> None:
            await self.filled()
            for path in self.tables(".json"):
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 2
                path.write_bytes(bytes(data))
            self.assertEqual(1, self.verify())
            self.assertIn("is damaged", await self.served())
            self.assertNotEqual([], list((self.store / "config").glob("*.damaged-*")))
            self.assertEqual(0, self.verify())

        return Deferred.fromCoroutine(run())

    def test_emptiedTablesLoseNoMessage(self) -> Deferred[None]:
        """
        If nothing is left of topics and groups, nor of their C{.bak}, all messages can be
        pulled.
        """

        async def run() -> None:
            await self.filled()
            for path in self.tables(".json", ".bak"):
                path.write_bytes(path.read_bytes()[:1])
            self.assertEqual(1, self.verify())
            self.assertIn("made anew", await self.served())

        return Deferred.fromCoroutine(run())
