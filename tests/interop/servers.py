# SPDX-License-Identifier: Apache-2.0
"""
A name server and a broker, each RocketMQ's or ours, in processes of their own.

Cells share them: each has topics and groups of its own.  Those that need other
settings, or end their broker, get servers of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from tests.interop.programs import java
from tests.live.servers import Child, freePort, reactor, twistd

__all__ = ["DELAYS", "SLOW", "Configuration", "Servers"]

# Two delays that can be told apart, and otherwise none that takes long: messages come
# again after the third, the fourth and so on.
DELAYS = ["1s", "3s", *["1s"] * 16]

# How many seconds a server has to start, and to stop.
_START = 150.0
_STOP = 90.0

_SETTINGS = {
    "brokerIP1": "127.0.0.1",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 10_000),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "messageDelayLevel": " ".join(DELAYS),
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
    # Java's broker turns away what has waited for 200 ms, or while its disk is slow: on a
    # machine with much to do, that says nothing about those who send.
    "waitTimeMillsInSendQueue": "20000",
    "waitTimeMillsInTransactionQueue": "20000",
    "osPageCacheBusyTimeOutMills": "20000",
}

# What is late is so late that the next broker has to see to it; and what is kept now and
# then is kept often, so that one that is killed has not forgotten it.
SLOW = {
    "messageDelayLevel": " ".join(["1s", *["15s"] * 17]),
    "flushConsumerOffsetInterval": "500",
    "flushDelayOffsetInterval": "500",
}

_READY = {
    ("java", "namesrv"): b"Name Server boot success",
    ("java", "broker"): b"boot success",
    ("ours", "namesrv"): b"listens on",
    ("ours", "broker"): b"becomes MASTER",
}

_CLASSES = {
    "namesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
    "broker": "org.apache.rocketmq.broker.BrokerStartup",
}


@attrs.frozen
class Configuration:
    """
    What servers are to be like.

    @ivar name: C{plain}, C{tls}, C{binary} or C{slow}.
    @ivar settings: more settings of the broker.
    @ivar system: what RocketMQ takes as properties of Java's system.  Our servers take
        those that they know from their files.
    """

    name: str
    settings: Mapping[str, str] = attrs.field(factory=dict)
    system: Mapping[str, str] = attrs.field(factory=dict)


class Servers:
    """
    A name server and a broker.

    @ivar kinds: whose the name server is and whose the broker.
    """

    def __init__(
        self,
        kinds: tuple[str, str],
        configuration: Configuration,
        folder: Path,
    ) -> None:
        """
        @param folder: for all that they write.
        """
        self.kinds = kinds
        self._configuration = configuration
        self._folder = folder
        self._store = folder / "store"
        self._namesrvPort = freePort()
        self._brokerPort = freePort()
        self._children: dict[str, Child] = {}
        self._ours: list[Child] = []

    @property
    def nameServer(self) -> str:
        """
        The address of the name server.
        """
        return f"127.0.0.1:{self._namesrvPort}"

    @property
    def broker(self) -> str:
        """
        The address of the broker.
        """
        return f"127.0.0.1:{self._brokerPort}"

    async def start(self) -> None:
        """
        Start both.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._store.mkdir(parents=True, exist_ok=True)
        await self._start("namesrv", self.kinds[0])
        await self.startBroker()

    async def startBroker(self, kind: str | None = None) -> None:
        """
        Start the broker, on the port and the store that it had before.

        @param kind: whose, if it is not to be as before.
        """
        await self._start("broker", kind or self.kinds[1])

    async def stopBroker(self, signal: str = "TERM") -> None:
        """
        End the broker.
        """
        await self._children.pop("broker").end(signal, _STOP)

    async def stop(self) -> None:
        """
        End both.
        """
        while self._children:
            await self._children.popitem()[1].end("TERM", _STOP)

    @property
    def faults(self) -> list[str]:
        """
        What our own servers said that they should not have had to.
        """
        return [line for child in self._ours for line in child.faults]

    @property
    def lines(self) -> dict[str, list[str]]:
        """
        What both said.
        """
        return {
            role: [line.decode(errors="replace") for line in child.lines]
            for role, child in self._children.items()
        }

    async def _start(self, role: str, kind: str) -> None:
        command = self._command(role, kind)
        child = Child(_READY[kind, role])
        self._children[role] = child
        if kind == "ours":
            self._ours.append(child)
        environment = {**os.environ, "HOME": str(self._folder)}
        reactor.spawnProcess(child, command[0], command, env=environment, path=str(self._folder))
        late = reactor.callLater(_START, child.signal, "KILL")
        listening = await child.listening
        if late.active():
            late.cancel()
        if not listening:
            raise AssertionError(f"the {role} ({kind}) did not start:\n{child.output}")

    def _command(self, role: str, kind: str) -> list[str]:
        settings = self._settings(role)
        if kind == "ours":
            settings |= self._configuration.system
        # Both read the same file.
        path = self._folder / f"{role}.conf"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if kind == "ours":
            return twistd(f"rocket-{role}", "-c", str(path))
        system = {
            "user.home": str(self._folder),
            # The machine's disk may be fuller than a broker likes.
            "rocketmq.broker.diskSpaceWarningLevelRatio": "0.99",
            "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.99",
            **self._configuration.system,
        }
        return java(_CLASSES[role], "-c", str(path), properties=system)

    def _settings(self, role: str) -> dict[str, str]:
        if role == "namesrv":
            return {
                "listenPort": str(self._namesrvPort),
                "kvConfigPath": str(self._folder / "kvConfig.json"),
            }
        return {
            **_SETTINGS,
            **self._configuration.settings,
            "listenPort": str(self._brokerPort),
            "namesrvAddr": self.nameServer,
            "storePathRootDir": str(self._store),
            "storePathCommitLog": str(self._store / "commitlog"),
        }
