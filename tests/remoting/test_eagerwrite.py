# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.eagerwrite}.
"""

from __future__ import annotations

import errno
import socket

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.main import CONNECTION_LOST
from twisted.internet.protocol import Protocol
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactor, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from txrocket.remoting import eagerwrite as eager
from txrocket.remoting.eagerwrite import eagerWriter


class Taking:
    """
    A socket that takes as many bytes as it is told to.
    """

    def __init__(self, transport: Socket) -> None:
        self._transport = transport

    def sendmsg(self, pieces: list[bytes]) -> int:
        """
        Take some of several pieces.
        """
        self._transport.gathered += 1
        return self.send(b"".join(pieces))

    def send(self, data: bytes) -> int:
        """
        Take as many bytes as the transport is told to, or none, or break.
        """
        count = self._transport.writeSomeData(data)
        if not isinstance(count, int):
            raise BrokenPipeError(errno.EPIPE, "broken")
        if not count:
            raise BlockingIOError(errno.EWOULDBLOCK, "later")
        return count


class Socket(Connection):
    """
    A TCP transport whose socket takes as many bytes as it is told to.
    """

    def __init__(self, takes: list[int]) -> None:
        ours, theirs = socket.socketpair()
        self._closed = (ours, theirs)
        super().__init__(ours, Protocol(), MemoryReactor())
        self.connected = 1
        self.takes = takes
        self.wire = b""
        self.gathered = 0
        self.socket = Taking(self)  # type: ignore[assignment]

    def writeSomeData(self, data: bytes) -> int | Exception:  # type: ignore[override]
        """
        Take the next number of bytes, or break.
        """
        count = self.takes.pop(0) if self.takes else len(data)
        if count < 0:
            return CONNECTION_LOST
        taken = bytes(data[:count])
        self.wire += taken
        return len(taken)

    def close(self) -> None:
        """
        Free the sockets.
        """
        for each in self._closed:
            each.close()


class EagerWriterTests(SynchronousTestCase):
    """
    Writing at once.
    """

    def transport(self, takes: list[int]) -> Socket:
        """
        A transport that is cleaned up.
        """
        transport = Socket(takes)
        self.addCleanup(transport.close)
        return transport

    def test_atOnce(self) -> None:
        """
        What the socket takes is written without waiting for the reactor.
        """
        transport = self.transport([])
        eagerWriter(transport)([b"frame"])
        self.assertEqual(transport.wire, b"frame")
        self.assertEqual(transport._tempDataLen, 0)

    def test_closing(self) -> None:
        """
        A transport that is closing is left to deal with it.
        """
        transport = self.transport([])
        transport.disconnecting = 1
        eagerWriter(transport)([b"frame"])
        self.assertEqual(transport.wire, b"")

    def test_broken(self) -> None:
        """
        A broken connection is the transport's to report: it gets the data and
        fails to write it.
        """
        transport = self.transport([-1, -1])
        eagerWriter(transport)([b"frame"])
        self.assertEqual(transport._tempDataLen, 5)
        self.assertIs(transport.doWrite(), CONNECTION_LOST)

    def test_large(self) -> None:
        """
        Pieces that are large are gathered by the system; if the connection is broken
        the transport gets them.
        """
        pieces = [b"head", b"x" * 20_000, b"head", b"y" * 20_000]
        transport = self.transport([])
        eagerWriter(transport)(pieces)
        self.assertEqual((transport.wire, transport.gathered), (b"".join(pieces), 1))
        transport = self.transport([-1, -1])
        eagerWriter(transport)(pieces)
        self.assertEqual(transport._tempDataLen, 40_008)
        self.assertIs(transport.doWrite(), CONNECTION_LOST)

    def test_otherTransports(self) -> None:
        """
        A transport of another kind is written to in the ordinary way.
        """
        transport = StringTransport()
        eagerWriter(transport)([b"frame"])
        self.assertEqual(transport.value(), b"frame")

    def test_tls(self) -> None:
        """
        A TCP transport that encrypts is written to in the ordinary way.
        """
        transport = self.transport([])
        transport.TLS = True
        written: list[bytes] = []
        self.patch(transport, "write", written.append)
        eagerWriter(transport)([b"fra", b"me"])
        self.assertEqual((transport.wire, written), (b"", [b"frame"]))

    @given(
        st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.integers(0, 12)), max_size=20),
        st.data(),
    )
    def test_order(self, writes: list[tuple[bytes, int]], data: st.DataObject) -> None:
        """
        However much the socket takes, and whenever it becomes writable, the
        same bytes arrive in the same order as with ordinary writes; so they do where
        the system gathers the pieces.
        """
        self.patch(eager, "_LARGE", 5)
        transport = self.transport([])
        write = eagerWriter(transport)
        for piece, takes in writes:
            transport.takes = [takes]
            write([piece[:1], piece[1:]])
            if data.draw(st.booleans()):
                transport.takes = [data.draw(st.integers(0, 12))]
                transport.doWrite()
        transport.takes = []
        while transport.dataBuffer or transport._tempDataLen:
            transport.doWrite()
        self.assertEqual(transport.wire, b"".join(piece for piece, _ in writes))
