# SPDX-License-Identifier: Apache-2.0
"""
A connection in memory: two transports that deliver to each other.

The other end gets the bytes in order, in pieces of a socket's size, and always in a call
from the clock, never inside C{write}.  If the peer does not read, the buffer fills like a
socket's, and the transport pauses its producer::

    write --> buffer --(clock)--> dataReceived of the other end
                | over 64 KiB: producer.pauseProducing
                | empty again: producer.resumeProducing

If the network between the two machines is cut, bytes wait in the buffer, and neither end
hears that the other has closed, until it is healed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IConsumer, IPushProducer, ITCPTransport
from twisted.python.failure import Failure
from zope.interface import implementer

__all__ = ["MemoryTransport", "Path"]

# The bytes that Twisted's sockets read at a time, and buffer before they are full.
_READ = 64 * 1024
_FULL = 64 * 1024


class Path(Protocol):
    """
    One direction between two machines.
    """

    @property
    def isCut(self) -> bool:
        """
        Whether nothing gets through.
        """

    def soon(self, function: Callable[[], None]) -> None:
        """
        Call a function as soon as something gets to the other end.
        """

    def whenHealed(self, function: Callable[[], None]) -> None:
        """
        Call a function once something gets through; now, if it does.
        """


@implementer(ITCPTransport, IConsumer, IPushProducer)
class MemoryTransport:
    """
    One end of a connection, as the transport of a protocol.

    @ivar other: the other end.
    @ivar whenLost: called after the protocol's C{connectionLost}.
    @ivar disconnecting: whether it closes as soon as the buffer is empty.
    """

    other: MemoryTransport

    def __init__(
        self,
        path: Path,
        transports: set[MemoryTransport],
        own: IPv4Address,
        peer: IPv4Address,
    ) -> None:
        """
        @param path: the direction to the other end.
        @param transports: the set that has this transport while the connection is open.
        """
        self._path = path
        self._transports = transports
        self._own = own
        self._peer = peer
        self._protocol: Any = None
        self._unsent = bytearray()
        self._sending = False
        self._reads = True
        self._producer: Any = None
        self._streams = True
        self._full = False
        self._up = True
        self.disconnecting = False
        self.whenLost: Callable[[], None] = lambda: None

    def begin(self, protocol: Any) -> None:
        """
        Open the connection.
        """
        self._protocol = protocol
        self._transports.add(self)
        protocol.makeConnection(self)

    def vanish(self) -> None:
        """
        End the connection because the process at this end has crashed.
        """
        self._transports.discard(self)
        self._up = self._reads = False
        self._unsent.clear()
        self._tell(ConnectionLost())

    def breakSoon(self, reason: Exception) -> None:
        """
        Lose the connection: neither end receives anything more.
        """
        self._reads = False
        self._unsent.clear()
        self._path.soon(lambda: self._lose(reason))

    # --- the transport ---------------------------------------------------

    def write(self, data: bytes) -> None:
        """
        See L{ITCPTransport}.
        """
        if self._up and data:
            self._unsent += data
            self._sendSoon()
            if len(self._unsent) > _FULL and self._streams and not self._full:
                self._full = self._producer is not None
                if self._full:
                    self._producer.pauseProducing()

    def writeSequence(self, data: Any) -> None:
        """
        See L{ITCPTransport}.
        """
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """
        Close once the buffer is empty.
        """
        if self._up and not self.disconnecting:
            self.disconnecting = True
            self._reads = False
            self._sendSoon()

    def abortConnection(self) -> None:
        """
        Close at once.
        """
        if self._up:
            self._up = False
            self._tell(ConnectionLost())
            self.breakSoon(ConnectionAborted())

    def getHost(self) -> IPv4Address:
        """
        This end's address.
        """
        return self._own

    def getPeer(self) -> IPv4Address:
        """
        The other end's address.
        """
        return self._peer

    def loseWriteConnection(self) -> None:
        """
        Close the connection, because one direction alone cannot be closed here.
        """
        self.loseConnection()

    def getTcpNoDelay(self) -> bool:
        """
        Nothing is delayed.
        """
        return True

    def setTcpNoDelay(self, enabled: bool) -> None:
        """
        Nothing is delayed.
        """

    def getTcpKeepAlive(self) -> bool:
        """
        Nothing has to be kept alive.
        """
        return False

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """
        Nothing has to be kept alive.
        """

    # --- producers -------------------------------------------------------

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """
        See L{IConsumer}.
        """
        if self._producer is not None:
            raise RuntimeError(f"{self._producer} is registered already")
        if not self._up:
            producer.stopProducing()
            return
        self._producer, self._streams, self._full = producer, streaming, False
        if not streaming:
            producer.resumeProducing()

    def unregisterProducer(self) -> None:
        """
        See L{IConsumer}.
        """
        self._producer = None
        self._full = False
        if self.disconnecting:
            self._sendSoon()

    def pauseProducing(self) -> None:
        """
        Stop reading.
        """
        self._reads = False

    def resumeProducing(self) -> None:
        """
        Read again.
        """
        if self._up and not self.disconnecting:
            self._reads = True
            self.other.readAgain()

    def stopProducing(self) -> None:
        """
        Stop reading, and close.
        """
        self.loseConnection()

    def readAgain(self) -> None:
        """
        Send, because the other end reads again.
        """
        if self._unsent:
            self._sendSoon()

    # --- inside ----------------------------------------------------------

    def _tell(self, reason: Exception) -> None:
        """
        Let the other end know that the connection has ended.
        """
        self._path.whenHealed(lambda: self.other.breakSoon(reason))

    def _sendSoon(self) -> None:
        if not self._sending:
            self._sending = True
            self._path.soon(self._send)

    def _send(self) -> None:
        if self._path.isCut:
            self._path.whenHealed(lambda: self._path.soon(self._send))
            return
        self._sending = False
        if self._up and self._unsent and self.other.takes:
            data = bytes(self._unsent[:_READ])
            del self._unsent[:_READ]
            self.other.take(data)
        if not self._up:
            return
        if self._unsent:
            if self.other.takes:
                self._sendSoon()
        elif self._producer is not None and (self._full or not self._streams):
            self._full = False
            self._producer.resumeProducing()
        elif self.disconnecting:
            self._tell(ConnectionDone())
            self._lose(ConnectionDone())

    @property
    def takes(self) -> bool:
        """
        Whether this end reads.
        """
        return self._reads

    def take(self, data: bytes) -> None:
        """
        Deliver bytes to the protocol.
        """
        self._protocol.dataReceived(data)

    def _lose(self, reason: Exception) -> None:
        if self not in self._transports:
            return
        self._transports.discard(self)
        self._up = self._reads = False
        self._unsent.clear()
        if self._producer is not None:
            self._producer.stopProducing()
            self._producer = None
        self._protocol.connectionLost(Failure(reason))
        self.whenLost()
