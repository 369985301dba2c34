# SPDX-License-Identifier: Apache-2.0
"""
A master and two slaves in memory, on disks that can lose power, and what lies on these disks::

    PowerCluster --> _Host --> Broker
                          \\-> Disk --> Contents: epochs, log, records, what was cut or set aside

Contents are read from the disk, so a broker that does not run has them too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

import msgspec

from tests.store.disk import Disk
from txrocket.errors import MalformedRecord
from txrocket.message import MessageExt
from txrocket.protocol.record import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE, decodeRecord
from txrocket.store.log.commitlog import HOLE_TOPIC
from txrocket.store.replica.epochs import EPOCH_FILE, Epoch, decodeEpochs
from txrocket.testing.clustersettings import Setting
from txrocket.testing.memory.cluster import MemoryCluster

__all__ = ["Contents", "Place", "PowerCluster", "recordsIn"]

_HEAD = struct.Struct(">2i")
_LOG = "store/commitlog"


class PoweredDisk(Disk):
    """
    A disk of a machine in a L{MemoryCluster}.
    """

    def crash(self, random: Random | None = None) -> Disk:
        """
        End the process, or the power if there is a chance to decide what stays.
        """
        if random is not None:
            return super().crash(random)
        self.kill()
        return self

    def close(self, handle: int) -> None:
        """
        Close a file, which may be one of a process that has ended.
        """
        self._handles.pop(handle, None)


class Place(NamedTuple):
    """
    How far a log goes.  The greater one has all that was acknowledged.
    """

    epoch: int
    end: int


def recordsIn(data: bytes, base: int | None = None) -> Iterator[tuple[int, MessageExt]]:
    """
    The whole records that bytes begin with, and where each begins.

    @param base: where in the log the bytes begin; L{None} if they are not of one place.
    """
    at = 0
    while len(data) - at >= _HEAD.size:
        size, magic = _HEAD.unpack_from(data, at)
        if magic != MESSAGE_MAGIC_CODE or not 0 < size <= len(data) - at:
            return
        try:
            record = decodeRecord(data, at, checkCrc=True)
        except MalformedRecord:
            return
        if base is not None and record.commitLogOffset != base + at:
            return
        yield at, record
        at += size


class Contents:
    """
    What a disk has of a broker.

    @ivar first: where the oldest file of the log begins.
    @ivar end: where the last whole record ends, or the file behind it begins.
    @ivar records: the records, in their order.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.records: list[MessageExt] = []
        names = sorted(each for each in disk.names(_LOG) if each.isdigit())
        self.first = self.end = int(names[0]) if names else 0
        self.log = b""
        for name in names:
            data = bytes(disk.file(f"{_LOG}/{name}").data)
            if int(name) != self.end:
                break
            whole = self._readFile(int(name), data)
            self.log += data[: self.end - int(name)]
            if not whole:
                break

    def _readFile(self, base: int, data: bytes) -> bool:
        """
        @return: whether the log goes on in the next file.
        """
        at = 0
        for start, record in recordsIn(data, base):
            self.records.append(record)
            at = start + record.storeSize
        self.end = base + at
        if len(data) - at >= _HEAD.size:
            size, magic = _HEAD.unpack_from(data, at)
            if magic == BLANK_MAGIC_CODE and at + size == len(data):
                self.end = base + len(data)
                return True
        return False

    @property
    def epochs(self) -> list[Epoch]:
        """
        The epochs of the log.
        """
        path = f"store/{EPOCH_FILE}"
        if self._disk.size(path) is None:
            return []
        return decodeEpochs(bytes(self._disk.file(path).data))

    @property
    def place(self) -> Place:
        """
        How far the log goes.
        """
        # A power loss may have taken the bytes of the last ones.
        epochs = [each for each in self.epochs if each.start <= self.end]
        return Place(epochs[-1].epoch if epochs else 0, self.end)

    @property
    def bodies(self) -> set[bytes]:
        """
        The bodies of all messages in the log.
        """
        return {each.body for each in self.records}

    def kept(self) -> tuple[set[bytes], list[str]]:
        """
        The bodies that were cut off or set aside, and the files that have anything else than
        whole records.
        """
        bodies: set[bytes] = set()
        spoiled = []
        for path in self._disk.paths("store/cut"):
            data, size = bytes(self._disk.file(path).data), 0
            if not path.endswith(".log"):
                continue
            for start, record in recordsIn(data):
                bodies.add(record.body)
                size = start + record.storeSize
            if size != len(data):
                spoiled.append(path)
        for path in self._disk.paths("store/aside"):
            if "/commitlog/" in path:
                found = recordsIn(bytes(self._disk.file(path).data))
                bodies |= {record.body for _, record in found}
        return bodies, spoiled

    @property
    def role(self) -> str | None:
        """
        The role that an operator has given to the broker, if one has.
        """
        path = "store/config/replica.json"
        if self._disk.size(path) is None:
            return None
        found: str | None = msgspec.json.decode(bytes(self._disk.file(path).data)).get("role")
        return found


