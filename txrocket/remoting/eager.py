# SPDX-License-Identifier: Apache-2.0
"""
Writing to the socket at once, where Twisted would wait for it to be writable.

A Twisted transport puts what is written into a buffer, asks the reactor to tell
it when the socket can be written to, and writes then: two system calls and one
more turn of the reactor for an answer that the socket would have taken at once.
Writing eagerly while the buffer is empty saves them, about 1 us of the 2.5 that
an echo of 1 KiB costs with 16 requests in flight, and a quarter of all a sync
sender waits for.

Whether the buffer is empty is Twisted's private affair, so this is the only
module that looks, and it stands aside where the transport is not one that it
knows.  L{Remoting<txrocket.remoting.node.Remoting>} has the switch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.tcp import Connection

__all__ = ["eagerWriter"]


def eagerWriter(transport: Any) -> Callable[[bytes], None]:
    """
    What to call in place of C{transport.write}.
    """
    ordinary: Callable[[bytes], None] = transport.write
    if not isinstance(transport, Connection) or transport.TLS:
        return ordinary
    return _Eager(transport).write


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

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport._tempDataLen or transport.dataBuffer or transport.disconnecting:
            transport.write(data)
            return
        sent = transport.writeSomeData(data)
        if not isinstance(sent, int):
            # The connection is broken: the transport finds out and says so.
            transport.write(data)
        elif sent < len(data):
            transport.write(data[sent:])
