# SPDX-License-Identifier: Apache-2.0
"""
The port for slaves, as 4.9.7 speaks it: a connection that says what a script wants, and a
way between master and slave on which a byte can be turned::

    slave -> master   int64 offset
    master -> slave   int64 offset, int32 size, so many bytes of the log
"""

from __future__ import annotations

import struct
from typing import Any

from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    TCP4ServerEndpoint,
    connectProtocol,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from tests.live.servers import reactor

__all__ = ["Way", "Wire", "wired"]

_FRAME = struct.Struct(">qi")


class Wire(Protocol):
    """
    A connection to a port for slaves.

    @ivar data: what came.
    @ivar isLost: whether the master has closed it.
    """

    transport: Any

    def __init__(self) -> None:
        self.data = b""
        self.isLost = False

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.isLost = True

    def say(self, offset: int) -> None:
        """
        Report an offset; the first one is the request.
        """
        self.transport.write(struct.pack(">q", offset))

    def close(self) -> None:
        """
        Close it.
        """
        if not self.isLost:
            self.transport.loseConnection()

    @property
    def frames(self) -> list[tuple[int, int]]:
        """
        The offset and the size of each whole frame that came.
        """
        found, at = [], 0
        while at + _FRAME.size <= len(self.data):
            offset, size = _FRAME.unpack_from(self.data, at)
            at += _FRAME.size + size
            if size < 0 or at > len(self.data):
                break
            found.append((offset, size))
        return found


async def wired(port: int) -> Wire:
    """
    Connect to a port for slaves.
    """
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port)
    wire: Wire = await connectProtocol(endpoint, Wire())
    return wire


class _Half(Protocol):
    """
    One connection of a way.
    """

    transport: Any

    def __init__(self, way: Way, other: _Half | None) -> None:
        self._way = way
        self._waits = b""
        self.other = other

    def connectionMade(self) -> None:
        if self.other is None:
            self.other = _Half(self._way, self)
            endpoint = HostnameEndpoint(reactor, "127.0.0.1", self._way.target)
            connectProtocol(endpoint, self.other).addCallbacks(
                lambda other: other.transport.write(self._waits),
                lambda failure: self.transport.abortConnection(),
            )
        else:
            self._waits = b""

    def dataReceived(self, data: bytes) -> None:
        assert self.other is not None
        if self.other.transport is None:
            self._waits += data
        else:
            self.other.transport.write(self._way.passed(data))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.loseConnection()


class Way:
    """
    A port of its own before a master's.

    @ivar target: the master's port.
    @ivar turned: how many bytes were turned.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.turned = 0
        self._mark = b""

    async def open(self, port: int) -> None:
        """
        Listen.
        """
        factory = Factory()
        factory.noisy = False
        factory.protocol = lambda: _Half(self, None)
        self._port = await TCP4ServerEndpoint(reactor, port, interface="127.0.0.1").listen(factory)

    def turn(self, mark: bytes) -> None:
        """
        Turn a bit of the next bytes that pass and are these.
        """
        self._mark = mark

    def passed(self, data: bytes) -> bytes:
        """
        What comes out of bytes that go in.
        """
        if self._mark and self._mark in data:
            data = data.replace(self._mark, self._mark[:-1] + bytes([self._mark[-1] ^ 1]), 1)
            self._mark = b""
            self.turned += 1
        return data

    async def close(self) -> None:
        """
        Listen no more.
        """
        await self._port.stopListening()
