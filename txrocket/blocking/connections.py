# SPDX-License-Identifier: Apache-2.0
"""
The connections of a blocking client over plain sockets, one per address::

    BlockingConnections   address --> BlockingConnection --> socket
                                      RemotingConnection: bytes to commands

A connection is opened when it is first needed and checked before it is used again.  After
any error it is closed, because a late answer could otherwise be taken for another's.  A
forked process opens its own connections: two processes on one socket would read each
other's answers.

The caller waits until all of its requests are answered.  An answer to a request that was
given up is dropped.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from txrocket.acl import Credentials
from txrocket.blocking.deadline import Deadline
from txrocket.blocking.tls import TLS
from txrocket.errors import ConnectFailed, ConnectionLost, RequestTimedOut
from txrocket.protocol.addresses import parseAddress
from txrocket.protocol.codes import requestName
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.connection import RemotingConnection

__all__ = ["BlockingConnection", "BlockingConnections"]

# The bytes of one read.  A pull of 32 messages of 1 KiB fits.  A broker's usual limit of
# 256 KiB takes a few reads; reading more at once was not faster.
_CHUNK: Final = 64 * 1024


class BlockingConnection:
    """
    One connection: it sends requests and waits for their answers.

    @ivar address: the peer's address.
    """

    def __init__(self, address: str, connected: socket.socket, limit: int) -> None:
        """
        @param limit: the longest frame in bytes, in and out.
        """
        self.address = address
        self._socket = connected
        self._limit = limit
        self._remoting = RemotingConnection(limit)
        self._readable = select.poll()
        self._readable.register(connected, select.POLLIN)

    @classmethod
    def dial(
        cls, address: str, deadline: Deadline, tls: ssl.SSLContext | None, limit: int
    ) -> BlockingConnection:
        """
        Connect.

        @raise ConnectFailed: if that fails, or takes too long.
        """
        try:
            host, port = parseAddress(address)
            return cls(address, _connect(host, port, deadline, tls), limit)
        except TimeoutError:
            why = f": not connected within {deadline.seconds:.3g} s"
        # A text that is not a host name raises UnicodeError, which is a ValueError.
        except (OSError, ValueError) as error:
            why = f" after {deadline.elapsed:.3f} s: {error}"
        raise ConnectFailed(address, f"connecting to {address} failed{why}") from None

    def isAlive(self) -> bool:
        """
        Whether the connection can be used: the peer has neither closed it nor broken the
        protocol.
        """
        if self._remoting.fault is not None:
            return False
        if not self._readable.poll(0):
            return True
        try:
            self._socket.settimeout(0)
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            # The peer sent TLS records without data.
            return True
        except OSError:
            return False
        self._remoting.feed(data)
        return bool(data) and self._remoting.fault is None

    def request(self, command: RemotingCommand, deadline: Deadline) -> RemotingCommand:
        """
        Send a request and wait for its answer.  After an error the connection cannot be
        used any more.

        @return: the answer, which may report an error.
        @raise InvalidMessage: if the request cannot be encoded.
        @raise RequestTimedOut: if no answer arrives in time.
        @raise ConnectionLost: if the connection is lost before the answer.
        """
        return self.requests([command], deadline)[0]

    def requests(
        self, commands: Sequence[RemotingCommand], deadline: Deadline
    ) -> list[RemotingCommand]:
        """
        Send several small requests in one write and wait for all answers.

        @return: the answers, in the order of the requests.
        @raise InvalidMessage: if a request cannot be encoded.
        @raise RequestTimedOut: if not all answers arrive in time.
        @raise ConnectionLost: if the connection is lost before the last answer.
        """
        command = commands[0]
        pieces: list[bytes] = []
        for each in commands:
            each.opaque = self._remoting.nextOpaque()
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
        self._socket.close()

    def _write(self, data: bytes, deadline: Deadline) -> None:
        # Not sendall, because over TLS it restarts the timeout with each piece.
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(deadline.left())
            rest = rest[self._socket.send(rest) :]

    def _read(self, opaques: set[int], deadline: Deadline) -> dict[int, RemotingCommand]:
        remoting = self._remoting
        answers: dict[int, RemotingCommand] = {}
        while True:
            self._socket.settimeout(deadline.left())
            data = self._socket.recv(_CHUNK)
            if not data:
                raise ConnectionResetError("the peer has closed it")
            for command in remoting.feed(data):
                if command.opaque in opaques and command.isResponse:
                    answers[command.opaque] = command
            if len(answers) == len(opaques):
                return answers
            if remoting.fault is not None:
                raise ConnectionAbortedError(f"the peer broke the protocol: {remoting.fault}")


class BlockingConnections:
    """
    The connections of a client by address.
    """

    def __init__(self, tls: TLS | None, limit: int, credentials: Credentials | None = None) -> None:
        """
        @param limit: the longest frame in bytes, in and out.
        @param credentials: the account that requests are signed for.
        """
        self._tls = tls
        self._credentials = credentials
        self._limit = limit
        self._context: ssl.SSLContext | None = None
        self._connections: dict[str, BlockingConnection] = {}
        self._process = os.getpid()
        self._turn = threading.Lock()

    def ask(
        self,
        address: str,
        request: RemotingCommand,
        deadline: Deadline,
        dialling: Deadline | None = None,
    ) -> RemotingCommand:
        """
        Send a request to an address and wait for the answer.

        @param dialling: the deadline for connecting, if that is sooner.
        @return: the answer, which may report an error.
        @raise RemotingError: if no answer arrives.
        @raise InvalidMessage: if the request cannot be encoded.
        """
        return self.askAll(address, [request], deadline, dialling)[0]

    def askAll(
        self,
        address: str,
        requests: Sequence[RemotingCommand],
        deadline: Deadline,
        dialling: Deadline | None = None,
    ) -> list[RemotingCommand]:
        """
        Send several small requests to an address at once and wait for all answers.

        @param dialling: the deadline for connecting, if that is sooner.
        @return: the answers, which may report errors.
        @raise RemotingError: if an answer does not arrive.
        @raise InvalidMessage: if a request cannot be encoded.
        """
        with self._alone():
            if self._credentials is not None:
                for each in requests:
                    self._credentials.sign(each)
            connection = self._connections.pop(address, None)
            if connection is not None and not connection.isAlive():
                connection.close()
                connection = None
            if connection is None:
                connection = BlockingConnection.dial(
                    address, dialling or deadline, self._tlsContext(), self._limit
                )
            try:
                answers = connection.requests(requests, deadline)
            except BaseException:
                # A late answer must not be taken for the answer to another request.
                connection.close()
                raise
            self._connections[address] = connection
            return answers

    def close(self) -> None:
        """
        Close all connections.  Later requests open new ones.
        """
        connections, self._connections = self._connections, {}
        for each in connections.values():
            each.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._process != os.getpid():
            # This closes only this process's copies; the other process keeps the connections.
            self.close()
            self._turn = threading.Lock()
            self._process = os.getpid()
        turn = self._turn
        if not turn.acquire(blocking=False):
            raise RuntimeError(
                "a blocking client serves one thread at a time: make one for each thread"
            )
        try:
            yield
        finally:
            turn.release()

    def _tlsContext(self) -> ssl.SSLContext | None:
        if self._context is None and self._tls is not None:
            self._context = self._tls.context()
        return self._context


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
            # Try the next address of the same name.
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

    # The system's resolver has no timeout, so a late lookup is left to its thread.
    looking = threading.Thread(target=look, name=f"looking up {host}", daemon=True)
    looking.start()
    looking.join(deadline.left())
    if not found:
        raise TimeoutError
    if isinstance(found[0], OSError):
        raise found[0]
    return list(found[0])
