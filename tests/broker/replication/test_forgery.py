# SPDX-License-Identifier: Apache-2.0
"""
Tests of what a broker of ours does not believe another one: hellos, reports and frames that
are forged, damaged or too old.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.broker.replication.fakes import FILE, FakeLog, FakeMaster, FakeSlave, LinkCase, Peer
from txrocket.errors import SlaveNotAvailable
from txrocket.protocol.ha.frames import (
    FrameReader,
    FrameType,
    Refusal,
    ReplicaFrame,
    ReplicaReport,
    decodeRefusal,
)
from txrocket.protocol.ha.hello import HelloReader, MasterHello, SlaveHello
from txrocket.protocol.ha.plain import HELLO, encodeOffset

LOG = bytes(range(200))
SLAVE = SlaveHello("group", "boot", "a:1", 1, 0, 0, 0, (), ())
HELLO_OF_MASTER = MasterHello("group", "boot", False, FILE, 0, 200, ((1, 0),))


class ForgedSlaveTests(LinkCase):
    """
    A stranger that speaks as a slave of ours.
    """

    def greet(self, master: FakeMaster, hello: bytes) -> Peer:
        """
        Let a stranger send a hello.
        """
        peer = self.connect()
        peer.say(encodeOffset(HELLO))
        self.advance()
        found = HelloReader().feed(peer.received)
        assert found is not None
        self.assertEqual(found[0].groupId, "group")
        peer.received = found[1]
        peer.say(hello)
        self.advance()
        return peer

    def assertRefused(self, master: FakeMaster, peer: Peer, reason: str) -> None:
        """
        The stranger is told why and counts for nothing.
        """
        self.advance()
        self.assertTrue(peer.isLost)
        self.assertEqual(master.replicas.all, ())
        self.assertEqual(master.replicas.replicated, 0)
        self.failureResultOf(master.replicas.stored(1), SlaveNotAvailable)
        self.assertEqual(master.tables.cursors, [])
        reader = FrameReader()
        reader.feed(peer.received)
        *_, refusal = iter(reader.next, None)
        self.assertIs(refusal.type, FrameType.REFUSAL)
        self.assertIn(reason, decodeRefusal(refusal.data)[1])

    def test_forgedHelloIsRefused(self) -> None:
        """
        Another group, a log longer than the master's, epochs that the master does not have,
        and a hello of a master are refused.
        """
        master = self.master(FakeLog(LOG))
        for hello, reason in (
            (SLAVE._replace(groupId="other"), "another group"),
            (SLAVE._replace(groupId=""), "another group"),
            (SLAVE._replace(end=201), "longer"),
            (SLAVE._replace(end=200), "not a beginning"),
            (SLAVE._replace(end=200, epochs=((1, 5),)), "not a beginning"),
            (SLAVE._replace(epochs=((2, 0),)), "newer master"),
        ):
            peer = self.greet(master, hello.encode())
            self.assertRefused(master, peer, reason)
        peer = self.greet(master, HELLO_OF_MASTER.encode())
        self.assertRefused(master, peer, "cannot follow a master")

    def test_damagedHelloIsRefused(self) -> None:
        """
        A hello that does not match its sum is refused.
        """
        master = self.master(FakeLog(LOG))
        stream = bytearray(SLAVE.encode())
        stream[-1] ^= 1
        self.assertRefused(master, self.greet(master, bytes(stream)), "CRC")

    def test_forgedReportIsRefused(self) -> None:
        """
        A slave cannot report more than was sent to it, nor a frame that was not, nor an epoch
        that the master does not know, nor less than before.
        """
        master = self.master(FakeLog(LOG))
        for report, reason in (
            (ReplicaReport(1, 1, 201, 0, 0), "was not sent"),
            (ReplicaReport(1, 99, 200, 0, 0), "a frame that was not sent"),
            (ReplicaReport(2, 1, 200, 0, 0), "newer master"),
        ):
            peer = self.greet(master, SLAVE.encode())
            self.assertEqual(len(master.replicas.all), 1)
            peer.say(report.encode())
            self.assertRefused(master, peer, reason)
        peer = self.greet(master, SLAVE.encode())
        peer.say(ReplicaReport(1, 1, 200, 200, 0).encode())
        self.advance()
        self.assertEqual(master.replicas.replicated, 200)
        peer.say(ReplicaReport(1, 1, 100, 100, 0).encode())
        self.assertRefused(master, peer, "became shorter")

    def test_damagedReportIsRefused(self) -> None:
        """
        A report that does not match its sum is refused.
        """
        master = self.master(FakeLog(LOG))
        peer = self.greet(master, SLAVE.encode())
        stream = bytearray(ReplicaReport(1, 1, 200, 200, 0).encode())
        stream[20] ^= 1
        peer.say(bytes(stream))
        self.assertRefused(master, peer, "CRC")


class ForgedMasterTests(LinkCase):
    """
    A master of which the test plays the part.
    """

    def greet(self, hello: MasterHello = HELLO_OF_MASTER) -> tuple[FakeSlave, Peer]:
        """
        Let a slave finish its handshake.
        """
        peers = self.listen()
        slave = self.slave()
        self.advance()
        peers[0].say(hello.encode())
        self.advance()
        slave.link.follow(None) if peers[0].isLost else None
        return slave, peers[0]

    def refused(self, *stream: bytes) -> str:
        """
        Why a slave does not take frames.
        """
        slave, peer = self.greet()
        for each in stream:
            peer.say(each)
        self.advance()
        self.assertTrue(peer.isLost)
        problem = slave.link.status.problem
        self.assertEqual(slave.log.data, b"")
        slave.link.follow(None)
        self.closeMaster()
        return problem

    def test_soundFramesAreTaken(self) -> None:
        """
        What the other tests spoil is taken if it is sound.
        """
        slave, peer = self.greet()
        peer.say(frame().encode())
        self.advance()
        self.assertEqual(slave.log.data, LOG)
        slave.link.follow(None)
        self.closeMaster()

    def test_damagedFrameIsNotTaken(self) -> None:
        """
        A frame of which a bit is another ends the connection, and nothing of it is in the log
        (W9): in Java nothing in the stream has a sum.
        """
        for place in (5, 20, 60, len(frame().encode()) - 1):
            stream = bytearray(frame().encode())
            stream[place] ^= 4
            self.assertIn("CRC", self.refused(bytes(stream)))

    def test_oldEpochIsNotTaken(self) -> None:
        """
        A frame of another epoch than the master's newest is not taken: an old master that has
        not noticed its successor goes on sending.
        """
        self.assertIn("epoch is over", self.refused(frame(epoch=0).encode()))
        begins = frame(type=FrameType.EPOCH, epoch=3, offset=0, data=b"")
        self.assertIn("epoch is over", self.refused(begins.encode(), frame(seq=2).encode()))
        self.assertIn("epoch is over", self.refused(frame(epoch=2).encode()))

    def test_impossibleEpochIsNotTaken(self) -> None:
        """
        An epoch begins neither before the end of the slave's log nor with a lower number.
        """
        begins = frame(type=FrameType.EPOCH, epoch=1, offset=0, data=b"")
        self.assertIn("cannot follow", self.refused(begins.encode()))

    def test_missingFrameIsNoticed(self) -> None:
        """
        Frames are counted, so that one that is missing or comes twice is noticed.
        """
        self.assertIn("comes after", self.refused(frame(seq=2).encode()))
        beat = frame(type=FrameType.BEAT, data=b"").encode()
        self.assertIn("comes after", self.refused(beat, beat))

    def test_otherPlaceIsNotTaken(self) -> None:
        """
        Bytes and heartbeats at another place than the end of the slave's log are not taken.
        """
        self.assertIn("elsewhere", self.refused(frame(offset=1).encode()))
        beat = frame(type=FrameType.BEAT, offset=9, data=b"").encode()
        self.assertIn("elsewhere", self.refused(beat))

    def test_refusalIsTold(self) -> None:
        """
        The reason of the master's refusal is the slave's problem.
        """
        refusal = frame(type=FrameType.REFUSAL, data=bytes([Refusal.RETRY]) + b"because")
        self.assertIn("because", self.refused(refusal.encode()))

    def test_wrongHelloIsNotFollowed(self) -> None:
        """
        A slave's hello, a damaged one and one that is not whole in time are not followed.
        """
        damaged = bytearray(HELLO_OF_MASTER.encode())
        damaged[-1] ^= 1

        def late(peer: Peer) -> None:
            peer.say(HELLO_OF_MASTER.encode()[:9])
            self.advance(7)

        for speak, reason in (
            (lambda peer: peer.say(SLAVE.encode()), "cannot follow a slave"),
            (lambda peer: peer.say(bytes(damaged)), "CRC"),
            (late, "not whole"),
        ):
            self.assertProblem(speak, reason)

    def assertProblem(self, speak: Callable[[Peer], None], reason: str) -> None:
        """
        A slave does not follow a master that speaks so.
        """
        peers = self.listen()
        slave = self.slave()
        self.advance()
        speak(peers[0])
        self.advance()
        self.assertTrue(peers[0].isLost)
        self.assertIn(reason, slave.link.status.problem)
        slave.link.follow(None)
        self.closeMaster()


def frame(**changes: object) -> ReplicaFrame:
    """
    The first frame of a connection: the whole log.
    """
    sound = ReplicaFrame(FrameType.DATA, 1, 1, 0, 200, 0, LOG)
    return sound._replace(**changes)  # type: ignore[arg-type]
