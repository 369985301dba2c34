# SPDX-License-Identifier: Apache-2.0
"""
A server in a thread, which a test makes answer late, in pieces, with garbage, or not at all.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from twisted.trial.unittest import SynchronousTestCase

from txrocket.blocking import Client, Settings
from txrocket.blocking.deadline import Deadline
from txrocket.model import BrokerData, QueueData, TopicRouteData
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.connection import RemotingConnection
from txrocket.protocol.headers import SendMessageResponseHeader
from txrocket.testing.clustersettings import freePort

#: Serves a request with an answer, with bytes in place of one, or with nothing (L{None}).
#: If it raises L{Cut}, the connection is closed.
Reply: TypeAlias = RemotingCommand | bytes | None
Serve: TypeAlias = Callable[[RemotingCommand], Reply]


class Cut(Exception):
    """
    The connection is to be closed.

    @ivar last: the bytes that are written before.
    """

    def __init__(self, last: bytes = b"") -> None:
        self.last = last


class Server:
    """
    A server on loopback.

    @ivar address: the address at which it listens.
    @ivar serve: by request code, the function that serves it.
    @ivar requests: the requests that it received.
    @ivar connections: the sockets that it has accepted.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.serve: dict[int, Serve] = {}
        self.requests: list[RemotingCommand] = []
        self.connections: list[socket.socket] = []
        self._tls = tls
        self._listening = socket.create_server((host, 0))
        self.port: int = self._listening.getsockname()[1]
        self.address = f"{host}:{self.port}"
        self._threads = [self._start(self._accept)]

    def codes(self) -> list[int]:
        """
        The codes of the requests that it received.
        """
        return [each.code for each in self.requests]

    def hangUp(self) -> None:
        """
        Close all connections.  When this returns, the client can see that they are closed.
        """
        connections, self.connections = self.connections, []
        for each in connections:
            self._close(each)

    def stop(self) -> None:
        """
        Close all sockets, and wait for the threads.
        """
        self._close(self._listening)
        self.hangUp()
        for each in self._threads:
            each.join(120)
            assert not each.is_alive()

    def _start(self, function: Callable[..., None], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        thread.start()
        return thread

    def _close(self, each: socket.socket) -> None:
        with suppress(OSError):
            # Whoever waits for it in a thread is told as well.
            socket.socket.shutdown(each, socket.SHUT_RDWR)
        each.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self.connections.append(accepted)
            self._threads.append(self._start(self._talk, accepted))

    def _talk(self, accepted: socket.socket) -> None:
        frames = RemotingConnection()
        try:
            if self._tls is not None:
                plain, accepted = accepted, self._tls.wrap_socket(accepted, server_side=True)
                self.connections[self.connections.index(plain)] = accepted
            while data := accepted.recv(1 << 20):
                for request in frames.feed(data):
                    self.requests.append(request)
                    reply = self.serve.get(request.code, unsupported)(request)
                    accepted.sendall(framed(reply, request))
        except Cut as cut:
            accepted.sendall(cut.last)
            self._close(accepted)
        except OSError:
            self._close(accepted)


def framed(reply: Reply, request: RemotingCommand) -> bytes:
    """
    The bytes that a server writes.
    """
    if reply is None or isinstance(reply, bytes):
        return reply or b""
    reply.opaque = request.opaque
    return reply.encode()


def unsupported(request: RemotingCommand) -> RemotingCommand:
    """
    Answer that the request code is not supported.
    """
    return responseCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")


def refuse(code: int, remark: str = "no") -> Serve:
    """
    Answer with an error.
    """
    return lambda request: responseCommand(code, remark)


def cut(request: RemotingCommand) -> Reply:
    """
    Close the connection.
    """
    raise Cut


def silence(request: RemotingCommand) -> Reply:
    """
    Give no answer.
    """
    return None


def inTurn(*replies: Serve) -> Serve:
    """
    Serve the first requests by one function each, and all later ones by the last.
    """
    left = list(replies)
    return lambda request: (left.pop(0) if len(left) > 1 else left[0])(request)


class BlockingCase(SynchronousTestCase):
    """
    Tests with a name server and two brokers, which both have topic T with two
    queues.
    """

    def setUp(self) -> None:
        self.names = self.server()
        self.a, self.b = self.server(), self.server()
        self.routes = {"T": self.routeTo(self.a, self.b)}
        self.names.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self.tellRoute
        for each in (self.a, self.b):
            each.serve[RequestCode.SEND_MESSAGE_V2] = self.stored
            each.serve[RequestCode.SEND_BATCH_MESSAGE] = self.stored

    def server(self, **options: Any) -> Server:
        """
        A server that runs until the test is over.
        """
        server = Server(**options)
        self.addCleanup(server.stop)
        return server

    def client(self, *more: str, **options: Any) -> Client:
        """
        A client that is closed when the test is over.

        @param more: further name servers, which come first.
        """
        # A busy machine may take longer than the default.
        options.setdefault("timeout", 30.0)
        client = Client(Settings([*more, self.names.address], **options))
        self.addCleanup(client.close)
        return client

    def nowhere(self) -> str:
        """
        An address at which no server listens.
        """
        # Not a port that the system gives to outgoing connections.
        return f"127.0.0.1:{freePort('127.0.0.1')}"

    def routeTo(self, *masters: Server | str, queues: int = 2, perm: int = 6) -> TopicRouteData:
        """
        A route to servers, or addresses, which are brokers called a, b and so on.
        """
        names = "abcdef"[: len(masters)]
        addresses = [each if isinstance(each, str) else each.address for each in masters]
        return TopicRouteData(
            None,
            tuple(QueueData(name, queues, queues, perm) for name in names),
            tuple(
                BrokerData("c", name, {0: address})
                for name, address in zip(names, addresses, strict=True)
            ),
        )

    def tellRoute(self, request: RemotingCommand) -> RemotingCommand:
        """
        The name server's function for routes.
        """
        route = self.routes.get(request.extFields["topic"])
        if route is None:
            return responseCommand(ResponseCode.TOPIC_NOT_EXIST, "no such route")
        return responseCommand(body=encodeBody(route))

    def stored(self, request: RemotingCommand) -> RemotingCommand:
        """
        A broker's function for sends.
        """
        header = SendMessageResponseHeader("0A", int(request.extFields["e"]), 7)
        return responseCommand(header=header)


class HastyCase(BlockingCase):
    """
    Tests of clients that do not sleep between attempts.

    @ivar pauses: how many attempts had been made before each pause.
    """

    def setUp(self) -> None:
        super().setUp()
        self.pauses: list[int] = []
        self.patch(Deadline, "pause", self.pause)

    def pause(self, attempts: int) -> bool:
        """
        Count a pause in place of it.
        """
        self.pauses.append(attempts)
        return True
