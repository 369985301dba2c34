# SPDX-License-Identifier: Apache-2.0
"""
Servers and a client in processes of their own, whose machine has its clock set.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.live.asking import SUSPEND, commit, committed, pull, sendOne
from tests.live.servers import Child, LiveTestCase, freePort, reactor, twistd
from tests.live.wallclock import WallClock
from txrocket.protocol.bodies import KVTable
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import (
    GetRouteInfoRequestHeader,
    UnRegisterBrokerRequestHeader,
)

HOUR = 3600
YEAR = 365 * 24 * HOUR

# How long to wait, in seconds, for what takes one to ten on an idle machine.
PATIENCE = 60.0

# Of a pull that is to be held for the whole of a test, in seconds.
HOLD = 150.0

SETTINGS = {
    # What is done every so often is done often.
    "registerNameServerPeriod": 10_000,
    "flushConsumerOffsetInterval": 300,
    "flushCommitLogThoroughInterval": 300,
    "flushConsumeQueueThoroughInterval": 300,
    "cleanResourceInterval": 200,
    # Every hour is right to delete files.
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "mappedFileSizeCommitLog": 1 << 16,
}

CONSUMER = """
import sys
from twisted.internet import reactor
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.model import ConsumeFromWhere
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand

def listen(message):
    body = message.body.decode()
    if body.isdigit():
        # Ask somebody who never answers.
        asked = cluster.ask(sys.argv[2], requestCommand(RequestCode.HEART_BEAT), float(body))
        asked.addErrback(lambda failure: print("failed", body, failure.type.__name__, flush=True))
    print("got", body, flush=True)

