# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.unread}: answers that no peer reads.
"""

from __future__ import annotations

from twisted.internet.error import ConnectionDone
from twisted.logger import LogLevel

from tests.remoting.doubles import ADDRESS, RemotingTests, Wire, connected, frame, lose, serving
from txrocket.protocol.codes import RequestCode
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import Limits
from txrocket.server.echo import echo

CODE = RequestCode.GET_ALL_TOPIC_CONFIG
KIB = 1024


class UnreadTests(RemotingTests):
    """
    A server that lets 1,000 KiB of answers wait.
    """

    def setUp(self) -> None:
        super().setUp()
        self.remoting = serving(self.clock, {CODE: echo}, Limits(unread=1000 * KIB))

    def ask(self, size: int) -> tuple[RemotingProtocol, Wire]:
        """
        A peer asks for an answer of a size, and does not read it.
        """
        protocol, wire = connected(self.remoting, capacity=64 * KIB)
        protocol.dataReceived(frame(CODE, 1, bytes(size)))
        return protocol, wire

    def test_largestIsDropped(self) -> None:
        """
        When all peers together leave more unread than they may, the connection that leaves
        most is dropped, the log says why, and the others stay.
        """
        wires = [self.ask(size * KIB)[1] for size in (300, 500, 190)]
        self.assertEqual([each.aborts for each in wires], [0, 0, 0])
        _, last = self.ask(100 * KIB)
        self.assertEqual([each.aborts for each in (*wires, last)], [0, 1, 0, 0])
        [said] = self.logged(LogLevel.warn)
        self.assertIn(f"Dropping the connection to {ADDRESS}, which leaves", said)
        self.assertIn("serverMaxUnreadBytes is 1024000", said)

    def test_read(self) -> None:
        """
        What is read, or can no longer be, does not count.
        """
        first, wire = self.ask(300 * KIB)
        second, _ = self.ask(500 * KIB)
        self.assertGreater(self.remoting.unread.size, 800 * KIB)
        wire.drain()
        self.assertLess(self.remoting.unread.size, 501 * KIB)
        lose(second, ConnectionDone())
        lose(first, ConnectionDone())
        self.assertEqual(self.remoting.unread.size, 0)

    def test_readAtOnce(self) -> None:
        """
        An answer that the transport takes does not count.
        """
        self.ask(10 * KIB)
        self.assertEqual(self.remoting.unread.size, 0)
