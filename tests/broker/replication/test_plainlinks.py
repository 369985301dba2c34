# SPDX-License-Identifier: Apache-2.0
"""
Tests of links to brokers of RocketMQ 4.9.7, of which the tests play the part with captured
bytes.
"""

from __future__ import annotations

from twisted.logger import LogLevel

from tests.broker.replication.fakes import FILE, FakeLog, LinkCase, Logged
from tests.protocol.ha.javastreams import MASTER_STREAM, RECORD, SLAVE_STREAM
from txrocket.broker.replication.slave import LinkState
from txrocket.errors import FlushSlaveTimeout, SlaveNotAvailable
from txrocket.protocol.ha.plain import HELLO, PieceReader, encodeOffset, encodePiece


class PlainSlaveTests(LinkCase):
    """
    A slave of RocketMQ 4.9.7 behind our master.
    """

    def test_masterSendsWhatJavaSends(self) -> None:
        """
        A slave that sends Java's bytes gets Java's: the log, and heartbeats.
        """
        self.master(FakeLog(RECORD), haSendHeartbeatInterval=1000)
        peer = self.connect()
        peer.say(SLAVE_STREAM[0])
        self.advance(0.5)
        self.assertEqual(peer.received, MASTER_STREAM[: 12 + 156])
        self.advance(2)
        self.assertEqual(peer.received, MASTER_STREAM)

    def test_reportAcknowledges(self) -> None:
        """
        A SYNC send is acknowledged by the slave's report of its end; its request, and the
        offset 0 of a slave that has nothing yet, acknowledge nothing.
        """
        master = self.master(FakeLog(RECORD))
        peer = self.connect()
        peer.say(SLAVE_STREAM[0])
        self.advance()
        waiting = master.replicas.stored(156)
        self.assertNoResult(waiting)
        peer.say(SLAVE_STREAM[2])
        self.advance()
        self.successResultOf(waiting)
        self.assertEqual(master.replicas.replicated, 156)
        (replica,) = master.replicas.all
        self.assertTrue(replica.isPlain)

    def test_newSlaveGetsHistory(self) -> None:
        """
        A slave without a log gets it from the first file (W6), where Java sends its last.
        """
        master = self.master(FakeLog(bytes(2 * FILE), FILE))
        peer = self.connect()
        peer.say(encodeOffset(0))
        self.advance()
        reader = PieceReader()
        reader.feed(peer.received)
        pieces = list(iter(reader.next, None))
        self.assertEqual([each.offset for each in pieces], [FILE, 2 * FILE])
        self.assertEqual(b"".join(each.data for each in pieces), master.log.data)

    def test_emptyLogIsFollowed(self) -> None:
        """
        A slave may connect before there is any message.
        """
        master = self.master()
        peer = self.connect()
        peer.say(SLAVE_STREAM[0])
        self.advance(6)
        self.assertEqual(peer.received, encodePiece(0))
        waiting = master.replicas.stored(master.log.put(RECORD))
        self.advance()
        peer.say(SLAVE_STREAM[2])
        self.advance()
        self.successResultOf(waiting)

    def test_slaveMayBeSlowToSpeak(self) -> None:
        """
        Java's slave says nothing for 5 s after it has connected; that is not held against it.
        """
        master = self.master(FakeLog(RECORD))
        peer = self.connect()
        self.advance(12)
        peer.say(SLAVE_STREAM[0])
        self.advance()
        self.assertEqual(len(master.replicas.all), 1)
        self.assertFalse(peer.isLost)

    def test_offsetInPiecesIsOneOffset(self) -> None:
        """
        An offset that comes byte by byte is one offset.
        """
        master = self.master(FakeLog(RECORD))
        peer = self.connect()
        for each in SLAVE_STREAM[0][:8]:
            peer.say(bytes([each]))
            self.advance(0.1)
        self.assertEqual(len(master.replicas.all), 1)


