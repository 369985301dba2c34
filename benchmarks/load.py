# SPDX-License-Identifier: Apache-2.0
"""
Load for servers under test, and its cost for them.

The load is prebuilt frames over plain sockets.  It only counts the answers, so that the
load is never the bottleneck::

    frame frame frame -->  server
                    \\<--  answer answer: two more frames
"""

from __future__ import annotations

import itertools
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence

__all__ = ["cpuSeconds", "drive", "memory"]

_LENGTH = struct.Struct(">I").unpack_from

# One buffer for all reads, because a new one for each would cost more than the read.
_BUFFER = bytearray(1 << 18)
_VIEW = memoryview(_BUFFER)


def cpuSeconds(pid: int) -> float:
    """
    The CPU time of all threads of a process, to the microsecond.
    """
    # Linux's number for the CPU clock of a process; see clock_getcpuclockid(3).
    return time.clock_gettime(~pid << 3 | 2)


def memory(pid: int) -> tuple[float, float]:
    """
    The memory of a process in MB: only its own pages (RssAnon), and with its share of
    programs and libraries (Pss).
    """
    return _megabytes(f"/proc/{pid}/status", "RssAnon:"), _megabytes(
        f"/proc/{pid}/smaps_rollup", "Pss:"
    )


def _megabytes(path: str, name: str) -> float:
    with open(path) as lines:
        found = next(line for line in lines if line.startswith(name))
    return int(found.split()[1]) * 1024 / 1e6


class _Connection:
    """
    One connection and the requests in flight on it.
    """

    def __init__(self, port: int, frames: Iterator[bytes], requests: int, inFlight: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = frames
        self._toSend = self._unanswered = requests
        self._begun = self._done = 0
        # The bytes up to the next answer, and the bytes of its length that have arrived.
        self._ahead = 0
        self._partial = b""
        self._send(inFlight)

    def _send(self, most: int) -> None:
        count = min(most, self._toSend)
        if count:
            self._toSend -= count
            self.socket.sendall(b"".join(itertools.islice(self._frames, count)))

    def answered(self) -> bool:
        """
        Read answers, and send as many new requests.

        @return: whether all requests are answered.
        """
        partial = self._partial
        _BUFFER[: len(partial)] = partial
        count = self.socket.recv_into(_VIEW[len(partial) :])
        if not count:
            raise ConnectionError("the server has closed the connection")
        end = len(partial) + count
        at = self._ahead
        while at + 4 <= end:
            at += 4 + _LENGTH(_BUFFER, at)[0]
            self._begun += 1
        self._partial = bytes(_VIEW[at:end])
        self._ahead = max(0, at - end)
        done = self._begun - (self._ahead > 0)
        more, self._done = done - self._done, done
        self._unanswered -= more
        self._send(more)
        return not self._unanswered


def drive(
    port: int, frames: Sequence[bytes], requests: int, connections: int, inFlight: int
) -> None:
    """
    Keep requests in flight on all connections until a number of them is answered.

    @param frames: the requests, in turn.
    """
    with selectors.DefaultSelector() as selector:
        for number in range(connections):
            turn = itertools.cycle(frames[number::connections] or frames)
            connection = _Connection(port, turn, requests // connections, inFlight)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        while selector.get_map():
            for key, _ in selector.select():
                if key.data.answered():
                    selector.unregister(key.fileobj)
                    key.data.socket.close()
