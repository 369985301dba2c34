# SPDX-License-Identifier: Apache-2.0
"""
Tests of what slow slaves cost a master: memory, and the time of others.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.replication.fakes import FakeLog, FakeMaster, FakeSlave, LinkCase
from txrocket.broker.replication.master.turns import PieceTurns
from txrocket.testing.memory.transport import MemoryTransport

BATCH = 32 * 1024

# What a socket holds before it pauses its producer, as Twisted's do.
SOCKET = 64 * 1024


class FlowTests(LinkCase):
    """
    Slaves that do not read, or lack much.
    """

    def unsent(self, slave: FakeSlave) -> int:
        """
        How many bytes the master's transport holds for a slave.
        """
        (transport,) = slave.machine.transports
        return len(transport.other._unsent)

    def stop(self, slave: FakeSlave) -> MemoryTransport:
        """
        Let a slave read no more, as a machine that is stopped.
        """
        (transport,) = slave.machine.transports
        transport.pauseProducing()
        return transport

    def follow(self) -> tuple[FakeMaster, FakeSlave, FakeSlave]:
        """
        A master with two slaves that have everything.
        """
        master = self.master()
        first, second = self.slave(), self.slave(replicaId=2)
        self.advance()
        return master, first, second

    def test_stoppedSlaveCostsOnePiece(self) -> None:
        """
        A slave that does not read costs the socket's buffer and one piece, whatever it lacks:
        the master reads the log's files, and holds no copies.  The others get everything.
        """
        master, stopped, other = self.follow()
        transport = self.stop(stopped)
        for _ in range(100):
            waiting = master.replicas.stored(master.log.put(bytes(BATCH)))
            self.advance()
            self.successResultOf(waiting)
            self.assertLessEqual(self.unsent(stopped), SOCKET + BATCH + 100)
        self.assertEqual(other.log.end, 100 * BATCH)
        reads = len(master.log.reads)
        self.advance(1)
        self.assertEqual(len(master.log.reads), reads)
        transport.resumeProducing()
        self.advance()
        self.assertEqual(stopped.log.data, master.log.data)

    def test_stoppedSlaveIsClosed(self) -> None:
        """
        A slave that stays stopped is closed, its buffer freed, and nothing waits for it.
        """
        master, stopped, _ = self.follow()
        (replica,) = (each for each in master.replicas.all if each.replicaId == 1)
        transport = self.stop(stopped)
        # A process that is stopped does not write either.
        transport.write = lambda data: None  # type: ignore[method-assign]
        master.log.put(bytes(BATCH * 10))
        self.advance(19)
        self.assertIn(replica, master.replicas.all)
        self.advance(2)
        self.assertNotIn(replica, master.replicas.all)
        self.assertEqual(len(transport.other._unsent), 0)

    def test_tablesWaitForSocket(self) -> None:
        """
        Changes of tables are not encoded for a slave that does not read.
        """
        master, stopped, other = self.follow()
        self.stop(stopped)
        for number in range(200):
            master.tables.change(b"%04d" % number + bytes(4000))
            self.advance()
            self.assertLessEqual(self.unsent(stopped), SOCKET + 5000)
        self.assertEqual(len(other.tables.taken), 200)

    def test_slaveFarBehindDoesNotDelayOthers(self) -> None:
        """
        While a slave gets a log of many pieces, a message that is appended meanwhile is on the
        other slave after a few pieces of the first.
        """
        master = self.master(FakeLog(bytes(BATCH * 400)))
        near = self.slave()
        self.advance()
        far = self.slave(replicaId=2, follows=False)
        far.link.follow("10.0.0.1:10912")
        # One call of the clock at a time, until the second slave has some of the log.
        while far.log.end < BATCH * 10:
            self.step()
        waiting = master.replicas.stored(master.log.put(b"new"))
        before = far.log.end
        while not waiting.called:
            self.step()
        self.successResultOf(waiting)
        self.assertEqual(near.log.end, master.log.end)
        self.assertLess(far.log.end - before, BATCH * 40)
        self.assertLess(far.log.end, master.log.end)
        self.advance()
        self.assertEqual(far.log.data, master.log.data)

    def step(self) -> None:
        """
        Make the next call that is due, and no other.
        """
        calls: list[Any] = self.clock.calls
        call = calls.pop(0)
        call.called = 1
        call.func(*call.args, **call.kw)

    def test_pieceIsBatchSize(self) -> None:
        """
        No read of the log is longer than haTransferBatchSize.
        """
        master = self.master(FakeLog(bytes(50_000)), haTransferBatchSize=1000)
        slave = self.slave()
        self.advance()
        self.assertEqual(slave.log.data, master.log.data)
        self.assertEqual(master.log.most, 1000)


class _Sender:
    """
    Has some pieces to send.
    """

    def __init__(self, name: str, pieces: int, sent: list[str]) -> None:
        self._name = name
        self._pieces = pieces
        self._sent = sent

    def sendPiece(self) -> bool:
        self._sent.append(self._name)
        self._pieces -= 1
        return self._pieces > 0


class TurnsTests(SynchronousTestCase):
    """
    L{PieceTurns}.
    """

    def test_sendersTakeTurns(self) -> None:
        """
        Each sends one piece, then the next, and a new one is not the last to begin.
        """
        clock, sent = Clock(), list[str]()
        turns = PieceTurns(clock)
        turns.want(_Sender("a", 3, sent))
        turns.want(_Sender("b", 2, sent))
        clock.advance(0)
        self.assertEqual("".join(sent), "ababa")

    def test_turnEnds(self) -> None:
        """
        However much there is to send, the reactor does other things between.
        """
        clock, sent = Clock(), list[str]()
        turns = PieceTurns(clock)
        turns.want(_Sender("a", 1000, sent))
        call = clock.calls.pop(0)
        call.func()
        self.assertLess(len(sent), 20)
        self.assertEqual(len(clock.calls), 1)
        clock.advance(0)
        self.assertEqual(len(sent), 1000)

    def test_forgottenSenderIsNotCalled(self) -> None:
        """
        A connection that is gone sends nothing.
        """
        clock, sent = Clock(), list[str]()
        turns = PieceTurns(clock)
        sender = _Sender("a", 3, sent)
        turns.want(sender)
        turns.forget(sender)
        clock.advance(0)
        self.assertEqual(sent, [])
