# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.nameserver.service}: a name server as a whole, in memory and
on a real port.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor as theReactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, inlineCallbacks, succeed
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from twisted.internet.threads import deferToThread
from twisted.logger import LogLevel
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from tests.processors.namesrvcase import assembled, atOnce, configured
from tests.remoting.doubles import PEER, RemotingTests, Wire, decoded, lose
from txrocket.errors import StoreCorrupt
from txrocket.model import DataVersion, TopicConfig
from txrocket.nameserver.brokerinfo import BrokerLiveInfo
from txrocket.protocol.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
)
from txrocket.remoting.addresses import addressOf
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.tls import ClientTLS, ServerTLS, TLSMode
from txrocket.store.jsontable import sealed

reactor: Any = theReactor

BROKER = "master of broker-a in east at 192.0.2.1:10911"
REGISTER = requestCommand(
    RequestCode.REGISTER_BROKER,
    RegisterBrokerRequestHeader("broker-a", "192.0.2.1:10911", "east", "192.0.2.1:10912", 0),
    encodeBody(
        RegisterBrokerBody(TopicConfigSerializeWrapper({"T": TopicConfig("T")}, DataVersion(0, 1)))
    ),
)


@implementer(IListeningPort)
class Port:
    """
    A port in memory.
    """

    def __init__(self, factory: IProtocolFactory) -> None:
        self.factory = factory

    def startListening(self) -> None:
        """
        Do nothing, because the port listens from the start.
        """
        self.factory.doStart()

    def stopListening(self) -> None:
        """
        Stop, and call the factory's doStop like a real port.
        """
        self.factory.doStop()

    def getHost(self) -> IPv4Address:
        """
        The address that it listens on.
        """
        return IPv4Address("TCP", "192.0.2.9", 9876)


@implementer(IStreamServerEndpoint)
class Endpoint:
    """
    An address in memory.
    """

    def __init__(self) -> None:
        self.factory: IProtocolFactory | None = None

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """
        Listen.
        """
        self.factory = protocolFactory
        port = Port(protocolFactory)
        port.startListening()
        return succeed(port)

    def connect(self, command: RemotingCommand) -> tuple[Any, Wire]:
        """
        Connect a client that sends a request.
        """
        assert self.factory is not None
        protocol, wire = self.factory.buildProtocol(PEER), Wire()
        assert protocol is not None
        protocol.makeConnection(wire)
        protocol.dataReceived(command.encode())
        return protocol, wire


@implementer(IStreamServerEndpoint)
class InUse:
    """
    An address that is in use.
    """

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """
        Fail.
        """
        return fail(CannotListenError("", 9876, OSError("in use")))


