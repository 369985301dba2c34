# SPDX-License-Identifier: Apache-2.0
"""
Ask the echo server, C{twistd rocket-echo}, and print its answer::

    .venv/bin/python examples/echo_client.py 127.0.0.1:9876
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import GetRouteInfoRequestHeader
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting


async def ask(reactor: Any, address: str) -> None:
    """
    One request, one answer.
    """
    peers = Peers(Remoting(reactor), endpoints(reactor))
    header = GetRouteInfoRequestHeader(topic="Greetings")
    request = requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, b"hello")
    try:
        response = await peers.request(address, request, timeout=3.0)
    finally:
        await peers.stop()
    print("sent    ", request)
    print("received", response)
    print("header  ", response.decodeHeader(GetRouteInfoRequestHeader))
    print("body    ", response.body)


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(ask(reactor, address)))
