# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.partialframes}: frames that are begun and not finished.
"""

from __future__ import annotations

from twisted.internet.error import ConnectionDone
from twisted.logger import LogLevel

from tests.remoting.doubles import ADDRESS, RemotingTests, Wire, connected, frame, lose, serving
from txrocket.protocol.codes import RequestCode
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import Limits
from txrocket.server.echo import echo

CODE = RequestCode.SEND_MESSAGE
KIB = 1024


class UnfinishedTests(RemotingTests):
    """
    A server that takes 300 KiB of unfinished frames, and a minute for each.
    """

    def setUp(self) -> None:
        super().setUp()
        limits = Limits(unfinished=300 * KIB, frameSeconds=60)
        self.remoting = serving(self.clock, {CODE: echo}, limits)
        self.whole = frame(CODE, 1, bytes(400 * KIB))

    def begin(self, size: int) -> tuple[RemotingProtocol, Wire]:
        """
        A peer sends so many bytes of a frame of 400 KiB.
        """
        protocol, wire = connected(self.remoting)
        protocol.dataReceived(self.whole[:size])
        return protocol, wire

    def state(self, *wires: Wire) -> list[str]:
        """
        What is done with some connections.
        """
        return ["closed" if each.aborts else each.producerState for each in wires]

    def wait(self, seconds: int) -> None:
        """
        Time goes by.
        """
        self.clock.pump([1] * seconds)

    def test_aboveTheBudgetOthersWait(self) -> None:
        """
        Above the budget the oldest frame is read on and other long ones wait; when one is
        finished the others go on, and all are served in the end.
        """
        peers = [self.begin(size * KIB) for size in (160, 160, 120)]
        wires = [wire for _, wire in peers]
        self.assertEqual(self.state(*wires), ["producing", "paused", "paused"])
        self.assertEqual(self.remoting.unfinished.size, 440 * KIB)
        peers[0][0].dataReceived(self.whole[160 * KIB : 200 * KIB])
        self.assertEqual(self.state(*wires), ["producing", "paused", "paused"])
        peers[0][0].dataReceived(self.whole[200 * KIB :])
        self.assertEqual(self.state(*wires), ["producing"] * 3)
        self.assertEqual(self.remoting.unfinished.size, 280 * KIB)
        peers[1][0].dataReceived(self.whole[160 * KIB :])
        peers[2][0].dataReceived(self.whole[120 * KIB :])
        self.assertEqual([len(wire.drain()) for wire in wires], [1, 1, 1])
        self.assertEqual(self.remoting.unfinished.size, 0)
        self.wait(2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_shortFramesNeverWait(self) -> None:
        """
        Ordinary frames are read and served while long ones wait.
        """
        self.begin(200 * KIB)
        _, waits = self.begin(200 * KIB)
        protocol, wire = connected(self.remoting)
        ordinary = frame(CODE, 7, bytes(20 * KIB))
        protocol.dataReceived(ordinary[: 10 * KIB])
        self.assertEqual(self.state(waits, wire), ["paused", "producing"])
        protocol.dataReceived(ordinary[10 * KIB :])
        self.assertEqual([each.opaque for each in wire.drain()], [7])

    def test_silentFramesAreDropped(self) -> None:
        """
        Above the budget a connection whose peer sends nothing for five seconds is closed,
        the log says why, and whoever waited goes on; within the budget it may be silent.
        """
        _, first = self.begin(200 * KIB)
        _, second = self.begin(90 * KIB)
        self.wait(10)
        self.assertEqual(self.state(first, second), ["producing", "producing"])
        protocol, third = self.begin(100 * KIB)
        self.assertEqual(self.state(third), ["paused"])
        self.wait(1)
        self.assertEqual(self.state(first, second, third), ["closed", "producing", "producing"])
        self.assertEqual(self.remoting.unfinished.size, 190 * KIB)
        [said] = self.logged(LogLevel.warn)
        self.assertIn(f"Closing the connection to {ADDRESS} within a frame, of which", said)
        self.assertIn("serverMaxUnfinishedBytes is 307200", said)
        protocol.dataReceived(self.whole[100 * KIB :])
        self.assertEqual(len(third.drain()), 1)

    def test_waitingIsNotSilence(self) -> None:
        """
        A peer that is made to wait is neither taken for silent nor for slow: the oldest is
        closed before it, and then it has all its time.
        """
        first, oldest = self.begin(250 * KIB)
        second, waits = self.begin(100 * KIB)
        for size in range(250 * KIB, 250 * KIB + 59):
            first.dataReceived(self.whole[size : size + 1])
            self.wait(1)
        self.assertEqual(self.state(oldest, waits), ["producing", "paused"])
        self.wait(1)
        self.assertEqual(self.state(oldest, waits), ["closed", "producing"])
        for size in range(100 * KIB, 100 * KIB + 58):
            second.dataReceived(self.whole[size : size + 1])
            self.wait(1)
        self.assertEqual(self.state(waits), ["producing"])

    def test_slowFrameIsClosed(self) -> None:
        """
        A connection that does not finish a frame in time is closed, though it goes on
        sending, and its memory comes back.
        """
        protocol, wire = self.begin(10 * KIB)
        for size in range(10 * KIB, 10 * KIB + 60):
            self.assertEqual(self.state(wire), ["producing"])
            protocol.dataReceived(self.whole[size : size + 1])
            self.wait(1)
        self.assertEqual(self.state(wire), ["closed"])
        [said] = self.logged(LogLevel.warn)
        self.assertIn("within 60 s (serverFrameTimeoutSeconds)", said)
        lose(protocol, ConnectionDone())
        self.assertEqual((self.remoting.unfinished.size, protocol._connection.held), (0, 0))

    def test_oneFrameAfterTheOther(self) -> None:
        """
        A peer may send frames for as long as it likes if it finishes each in time, though
        every read ends within one.
        """
        protocol, wire = connected(self.remoting)
        stream = self.whole * 4
        cuts = range(0, len(stream), 10 * KIB)
        for start in cuts:
            protocol.dataReceived(stream[start : start + 10 * KIB])
            self.wait(1)
        self.assertEqual(len(wire.drain()), 4)
        self.assertGreater(len(cuts), 120)
        self.assertEqual(self.state(wire), ["producing"])

    def test_lost(self) -> None:
        """
        A connection that ends within a frame gives its bytes back, lets others go on, and
        leaves no timer behind.
        """
        first, _ = self.begin(250 * KIB)
        second, waits = self.begin(100 * KIB)
        self.assertEqual(self.state(waits), ["paused"])
        lose(first, ConnectionDone())
        self.assertEqual(self.state(waits), ["producing"])
        lose(second, ConnectionDone())
        self.assertEqual(self.remoting.unfinished.size, 0)
        self.assertEqual((first._connection.held, second._connection.held), (0, 0))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_fullAndWaiting(self) -> None:
        """
        A connection that waits for two reasons is read on when both are gone.
        """
        self.begin(250 * KIB)
        protocol, wire = connected(self.remoting, capacity=KIB)
        protocol.dataReceived(frame(CODE, 1, bytes(2 * KIB)) + self.whole[: 100 * KIB])
        self.assertEqual(self.state(wire), ["paused"])
        wire.drain()
        self.assertEqual(self.state(wire), ["paused"])
        self.wait(6)
        self.assertEqual(self.state(wire), ["producing"])

    def test_dialled(self) -> None:
        """
        Answers to our own requests are not counted: we have asked for them.
        """
        protocol, _ = connected(self.remoting, accepted=False)
        protocol.dataReceived(self.whole[: 350 * KIB])
        self.assertEqual(self.remoting.unfinished.size, 0)
