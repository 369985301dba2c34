# SPDX-License-Identifier: Apache-2.0
"""
Brokers with real stores, each on a disk in memory and a machine of one network.
"""

from __future__ import annotations

from random import Random
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.replication.fakes import FakeIdentity, FakeTables
from tests.store.disk import Disk
from tests.store.ledger import HOST, ROOT, SMALL, START
from tests.store.replicas import bodies
from tests.store.support import atOnce
from txrocket.broker.replication.handshake import nextEpoch
from txrocket.broker.replication.interfaces import MasterParts, SlaveParts
from txrocket.broker.replication.master import ReplicaServerFactory
from txrocket.broker.replication.replicas import Replicas
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.broker.replication.slave import MasterLink
from txrocket.store.messagestore import MessageStore
from txrocket.store.replica.cut import Cut
from txrocket.store.replica.epochs import EPOCH_FILE, EpochFile
from txrocket.testing.memory.network import Machine, MemoryNetwork

__all__ = ["FILE", "StoreBroker", "StoreCase"]

#: The size of a file of a log.
FILE = SMALL.mappedFileSizeCommitLog


class _NoTables:
    def apply(self, payload: bytes) -> None:
        return None


class StoreBroker:
    """
    A broker that leads or follows, on a machine and a disk of its own.

    @ivar isNumbered: whether its epochs are its own; otherwise two brokers may make the same.
    @ivar cuts: what was cut from its log.
    @ivar anew: where its log began anew, and what keeps the old one.
    """

    def __init__(self, network: MemoryNetwork, number: int, **settings: Any) -> None:
        self.clock: Any = network.clock
        self.number = number
        self.machine = Machine(network, f"10.0.0.{number}")
        self.address = f"10.0.0.{number}:10912"
        self.disk = Disk()
        self.identity = FakeIdentity("", number)
        self.settings = ReplicationSettings(**settings)
        self.cuts: list[Cut] = []
        self.anew: list[tuple[int, str]] = []
        self.isUp = False
        self.isNumbered = True

    @property
    def end(self) -> int:
        """
        Where its log ends.
        """
        return self.store.replica.end

    def start(self) -> None:
        """
        Open the folder, and follow nobody yet.
        """
        self.store = MessageStore(SMALL, self.clock, atOnce, HOST, files=self.disk, memory=1 << 40)
        self.epochs = EpochFile(self.disk, f"{ROOT}/{EPOCH_FILE}")
        self.epochs.load()
        self.store.replica.follow()
        self.store.start()
        replica = self.store.replica
        self.replicas = Replicas(self.clock, replica, self.settings, True)
        parts = MasterParts(replica, self.epochs, FakeTables(), self.identity, FILE)
        self.factory = ReplicaServerFactory(self.clock, parts, self.replicas, self.settings)
        self.link = MasterLink(
            self.clock,
            self.machine.connect,
            SlaveParts(
                replica,
                self.epochs,
                _NoTables(),
                self.identity,
                FILE,
                self.store.flusher.flush,
                self.cuts.append,
                lambda offset, folder: self.anew.append((offset, folder)),
            ),
            self.settings,
            lambda failures: 0.2,
        )
        self.isUp = True

    def lead(self) -> None:
        """
        Become the master.
        """
        self.link.follow(None)
        self.store.replica.lead()
        last = self.epochs.last
        self.beginEpoch(last.epoch if last else 0)
        self.identity.groupId = self.identity.groupId or "group"
        self.machine.listen(10912).listen(self.factory)

    def beginEpoch(self, last: int) -> None:
        """
        Begin an epoch above another one.
        """
        epoch = nextEpoch(last, self.number if self.isNumbered else 0)
        self.epochs.append(epoch, self.store.replica.end)
        self.factory.epochBegan()

    def kill(self, random: Random | None = None) -> None:
        """
        End the process, or the machine's power.
        """
        self.isUp = False
        self.link.follow(None)
        self.machine.crash()
        self.factory.stopFactory()
        self.store.tasks.stop()
        if random is None:
            self.disk.kill()
        else:
            self.disk = self.disk.crash(random)


class StoreCase(SynchronousTestCase):
    """
    A test of brokers with stores, of which the first is the master.
    """

    def setUp(self) -> None:
        """
        Begin with a master.
        """
        self.clock = Clock()
        self.clock.advance(START)
        self.network = MemoryNetwork(self.clock)
        self.brokers: list[StoreBroker] = []
        self.master = self.broker()
        self.master.lead()

    def tearDown(self) -> None:
        """
        End what runs.
        """
        for each in self.brokers:
            if each.isUp:
                each.kill()

    def broker(self, **settings: Any) -> StoreBroker:
        """
        Start a broker.
        """
        broker = StoreBroker(self.network, len(self.brokers) + 1, **settings)
        self.brokers.append(broker)
        broker.start()
        return broker

    def slave(self, **settings: Any) -> StoreBroker:
        """
        Start a slave.
        """
        slave = self.broker(**settings)
        slave.link.follow(self.master.address)
        self.advance()
        return slave

    def step(self) -> bool:
        """
        Make the next call that is due.

        @return: whether there was one.
        """
        if not self.clock.calls or self.clock.calls[0].time > self.clock.seconds():
            return False
        call: Any = self.clock.calls.pop(0)
        call.called = 1
        call.func(*call.args, **call.kw)
        return True

    def advance(self, seconds: float = 0.0) -> None:
        """
        Let time pass.
        """
        while seconds > 0.1:
            self.clock.advance(0.1)
            seconds -= 0.1
        self.clock.advance(seconds)

    def assertSame(self, slave: StoreBroker) -> None:
        """
        A slave's files are its master's, and its queues have the same messages.
        """
        folder = f"{ROOT}/commitlog"
        self.assertEqual(slave.disk.names(folder), self.master.disk.names(folder))
        for name in slave.disk.names(folder):
            path = f"{folder}/{name}"
            self.assertEqual(slave.disk.file(path).data, self.master.disk.file(path).data, name)
        self.assertEqual(bodies(slave.store), bodies(self.master.store))
        self.assertEqual(slave.link.status.problem, "")
