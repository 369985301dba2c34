# SPDX-License-Identifier: Apache-2.0
"""
A name server that is killed and started again while its broker and its clients are well.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from tests.live.servers import SMALL_LOG, Child, LiveTestCase, freePort, reactor, twistd
from txrocket.blocking import Client, routes
from txrocket.client.cluster import Cluster
from txrocket.client.producer.producer import Producer
from txrocket.client.sansio.topicroute import DEFAULT_TOPIC
from txrocket.message import Message
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import GetRouteInfoRequestHeader

RESTARTS = 2


class RestartTests(LiveTestCase):
    """
    kill -9 of a name server.
    """

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        port = freePort()
        self.nameServer = f"127.0.0.1:{port}"
        self.command = twistd(
            "rocket-namesrv",
            f"--set=listenPort={port}",
            "--set=bindAddress=127.0.0.1",
            f"--set=kvConfigPath={self.folder / 'kvConfig.json'}",
        )
        settings = {
            "listenPort": freePort(),
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": self.folder / "store",
            # However full the disk is.
            "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
        }
        arguments = [SMALL_LOG, *(f"--set={key}={value}" for key, value in settings.items())]
        self.running = await self.startNameServer()
        broker = twistd("rocket-broker", "-n", self.nameServer, *arguments)
        await self.started(self.spawn(broker, b"is reached at"))
        self.sending = True
        # A client asks for its routes all the time.
        self.patch(routes, "_MAX_AGE", 0)
        # It warns each time that no name server has one.
        self.patch(routes._log, "disabled", True)

    async def startNameServer(self) -> Child:
        """
        Start the name server.
        """
        return await self.started(self.spawn(self.command, b"The name server listens on"))

    async def known(self, peers: Any, topic: str = "T") -> None:
        """
        Wait until the name server knows a topic.
        """
        header = GetRouteInfoRequestHeader(topic, True)
        request = requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        while (await peers.request(self.nameServer, request, 10.0)).code:
            await deferLater(reactor, 0.01)

    async def send(self, producer: Producer) -> int:
        """
        Send messages with a Deferred each; none may fail.

        @return: how many.
        """
        count = 0
        while self.sending:
            await producer.cluster.refreshRoutes()
            await producer.send(Message("T", b"body"), timeout=30.0)
            count += 1
            await deferLater(reactor, 0.01)
        return count

    def sendBlocking(self, client: Client) -> int:
        """
        The same with a client that blocks.
        """
        count = 0
        while self.sending:
            client.send(Message("T", b"body"), timeout=30.0)
            count += 1
        return count

    async def test_restartedNameServerFailsNoSend(self) -> None:
        """
        However often a name server is restarted, it knows the topic again, and no send
        fails: not while it is down, nor while it knows nothing.
        """
        peers = self.peers()
        # A broker listens before it registers.
        await self.known(peers, DEFAULT_TOPIC)
        cluster = Cluster(self.nameServer, reactor)
        self.addCleanup(cluster.stopService)
        producer = Producer(cluster, "p")
        producer.setServiceParent(cluster)
        await producer.start()
        await producer.send(Message("T", b"first"), timeout=30.0)
        await self.known(peers)
        client = Client(self.nameServer)
        self.addCleanup(client.close)
        client.send(Message("T", b"first"), timeout=30.0)
        sending = gatherResults(
            [
                Deferred.fromCoroutine(self.send(producer)),
                deferToThread(self.sendBlocking, client),
            ],
            consumeErrors=True,
        )
        try:
            for _ in range(RESTARTS):
                await self.running.end("KILL")
                self.running = await self.startNameServer()
                await self.known(peers)
        finally:
            self.sending = False
            counts = await sending
        self.assertGreater(min(counts), RESTARTS)
