# SPDX-License-Identifier: Apache-2.0
"""
A master and a slave, each RocketMQ's or ours, in processes of their own::

    name server (ours) <--- master ---HA port---> slave
                             folder               folder

Each may be stopped, killed and started again, also in another role or as the other kind
of broker, on the folder and the port that it had before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.error import ConnectError

from tests.interop.cells import sleep
from tests.interop.programs import java
from tests.interop.servers import DELAYS
from tests.live.servers import Child, freePort, reactor, twistd
from txrocket.errors import RocketError
from txrocket.protocol.bodies import KVTable
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers.fields import Header
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting

__all__ = [
    "LOG_FILE",
    "Broker",
    "Kinds",
    "Pair",
    "until",
]

# The seconds that a broker has to start, and to stop before it is killed.
_START = 150.0
_STOP = 90.0

# The seconds that a request of the harness may take.
_TIMEOUT = 20.0

# A file of the log is small, so that the log has several.
LOG_FILE = 4 << 20

_SETTINGS: dict[str, object] = {
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": LOG_FILE,
    "mappedFileSizeConsumeQueue": 20 * 3000,
    "maxHashSlotNum": 50000,
    "maxIndexNum": 200000,
    "messageDelayLevel": " ".join(DELAYS),
    "flushConsumerOffsetInterval": 500,
    "flushDelayOffsetInterval": 500,
    # A slave of RocketMQ's says nothing for so long after it has connected.
    "haSendHeartbeatInterval": 1000,
    "maxTransferCountOnMessageInMemory": 1000,
    "maxTransferBytesOnMessageInMemory": 1 << 20,
    "waitTimeMillsInSendQueue": 20000,
    "osPageCacheBusyTimeOutMills": 20000,
}

_READY = {"java": b"boot success", "ours": b"listens on"}
# What a slave of ours says when its master was killed.
_LEFT = "does not follow the master"

# What a synchronous master says when its slave was killed.
_ALONE = "Messages reach no slave"

# What it says after it was killed itself, before it had the topics that a master of
# RocketMQ's tells every ten seconds.
_LATE_TOPICS = "The table of topics lacks"

_BROKER = "org.apache.rocketmq.broker.BrokerStartup"


async def until(condition: Any, limit: float, what: str) -> Any:
    """
    Wait until a coroutine returns something true.

    @param condition: is called without arguments; a broker that does not answer counts
        as false.
    @return: what it returned.
    """
    end, last = reactor.seconds() + limit, "nothing"
    while True:
        try:
            if found := await condition():
                return found
            last = repr(found)
        except (RocketError, ConnectError) as error:
            last = repr(error)
        if reactor.seconds() > end:
            raise AssertionError(f"{what}: not within {limit:g} s; last: {last}")
        await sleep(0.1)


@attrs.frozen
class Kinds:
    """
    A master and a slave.

    @ivar master: C{ours} or C{java}.
    @ivar slave: C{ours} or C{java}.
    @ivar role: C{SYNC_MASTER} or C{ASYNC_MASTER}.
    @ivar flush: C{SYNC_FLUSH} or C{ASYNC_FLUSH}, of both.
    """

    master: str
    slave: str
    role: str
    flush: str

    def __str__(self) -> str:
        return f"{self.master}-{self.slave} {self.role} {self.flush}"

    def lacks(self, absent: Any) -> str | None:
        """
        What of it is not there, if anything.
        """
        return next((each for each in absent if each in (self.master, self.slave)), None)


class Broker:
    """
    A broker on a folder and a port.

    @ivar kind: C{ours} or C{java}, of the process that runs or ran last.
    @ivar child: its process.
    @ivar expected: parts of what one of ours may say though it should not.
    @ivar system: what RocketMQ takes as properties of Java's system, and ours from the file.
    """

    def __init__(self, name: str, kind: str, folder: Path, nameServer: str, peers: Peers) -> None:
        """
        @param name: of its files.
        """
        self.name = name
        self.kind = kind
        self.store = folder / name
        self.port = freePort()
        self.child: Child | None = None
        self.faults: list[str] = []
        self._folder = folder
        self._nameServer = nameServer
        self._peers = peers
        self._said: list[bytes] = []
        self._settings: dict[str, object] = {}
        self.system: dict[str, str] = {}
        self.expected = [_LEFT, _ALONE]

    @property
    def address(self) -> str:
        """
        Of its port for clients.
        """
        return f"127.0.0.1:{self.port}"

    @property
    def haAddress(self) -> str:
        """
        Of its port for slaves.
        """
        return f"127.0.0.1:{self.port + 1}"

    @property
    def lines(self) -> list[str]:
        """
        What its processes said.
        """
        said = self._said + (self.child.lines if self.child is not None else [])
        return [each.decode(errors="replace") for each in said]

    async def start(
        self, settings: Mapping[str, object] | None = None, kind: str | None = None
    ) -> None:
        """
        Start it.

        @param settings: those that are not as before.
        @param kind: whose, if it is not to be as before.
        """
        assert self.child is None, f"{self.name} runs"
        self.kind = kind or self.kind
        self._settings |= settings or {}
        self.store.mkdir(parents=True, exist_ok=True)
        if self.kind == "java":
            # RocketMQ's broker does not start if it was killed between making a file and
            # giving it a size.  An operator removes the file, and so does this.
            for each in self.store.rglob("0*"):
                if each.is_file() and not each.stat().st_size:
                    each.unlink()
        command = self._command()
        child = self.child = Child(_READY[self.kind])
        environment = {**os.environ, "HOME": str(self._folder)}
        reactor.spawnProcess(child, command[0], command, env=environment, path=str(self._folder))
        late = reactor.callLater(_START, child.signal, "KILL")
        listening = await child.listening
        if late.active():
            late.cancel()
        if not listening:
            self._ended(child)
            raise AssertionError(f"{self.name} ({self.kind}) did not start:\n{child.output}")
        if self.kind == "ours" and not self.system:
            # It asks the name server for another master first, and serves nothing until then.
            await until(self._hasRole, _START, f"{self.name} has a role")

    async def _hasRole(self) -> bool:
        return (await self.info()).get("role") != "SUSPENDED"

    async def end(self, signal: str = "TERM") -> None:
        """
        End it, if it runs.
        """
        if (child := self.child) is not None:
            await child.end(signal, _STOP)
            self._peers.forget(self.address)
            # It may have been ended twice at the same time, and started since.
            if self.child is child:
                self._ended(child)

    def _ended(self, child: Child) -> None:
        self._said += child.lines
        if self.kind == "ours":
            self.faults += [
                each for each in child.faults if not any(text in each for text in self.expected)
            ]
        self.child = None

    def _command(self) -> list[str]:
        settings: dict[str, object] = {
            **_SETTINGS,
            "brokerName": "pair",
            "namesrvAddr": self._nameServer,
            **self._settings,
            "listenPort": self.port,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
        }
        if self.kind == "ours":
            settings |= self.system
        # Both kinds read the same file.
        path = self._folder / f"{self.name}.conf"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if self.kind == "ours":
            return twistd("rocket-broker", "-c", str(path))
        system = {
            "user.home": str(self._folder / f"{self.name}-home"),
            "rocketmq.broker.diskSpaceWarningLevelRatio": "0.99",
            "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.99",
            **self.system,
        }
        return java(_BROKER, "-c", str(path), properties=system)

    # --- requests --------------------------------------------------------

    async def ask(
        self, code: int, header: Header | None = None, body: bytes = b"", timeout: float = _TIMEOUT
    ) -> RemotingCommand:
        """
        Ask it, whatever it answers.
        """
        return await self._peers.request(self.address, requestCommand(code, header, body), timeout)

    async def info(self) -> dict[str, str]:
        """
        What it tells about itself.
        """
        answer = await self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(decodeBody(KVTable, answer.body).table)

    async def logEnd(self) -> int:
        """
        Where its log ends.
        """
        return int((await self.info())["commitLogMaxOffset"])


class Pair:
    """
    A name server of ours, a master and a slave.
    """

    def __init__(self, kinds: Kinds, folder: Path) -> None:
        """
        @param folder: for all that they write.
        """
        self.kinds = kinds
        self.peers = Peers(Remoting(reactor), endpoints(reactor), lambda failures: 0.2)
        self._folder = folder
        self._namesrvPort = freePort()
        self._namesrv: Child | None = None
        nameServer = f"127.0.0.1:{self._namesrvPort}"
        self.master = Broker("master", kinds.master, folder, nameServer, self.peers)
        self.slave = Broker("slave", kinds.slave, folder, nameServer, self.peers)
        if kinds.master == "java":
            self.slave.expected.append(_LATE_TOPICS)

    async def startNameServer(self) -> None:
        """
        Start the name server.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / "namesrv.conf"
        path.write_text(
            f"listenPort={self._namesrvPort}\nkvConfigPath={self._folder / 'kvConfig.json'}\n"
        )
        child = self._namesrv = Child(b"listens on")
        command = twistd("rocket-namesrv", "-c", str(path))
        environment = {**os.environ, "HOME": str(self._folder)}
        reactor.spawnProcess(child, command[0], command, env=environment, path=str(self._folder))
        assert await child.listening, f"the name server did not start:\n{child.output}"

    async def startMaster(self, **settings: object) -> None:
        """
        Start the master.
        """
        kinds = self.kinds
        role = {"brokerRole": kinds.role, "brokerId": 0, "flushDiskType": kinds.flush}
        await self.master.start({**role, **settings})

    async def startSlave(self, **settings: object) -> None:
        """
        Start the slave, which asks the name server for its master.
        """
        role = {"brokerRole": "SLAVE", "brokerId": 1, "flushDiskType": self.kinds.flush}
        await self.slave.start({**role, **settings})

    async def caughtUp(self, limit: float = 60.0) -> int:
        """
        Wait until both logs end at the same place.

        @return: where.
        """

        async def same() -> int:
            end = await self.master.logEnd()
            return end if end and await self.slave.logEnd() == end else 0

        found: int = await until(same, limit, "the slave has caught up")
        return found

    @property
    def faults(self) -> list[str]:
        """
        What our own servers said that they should not have had to.
        """
        return [*self.master.faults, *self.slave.faults]

    @property
    def output(self) -> str:
        """
        The last lines of both.
        """
        told = []
        for each in (self.master, self.slave):
            told += [f"--- {each.name} ({each.kind})", *each.lines[-40:]]
        return "\n".join(told)

    async def stop(self) -> None:
        """
        End all.
        """
        await self.slave.end()
        await self.master.end()
        await self.peers.stop()
        if self._namesrv is not None:
            await self._namesrv.end()
