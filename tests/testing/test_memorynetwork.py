# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.testing.memory.network} and L{txrocket.testing.memory.transport}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import (
    CannotListenError,
    ConnectingCancelledError,
    ConnectionAborted,
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    TimeoutError,
)
from twisted.internet.interfaces import (
    IConsumer,
    IListeningPort,
    IPushProducer,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from txrocket.remoting import peers
from txrocket.testing.memory import network
from txrocket.testing.memory.network import Machine, MemoryNetwork

SERVER, CLIENT = "192.0.2.1", "192.0.2.2"


class Ear(Protocol):
    """
    Keeps what it hears.

    @ivar pieces: all data, as they came.
    @ivar lost: why the connection went.
    """

    transport: Any

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.lost: Exception | None = None

    def dataReceived(self, data: bytes) -> None:
        self.pieces.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        assert self.lost is None
        assert isinstance(reason.value, Exception)
        self.lost = reason.value

    @property
    def heard(self) -> bytes:
        """
        All data.
        """
        return b"".join(self.pieces)


class Ears(Factory):
    """
    Makes protocols, and keeps them.

    @ivar starts: how often it was started less how often it was stopped.
    """

    noisy = False

    def __init__(self) -> None:
        self.made: list[Ear] = []
        self.starts = 0

    def doStart(self) -> None:
        self.starts += 1

    def doStop(self) -> None:
        self.starts -= 1

    def buildProtocol(self, addr: Any) -> Ear | None:
        self.addr = addr
        ear = Ear()
        self.made.append(ear)
        return ear


@implementer(IPushProducer)
class Producer:
    """
    Keeps what it is told.
    """

    def __init__(self) -> None:
        self.told: list[str] = []

    def pauseProducing(self) -> None:
        self.told.append("pause")

    def resumeProducing(self) -> None:
        self.told.append("resume")

    def stopProducing(self) -> None:
        self.told.append("stop")


class NetworkCase(SynchronousTestCase):
    """
    Two machines on a network.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.network = MemoryNetwork(self.clock)
        self.here = Machine(self.network, CLIENT)
        self.there = Machine(self.network, SERVER)
        self.servers, self.clients = Ears(), Ears()

    def listen(self) -> IListeningPort:
        """
        Listen at port 80.
        """
        return self.successResultOf(self.there.listen(80).listen(self.servers))

    def dial(self) -> Deferred[Any]:
        """
        Dial it.
        """
        dialled: Deferred[Any] = self.here.connect(f"{SERVER}:80").connect(self.clients)
        return dialled

    def connected(self) -> tuple[Ear, Ear]:
        """
        Both ends of a connection: the dialling one, and the listening one.
        """
        self.listen()
        dialled = self.dial()
        self.clock.advance(0)
        self.assertIs(self.successResultOf(dialled), self.clients.made[0])
        return self.clients.made[0], self.servers.made[0]


class DiallingTests(NetworkCase):
    """
    Listening and dialling.
    """

    def test_interfacesAreTwisteds(self) -> None:
        """
        Everything is what Twisted calls it.
        """
        port = self.listen()
        verifyObject(IListeningPort, port)
        verifyObject(IStreamServerEndpoint, self.there.listen(81))
        verifyObject(IStreamClientEndpoint, self.here.connect("192.0.2.1:80"))
        self.dial()
        self.clock.advance(0)
        for interface in (ITCPTransport, IConsumer, IPushProducer):
            verifyObject(interface, self.clients.made[0].transport)

    def test_endsKnowBothAddresses(self) -> None:
        """
        Each end knows its own address and the other's, and no two that dial have
        the same.
        """
        client, server = self.connected()
        self.assertEqual(client.transport.getPeer(), server.transport.getHost())
        self.assertEqual(client.transport.getHost(), server.transport.getPeer())
        self.assertEqual(server.transport.getPeer(), self.servers.addr)
        self.assertEqual(client.transport.getPeer(), self.clients.addr)
        self.assertEqual((self.clients.addr.host, self.clients.addr.port), (SERVER, 80))
        self.assertEqual(self.servers.addr.host, CLIENT)
        first = self.servers.addr
        self.dial()
        self.clock.advance(0)
        self.assertNotEqual(self.servers.addr, first)

    def test_connectionWaitsForClock(self) -> None:
        """
        A connection is made when the clock says so, and not before.
        """
        self.listen()
        dialled = self.dial()
        self.assertNoResult(dialled)
        self.assertEqual(self.servers.made, [])

    def test_dialWithoutListenerFailsLater(self) -> None:
        """
        Without a listener a dial fails, later; so it does after a port was closed, and if
        the listener accepts no peer.
        """
        dialled = self.dial()
        self.assertNoResult(dialled)
        self.clock.advance(0)
        self.failureResultOf(dialled, ConnectionRefusedError)
        port = self.listen()
        self.servers.buildProtocol = lambda addr: None  # type: ignore[method-assign]
        dialled = self.dial()
        self.clock.advance(0)
        self.failureResultOf(dialled, ConnectionRefusedError)
        self.successResultOf(port.stopListening())  # type: ignore[arg-type]
        self.successResultOf(port.stopListening())  # type: ignore[arg-type]
        self.assertEqual((self.servers.starts, self.clients.starts), (0, 0))
        dialled = self.dial()
        self.clock.advance(0)
        error = self.failureResultOf(dialled, ConnectionRefusedError).value
        self.assertIn("192.0.2.1:80", str(error))

    def test_invalidAddressIsRefused(self) -> None:
        """
        An invalid address cannot be dialled.
        """
        self.assertRaises(ValueError, self.here.connect, "somewhere")

    def test_cancelledDialConnectsNobody(self) -> None:
        """
        A cancelled dial makes no connection.
        """
        self.listen()
        dialled = self.dial()
        dialled.cancel()
        self.failureResultOf(dialled, ConnectingCancelledError)
        self.clock.advance(0)
        self.assertEqual((self.servers.made, self.clients.made), ([], []))

    def test_portInUseIsRefused(self) -> None:
        """
        One port has one listener; other ports and other machines have theirs.
        """
        self.listen()
        self.failureResultOf(self.there.listen(80).listen(Ears()), CannotListenError)
        self.successResultOf(self.there.listen(81).listen(Ears()))
        self.successResultOf(self.here.listen(80).listen(Ears()))

    def test_factoriesStartAndStop(self) -> None:
        """
        Factories are started and stopped with what they made.
        """
        client, _ = self.connected()
        self.assertEqual((self.servers.starts, self.clients.starts), (1, 1))
        client.transport.loseConnection()
        self.clock.advance(0)
        self.assertEqual((self.servers.starts, self.clients.starts), (1, 0))

    def test_networksAreSeparate(self) -> None:
        """
        Two networks have nothing in common.
        """
        self.listen()
        other = Machine(MemoryNetwork(self.clock), CLIENT)
        dialled = other.connect(f"{SERVER}:80").connect(self.clients)
        self.clock.advance(0)
        self.failureResultOf(dialled, ConnectionRefusedError)


class SendingTests(NetworkCase):
    """
    Bytes on a connection.
    """

    def setUp(self) -> None:
        super().setUp()
        self.client, self.server = self.connected()

    def test_bytesArriveInOrder(self) -> None:
        """
        Written bytes arrive in order, both ways, and not before the clock says so.
        """
        for each in (b"a", b"", b"b"):
            self.client.transport.write(each)
        self.client.transport.writeSequence([b"c", b"d"])
        self.server.transport.write(b"e")
        self.assertEqual((self.client.heard, self.server.heard), (b"", b""))
        self.clock.advance(0)
        self.assertEqual((self.client.heard, self.server.heard), (b"e", b"abcd"))

    def test_largeWriteArrivesInPieces(self) -> None:
        """
        Much of it arrives in pieces, as from a socket.
        """
        data = bytes(range(256)) * 1024
        self.client.transport.write(data)
        self.clock.advance(0)
        self.assertEqual(self.server.heard, data)
        self.assertEqual([len(each) for each in self.server.pieces], [65536] * 4)

    def test_answerWaitsForRequest(self) -> None:
        """
        A peer gets no answer while it is still sending its request.
        """
        server = self.server

        def answer(data: bytes) -> None:
            server.transport.write(data.upper())
            self.assertEqual(self.client.heard, b"")

        server.dataReceived = answer  # type: ignore[method-assign]
        self.client.transport.write(b"ask")
        self.clock.advance(0)
        self.assertEqual(self.client.heard, b"ASK")

    def test_fullBufferPausesProducer(self) -> None:
        """
        A producer that writes faster than its peer reads is paused once, and resumed when
        all has been read.
        """
        producer = Producer()
        self.client.transport.registerProducer(producer, True)
        self.server.transport.pauseProducing()
        self.client.transport.write(bytes(65536))
        self.clock.advance(0)
        self.assertEqual(producer.told, [])
        self.client.transport.write(b"x")
        self.client.transport.write(b"x")
        self.clock.advance(0)
        self.assertEqual((producer.told, self.server.heard), (["pause"], b""))
        self.server.transport.resumeProducing()
        self.clock.advance(0)
        self.assertEqual((producer.told, len(self.server.heard)), (["pause", "resume"], 65538))
        self.server.transport.resumeProducing()
        self.clock.advance(0)
        self.assertEqual(producer.told, ["pause", "resume"])

    def test_pausedReaderGetsNoMore(self) -> None:
        """
        A peer that pauses in the middle gets no more until it resumes.
        """
        hear = self.server.dataReceived

        def once(data: bytes) -> None:
            hear(data)
            self.server.transport.pauseProducing()

        self.server.dataReceived = once  # type: ignore[method-assign]
        self.client.transport.write(bytes(3 * 65536))
        self.clock.advance(9)
        self.assertEqual(len(self.server.heard), 65536)
        self.server.transport.resumeProducing()
        self.clock.advance(0)
        self.assertEqual(len(self.server.heard), 2 * 65536)

    def test_pullProducerIsResumed(self) -> None:
        """
        A producer that is pulled from is asked for more as soon as there is room.
        """
        producer = Producer()
        self.client.transport.registerProducer(producer, False)
        self.assertEqual(producer.told, ["resume"])
        self.client.transport.write(bytes(99_999))
        self.assertEqual(producer.told, ["resume"])
        self.clock.advance(0)
        self.assertEqual(producer.told, ["resume"] * 2)

    def test_secondProducerIsRefused(self) -> None:
        """
        There is one producer at a time; one that comes too late is told so.
        """
        producer = Producer()
        self.client.transport.registerProducer(producer, True)
        self.assertRaises(RuntimeError, self.client.transport.registerProducer, Producer(), True)
        self.client.transport.unregisterProducer()
        self.client.transport.write(bytes(99_999))
        self.client.transport.abortConnection()
        self.client.transport.registerProducer(producer, True)
        self.assertEqual(producer.told, ["stop"])

    def test_endlessExchangeIsError(self) -> None:
        """
        Two that answer each other without end are found out; it is no end that time
        goes on.
        """
        self.patch(network, "_ENDLESS", 100)

        def echo(ear: Ear) -> Any:
            return lambda data: ear.transport.write(data)

        for _ in range(200):
            self.client.transport.write(b"x")
            self.clock.advance(1)
        for each in (self.client, self.server):
            each.dataReceived = echo(each)  # type: ignore[method-assign]
        self.client.transport.write(b"x")
        error = self.assertRaises(RuntimeError, self.clock.advance, 0)
        self.assertIn("without waiting", str(error))

    def test_socketOptionsAreAccepted(self) -> None:
        """
        The options of a socket are accepted.
        """
        transport = self.client.transport
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(False)
        self.assertEqual((transport.getTcpNoDelay(), transport.getTcpKeepAlive()), (True, False))


class ClosingTests(NetworkCase):
    """
    How connections end.
    """

    def setUp(self) -> None:
        super().setUp()
        self.client, self.server = self.connected()

    def lost(self) -> tuple[type, type]:
        """
        Why each end thinks that it was lost; NoneType if it was not.
        """
        self.clock.advance(0)
        return type(self.client.lost), type(self.server.lost)

    def test_closeSendsBufferFirst(self) -> None:
        """
        Written bytes are sent before the connection closes; nothing is read any more.
        """
        data = bytes(200_000)
        self.client.transport.write(data)
        self.client.transport.loseConnection()
        self.client.transport.loseConnection()
        self.server.transport.write(b"too late")
        self.assertIsNone(self.client.lost)
        self.assertEqual(self.lost(), (ConnectionDone, ConnectionDone))
        self.assertEqual((self.server.heard, self.client.heard), (data, b""))

    def test_closingConnectionTakesMoreUntilSent(self) -> None:
        """
        While bytes are on their way more may be written; after that none.
        """
        for close in (
            self.client.transport.loseConnection,
            self.client.transport.stopProducing,
            self.client.transport.loseWriteConnection,
        ):
            self.client.transport.write(b"a")
            close()
            self.client.transport.resumeProducing()
        self.assertEqual(self.lost(), (ConnectionDone, ConnectionDone))
        self.client.transport.write(b"b")
        self.client.transport.loseConnection()
        self.client.transport.abortConnection()
        self.clock.advance(0)
        self.assertEqual(self.server.heard, b"aaa")

    def test_stoppedProducerWritesRest(self) -> None:
        """
        A producer that was told to stop may write the rest before the connection closes.
        """
        producer = Producer()
        self.client.transport.registerProducer(producer, True)
        self.client.transport.write(bytes(65537))

        def last() -> None:
            self.client.transport.write(b"rest")
            self.client.transport.unregisterProducer()

        producer.resumeProducing = last  # type: ignore[method-assign]
        self.client.transport.loseConnection()
        self.assertEqual(self.lost(), (ConnectionDone, ConnectionDone))
        self.assertEqual(self.server.heard[-4:], b"rest")

    def test_abortLosesBuffer(self) -> None:
        """
        An end that aborts loses what it has written, and the other hears nothing
        more.
        """
        producer = Producer()
        self.server.transport.registerProducer(producer, True)
        self.client.transport.write(b"lost")
        self.server.transport.write(b"lost")
        self.client.transport.abortConnection()
        self.client.transport.abortConnection()
        self.assertIsNone(self.client.lost)
        self.assertEqual(self.lost(), (ConnectionAborted, ConnectionLost))
        self.assertEqual((self.server.heard, self.client.heard), (b"", b""))
        self.assertEqual(producer.told, ["stop"])

    def test_abortOfBothLosesOnce(self) -> None:
        """
        If both abort, each loses the connection once.
        """
        self.client.transport.abortConnection()
        self.server.transport.abortConnection()
        self.assertEqual(self.lost()[0], ConnectionAborted)
        self.assertIsNotNone(self.server.lost)

    def test_abortedPeerGetsNoMore(self) -> None:
        """
        A peer that aborts at the first piece gets no second.
        """

        def once(data: bytes) -> None:
            self.server.pieces.append(data)
            self.server.transport.abortConnection()

        self.server.dataReceived = once  # type: ignore[method-assign]
        self.client.transport.write(bytes(200_000))
        self.assertEqual(self.lost(), (ConnectionLost, ConnectionAborted))
        self.assertEqual(len(self.server.pieces), 1)

    def test_unreadEndClosesOnlyByAbort(self) -> None:
        """
        An end whose peer does not read closes only when it is aborted.
        """
        self.server.transport.pauseProducing()
        self.client.transport.write(b"unread")
        self.client.transport.loseConnection()
        self.assertEqual(self.lost(), (type(None), type(None)))
        self.client.transport.abortConnection()
        self.assertEqual(self.lost(), (ConnectionAborted, ConnectionLost))


class CrashTests(NetworkCase):
    """
    Tests for L{Machine.crash}.
    """

    def test_crashBreaksConnections(self) -> None:
        """
        The process hears nothing more, not even of its end, and what it wrote last
        does not arrive; the others find the connection broken.
        """
        client, server = self.connected()
        client.transport.write(b"unheard")
        server.transport.write(b"unsent")
        self.there.crash()
        self.assertIsNone(client.lost)
        self.clock.advance(0)
        self.assertEqual((client.heard, server.heard, server.lost), (b"", b"", None))
        self.assertIsInstance(client.lost, ConnectionLost)
        server.transport.write(b"ghost")
        server.transport.abortConnection()
        self.clock.advance(0)
        self.assertIsNone(server.lost)

    def test_crashFreesPort(self) -> None:
        """
        After a crash the port is free, and other listeners go on.
        """
        self.listen()
        self.successResultOf(self.here.listen(80).listen(Ears()))
        self.there.crash()
        dialled = self.dial()
        self.clock.advance(0)
        self.failureResultOf(dialled, ConnectionRefusedError)
        self.listen()
        self.failureResultOf(self.here.listen(80).listen(Ears()), CannotListenError)

    def test_crashEndsDial(self) -> None:
        """
        A process that ends while it dials has no connection.
        """
        self.listen()
        dialled = self.dial()
        self.here.crash()
        self.clock.advance(0)
        self.assertNoResult(dialled)
        self.assertEqual(self.servers.made, [])


class CutTests(NetworkCase):
    """
    Ways between machines that are cut and healed.
    """

    def settle(self) -> None:
        """
        Let everything arrive that gets through.
        """
        for _ in range(5):
            self.clock.advance(0)

    def test_bytesWaitForTheHealing(self) -> None:
        """
        While a way is cut, bytes wait, and they come in order once it is healed.
        """
        client, server = self.connected()
        self.network.cut(CLIENT, SERVER)
        client.transport.write(b"one")
        self.settle()
        client.transport.write(b"two")
        self.settle()
        self.assertEqual(b"", server.heard)
        self.network.heal(CLIENT, SERVER)
        self.settle()
        self.assertEqual(b"onetwo", server.heard)

    def test_oneWayIsCut(self) -> None:
        """
        If one direction is cut, bytes of the other one get through.
        """
        client, server = self.connected()
        self.network.cut(CLIENT, SERVER)
        server.transport.write(b"news")
        self.settle()
        self.assertEqual(b"news", client.heard)

    def test_anEndIsNotHeardOf(self) -> None:
        """
        An end that closes or crashes is noticed by the other one only after the healing.
        """
        for crashes in (False, True):
            self.setUp()
            client, server = self.connected()
            self.network.cut(CLIENT, SERVER)
            if crashes:
                self.here.crash()
            else:
                client.transport.abortConnection()
            self.settle()
            self.assertIsNone(server.lost)
            self.network.heal(CLIENT, SERVER)
            self.settle()
            self.assertIsInstance(server.lost, ConnectionLost)

    def test_nobodyIsDialledOverACut(self) -> None:
        """
        Whichever direction is cut, a dialler gives up after some seconds.
        """
        self.listen()
        for ends in ((CLIENT, SERVER), (SERVER, CLIENT)):
            self.network.cut(*ends)
            dialled = self.dial()
            self.clock.advance(0)
            self.assertNoResult(dialled)
            self.clock.advance(peers.CONNECT_TIMEOUT)
            self.failureResultOf(dialled, TimeoutError)
            self.network.heal(*ends)
        self.assertIsNotNone(self.dial())
        self.clock.advance(0)
        self.assertEqual(1, len(self.servers.made))
