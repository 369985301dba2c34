# SPDX-License-Identifier: Apache-2.0
"""
Tests of a master and a slave of ours on a network in memory: L{ReplicaServerFactory} and
L{MasterLink}.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogLevel

from tests.broker.replication.fakes import FILE, FakeLog, LinkCase, Logged
from txrocket.broker.replication.slave import LinkState
from txrocket.errors import DiskFull, FlushSlaveTimeout, SlaveNotAvailable, StoreError
from txrocket.testing.memory.network import Machine
from txrocket.testing.memory.transport import MemoryTransport


class FollowTests(LinkCase):
    """
    A slave gets its master's log.
    """

    def test_newSlaveGetsWholeHistory(self) -> None:
        """
        A slave with an empty folder joins the group and gets the log from its first file (W6),
        with the epochs, and none of it is set aside.
        """
        master = self.master(FakeLog(bytes(range(256)) * 50), (1, 0), (3, 5000), (4, 12_800))
        slave = self.slave()
        self.advance()
        self.assertEqual(slave.log.data, master.log.data)
        self.assertEqual(slave.identity.groupId, "group")
        # The last epoch has no bytes yet.
        self.assertEqual(slave.epochs.entries, [(1, 0), (3, 5000)])
        self.assertEqual(slave.anew, [])
        self.assertIs(slave.link.state, LinkState.FOLLOWING)

    def test_messagesFollowAtOnce(self) -> None:
        """
        What is appended is on the slave without any time passing, and a SYNC send is
        acknowledged by it.
        """
        master = self.master()
        slave = self.slave()
        self.advance()
        for each in (b"one", b"two", bytes(10_000)):
            waiting = master.replicas.stored(master.log.put(each))
            self.assertNoResult(waiting)
            self.advance()
            self.successResultOf(waiting)
        self.assertEqual(slave.log.data, master.log.data)
        (replica,) = master.replicas.all
        self.assertEqual((replica.written, replica.replicaId), (slave.log.end, 1))
        self.assertEqual(replica.clientAddress, slave.identity.address)

    def test_smallWritesOfBothEndsAreNotDelayed(self) -> None:
        """
        Neither end lets the system hold back a small write until the one before it is
        acknowledged: a SYNC send would wait for that.
        """
        undelayed: list[bool] = []
        self.patch(MemoryTransport, "setTcpNoDelay", lambda transport, on: undelayed.append(on))
        self.master()
        self.slave()
        self.advance()
        self.assertEqual(undelayed, [True, True])

    def test_noPieceCrossesFile(self) -> None:
        """
        A frame lies within one file of the log, however long it may be.
        """
        master = self.master(FakeLog(bytes(3 * FILE + 7)), haTransferBatchSize=3000)
        slave = self.slave()
        self.advance()
        # The slave's log refuses pieces in two files.
        self.assertEqual(slave.log.data, master.log.data)
        self.assertEqual(slave.link.status.problem, "")
        self.assertLessEqual(master.log.most, 3000)

    def test_epochStartsBeforeItsBytes(self) -> None:
        """
        A master that begins an epoch tells the slave, which has it in its file before it has
        any of its bytes; the epoch counts from the start that the master gave.
        """
        master = self.master(FakeLog(b"before"))
        slave = self.slave()
        self.advance()
        master.epochs.append(2, 6)
        master.factory.epochBegan()
        self.advance()
        self.assertEqual(slave.link.status.epoch, 2)
        self.assertEqual(slave.epochs.entries, [(1, 0)])
        master.log.put(b"after")
        self.advance()
        self.assertEqual(slave.epochs.entries, [(1, 0), (2, 6)])
        self.assertEqual(slave.log.data, b"beforeafter")

    def test_epochWithoutBytesIsReplaced(self) -> None:
        """
        An epoch that takes the place of one without bytes is told as well.
        """
        master = self.master(FakeLog(b"before"), (1, 0), (2, 6))
        slave = self.slave()
        self.advance()
        master.epochs.append(3, 6)
        master.log.put(b"after")
        self.advance()
        self.assertEqual(slave.epochs.entries, [(1, 0), (3, 6)])

    def test_reconnectGoesOn(self) -> None:
        """
        After its process is killed or the connection is lost, a slave goes on where its log
        ends: nothing is cut, and nothing is sent twice.
        """
        master = self.master(FakeLog(bytes(5000)))
        slave = self.slave()
        self.advance()
        slave.machine.crash()
        self.advance()
        self.assertEqual(master.replicas.all, ())
        master.log.put(b"more")
        master.log.reads.clear()
        again = self.slave(slave.log, *slave.epochs.entries, groupId="group")
        self.advance()
        self.assertEqual(again.log.data, master.log.data)
        # The samples of the handshake are read as well.
        self.assertEqual([each for each in master.log.reads if each >= 5000], [5000, 5004])
        self.assertEqual((again.cuts, again.anew), ([], []))

    def test_masterComesBack(self) -> None:
        """
        A slave whose master goes connects again and again, and follows when it is back.
        """
        master = self.master(FakeLog(b"one"))
        slave = self.slave()
        self.advance()
        self.closeMaster()
        self.advance(0.1)
        self.assertIs(slave.link.state, LinkState.PAUSED)
        self.advance(5)
        self.assertIn("no server listens", slave.link.status.problem)
        other = self.master(FakeLog(b"one two"), *master.epochs.entries)
        self.advance(5)
        self.assertEqual(slave.log.data, other.log.data)
        self.assertEqual(slave.link.status.problem, "")

    def test_closedPortFailsWhatWaits(self) -> None:
        """
        When a master does not listen any more, its slaves are gone, and a send that waits for
        them fails; when it listens again, they come back.
        """
        master = self.master(FakeLog(b"one"))
        slave = self.slave()
        self.advance()
        waiting = master.replicas.stored(master.log.put(b"two"))
        self.closeMaster()
        self.failureResultOf(waiting, SlaveNotAvailable)
        self.assertEqual(master.replicas.all, ())
        self.assertEqual(master.factory.connections, 0)
        endpoint = Machine(self.network, "10.0.0.1").listen(10912)
        self.port = self.successResultOf(endpoint.listen(master.factory))
        self.advance(2)
        self.assertEqual(slave.log.data, b"onetwo")
        self.successResultOf(master.replicas.stored(6))

    def test_slaveFollowsOtherAddress(self) -> None:
        """
        A link that is given another address takes nothing more from the first, and one that
        is given none ends without a timer left.
        """
        master = self.master(FakeLog(b"one"))
        slave = self.slave()
        self.advance()
        slave.link.follow("10.0.0.77:10912")
        self.advance(1)
        master.log.put(b"two")
        self.advance()
        self.assertEqual(slave.log.data, b"one")
        slave.link.follow(None)
        self.assertIs(slave.link.state, LinkState.IDLE)
        slave.link.follow("10.0.0.1:10912")
        slave.link.follow(None)
        self.advance(10)
        self.assertEqual(slave.log.data, b"one")
        self.closeMaster()
        self.advance(1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nothingIsTakenAfterFollowNone(self) -> None:
        """
        Bytes that are on their way when a slave is promoted are not appended any more.
        """
        master = self.master(FakeLog(b"one"))
        slave = self.slave()
        self.advance()
        (transport,) = slave.machine.transports
        take = transport.take
        late: list[bytes] = []
        transport.take = late.append  # type: ignore[assignment,method-assign]
        master.log.put(b"two")
        self.advance()
        slave.link.follow(None)
        take(b"".join(late))
        self.advance(1)
        self.assertEqual(slave.log.data, b"one")

    def test_slaveWithTwoConnectionsHasOne(self) -> None:
        """
        A slave that connects again before its master has noticed that the old connection is
        dead replaces it.
        """
        master = self.master(FakeLog(b"one"))
        slave = self.slave()
        self.advance()
        other = self.slave(groupId="group", replicaId=1)
        self.advance()
        self.assertEqual(len(master.replicas.all), 1)
        self.assertEqual(other.log.data, b"one")
        slave.link.follow(None)

    def test_statusTellsLag(self) -> None:
        """
        A slave knows where its master's log ends, and how much of it a slave has.
        """
        master = self.master(FakeLog(bytes(100)))
        slave = self.slave()
        self.advance(6)
        status = slave.link.status
        self.assertEqual((status.masterEnd, status.end, status.lag), (100, 100, 0))
        self.assertEqual((status.epoch, status.confirmed), (1, 100))
        self.assertEqual(master.replicas.replicated, 100)
        self.advance(2)
        self.assertGreaterEqual(slave.link.status.silentSeconds, 1.9)


class CutTests(LinkCase):
    """
    A slave whose log is not a beginning of its master's.
    """

    def test_divergedEndIsCut(self) -> None:
        """
        The old master joins with a message of the same length that the new one does not have
        (W3): it is cut and kept, consumer offsets are brought back, and the logs are equal.
        """
        master = self.master(FakeLog(b"commonBBBBC"), (1, 0), (2, 6))
        slave = self.slave(FakeLog(b"commonAAAA"), (1, 0), groupId="group")
        self.advance()
        self.assertEqual(slave.log.data, master.log.data)
        self.assertEqual(slave.log.cuts, [b"AAAA"])
        self.assertEqual([(each.offset, each.size) for each in slave.cuts], [(6, 4)])
        self.assertEqual(slave.epochs.entries, [(1, 0), (2, 6)])
        status = slave.link.status
        assert status.lastCut is not None
        self.assertEqual(status.lastCut.path, "cut/1-6.log")

    def test_longerLogIsCut(self) -> None:
        """
        A slave whose log is longer, because the master lost power, is cut (W4).  In Java both
        are content, and nothing is ever copied.
        """
        master = self.master(FakeLog(b"common"), (1, 0), (2, 6))
        slave = self.slave(FakeLog(b"common and more"), (1, 0), groupId="group")
        self.advance()
        self.assertEqual(slave.log.data, b"common")
        master.log.put(b" goes on")
        self.advance()
        self.assertEqual(slave.log.data, master.log.data)

    def test_logBeforeFirstFileBeginsAnew(self) -> None:
        """
        A slave that was off until the master had deleted what it lacks begins anew with the
        first file (W5).  In Java it gets heartbeats for ever.
        """
        master = self.master(FakeLog(bytes(5000), 2 * FILE), (1, 0))
        slave = self.slave(FakeLog(b"old"), (1, 0), groupId="group")
        self.advance()
        self.assertEqual((slave.log.first, slave.log.data), (2 * FILE, master.log.data))
        self.assertEqual(slave.anew, [(2 * FILE, "aside/1")])
        self.assertEqual(slave.log.cuts, [b"old"])
        self.assertEqual(slave.link.status.lastAside, "aside/1")
        self.assertEqual(slave.epochs.entries, [(1, 0)])

    def test_epochWithTwoMastersIsCut(self) -> None:
        """
        If operators have made one epoch twice, the bytes show it: the master refuses, and the
        slave cuts that epoch off, and no other.
        """
        master = self.master(FakeLog(b"commonBBBB"), (1, 0), (2, 6))
        slave = self.slave(FakeLog(b"commonAAAAA"), (1, 0), (2, 6), groupId="group")
        self.advance(3)
        self.assertEqual(slave.log.data, master.log.data)
        # What is longer goes first, and then what differs.
        self.assertEqual(slave.log.cuts, [b"A", b"AAAA"])
        self.assertEqual(slave.anew, [])
        self.assertEqual(slave.epochs.entries, [(1, 0), (2, 6)])

    def test_epochsWithTwoMastersAreCutOneByOne(self) -> None:
        """
        If more than one epoch was made twice, each is cut off, and the log begins anew when
        there is none left.
        """
        master = self.master(FakeLog(b"B" * 30), (1, 0), (2, 10), (3, 20))
        slave = self.slave(FakeLog(b"A" * 30), (1, 0), (2, 10), (3, 20), groupId="group")
        self.advance(10)
        self.assertEqual(slave.log.data, master.log.data)
        self.assertEqual(slave.log.cuts, [b"A" * 10] * 3)
        self.assertEqual(slave.anew, [(0, "aside/1")])

    def test_forgottenCutOfEpochsIsMadeUpFor(self) -> None:
        """
        After a crash between the cut of the log and that of its epochs, the next handshake
        forgets the epochs that have no bytes.
        """
        master = self.master(FakeLog(b"commonB"), (1, 0), (4, 6))
        slave = self.slave(FakeLog(b"common"), (1, 0), (2, 6), groupId="group")
        self.advance()
        self.assertEqual(slave.epochs.entries, master.epochs.entries)
        self.assertEqual(slave.log.data, master.log.data)
        self.assertEqual(slave.cuts, [])

    def test_emptyLogIsOfNoEpoch(self) -> None:
        """
        After a crash while a log began anew, the epochs of the old one may still be there:
        an empty log follows any master, and has that one's epochs.
        """
        for number, stale in enumerate((((1, 0), (7, 5)), ((2, 0), (3, 4)))):
            master = self.master(FakeLog(bytes(100), FILE), (1, 0), (2, 50))
            slave = self.slave(FakeLog(b"", FILE), *stale, groupId="group", replicaId=number + 1)
            self.advance()
            self.assertEqual(slave.log.data, master.log.data)
            self.assertEqual(slave.epochs.entries, [(1, 0), (2, 50)])
            self.closeMaster()

    def test_oldMasterIsNotFollowed(self) -> None:
        """
        A slave that has followed epoch 3 does not follow a master of epoch 2: it would cut
        what was acknowledged.  The reason is logged once, however often it tries.
        """
        master = self.master(FakeLog(b"old"), (1, 0), (2, 2))
        with Logged(LogLevel.error) as errors:
            slave = self.slave(FakeLog(b"newer"), (1, 0), (3, 2), groupId="group")
            self.advance(20)
        self.assertEqual(slave.log.data, b"newer")
        self.assertIn("the master's epoch is over", slave.link.status.problem)
        self.assertEqual(master.replicas.all, ())
        self.assertEqual(len(errors.texts), 1, errors.texts)

    def test_otherGroupIsNotFollowed(self) -> None:
        """
        A slave of another group leaves its log as it is.
        """
        self.master(FakeLog(b"theirs"))
        slave = self.slave(FakeLog(b"mine"), (1, 0), groupId="mine")
        self.advance(3)
        self.assertEqual(slave.log.data, b"mine")
        self.assertIn("another group", slave.link.status.problem)


class TableTests(LinkCase):
    """
    Tables beside the log.
    """

    def test_topicComesBeforeItsMessages(self) -> None:
        """
        A topic that was changed before a message was appended is on the slave before it.
        """
        master = self.master(FakeLog(b"before"))
        master.tables.change(b"first")
        slave = self.slave()
        self.advance()
        self.assertEqual(slave.tables.taken, [(b"first", 0)])
        master.tables.change(b"second")
        master.log.put(b"after")
        self.advance()
        self.assertEqual(slave.tables.taken[1], (b"second", 6))
        self.assertEqual(slave.log.data, b"beforeafter")

    def test_tableIsStoredWhenSlaveHasIt(self) -> None:
        """
        A change is acknowledged after the slave's disk has taken it, and what follows in the
        log waits for that.
        """
        master = self.master(FakeLog(b"before"))
        slave = self.slave()
        self.advance()
        slave.tables.isSlow = True
        changes = master.tables.change(b"topic")
        master.log.put(b"after")
        waiting = master.replicas.tablesStored(changes)
        self.advance(1)
        self.assertNoResult(waiting)
        self.assertEqual(slave.log.data, b"before")
        slave.tables.waiting.pop().callback(None)
        self.advance()
        self.successResultOf(waiting)
        self.assertEqual(slave.log.data, b"beforeafter")

    def test_tableThatIsThereIsStored(self) -> None:
        """
        A change that a slave has already, and a slave that connects later, acknowledge at
        once.
        """
        master = self.master()
        changes = master.tables.change(b"topic")
        slave = self.slave()
        self.advance()
        self.successResultOf(master.replicas.tablesStored(changes))
        slave.link.follow(None)
        self.advance()
        self.slave(replicaId=2)
        self.advance()
        self.successResultOf(master.replicas.tablesStored(changes))

    def test_manyTablesInOneRead(self) -> None:
        """
        Hundreds of changes that come in one read, each taken by the disk at once, are taken
        in order.
        """
        master = self.master()
        for number in range(900):
            master.tables.change(b"%d" % number)
        slave = self.slave()

        def apply(payload: bytes) -> Deferred[None]:
            slave.tables.taken.append((payload, 0))
            return succeed(None)

        slave.tables.apply = apply  # type: ignore[method-assign]
        self.advance()
        self.assertEqual(slave.tables.taken, [(b"%d" % number, 0) for number in range(900)])

    def test_failedTableEndsConnection(self) -> None:
        """
        A change that the disk does not take ends the connection: nothing behind it is taken,
        and it comes again with the next one.
        """
        master = self.master(FakeLog(b"before"))
        slave = self.slave()
        self.advance()
        slave.tables.isSlow = True
        master.tables.change(b"topic")
        master.log.put(b"after")
        self.advance()
        slave.tables.isSlow = False
        slave.tables.waiting.pop().errback(DiskFull("no room"))
        self.advance()
        self.assertEqual(slave.log.data, b"before")
        self.assertIn("no room", slave.link.status.problem)
        self.advance(1)
        self.assertEqual([each[0] for each in slave.tables.taken], [b"topic", b"topic"])
        self.assertEqual(slave.log.data, b"beforeafter")


class TimeTests(LinkCase):
    """
    Heartbeats, and ends that say nothing.
    """

    def test_heartbeatsKeepIdleConnection(self) -> None:
        """
        Both ends write at least every haSendHeartbeatInterval, so neither closes an idle
        connection.
        """
        master = self.master(FakeLog(b"one"))
        slave = self.slave()
        self.advance(1)
        (replica,) = master.replicas.all
        self.advance(100)
        self.assertEqual(master.replicas.all, (replica,))
        self.assertLessEqual(slave.link.status.silentSeconds, 5.1)

    def test_silentMasterIsLeft(self) -> None:
        """
        A slave closes after haHousekeepingInterval without a word from its master, and
        connects again.  Java's looks at its own last write by mistake.
        """
        self.master(FakeLog(b"one"))
        slave = self.slave()
        self.advance(1)
        (transport,) = slave.machine.transports
        # From now on nothing of what the master sends arrives.
        transport.take = lambda data: None  # type: ignore[method-assign]
        self.advance(26)
        self.assertNotIn(transport, slave.machine.transports)
        self.assertIs(slave.link.state, LinkState.FOLLOWING)

    def test_silentSlaveIsClosed(self) -> None:
        """
        A master closes a slave that has said nothing for haHousekeepingInterval, and does not
        count it any more.
        """
        master = self.master(FakeLog(b"one"))
        slave = self.slave()
        self.advance(1)
        (transport,) = slave.machine.transports
        transport.other.take = lambda data: None  # type: ignore[method-assign]
        (replica,) = master.replicas.all
        self.advance(18)
        self.assertEqual(master.replicas.all, (replica,))
        self.advance(2)
        self.assertNotIn(replica, master.replicas.all)

    def test_slowDiskIsNotSilence(self) -> None:
        """
        While a slave's disk takes a table it reads nothing, and that is not the master's
        silence; it goes on with its reports.
        """
        master = self.master()
        slave = self.slave()
        self.advance(1)
        slave.tables.isSlow = True
        master.tables.change(b"topic")
        self.advance(60)
        self.assertEqual(len(master.replicas.all), 1)
        slave.tables.waiting.pop().callback(None)
        self.advance(30)
        self.assertEqual(len(master.replicas.all), 1)
        self.assertEqual(len(slave.tables.taken), 1)

    def test_lateHelloIsNoPlainMaster(self) -> None:
        """
        A master of ours that needs longer than a second for its hello is not followed as one
        of RocketMQ 4.9.7, which has no epochs: the next try waits longer.
        """
        peers = self.listen()
        slave = self.slave(FakeLog(b"mine"), (1, 0), groupId="group")
        self.advance(1.5)
        peers[0].say(b"TXHA\x01\x01")
        self.advance(0.1)
        self.assertIn("came too late", slave.link.status.problem)
        self.assertTrue(peers[0].isLost)
        self.advance(4)
        self.assertEqual(peers[1].received, b"\xff" * 8)
        self.closeMaster()


class DiskTests(LinkCase):
    """
    The disk of a slave.
    """

    def test_reportTellsFlushed(self) -> None:
        """
        If the master counts what is on disks, the slave flushes what it gets and reports it.
        """
        master = self.master(countsFlushed=True)
        slave = self.slave()
        self.advance()
        waiting = master.replicas.stored(master.log.put(b"one"))
        self.advance()
        self.successResultOf(waiting)
        self.assertEqual(slave.log.flushed, 3)

    def test_unflushedIsNotAcknowledged(self) -> None:
        """
        While the slave's disk is busy, a send of a master that counts what is on disks waits.
        """
        master = self.master(countsFlushed=True)
        slave = self.slave(follows=False)
        flushes: list[Deferred[None]] = []

        def flush() -> Deferred[None]:
            flushes.append(Deferred())
            return flushes[-1]

        parts = slave.link.preparation.parts
        object.__setattr__(parts, "flush", flush)
        slave.link.follow("10.0.0.1:10912")
        self.advance()
        waiting = master.replicas.stored(master.log.put(b"one"))
        late = master.replicas.stored(master.log.put(b"two"))
        self.advance(1)
        self.assertNoResult(waiting)
        slave.log.flushed = 3
        flushes.pop(0).callback(None)
        self.advance()
        self.successResultOf(waiting)
        self.advance(3)
        self.failureResultOf(late, FlushSlaveTimeout)
        self.assertEqual(len(flushes), 1)

    def test_fullDiskIsTriedAgain(self) -> None:
        """
        A slave whose disk is full tries again, and follows when there is room.
        """
        self.master(FakeLog(b"one"))
        slave = self.slave(follows=False)
        slave.log.refusal = DiskFull("no room")
        slave.link.follow("10.0.0.1:10912")
        self.advance(5)
        self.assertEqual(slave.log.data, b"")
        self.assertIn("no room", slave.link.status.problem)
        slave.log.refusal = None
        self.advance(10)
        self.assertEqual(slave.log.data, b"one")

    def test_deletedFileEndsConnection(self) -> None:
        """
        A slave so slow that the master deletes the file that it needs begins anew.
        """
        master = self.master(FakeLog(bytes(100)))
        slave = self.slave()
        self.advance()

        def fail(offset: int, most: int) -> bytes:
            raise StoreError("deleted")

        read, master.log.read = master.log.read, fail  # type: ignore[method-assign]
        master.log.put(b"x")
        self.advance()
        self.assertEqual(master.replicas.all, ())
        master.log.read = read  # type: ignore[method-assign]
        master.log.first, master.log.data = FILE, bytearray(b"first file")
        master.log.grown.advance(master.log.end)
        self.advance(3)
        self.assertEqual((slave.log.first, slave.log.data), (FILE, b"first file"))