class ServiceTests(RemotingTests):
    """
    A name server in memory, on a clock.
    """

    def setUp(self) -> None:
        super().setUp()
        self.path = f"{self.mktemp()}/kvConfig.json"
        self.endpoint = Endpoint()
        self.server = self.make(atOnce)
        self.server.startService()

    def make(self, inThread: Callable[[Callable[[], None]], Deferred[None]]) -> Any:
        """
        A name server.
        """
        return assembled(self.clock, configured(self.path), [self.endpoint], inThread)

    def test_servedCodesAreJavas(self) -> None:
        """
        It serves exactly the codes of Java's C{DefaultRequestProcessor}.
        """
        self.assertEqual(
            sorted(self.server.remoting.processorTable),
            [
                *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224),
                *(304, 311, 312, 313, 318, 319, 322, 327),
            ],
        )

    def test_listeningIsLogged(self) -> None:
        """
        It logs one line with the address that it listens on.
        """
        self.assertEqual(self.logged(LogLevel.info), ["The name server listens on 192.0.2.9:9876"])

    def test_beforeAndAfterAreCalled(self) -> None:
        """
        C{before} is called before it listens, and C{after} when it has stopped.
        """
        self.successResultOf(self.server.stopService())
        seen: list[tuple[str, int]] = []
        server = assembled(
            self.clock,
            configured(self.path),
            [self.endpoint],
            before=lambda: seen.append(("before", len(server.ports))),
            after=lambda: seen.append(("after", len(server.ports))),
        )
        server.startService()
        self.assertEqual((seen, len(server.ports)), ([("before", 0)], 1))
        self.successResultOf(server.stopService())
        self.assertEqual(seen, [("before", 0), ("after", 0)])

    def test_addressInUseFailsStart(self) -> None:
        """
        A server that cannot listen does not start.
        """
        server = assembled(self.clock, configured(self.path), [InUse()])
        self.assertRaises(CannotListenError, server.startService)

    def test_silentBrokerIsRemovedByScan(self) -> None:
        """
        The scan runs after 5 seconds and then every 10 seconds: a broker that registered
        at 5.5 is removed at 135, and its connection is closed although it is not idle.
        """
        self.clock.pump([0.5] * 11)
        protocol, wire = self.endpoint.connect(REGISTER)
        for _ in range(258):
            self.clock.advance(0.5)
            protocol.dataReceived(requestCommand(RequestCode.GET_BROKER_CLUSTER_INFO).encode())
        self.assertEqual(self.clock.seconds(), 134.5)
        self.assertIn("broker-a", self.server.routes.brokerAddrTable)
        self.assertFalse(wire.disconnecting)
        self.clock.advance(0.5)
        self.assertEqual(self.server.routes.brokerAddrTable, {})
        self.assertTrue(wire.disconnecting)
        self.assertEqual(
            self.logged(LogLevel.warn),
            [f"{BROKER} has expired and is removed"],
        )

    def test_firstScanIsAfterFiveSeconds(self) -> None:
        """
        The first scan is after 5 seconds.
        """
        looked: list[int] = []

        def expire(now: int) -> list[BrokerLiveInfo]:
            looked.append(now)
            return []

        self.patch(self.server.routes, "expire", expire)
        self.clock.pump([1.0] * 26)
        self.assertEqual(looked, [5000, 15000, 25000])

    def test_failedScanIsLogged(self) -> None:
        """
        A failed scan is logged, because brokers would no longer expire.
        """

        def broken(now: int) -> None:
            raise ZeroDivisionError

        self.patch(self.server.routes, "expire", broken)
        self.clock.advance(5)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.logged(LogLevel.critical), ["Expired brokers are no longer removed"])
        self.successResultOf(self.server.stopService())

    def test_stopLeavesNoDelayedCall(self) -> None:
        """
        A stopped server leaves no call on the clock, before and after the first scan.
        """
        self.successResultOf(self.server.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.server = self.make(atOnce)
        self.server.startService()
        self.clock.advance(6)
        self.successResultOf(self.server.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopWaitsForSaveAndConnections(self) -> None:
        """
        Before it stops, a pending change is saved and answered. Then connections are
        closed, and when they are lost it has stopped.
        """
        held: list[tuple[Callable[[], None], Deferred[None]]] = []

        def hold(function: Callable[[], None]) -> Deferred[None]:
            held.append((function, Deferred()))
            return held[-1][1]

        self.successResultOf(self.server.stopService())
        self.server = self.make(hold)
        self.server.startService()
        header = PutKVConfigRequestHeader("n", "k", "v")
        protocol, wire = self.endpoint.connect(requestCommand(RequestCode.PUT_KV_CONFIG, header))
        stopped = self.server.stopService()
        self.assertEqual(wire.value(), b"")
        self.assertFalse(wire.disconnecting)
        ((function, done),) = held
        function()
        done.callback(None)
        (answer,) = decoded(wire.value())
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        self.assertTrue(wire.disconnecting)
        self.assertNoResult(stopped)
        lose(protocol, ConnectionDone())
        self.successResultOf(stopped)
        written = sealed(b'{"configTable":{"n":{"k":"v"}}}')
        self.assertEqual(Path(self.path).read_bytes(), written)

    def test_damagedFileFailsStart(self) -> None:
        """
        A damaged file is an error, and is not read as an empty one.
        """
        path = Path(self.path)
        path.parent.mkdir()
        path.write_bytes(b"{")
        error = self.assertRaises(StoreCorrupt, self.make, atOnce)
        self.assertIn(str(path), str(error))


class LiveTests(TestCase):
    """
    Real sockets, threads and files.
    """

    @inlineCallbacks
    def test_realServerServesBrokerAndClient(self) -> Any:
        """
        A broker registers over TCP, a client over TLS finds its topic, a value is saved,
        and the broker is removed when its connection closes.
        """
        path = f"{self.mktemp()}/kvConfig.json"
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        tls = ServerTLS(mode=TLSMode.PERMISSIVE)
        server = assembled(reactor, configured(path), [endpoint], deferToThread, tls=tls)
        server.startService()
        self.addCleanup(server.stopService)
        address = addressOf(server.ports[0].getHost())
        broker = Peers(Remoting(reactor), endpoints(reactor))
        client = Peers(Remoting(reactor), endpoints(reactor, ClientTLS()))
        self.addCleanup(client.stop)
        answer = yield broker.request(address, REGISTER, 5)
        self.assertEqual(answer.code, 0)
        find = requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T"))
        answer = yield client.request(address, find, 5)
        self.assertEqual(answer.code, 0)
        header = PutKVConfigRequestHeader("n", "k", "v")
        answer = yield client.request(address, requestCommand(RequestCode.PUT_KV_CONFIG, header), 5)
        self.assertEqual(answer.code, 0)
        self.assertTrue(Path(path).is_file())
        (channel,) = [each.channel for each in server.routes.brokerLiveTable.values()]
        assert isinstance(channel, RemotingProtocol)
        gone = channel.whenLost()
        yield broker.stop()
        yield gone
        answer = yield client.request(address, find, 5)
        self.assertEqual(answer.code, ResponseCode.TOPIC_NOT_EXIST)