class PlainMasterTests(LinkCase):
    """
    Our slave behind a master of RocketMQ 4.9.7.
    """

    def test_slaveAsksAfterOneSecond(self) -> None:
        """
        The slave says -1, which Java takes for nothing, waits for a second, and asks as a
        slave of RocketMQ 4.9.7; then it takes the log and reports.
        """
        peers = self.listen()
        slave = self.slave()
        self.advance(0.9)
        self.assertEqual(peers[0].received, encodeOffset(HELLO))
        self.advance(0.2)
        self.assertEqual(peers[0].received, encodeOffset(HELLO) + encodeOffset(0))
        self.assertIs(slave.link.state, LinkState.PLAIN)
        peers[0].received = b""
        peers[0].say(MASTER_STREAM)
        self.advance()
        self.assertEqual(slave.log.data, RECORD)
        self.assertEqual(peers[0].received, SLAVE_STREAM[2][:8])
        self.assertEqual(slave.epochs.entries, [])
        self.closeMaster()

    def test_slaveGoesOnWhereItIs(self) -> None:
        """
        A slave with a log asks from its end, and reports at least every
        haSendHeartbeatInterval.
        """
        peers = self.listen()
        slave = self.slave(FakeLog(RECORD), haSendHeartbeatInterval=1000)
        self.advance(1.3)
        self.assertEqual(peers[0].received[8:], encodeOffset(156))
        peers[0].say(encodePiece(156, b"more"))
        self.advance(2.5)
        self.assertEqual(peers[0].received[16:], encodeOffset(160) * 3)
        self.assertEqual(slave.log.data, RECORD + b"more")
        self.closeMaster()

    def test_newSlaveTakesLastFile(self) -> None:
        """
        Java begins with its last file for a slave that has no log: its log begins there.
        Heartbeats before the first piece do not matter.
        """
        peers = self.listen()
        slave = self.slave()
        self.advance(1.3)
        peers[0].say(encodePiece(2 * FILE) + encodePiece(2 * FILE, b"last file"))
        self.advance()
        self.assertEqual((slave.log.first, slave.log.data), (2 * FILE, b"last file"))
        self.closeMaster()

    def test_pieceElsewhereEndsConnection(self) -> None:
        """
        A piece or a heartbeat at another offset than the slave's end is not taken, and the
        connection ends, as with Java's slave.
        """
        for piece in (encodePiece(155), encodePiece(157, b"more"), encodePiece(0, RECORD)):
            peers = self.listen()
            slave = self.slave(FakeLog(RECORD))
            self.advance(1.3)
            peers[0].say(piece)
            self.advance()
            self.assertTrue(peers[0].isLost)
            self.assertEqual(slave.log.data, RECORD)
            self.assertIn("goes on elsewhere", slave.link.status.problem)
            slave.link.follow(None)
            self.closeMaster()

    def test_epochsAreForgotten(self) -> None:
        """
        What comes from a master without epochs is of no epoch: a slave that follows one of
        ours later copies the whole log, because nothing tells whether the logs agree.
        """
        peers = self.listen()
        slave = self.slave(FakeLog(b"ours"), (1, 0), groupId="group")
        self.advance(1.3)
        self.assertEqual(slave.epochs.entries, [(1, 0)])
        with Logged(LogLevel.warn) as warnings:
            peers[0].say(encodePiece(4, b"java") + encodePiece(8, b"more"))
            self.advance()
        self.assertEqual(slave.epochs.entries, [])
        self.assertEqual(len(warnings.texts), 1)
        self.closeMaster()
        slave.link.follow(None)
        master = self.master(FakeLog(b"oursthis"))
        slave.link.follow("10.0.0.1:10912")
        self.advance()
        self.assertEqual(slave.log.data, master.log.data)
        self.assertEqual(slave.log.cuts, [b"oursjavamore"])

    def test_silentMasterIsLeft(self) -> None:
        """
        A master that says nothing for haHousekeepingInterval is left.
        """
        peers = self.listen()
        slave = self.slave(FakeLog(RECORD))
        self.advance(20)
        self.assertEqual(len(peers), 1)
        self.advance(2)
        self.assertTrue(peers[0].isLost)
        self.assertGreater(len(peers), 1)
        slave.link.follow(None)
        self.closeMaster()

    def test_malformedPieceEndsConnection(self) -> None:
        """
        A piece with a negative size, or longer than Java sends, ends the connection before
        any of it is held.
        """
        for head in (b"\0" * 8 + b"\xff" * 4, b"\0" * 8 + b"\x7f\xff\xff\xff"):
            peers = self.listen()
            slave = self.slave()
            self.advance(1.3)
            peers[0].say(head)
            self.advance()
            self.assertTrue(peers[0].isLost)
            slave.link.follow(None)
            self.closeMaster()


