# SPDX-License-Identifier: Apache-2.0
"""
Writing to the socket at once, where Twisted would wait for it to be writable.

A Twisted transport puts what is written into a buffer, asks the reactor to tell
it when the socket can be written to, and writes then: two system calls and one
more turn of the reactor for an answer that the socket would have taken at once.
Writing eagerly while the buffer is empty saves them.  See hotpath: eager writes.

Whether the buffer is empty is Twisted's private affair, so this is the only
module that looks, and it stands aside where the transport is not one that it
knows.  L{Remoting<txrocket.remoting.remoting.Remoting>} has the switch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.tcp import Connection

__all__ = ["eagerWriter", "plainWriter", "withoutDelay"]


# From this many bytes on the system gathers the pieces, because joining them costs more.  It
# takes at most this many pieces.
_LARGE: Final = 16 * 1024
_MOST_PIECES: Final = 1000


def withoutDelay(transport: Any) -> None:
    """
    Have the system send small writes at once, and not wait for the peer to acknowledge those
    before.  A transport that is no TCP connection stays as it is.
    """
    if hasattr(transport, "setTcpNoDelay"):
        transport.setTcpNoDelay(True)


def eagerWriter(transport: Any) -> Callable[[Sequence[bytes]], None]:
    """
    What to call to have pieces written, eagerly if that can be done.
    """
    if not isinstance(transport, Connection) or transport.TLS:
        return plainWriter(transport)
    return _Eager(transport).write


def plainWriter(transport: Any) -> Callable[[Sequence[bytes]], None]:
    """
    What to call to have pieces written in one go, as the transport would.
    """
    return _Plain(transport).write


class _Plain:
    """
    Writes as the transport does.
    """

    __slots__ = ("_transport",)

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def write(self, pieces: Sequence[bytes]) -> None:
        self._transport.write(b"".join(pieces))


class _Eager:
    """
    Writes to the socket at once if it can.

    What the socket does not take goes to the transport, which from then on has
    something in its buffer and gets all that follows, so nothing overtakes.
    """

    # Half of what a function that remembers its transport takes, and there are ten
    # thousands of them.
    __slots__ = ("_transport",)

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def write(self, pieces: Sequence[bytes]) -> None:
        transport = self._transport
        if transport._tempDataLen or transport.dataBuffer or transport.disconnecting:
            transport.writeSequence(pieces)
            return
        if len(pieces) == 1:
            size = len(pieces[0])
            sent = _sent(transport.socket.send, pieces[0])
        else:
            size = sum(map(len, pieces))
            if size >= _LARGE and len(pieces) <= _MOST_PIECES:
                sent = _sent(transport.socket.sendmsg, pieces)
            else:
                pieces = [b"".join(pieces)]
                sent = _sent(transport.socket.send, pieces[0])
        if sent < size:
            transport.write(b"".join(pieces)[sent:])


def _sent(send: Callable[[Any], int], data: Any) -> int:
    """
    How much a socket takes.  C{writeSomeData} of the transport costs more.
    """
    try:
        return send(data)
    except OSError:
        # It is full, or broken, which the transport finds out and says.
        return 0
