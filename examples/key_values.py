# SPDX-License-Identifier: Apache-2.0
"""
A server that stores values by key, with RocketMQ's own request codes.  It shows every way to
serve a request::

    .venv/bin/python examples/key_values.py tcp:9877:interface=127.0.0.1
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.task import react
from zope.interface import implementer

from txrocket.errors import NoPermission, QueryNotFound, RequestCodeNotSupported
from txrocket.protocol.codes import RequestCode, requestName
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import (
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from txrocket.remoting.executors import InlineExecutor, PoolExecutor
from txrocket.remoting.interfaces import Answer, IHook, IRequestProcessor
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import FunctionProcessor, Remoting
from txrocket.remoting.server import RemotingServerFactory


@implementer(IRequestProcessor)
class KeyValues:
    """
    Values by namespace and key.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], str] = {}

    def process(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Put or get, and answer at once.
        """
        if request.code == RequestCode.PUT_KV_CONFIG:
            put = request.decodeHeader(PutKVConfigRequestHeader)
            self.values[put.namespace, put.key] = put.value
            return responseCommand()
        if request.code == RequestCode.GET_KV_CONFIG:
            get = request.decodeHeader(GetKVConfigRequestHeader)
            if (get.namespace, get.key) not in self.values:
                raise QueryNotFound(f"no value for {get.namespace} {get.key}")
            value = self.values[get.namespace, get.key]
            return responseCommand(header=GetKVConfigResponseHeader(value=value))
        raise RequestCodeNotSupported(f"{requestName(request.code)} is not served here")


@implementer(IRequestProcessor)
class FirstValue:
    """
    Answers once a client has put a value: a long poll.
    """

    def __init__(self) -> None:
        self._waiting: list[Deferred[RemotingCommand | None]] = []

    def process(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Promise an answer.  If the connection closes, the promise is cancelled, and the
        canceller removes it.
        """
        promise: Deferred[RemotingCommand | None] = Deferred(self._waiting.remove)
        self._waiting.append(promise)
        return promise

    def arrived(self, value: str) -> None:
        """
        Keep all promises.
        """
        waiting, self._waiting = self._waiting, []
        for promise in waiting:
            promise.callback(responseCommand(header=GetKVConfigResponseHeader(value=value)))


def digest(request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
    """
    Work that would block the reactor: it runs in a thread and returns its answer.
    """
    header = request.decodeHeader(GetKVListByNamespaceRequestHeader)
    salt = header.namespace.encode()
    return responseCommand(body=hashlib.scrypt(request.body, salt=salt, n=2, r=8, p=1))


@implementer(IHook)
class Visitors:
    """
    Counts requests by code, and refuses requests for a namespace that begins with an
    underscore.
    """

    def __init__(self) -> None:
        self.served: Counter[int] = Counter()

    def beforeRequest(self, address: str, request: RemotingCommand) -> None:
        """
        Refuse requests for private namespaces.
        """
        if request.extFields.get("namespace", "").startswith("_"):
            raise NoPermission(f"{address} may not use this namespace")

    def afterResponse(
        self, address: str, request: RemotingCommand, response: RemotingCommand
    ) -> None:
        """
        Count an answer.
        """
        self.served[request.code] += 1


def keyValueServer(reactor: Any) -> Remoting:
    """
    Register a processor for each code, with the executor that runs it.
    """
    remoting = Remoting(reactor)
    inline = InlineExecutor()
    threads = PoolExecutor(reactor, reactor.getThreadPool(), name="digests", size=2)
    keyValues = KeyValues()
    remoting.registerProcessor(RequestCode.PUT_KV_CONFIG, keyValues, inline)
    remoting.registerProcessor(RequestCode.GET_KV_CONFIG, keyValues, inline)
    remoting.registerProcessor(
        RequestCode.GET_KVLIST_BY_NAMESPACE, FunctionProcessor(digest), threads
    )
    remoting.registerHook(Visitors())
    return remoting


async def serve(reactor: Any, where: str) -> None:
    """
    Listen until the program is stopped.
    """
    factory = RemotingServerFactory(keyValueServer(reactor))
    await serverFromString(reactor, where).listen(factory)
    await Deferred()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "tcp:9877:interface=127.0.0.1"
    react(lambda reactor: Deferred.fromCoroutine(serve(reactor, where)))