class StrangerTests(LinkCase):
    """
    Anyone can connect to the HA port.
    """

    def setUp(self) -> None:
        """
        Begin with a master whose log has 156 bytes.
        """
        super().setUp()
        self.own = self.master(FakeLog(RECORD))

    def assertRefused(self, said: bytes, reason: str) -> None:
        """
        Who says that gets nothing, counts for nothing, and is logged once however often it
        tries.
        """
        with Logged(LogLevel.warn) as warnings:
            for _ in range(3):
                peer = self.connect(host="127.0.0.1")
                peer.say(said)
                self.advance(0.1)
                self.assertTrue(peer.isLost)
                self.assertEqual(self.own.replicas.all, ())
        self.assertEqual(len(warnings.texts), 1, warnings.texts)
        self.assertIn(reason, warnings.texts[0])
        self.failureResultOf(self.own.replicas.stored(156), SlaveNotAvailable)

    def test_forgedOffsetIsRefused(self) -> None:
        """
        The first 8 bytes of a stranger are no acknowledgement (W1).  In Java, 2^40 makes every
        later SYNC send succeed until the master is restarted.
        """
        self.assertRefused(encodeOffset(1 << 40), "is longer")
        self.assertEqual(self.own.replicas.replicated, 0)

    def test_forgedReportIsRefused(self) -> None:
        """
        Nor is a report of more than was sent on the connection, with or before a sane
        request; the mark falls when the connection ends.
        """
        self.assertRefused(encodeOffset(0) + encodeOffset(157), "was not sent")
        peer = self.connect(host="127.0.0.1")
        peer.say(encodeOffset(100))
        self.advance()
        peer.say(encodeOffset(1 << 40))
        self.advance()
        self.assertTrue(peer.isLost)
        self.assertEqual(self.own.replicas.replicated, 0)

    def test_reportThatGoesBackIsRefused(self) -> None:
        """
        A log does not become shorter.
        """
        self.assertRefused(encodeOffset(100) + encodeOffset(99), "became shorter")

    def test_silentConnectionIsNoSlave(self) -> None:
        """
        A connection that says nothing does not make sends wait (W2), and is closed.  In Java
        each send waits for 3 s then.
        """
        peer = self.connect()
        self.failureResultOf(self.own.replicas.stored(156), SlaveNotAvailable)
        self.advance(19)
        self.assertFalse(peer.isLost)
        self.advance(2)
        self.assertTrue(peer.isLost)
        self.assertEqual(peer.received, b"")
        self.assertEqual(self.own.factory.connections, 0)

    def test_helloMustComeInTime(self) -> None:
        """
        A peer that has begun a handshake has 5 s for all of it, however slowly it speaks.
        """
        peer = self.connect()
        peer.say(encodeOffset(HELLO))
        self.advance(1)
        for each in (b"T", b"X", b"H", b"A"):
            peer.say(each)
            self.advance(0.9)
        self.assertFalse(peer.isLost)
        self.advance(1)
        self.assertTrue(peer.isLost)
        self.assertEqual(self.own.replicas.all, ())

    def test_strangeBytesAreRefused(self) -> None:
        """
        Negative offsets, a plain request after our hello, requests behind the end (W4) and
        other protocols are refused.
        """
        for said, reason in (
            (encodeOffset(-5), "cannot ask for"),
            (encodeOffset(HELLO) + encodeOffset(0), "does not begin with"),
            (encodeOffset(156 + 5000), "is longer"),
            (b"GET / HTTP/1.1\r\n\r\n", "is longer"),
        ):
            self.own.factory.refusals._told.clear()
            self.assertRefused(said, reason)

    def test_deletedFileIsRefused(self) -> None:
        """
        A plain slave that lacks what the master has deleted is refused (W5): it cannot be made
        to begin anew, and heartbeats for ever would hide it.
        """
        self.own.log.first, self.own.log.data = FILE, bytearray(100)
        self.assertRefused(encodeOffset(156), "before the first file")

    def test_plainAddressesAreKept(self) -> None:
        """
        With haPlainAddresses, slaves that speak RocketMQ 4.9.7's stream connect from these
        hosts only (W10); slaves of ours are not affected.
        """
        self.closeMaster()
        master = self.master(FakeLog(RECORD), haPlainAddresses="10.0.0.7; 10.0.0.8")
        with Logged(LogLevel.warn) as warnings:
            bad, good = self.connect(host="10.0.0.9"), self.connect(host="10.0.0.8")
            for each in (bad, good):
                each.say(encodeOffset(0))
            self.advance()
        self.assertEqual(bad.received, b"")
        self.assertTrue(bad.isLost)
        self.assertIn(RECORD, good.received)
        self.assertEqual(len(warnings.texts), 1)
        slave = self.slave()
        self.advance()
        self.assertEqual(slave.log.data, master.log.data)

    def test_plainSlaveElsewhereIsWarnedOf(self) -> None:
        """
        Without haPlainAddresses a plain slave is accepted, with one warning for each host that
        is not this machine.
        """
        for host, count in (("127.0.0.1", 0), ("10.0.0.9", 1), ("10.0.0.9", 1)):
            with Logged(LogLevel.warn) as warnings:
                peer = self.connect(host=host)
                peer.say(encodeOffset(0))
                self.advance()
            self.assertIn(RECORD, peer.received)
            self.assertLessEqual(len(warnings.texts), count)

    def test_strangersDoNotKeepSlavesOut(self) -> None:
        """
        However many connections say nothing, or half a handshake, a slave gets in: the oldest
        stranger goes.
        """
        peers = [self.connect() for _ in range(40)]
        for peer in [self.connect() for _ in range(60)]:
            peer.say(encodeOffset(HELLO))
        self.advance()
        self.assertLessEqual(self.own.factory.connections, 65)
        slave = self.slave()
        self.advance(2)
        self.assertEqual(slave.log.data, RECORD)
        self.assertTrue(peers[0].isLost)

    def test_slaveThatNeverReportsTimesOut(self) -> None:
        """
        A sane request makes sends wait for the slave, and without a report each gets
        FLUSH_SLAVE_TIMEOUT.
        """
        peer = self.connect()
        peer.say(encodeOffset(156))
        self.advance()
        waiting = self.own.replicas.stored(156)
        self.advance(3)
        self.failureResultOf(waiting, FlushSlaveTimeout)