class PowerCluster(MemoryCluster):
    """
    A master and two slaves.

    @ivar members: their addresses.
    @ivar problems: promises that were broken while they ran.
    """

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        super().__init__(slaves=2, settings=settings)
        self.members = [*self.brokers, *self.slaves]
        self.problems: list[str] = []
        for each in self.members:
            disk = PoweredDisk()
            disk.now = self.wall()
            self._host(each)._files = disk

    def start(self, address: str | None = None) -> None:
        """
        Start all brokers that do not run, and watch them.
        """
        for each in [*self.nameServers, *self.members] if address is None else [address]:
            super().start(each)
            if each in self.members:
                self._watch(each)

    def _watch(self, address: str) -> None:
        """
        Look at each piece of the log that a slave takes: it knows the topics before.  A topic
        that the master itself has lost, because it was killed before the topic was saved, has
        no message that was acknowledged.
        """
        broker = self.broker(address)
        replica: Any = broker.store.replica
        append = replica.append

        def watched(offset: int, data: bytes) -> None:
            append(offset, data)
            topics = {topic for topic, _, _ in broker.store.queues} - {HOLE_TOPIC}
            missing = topics - broker.tables.topics.table.keys()
            for master in self.masters() if missing else ():
                missing &= self.broker(master).tables.topics.table.keys()
            if missing:
                self.problems.append(f"{address} has messages of {missing}, and not the topic")

        replica.append = watched

    def isUp(self, address: str) -> bool:
        """
        Whether a broker runs.
        """
        return self._machines[address].service is not None

    def running(self) -> list[str]:
        """
        The brokers that run.
        """
        return [each for each in self.members if self.isUp(each)]

    def role(self, address: str) -> str:
        """
        The role of a broker; empty if it does not run.
        """
        return self.broker(address).replication.role.value if self.isUp(address) else ""

    def masters(self) -> list[str]:
        """
        The brokers that lead.
        """
        return [each for each in self.members if self.role(each) == "MASTER"]

    def hasSlaves(self, address: str) -> bool:
        """
        Whether a broker leads, and a slave follows it.
        """
        if self.role(address) != "MASTER":
            return False
        found = self.broker(address).replication.steps.links.replicaStatus()
        return any(not each.plain for each in found)

    def names(self, address: str) -> set[str]:
        """
        The topics and groups of a broker that runs.
        """
        tables = self.broker(address).tables
        return {*tables.topics.table, *tables.groups.table}

    def losePower(self, address: str, random: Random) -> None:
        """
        End a broker and its machine.

        @param random: decides what of the bytes that were not synced is on the disk.
        """
        host = self._host(address)
        disk = host._files
        self.crash(address)
        host._files = disk.crash(random)

    def disk(self, address: str) -> Disk:
        """
        The disk of a broker.
        """
        disk: Disk = self._host(address)._files
        return disk

    def contents(self, address: str) -> Contents:
        """
        What the disk of a broker has.
        """
        return Contents(self.disk(address))

    def _host(self, address: str) -> Any:
        return self._machines[address]