cluster = Cluster(sys.argv[1], reactor)
consumer = PushConsumer(
    cluster, "G", listen, consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
)
consumer.subscribe("T")
consumer.setServiceParent(cluster)
reactor.callWhenRunning(cluster.startService)
reactor.addSystemEventTrigger("before", "shutdown", cluster.stopService)
reactor.run()
"""


class ClockTests(LiveTestCase):
    """
    A name server and a broker in one process.
    """

    timeout = 400
    server: Child
    consumer: Child

    def setUp(self) -> None:
        super().setUp()
        self.wall = WallClock(self.folder)

    async def start(self) -> None:
        """
        Start the servers, and make the topic.
        """
        port, nameServer = freePort(), freePort()
        settings = {**SETTINGS, "listenPort": port}
        options = [f"--set={key}={value}" for key, value in settings.items()]
        command = twistd("rocket", "--data=data", f"--namesrvPort={nameServer}", *options)
        child = self.spawn(command, b"is reached at", **self.wall.variables)
        self.server = await self.started(child)
        self.address, self.nameServer = f"127.0.0.1:{port}", f"127.0.0.1:{nameServer}"
        self.asking = self.peers()
        await self.send(b"first")
        await self.until(self.isRouted)

    async def send(self, body: bytes) -> None:
        """
        Send a message, and see it taken.
        """
        answer = await sendOne(self.asking, self.address, "T", 0, body)
        self.assertEqual(answer.code, ResponseCode.SUCCESS, answer.remark)

    async def until(self, holds: Callable[[], Awaitable[bool]], *said: object) -> None:
        """
        Wait until something is so.
        """
        end = reactor.seconds() + PATIENCE
        while not await holds():
            if reactor.seconds() > end:
                self.fail(f"{holds.__name__} {said}: not within {PATIENCE} s\n{self.server.output}")
            await deferLater(reactor, 0.1)

    async def isRouted(self) -> bool:
        """
        Whether the name server knows where the topic is.
        """
        header = GetRouteInfoRequestHeader("T")
        request = requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        answer = await self.asking.request(self.nameServer, request, PATIENCE)
        return answer.code == ResponseCode.SUCCESS and self.address.encode() in answer.body

    async def isFlushed(self) -> bool:
        """
        Whether all of the log is on the disk.
        """
        request = requestCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
        answer = await self.asking.request(self.address, request, PATIENCE)
        return decodeBody(KVTable, answer.body).table["remainHowManyDataToFlush"].startswith("0 ")

    async def unregister(self) -> None:
        """
        Have the name server forget the broker, as if it had been restarted.
        """
        header = UnRegisterBrokerRequestHeader("broker-a", self.address, "DefaultCluster", 0)
        request = requestCommand(RequestCode.UNREGISTER_BROKER, header)
        answer = await self.asking.request(self.nameServer, request, PATIENCE)
        self.assertEqual(answer.code, ResponseCode.SUCCESS, answer.remark)
        self.assertFalse(await self.isRouted())

    def logFiles(self) -> list[str]:
        """
        The files of the log.
        """
        return sorted(each.name for each in (self.folder / "data/store/commitlog").iterdir())

    def written(self, text: str) -> Callable[[], Awaitable[bool]]:
        """
        Whether the file of the offsets has a text in it.
        """
        path = self.folder / "data/store/config/consumerOffset.json"

        async def isWritten() -> bool:
            return path.exists() and text in "".join(path.read_text().split())

        return isWritten

    async def goesOn(self, group: str, *, registers: bool = False) -> None:
        """
        See that the broker syncs the log and writes offsets.

        @param registers: whether to see as well that it registers, every ten seconds.
        """
        await self.send(group.encode())
        await self.until(self.isFlushed, group)
        await commit(self.asking, self.address, group, "T", 0, 1)
        await self.until(self.written(f'"T@{group}":{{0:1}}'), group)
        if registers:
            await self.unregister()
            await self.until(self.isRouted, group)

    async def test_setBackServersGoOn(self) -> None:
        """
        A clock that is set back by an hour, or a year, stops neither the syncs of the log
        nor the writing of offsets nor registration.
        """
        await self.start()
        await self.goesOn("before")
        self.wall.shift(-HOUR)
        await self.goesOn("hour")
        self.wall.shift(-YEAR)
        await self.goesOn("year", registers=True)
        self.assertEqual(self.server.faults, [])

    async def test_setAheadServersGoOn(self) -> None:
        """
        A clock that is set ahead by a year, and back again, has no pull answered before
        its time and no file deleted, and stops nothing.
        """
        await self.start()
        for number in range(8):
            await self.send(b"%d" % number * 20_000)
        files = self.logFiles()
        self.assertGreater(len(files), 2)
        await self.until(self.isFlushed)
        held = Deferred.fromCoroutine(
            pull(self.asking, self.address, "T", 1, 0, flags=SUSPEND, hold=HOLD, limit=2 * HOLD)
        )
        self.wall.shift(YEAR)

        async def isTold() -> bool:
            return any(b"was set ahead" in line for line in self.server.lines)

        await self.until(isTold)
        # All that was due in the turn in which it was seen has happened.
        await self.isFlushed()
        self.assertEqual(self.logFiles(), files)
        self.assertFalse(held.called)
        await self.goesOn("ahead")
        self.assertFalse(held.called)
        self.wall.shift(-YEAR)
        await self.goesOn("back", registers=True)
        self.assertFalse(held.called)
        self.assertEqual(self.logFiles()[: len(files)], files)
        answer = await sendOne(self.asking, self.address, "T", 1, b"held")
        self.assertEqual(answer.code, ResponseCode.SUCCESS, answer.remark)
        self.assertEqual([each.body for each in (await held).messages], [b"held"])
        self.assertNotIn("is dropped", self.server.output)
        self.assertEqual(self.server.faults, [])

    async def test_clientGoesOn(self) -> None:
        """
        A consumer whose clock is set back or ahead consumes and commits as ever, and its
        requests fail when their time is over, not later and not sooner.
        """
        await self.start()
        await self.consume()
        await self.sendAndGet("5")
        self.wall.shift(-HOUR)
        await self.sees(b"failed 5 RequestTimedOut")
        await self.sendAndGet("100000")
        self.wall.shift(YEAR)
        # After the first of these all has happened that is due.
        await self.sendAndGet("ahead")
        await self.sendAndGet("again")
        self.wall.shift(-2 * YEAR)
        await self.sendAndGet("back")

        async def isCommitted() -> bool:
            return await committed(self.asking, self.address, "G", "T", 0) == 6

        await self.until(isCommitted)
        self.assertNotIn("failed 100000", self.consumer.output)
        self.assertEqual(self.consumer.faults, [])

    async def consume(self) -> None:
        """
        Start a consumer, whose clock is that of the servers.
        """
        script = self.folder / "consumer.py"
        script.write_text(CONSUMER)
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        nobody = f"127.0.0.1:{silent.getsockname()[1]}"
        root = str(Path(__file__).parents[2])
        command = [sys.executable, str(script), self.nameServer, nobody]
        child = self.spawn(command, b"got first", PYTHONPATH=root, **self.wall.variables)
        self.consumer = await self.started(child)

    async def sees(self, line: bytes) -> None:
        """
        Wait until the consumer has printed a line.
        """

        async def isPrinted() -> bool:
            return line in self.consumer.lines

        await self.until(isPrinted, line, self.consumer.output)

    async def sendAndGet(self, body: str) -> None:
        """
        Send a message, and see it consumed.
        """
        await self.send(body.encode())
        await self.sees(b"got " + body.encode())
