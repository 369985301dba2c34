# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's C++ client with our servers.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.live.servers import SMALL_LOG, Child, LiveTestCase, freePort, twistd

SCRIPT = str(Path(__file__).with_name("cppclient.py"))

COUNT = 1000

# It looks for new queues every 10 s.
LIMIT = 60.0


class CppTests(LiveTestCase):
    """
    A name server and a broker in one process, and the client in others.
    """

    timeout = 240
    if importlib.util.find_spec("rocketmq") is None:
        skip = "the package rocketmq is not installed: make test installs it where it can"

    servers: Child

    async def start(self) -> None:
        """
        Start the servers, unless the client cannot be loaded here.
        """
        asked = self.spawn([sys.executable, SCRIPT, "ask"])
        if await asked.whenEnded():
            raise SkipTest(f"the C++ client cannot be loaded here: {asked.output}")
        nameServer, broker = freePort(), freePort()
        self.address = f"127.0.0.1:{nameServer}"
        command = twistd(
            "rocket",
            f"--data={self.folder / 'data'}",
            f"--namesrvPort={nameServer}",
            f"--set=listenPort={broker}",
            SMALL_LOG,
        )
        self.servers = await self.started(self.spawn(command, b"has registered"))

    async def client(self, what: str, topic: str, count: int = COUNT) -> list[list[str]]:
        """
        Have the client do something.

        @return: the messages that it tells of.
        """
        child = self.spawn([sys.executable, SCRIPT, what, self.address, topic, str(count)])
        await self.finished(child, LIMIT)
        return [json.loads(line) for line in child.lines if line.startswith(b"[")]

    async def test_thousandMessagesArriveOnce(self) -> None:
        """
        Of 1,000 messages that the client sends, it gets each exactly once, by
        pulling as well as pushed, with tag, key and properties.
        """
        await self.start()
        sent = await self.client("send", "CppTopic")
        self.assertEqual(len({each[0] for each in sent}), COUNT)
        for what in ("pull", "push"):
            self.assertEqual(sorted(await self.client(what, "CppTopic")), sorted(sent), what)
        self.assertEqual(self.servers.faults, [])

    async def test_returningConsumerResumesOffset(self) -> None:
        """
        A consumer that comes back goes on where its group has come to.
        """
        await self.start()
        first = await self.client("send", "CppTopic", 100)
        self.assertEqual(sorted(await self.client("push", "CppTopic", 100)), sorted(first))
        second = await self.client("batch", "CppTopic", 50)
        self.assertEqual(sorted(await self.client("push", "CppTopic", 50)), sorted(second))

    async def test_orderlyConsumerGetsSendOrder(self) -> None:
        """
        A batch is pushed in the order in which it was sent, to a consumer that
        locks its queues.
        """
        await self.start()
        sent = await self.client("batch", "CppTopic", 10)
        self.assertEqual(await self.client("orderly", "CppTopic", 10), sent)
