# SPDX-License-Identifier: Apache-2.0
"""
Tests of links between real stores, each on a disk in memory.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory

from tests.broker.replication.fakes import Peer
from tests.broker.replication.storebrokers import FILE, StoreCase
from tests.store.replicas import bodies, logOf, put
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.errors import SlaveNotAvailable
from txrocket.protocol.ha.plain import PieceReader, encodeOffset
from txrocket.testing.memory.network import Machine


class StoreLinkTests(StoreCase):
    """
    A master and slaves with stores.
    """

    def fill(self, count: int, name: bytes = b"m", size: int = 300) -> list[int]:
        """
        Put messages into the master.

        @return: where each ends.
        """
        return [
            put(self.master.store, (name + b"%d." % number).ljust(size, b"x")).end
            for number in range(count)
        ]

    def stored(self, ends: list[int]) -> list[Deferred[None]]:
        """
        Wait for slaves.
        """
        return [self.master.replicas.stored(end) for end in ends]

    def test_historyAndMessagesAreCopied(self) -> None:
        """
        A new slave gets the files of the log as they are, blanks at their ends with them, and
        then each message; a send is acknowledged when it is on the slave's disk.
        """
        for failed in self.stored(self.fill(50)):
            self.failureResultOf(failed, SlaveNotAvailable)
        slave = self.slave()
        self.assertSame(slave)
        waiting = self.stored(self.fill(50, b"n"))
        self.advance()
        for each in waiting:
            self.successResultOf(each)
        self.assertSame(slave)
        self.assertEqual(slave.store.replica.flushed, slave.store.replica.end)
        self.assertEqual(len(bodies(slave.store)), 100)

    def test_smallPiecesSplitRecords(self) -> None:
        """
        Records and blanks that come in pieces of some bytes are in the queues once they are
        whole.
        """
        self.master.factory.settings = ReplicationSettings(haTransferBatchSize=7)
        slave = self.slave()
        waiting = self.stored(self.fill(30))
        self.advance()
        for each in waiting:
            self.successResultOf(each)
        self.assertSame(slave)

    def test_killedSlaveGoesOn(self) -> None:
        """
        A slave that is killed in the middle of a record goes on with it.
        """
        self.master.factory.settings = ReplicationSettings(haTransferBatchSize=100)
        slave = self.slave()
        for _ in range(5):
            self.fill(10)
            for _ in range(25):
                self.step()
            slave.kill()
            self.advance()
            slave.start()
            slave.link.follow(self.master.address)
            self.advance()
        self.assertSame(slave)
        self.assertEqual((slave.cuts, slave.anew), ([], []))

    def test_oldMasterIsCut(self) -> None:
        """
        The old master has a message that its successor does not have, of the same length as
        one that the successor has at the same place (W3).  It is cut and kept.
        """
        slave = self.slave()
        self.fill(3)
        self.advance()
        old, self.master = self.master, slave
        slave.link.follow(None)
        self.advance()
        put(old.store, b"A" * 50)
        slave.lead()
        old.kill()
        put(slave.store, b"B" * 50)
        old.start()
        old.link.follow(slave.address)
        self.advance()
        self.fill(3, b"C")
        self.advance()
        self.assertSame(old)
        self.assertEqual(len(old.cuts), 1)
        self.assertEqual(old.cuts[0].records, 1)
        self.assertIn(b"A" * 50, old.disk.file(old.cuts[0].path).data)
        self.assertIn(b"B" * 50, bodies(old.store))
        self.assertEqual(old.epochs.entries, slave.epochs.entries)

    def test_slaveWithoutEpochsBeginsAnew(self) -> None:
        """
        A slave with a log of which nothing is known sets it aside, and gets all from the
        master's first file.
        """
        other = self.broker()
        other.store.replica.lead()
        put(other.store, b"foreign")
        other.store.replica.follow()
        self.fill(20)
        other.link.follow(self.master.address)
        self.advance()
        self.assertSame(other)
        self.assertEqual(len(other.anew), 1)

    def test_plainSlaveGetsFiles(self) -> None:
        """
        What a slave of RocketMQ 4.9.7 gets are the bytes of the files, and no piece lies in
        two of them.
        """
        self.fill(30)
        pieces = PieceReader()
        log = b""
        stranger = Machine(self.network, "10.0.9.9").connect(self.master.address)
        connected = stranger.connect(Factory.forProtocol(Peer))
        self.advance()
        peer: Any = self.successResultOf(connected)
        peer.say(encodeOffset(0))
        self.advance()
        pieces.feed(peer.received)
        for piece in iter(pieces.next, None):
            self.assertEqual(piece.offset, len(log))
            self.assertEqual(piece.offset // FILE, (piece.offset + len(piece.data) - 1) // FILE)
            log += piece.data
        self.assertEqual(log, logOf(self.master.store))
