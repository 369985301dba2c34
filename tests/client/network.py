# SPDX-License-Identifier: Apache-2.0
"""
A network in memory for the tests of clients: name servers and brokers that are
dialled by their addresses, on a Clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.task import Clock
from twisted.test.iosim import FakeTransport, IOPump, connect

from tests.remoting.doubles import serving
from txrocket.errors import TopicNotExist
from txrocket.model import BrokerData, QueueData, TopicRouteData
from txrocket.protocol.bodies import HeartbeatData
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import GetRouteInfoRequestHeader, UnregisterClientRequestHeader
from txrocket.remoting.addresses import parseAddress
from txrocket.remoting.protocol import RemotingProtocol


class Listener:
    """
    A server at an address.

    @ivar open: how many connections it has.
    @ivar mute: whether it leaves what it is asked unanswered.
    """

    def __init__(self) -> None:
        self.open = 0
        self.mute = False

    def codes(self) -> dict[int, Callable[..., Any]]:
        """
        The codes that are served.
        """
        return {
            code: lambda request, peer, function=function: (
                Deferred() if self.mute else function(request)
            )
            for code, function in self.functions().items()
        }

    def functions(self) -> dict[int, Callable[[RemotingCommand], RemotingCommand]]:
        """
        How it is served.
        """
        raise NotImplementedError


class FakeNameServer(Listener):
    """
    A name server.

    @ivar routes: the routes that it knows, by topic.
    @ivar asked: the topics that it was asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.routes: dict[str, TopicRouteData] = {}
        self.asked: list[str] = []

    def functions(self) -> dict[int, Callable[[RemotingCommand], RemotingCommand]]:
        return {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}

    def _route(self, request: RemotingCommand) -> RemotingCommand:
        topic = request.decodeHeader(GetRouteInfoRequestHeader).topic
        self.asked.append(topic)
        if topic not in self.routes:
            raise TopicNotExist(f"no route of {topic}")
        return responseCommand(body=encodeBody(self.routes[topic]))


class FakeBroker(Listener):
    """
    A broker.

    @ivar beats: the heartbeats that it was sent.
    @ivar left: the clients that have unregistered.
    @ivar answers: what it does for further codes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.beats: list[HeartbeatData] = []
        self.left: list[UnregisterClientRequestHeader] = []
        self.answers: dict[int, Callable[[RemotingCommand], RemotingCommand]] = {}

    def functions(self) -> dict[int, Callable[[RemotingCommand], RemotingCommand]]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            **self.answers,
        }

    def groups(self) -> list[tuple[set[str], set[str]]]:
        """
        The producers and the consumers of each heartbeat since it was last asked.
        """
        beats, self.beats = self.beats, []
        return [
            (
                {each.groupName for each in beat.producerDataSet},
                {each.groupName for each in beat.consumerDataSet},
            )
            for beat in beats
        ]

    def heartbeat(self, request: RemotingCommand) -> RemotingCommand:
        self.beats.append(decodeBody(HeartbeatData, request.body))
        return responseCommand()

    def _unregister(self, request: RemotingCommand) -> RemotingCommand:
        self.left.append(request.decodeHeader(UnregisterClientRequestHeader))
        return responseCommand()


class Network:
    """
    The reachable servers.

    @ivar listeners: by address; any other address refuses.
    @ivar dialled: the addresses that were dialled.
    @ivar accepted: the listeners' ends of the connections, by address.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.listeners: dict[str, Listener] = {}
        self.dialled: list[str] = []
        self.accepted: dict[str, list[RemotingProtocol]] = {}
        self._pumps: list[IOPump] = []

    def endpoint(self, address: str) -> Any:
        """
        How a client dials.
        """
        return _Endpoint(self, address)

    def flush(self) -> None:
        """
        Have all that was written arrive, and all that follows from it at once.
        """
        while self.step():
            pass

    def step(self) -> bool:
        """
        Have what was written arrive.

        @return: whether there was anything.
        """
        self.clock.advance(0)
        moved = [pump.pump() for pump in self._pumps]
        return any(moved)

    def advance(self, seconds: float) -> None:
        """
        Let time pass, and what falls due happen.
        """
        self.flush()
        self.clock.advance(seconds)
        self.flush()

    def dial(self, address: str, factory: IProtocolFactory) -> Deferred[Any]:
        """
        A client dials.
        """
        self.dialled.append(address)
        listener = self.listeners.get(address)
        if listener is None:
            return fail(ConnectionRefusedError("refused"))
        at = IPv4Address("TCP", *parseAddress(address))
        dialled = factory.buildProtocol(at)
        assert isinstance(dialled, RemotingProtocol)
        accepted = RemotingProtocol(serving(self.clock, listener.codes()), accepted=True)
        pump = connect(
            accepted,
            FakeTransport(accepted, isServer=True, peerAddress=IPv4Address("TCP", "192.0.2.1", 5)),
            dialled,
            FakeTransport(dialled, isServer=False, peerAddress=at),
        )
        self._pumps.append(pump)
        self.accepted.setdefault(address, []).append(accepted)
        listener.open += 1
        accepted.whenLost().addCallback(self._lost, listener)
        return succeed(dialled)

    def _lost(self, reason: str, listener: Listener) -> None:
        listener.open -= 1


class _Endpoint:
    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self._address = address

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        return self._network.dial(self._address, factory)


def routeTo(**brokers: dict[int, str]) -> TopicRouteData:
    """
    A route to brokers, with four queues at each.
    """
    return TopicRouteData(
        queueDatas=tuple(QueueData(name, 4, 4, 6) for name in brokers),
        brokerDatas=tuple(BrokerData("c", name, ids) for name, ids in brokers.items()),
    )
