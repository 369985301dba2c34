# SPDX-License-Identifier: Apache-2.0
"""
What the tests of links have in common: logs, epochs and tables that are lists, and brokers on
a network in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from txrocket.broker.replication.interfaces import MasterParts, SlaveParts
from txrocket.broker.replication.master import ReplicaServerFactory
from txrocket.broker.replication.replicas import Replicas
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.broker.replication.slave import MasterLink
from txrocket.errors import StoreError
from txrocket.remoting.tls import ServerTLS
from txrocket.store.flush.watermark import Watermark
from txrocket.store.replica.cut import Cut
from txrocket.testing.memory.network import Machine, MemoryNetwork

__all__ = [
    "FILE",
    "MASTER",
    "FakeEpochs",
    "FakeIdentity",
    "FakeLog",
    "FakeMaster",
    "FakeSink",
    "FakeSlave",
    "FakeTables",
    "LinkCase",
    "Logged",
    "Peer",
]

#: The size of a file of a log.
FILE = 4096

#: Where the master listens.
MASTER = "10.0.0.1:10912"


class FakeLog:
    """
    A log that is a string of bytes.  Its records are single bytes.

    @ivar most: the most bytes that were asked for in one read.
    """

    def __init__(self, data: bytes | bytearray = b"", first: int = 0) -> None:
        # One object that grows, because tests append much.
        self.data = bytearray(data)
        self.first = first
        self.flushed = first + len(data)
        self.grown = Watermark(self.end)
        self.most = 0
        self.reads: list[int] = []
        self.cuts: list[bytes] = []
        self.refusal: Exception | None = None

    @property
    def end(self) -> int:
        return self.first + len(self.data)

    def put(self, data: bytes) -> int:
        """
        A producer's messages.
        """
        self.data += data
        self.grown.advance(self.end)
        return self.end

    def read(self, offset: int, most: int) -> bytes:
        if not self.first <= offset <= self.end:
            raise StoreError(f"{offset} is not in the log")
        self.reads.append(offset)
        stop = min(offset + most, offset - offset % FILE + FILE)
        self.most = max(self.most, most)
        return bytes(self.data[offset - self.first : stop - self.first])

    def whenGrown(self, offset: int) -> Deferred[None]:
        return self.grown.reaches(offset + 1)

    def append(self, offset: int, data: bytes) -> None:
        if self.refusal is not None:
            raise self.refusal
        if offset != self.end or offset // FILE != (offset + len(data) - 1) // FILE:
            raise StoreError(f"{len(data)} bytes at {offset} of {self.end}")
        self.put(data)

    def dropHalf(self) -> None:
        pass

    def cut(self, offset: int, epoch: int) -> Cut:
        kept = bytes(self.data[offset - self.first :])
        self.cuts.append(kept)
        del self.data[offset - self.first :]
        self.flushed = min(self.flushed, offset)
        return Cut(offset, len(kept), len(kept), f"cut/{epoch}-{offset}.log")

    def beginAt(self, offset: int) -> str:
        self.cuts.append(bytes(self.data))
        self.data, self.first, self.flushed = bytearray(), offset, offset
        return "aside/1"


class FakeEpochs:
    """
    Epochs in a list.
    """

    def __init__(self, *entries: tuple[int, int]) -> None:
        self.entries: Sequence[tuple[int, int]] = list(entries)

    def append(self, epoch: int, start: int) -> None:
        last = self.entries[-1] if self.entries else (0, 0)
        if epoch <= last[0] or start < last[1]:
            raise StoreError(f"{epoch} at {start} after {last}")
        self.entries = [*(each for each in self.entries if each[1] < start), (epoch, start)]

    def cutAt(self, offset: int) -> None:
        self.entries = [each for each in self.entries if each[1] < offset]


class FakeIdentity:
    """
    A broker's place in its group.
    """

    def __init__(self, groupId: str = "", replicaId: int = 0) -> None:
        self.groupId = groupId
        self.replicaId = replicaId
        self.address = f"10.0.1.{replicaId}:10911"
        self.incarnation = "boot"
        self.members: list[int] = []

    def met(self, replicaId: int) -> None:
        self.members.append(replicaId)

    def join(self, groupId: str) -> None:
        self.groupId = groupId


class FakeTables:
    """
    Tables whose changes are texts.
    """

    def __init__(self) -> None:
        self.changed: list[bytes] = []
        self.cursors: list[_Cursor] = []

    @property
    def changes(self) -> int:
        return len(self.changed)

    def change(self, payload: bytes) -> int:
        """
        A topic changes.
        """
        self.changed.append(payload)
        for each in self.cursors:
            each.onDirty()
        return self.changes

    def cursor(self) -> _Cursor:
        cursor = _Cursor(self)
        self.cursors.append(cursor)
        return cursor


class _Cursor:
    def __init__(self, tables: FakeTables) -> None:
        self._tables = tables
        self._next = 0
        self.onDirty: Callable[[], None] = lambda: None

    def next(self, most: int) -> bytes | None:
        if self._next == len(self._tables.changed):
            return None
        self._next += 1
        return self._tables.changed[self._next - 1]

    def close(self) -> None:
        self._tables.cursors.remove(self)


class FakeSink:
    """
    Takes tables.

    @ivar taken: each payload, and where the log ended when it came.
    @ivar waiting: what the disk has not taken yet, if it is slow.
    """

    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self.taken: list[tuple[bytes, int]] = []
        self.isSlow = False
        self.waiting: list[Deferred[None]] = []

    def apply(self, payload: bytes) -> Deferred[None] | None:
        self.taken.append((payload, self._log.end))
        if not self.isSlow:
            return None
        self.waiting.append(Deferred())
        return self.waiting[-1]


class Peer(Protocol):
    """
    A stranger, or a broker of RocketMQ 4.9.7 of which the test plays the part.
    """

    def __init__(self) -> None:
        self.received = b""
        self.isLost = False

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: object = None) -> None:
        self.isLost = True

    def say(self, data: bytes) -> None:
        """
        Send.
        """
        assert self.transport is not None
        self.transport.write(data)


@attrs.define
class FakeMaster:
    """
    A master on the network.
    """

    log: FakeLog
    epochs: FakeEpochs
    tables: FakeTables
    identity: FakeIdentity
    replicas: Replicas
    factory: ReplicaServerFactory
    port: IListeningPort


@attrs.define
class FakeSlave:
    """
    A slave on the network.
    """

    log: FakeLog
    epochs: FakeEpochs
    tables: FakeSink
    identity: FakeIdentity
    link: MasterLink
    machine: Machine
    cuts: list[Cut]
    anew: list[tuple[int, str]]


@implementer(ILogObserver)
class Logged:
    """
    What is logged at a level.

    @ivar texts: each event as text.
    """

    def __init__(self, level: Any) -> None:
        self._level = level
        self.texts: list[str] = []

    def __enter__(self) -> Logged:
        globalLogPublisher.addObserver(self)
        return self

    def __exit__(self, *error: object) -> None:
        globalLogPublisher.removeObserver(self)

    def __call__(self, event: Any) -> None:
        if event.get("log_level") is self._level:
            self.texts.append(formatEvent(event))


class LinkCase(SynchronousTestCase):
    """
    A test of links on a network in memory.
    """

    def setUp(self) -> None:
        """
        Begin with a network without brokers.
        """
        self.clock = Clock()
        self.clock.advance(1000)
        self.network = MemoryNetwork(self.clock)
        self.machines = 1
        self.port: Any = None

    def advance(self, seconds: float = 0.0, step: float = 0.1) -> None:
        """
        Let time pass, in steps as small as timers need.
        """
        while seconds > step:
            self.clock.advance(step)
            seconds -= step
        self.clock.advance(seconds)

    def master(
        self,
        log: FakeLog | None = None,
        *epochs: tuple[int, int],
        groupId: str = "group",
        tls: ServerTLS | None = None,
        countsFlushed: bool = False,
        **settings: Any,
    ) -> FakeMaster:
        """
        Start a master.
        """
        log = FakeLog() if log is None else log
        parts = MasterParts(
            log, FakeEpochs(*(epochs or ((1, 0),))), FakeTables(), FakeIdentity(groupId), FILE
        )
        section = ReplicationSettings(**settings)
        replicas = Replicas(self.clock, log, section, countsFlushed)
        factory = ReplicaServerFactory(self.clock, parts, replicas, section, tls)
        port = self.successResultOf(Machine(self.network, "10.0.0.1").listen(10912).listen(factory))
        self.port = port
        tables: Any = parts.tables
        epochs_: Any = parts.epochs
        identity: Any = parts.identity
        return FakeMaster(log, epochs_, tables, identity, replicas, factory, port)

    def closeMaster(self) -> None:
        """
        Let the master listen no more.
        """
        self.successResultOf(self.port.stopListening())

    def slave(
        self,
        log: FakeLog | None = None,
        *epochs: tuple[int, int],
        groupId: str = "",
        replicaId: int = 1,
        follows: bool = True,
        **settings: Any,
    ) -> FakeSlave:
        """
        Start a slave.
        """
        log = FakeLog() if log is None else log
        self.machines += 1
        machine = Machine(self.network, f"10.0.0.{self.machines}")
        cuts: list[Cut] = []
        anew: list[tuple[int, str]] = []

        def flush() -> Deferred[None]:
            log.flushed = log.end
            return succeed(None)

        own, sink = FakeEpochs(*epochs), FakeSink(log)
        identity = FakeIdentity(groupId, replicaId)
        parts = SlaveParts(
            log,
            own,
            sink,
            identity,
            FILE,
            flush,
            cuts.append,
            lambda offset, folder: anew.append((offset, folder)),
        )
        link = MasterLink(
            self.clock,
            machine.connect,
            parts,
            ReplicationSettings(**settings),
            lambda failures: 0.5 * (failures + 1),
        )
        if follows:
            link.follow(MASTER)
        return FakeSlave(log, own, sink, identity, link, machine, cuts, anew)

    def connect(self, address: str = MASTER, host: str = "10.0.9.9") -> Peer:
        """
        Connect to a broker.
        """
        endpoint = Machine(self.network, host).connect(address)
        connected = endpoint.connect(Factory.forProtocol(Peer))
        self.clock.advance(0)
        peer = self.successResultOf(connected)
        assert isinstance(peer, Peer)
        return peer

    def listen(self) -> list[Peer]:
        """
        Listen where the master would.

        @return: the connections, as they come.
        """
        peers: list[Peer] = []

        class Accept(Factory):
            def buildProtocol(self, addr: IPv4Address) -> Peer:  # type: ignore[override]
                peers.append(Peer())
                return peers[-1]

        endpoint = Machine(self.network, "10.0.0.1").listen(10912)
        self.port = self.successResultOf(endpoint.listen(Accept()))
        return peers
