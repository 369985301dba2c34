# SPDX-License-Identifier: Apache-2.0
"""
A network in memory, on a clock, for tests of clients: name servers that answer by
themselves, and brokers for which the test answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock

from tests.remoting.doubles import Wire, lose
from txrocket.client.cluster import Cluster
from txrocket.model import BrokerData, QueueData, TopicRouteData
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import SendMessageResponseHeader
from txrocket.remoting.protocol import RemotingProtocol

NAME_SERVER = "192.0.2.100:9876"
ADDRESSES = {
    "broker-a": "192.0.2.1:10911",
    "broker-b": "192.0.2.2:10911",
    "broker-c": "192.0.2.3:10911",
}


def routeTo(*names: str, queues: int = 2, perm: int = 6) -> TopicRouteData:
    """
    A route to some of the brokers, each with as many queues.
    """
    return TopicRouteData(
        None,
        tuple(QueueData(name, queues, queues, perm) for name in names),
        tuple(BrokerData("cluster", name, {0: ADDRESSES[name]}) for name in names),
    )


class Received:
    """
    A request that a server has got.

    @ivar at: the server's address.
    """

    def __init__(self, at: str, request: RemotingCommand, protocol: RemotingProtocol) -> None:
        self.at = at
        self.request = request
        self.code = request.code
        self.fields = request.extFields
        self.protocol = protocol

    def answer(self, response: RemotingCommand) -> None:
        """
        Answer it.
        """
        response.opaque = self.request.opaque
        self.protocol.dataReceived(response.encode())

    def refuse(self, code: int, remark: str = "no") -> None:
        """
        Answer with an error.
        """
        self.answer(responseCommand(code, remark))

    def stored(
        self, code: int = 0, offset: int = 7, queueId: int | None = None, **fields: str
    ) -> None:
        """
        Answer that a message is stored.
        """
        told = int(self.fields["e"]) if queueId is None else queueId
        response = responseCommand(code, None, SendMessageResponseHeader("0A", told, offset))
        response.extFields.update(fields)
        self.answer(response)

    def lose(self) -> None:
        """
        Close the connection that it came by.
        """
        lose(self.protocol, ConnectionDone())


class _Endpoint:
    def __init__(self, dial: Callable[[Factory], Deferred[Any]]) -> None:
        self.connect = dial


class Network:
    """
    All servers.

    @ivar routes: what the name servers know.
    @ivar received: what brokers have got and not answered, but for heartbeats.
    @ivar heartbeats: the brokers that have got one.
    @ivar asked: the topics whose routes were asked for.
    @ivar refusing: addresses without a listener.
    @ivar silent: name servers that do not answer by themselves.
    @ivar withheld: what they were asked.
    @ivar vanished: addresses where no connection is ever made nor refused.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        # A time as it is, so that months and milliseconds are real.
        self.clock.rightNow = 1_700_000_000.0
        self.routes: dict[str, TopicRouteData] = {}
        self.received: list[Received] = []
        self.heartbeats: list[str] = []
        self.asked: list[str] = []
        self.refusing: set[str] = set()
        self.silent: set[str] = set()
        self.withheld: list[Received] = []
        self.vanished: set[str] = set()
        self._wires: list[tuple[str, Wire, RemotingProtocol]] = []

    def cluster(self, **options: Any) -> Cluster:
        """
        A client of this network.
        """
        options = {"clientId": "192.0.2.50@1", "choose": lambda below: 0, **options}
        return Cluster(NAME_SERVER, self.clock, connect=self.endpoint, **options)

    def endpoint(self, address: str) -> Any:
        """
        How to dial an address.
        """

        def dial(factory: Factory) -> Deferred[Any]:
            if address in self.refusing:
                return fail(ConnectionRefusedError())
            if address in self.vanished:
                return Deferred()
            protocol: Any = factory.buildProtocol(None)
            wire = Wire()
            protocol.makeConnection(wire)
            # The transport of a test knows one address only.
            protocol.address = address
            self._wires.append((address, wire, protocol))
            return succeed(protocol)

        return _Endpoint(dial)

    def run(self) -> list[Received]:
        """
        Let all peers read, until none has anything to write.

        @return: what brokers have got and not answered.
        """
        moved = True
        while moved:
            moved = False
            self.clock.advance(0)
            for address, wire, protocol in list(self._wires):
                for request in wire.drain():
                    moved = True
                    self._serve(Received(address, request, protocol))
        return self.received

    def only(self) -> Received:
        """
        The one request that a broker has got; it is not waiting any more.
        """
        (received,) = self.run()
        self.received.clear()
        return received

    def tellRoute(self, received: Received) -> None:
        """
        Answer a request for a route.
        """
        topic = received.fields["topic"]
        route = self.routes.get(topic)
        if route is None:
            received.refuse(ResponseCode.TOPIC_NOT_EXIST, f"no route of {topic}")
        else:
            received.answer(responseCommand(body=encodeBody(route)))

    def _serve(self, received: Received) -> None:
        if received.request.isResponse:
            return
        if received.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            self.asked.append(received.fields["topic"])
            if received.at in self.silent:
                self.withheld.append(received)
            else:
                self.tellRoute(received)
        elif received.code == RequestCode.HEART_BEAT:
            self.heartbeats.append(received.at)
            received.answer(responseCommand())
        elif received.code == RequestCode.UNREGISTER_CLIENT:
            received.answer(responseCommand())
        else:
            self.received.append(received)
