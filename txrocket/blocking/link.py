# SPDX-License-Identifier: Apache-2.0
"""
One connection over a plain socket: a request goes out, and its answer is waited for.

Whoever asks waits until all that was asked is answered.  What comes unasked, as the
answer to a request that was given up, is dropped.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Any, Final

from txrocket.blocking.deadline import Deadline
from txrocket.errors import ConnectFailed, ConnectionLost, RequestTimedOut
from txrocket.protocol.addresses import parseAddress
from txrocket.protocol.codes import requestName
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.connection import Connection

__all__ = ["Link"]

# What is read at once.  A pull of 32 messages of 1 KiB fits; 256 KiB, a broker's usual
# limit, takes a few reads, and more than 64 KiB at once were no quicker.
_CHUNK: Final = 64 * 1024


class Link:
    """
    A connection.

    @ivar address: of the peer.
    """

    def __init__(self, address: str, connected: socket.socket, limit: int) -> None:
        """
        @param limit: the longest frame in bytes, in and out.
        """
        self.address = address
        self._socket = connected
        self._limit = limit
        self._connection = Connection(limit)
        self._readable = select.poll()
        self._readable.register(connected, select.POLLIN)

    @classmethod
    def dial(cls, address: str, deadline: Deadline, tls: ssl.SSLContext | None, limit: int) -> Link:
        """
        Connect.

        @raise ConnectFailed: if that fails, or takes too long.
        """
        try:
            host, port = parseAddress(address)
            return cls(address, _connect(host, port, deadline, tls), limit)
        except TimeoutError:
            why = f": not connected within {deadline.seconds:.3g} s"
        # UnicodeError, which is a ValueError: what is no host name at all.
        except (OSError, ValueError) as error:
            why = f" after {deadline.elapsed:.3f} s: {error}"
        raise ConnectFailed(address, f"connecting to {address} failed{why}") from None

    def isAlive(self) -> bool:
        """
        Whether it can be used, as far as can be told: a peer that has closed it has
        said so.
        """
        if self._connection.fault is not None:
            return False
        if not self._readable.poll(0):
            return True
        try:
            self._socket.settimeout(0)
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            # TLS has things to say that are no data.
            return True
        except OSError:
            return False
        self._connection.feed(data)
        return bool(data) and self._connection.fault is None

    def request(self, command: RemotingCommand, deadline: Deadline) -> RemotingCommand:
        """
        Send a request and wait for its answer.  After an error it is of no use any
        more.

        @return: the answer, whatever its code.
        @raise InvalidMessage: if the request cannot be written.
        @raise RequestTimedOut: if no answer comes in time.
        @raise ConnectionLost: if none will.
        """
        return self.requests([command], deadline)[0]

    def requests(
        self, commands: Sequence[RemotingCommand], deadline: Deadline
    ) -> list[RemotingCommand]:
        """
        Send requests at once, small ones, and wait for all of their answers.

        @return: the answers, in the order of the requests.
        @raise InvalidMessage: if a request cannot be written.
        @raise RequestTimedOut: if not all answers come in time.
        @raise ConnectionLost: if they will not.
        """
        command = commands[0]
        pieces: list[bytes] = []
        for each in commands:
            each.opaque = self._connection.nextOpaque()
            pieces += (each.encodeHead(self._limit), each.body)
        doing = "sending"
        try:
            self._write(b"".join(pieces), deadline)
            doing = "waiting for the answer to"
            answers = self._read({each.opaque for each in commands}, deadline)
            return [answers[each.opaque] for each in commands]
        except TimeoutError:
            raise RequestTimedOut(
                self.address,
                f"{doing} {requestName(command.code)}: {self.address} did not answer within"
                f" {deadline.seconds:.3g} s",
            ) from None
        except OSError as error:
            raise ConnectionLost(
                self.address,
                f"{doing} {requestName(command.code)}: the connection to {self.address} was"
                f" lost after {deadline.elapsed:.3f} s: {error}",
            ) from None

    def close(self) -> None:
        """
        Close it.
        """
        self._socket.close()

    def _write(self, data: bytes, deadline: Deadline) -> None:
        # Not sendall, which over TLS begins to count anew with each piece.
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(deadline.left())
            rest = rest[self._socket.send(rest) :]

    def _read(self, opaques: set[int], deadline: Deadline) -> dict[int, RemotingCommand]:
        connection = self._connection
        answers: dict[int, RemotingCommand] = {}
        while True:
            self._socket.settimeout(deadline.left())
            data = self._socket.recv(_CHUNK)
            if not data:
                raise ConnectionResetError("the peer has closed it")
            for command in connection.feed(data):
                if command.opaque in opaques and command.isResponse:
                    answers[command.opaque] = command
            if len(answers) == len(opaques):
                return answers
            if connection.fault is not None:
                raise ConnectionAbortedError(f"the peer broke the protocol: {connection.fault}")


def _connect(host: str, port: int, deadline: Deadline, tls: ssl.SSLContext | None) -> socket.socket:
    found = _lookUp(host, port, deadline)
    while True:
        own = deadline.share(len(found))
        family, kind, protocol, _, where = found.pop(0)
        connecting = socket.socket(family, kind, protocol)
        try:
            connecting.settimeout(own.left())
            connecting.connect(where)
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is None:
                return connecting
            connecting.settimeout(deadline.left())
            return tls.wrap_socket(connecting, server_hostname=host)
        except OSError:
            connecting.close()
            # Another address of the same name may do.
            if not found:
                raise
        except BaseException:
            connecting.close()
            raise


def _lookUp(host: str, port: int, deadline: Deadline) -> list[Any]:
    """
    The addresses of a host.
    """
    kind = socket.SOCK_STREAM
    try:
        return socket.getaddrinfo(host, port, type=kind, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    found: list[Any] = []

    def look() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=kind))
        except OSError as error:
            found.append(error)

    # The system's resolver takes no time limit, so it is left behind if it is late.
    looking = threading.Thread(target=look, name=f"looking up {host}", daemon=True)
    looking.start()
    looking.join(deadline.left())
    if not found:
        raise TimeoutError
    if isinstance(found[0], OSError):
        raise found[0]
    return list(found[0])
