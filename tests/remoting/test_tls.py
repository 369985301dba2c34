# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.tls}, most of them over sockets.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.internet import reactor as theReactor
from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import LogLevel
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.certificates import identity
from tests.remoting.doubles import RemotingTests, Wire, decoded, frame, serving
from txrocket.errors import RemotingError
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.server import RemotingServerFactory
from txrocket.remoting.tls import ClientAuth, ClientTLS, FirstByteProtocol, ServerTLS, TLSMode
from txrocket.server.echo import echo

CODE = RequestCode.HEART_BEAT
reactor: Any = theReactor

REFUSING = "Refusing the connection from 192.0.2.7:10911: "

ROOT = identity("root", authority=True)
STRANGER = identity("stranger", authority=True)


class FirstByteTests(RemotingTests):
    """
    The refusals of the table of modes, in memory.
    """

    def refused(self, mode: TLSMode, first: bytes) -> None:
        """
        See a connection refused.
        """
        server, wire = FirstByteProtocol(self.fail, mode, self.fail, id), Wire()
        server.makeConnection(wire)
        server.dataReceived(first)
        self.assertTrue(wire.disconnecting)
        self.assertEqual(wire.writes, [])

    def test_disabled(self) -> None:
        """
        Where TLS is disabled a handshake is refused, with a warning that names
        peer, reason and setting.
        """
        self.refused(TLSMode.DISABLED, b"\x16\x03\x01")
        self.assertEqual(
            self.logged(LogLevel.warn),
            [f"{REFUSING}it wants TLS, and tls.server.mode is disabled"],
        )

    def test_enforcing(self) -> None:
        """
        Where TLS is enforced, plain text is refused likewise.
        """
        self.refused(TLSMode.ENFORCING, frame(CODE, 1))
        self.assertEqual(
            self.logged(LogLevel.warn),
            [f"{REFUSING}it speaks plain text, and tls.server.mode is enforcing"],
        )


class SettingsTests(SynchronousTestCase):
    """
    Settings that cannot be used are named.
    """

    def setUp(self) -> None:
        self.folder = self.mktemp()
        Path(self.folder).mkdir()
        self.certPath, self.keyPath = identity("server", ROOT).write(self.folder, "server")
        self.trustPath, _key = ROOT.write(self.folder, "root")
        self.bad = str(Path(self.folder, "bad.pem"))
        Path(self.bad).write_text("-----BEGIN NOTHING-----\n")

    def complaint(self, **settings: Any) -> str:
        """
        What is said about a server's settings.
        """
        tls = ServerTLS(mode=TLSMode.ENFORCING, testMode=False, **settings)
        return str(self.assertRaises(ValueError, tls.contextFactory))

    def test_defaults(self) -> None:
        """
        The defaults are RocketMQ's but for the mode, which is permissive there:
        here TLS must be asked for.
        """
        self.assertEqual(
            ServerTLS(), ServerTLS(TLSMode.DISABLED, True, None, None, None, ClientAuth.NONE, None)
        )
        self.assertFalse(ClientTLS().authServer)

    def test_usable(self) -> None:
        """
        With certificate and key there is nothing to complain about; in test
        mode they are not even looked at.
        """
        ServerTLS(testMode=False, certPath=self.certPath, keyPath=self.keyPath).contextFactory()
        ServerTLS(testMode=True, certPath=self.bad).contextFactory()

    def test_missing(self) -> None:
        """
        A setting that is not there.
        """
        self.assertEqual(self.complaint(), "tls.server.certPath is not set")
        self.assertEqual(self.complaint(certPath=self.certPath), "tls.server.keyPath is not set")
        self.assertEqual(
            self.complaint(
                certPath=self.certPath, keyPath=self.keyPath, clientAuth=ClientAuth.REQUIRE
            ),
            "tls.server.trustCertPath is not set",
        )

    def test_noFile(self) -> None:
        """
        A file that is not there.
        """
        gone = str(Path(self.folder, "gone.pem"))
        self.assertIn("tls.server.certPath: ", self.complaint(certPath=gone))
        said = self.complaint(certPath=self.certPath, keyPath=gone)
        self.assertIn("tls.server.keyPath: ", said)
        self.assertIn("gone.pem", said)

    def test_badPem(self) -> None:
        """
        A file that holds something else.
        """
        self.assertIn(f"tls.server.certPath {self.bad}: ", self.complaint(certPath=self.bad))
        self.assertIn(
            f"tls.server.keyPath {self.bad}: ",
            self.complaint(certPath=self.certPath, keyPath=self.bad),
        )
        self.assertIn(
            f"tls.server.trustCertPath {self.bad}: ",
            self.complaint(
                certPath=self.certPath,
                keyPath=self.keyPath,
                clientAuth=ClientAuth.OPTIONAL,
                trustCertPath=self.bad,
            ),
        )

    def test_password(self) -> None:
        """
        A key that is locked opens with its password and with no other.
        """
        locked = Path(self.folder, "locked.key")
        locked.write_bytes(identity("server", ROOT).keyPem(b"sesame"))
        settings = {"certPath": self.certPath, "keyPath": str(locked)}
        ServerTLS(testMode=False, keyPassword="sesame", **settings).contextFactory()  # type: ignore[arg-type]
        for password in (None, "mustard"):
            said = self.complaint(keyPassword=password, **settings)
            self.assertIn(f"tls.server.keyPath {locked}: ", said)

    def test_foreignKey(self) -> None:
        """
        A key that belongs to another certificate, or that no certificate can
        have, is found when the settings are read and not at every handshake.
        """
        other = str(Path(self.folder, "other.key"))
        Path(other).write_bytes(STRANGER.keyPem())
        self.assertEqual(
            self.complaint(certPath=self.certPath, keyPath=other),
            f"tls.server.keyPath {other}: not the key of tls.server.certPath {self.certPath}",
        )
        Path(other).write_bytes(
            X25519PrivateKey.generate().private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            )
        )
        self.assertIn(
            f"tls.server.keyPath {other}: ",
            self.complaint(certPath=self.certPath, keyPath=other),
        )

    def test_client(self) -> None:
        """
        A client's settings are named as a client's.
        """
        endpoint: Any = object()
        for settings, name in (
            ({"certPath": self.bad}, "tls.client.certPath"),
            ({"certPath": self.certPath}, "tls.client.keyPath"),
            ({"authServer": True, "trustCertPath": self.bad}, "tls.client.trustCertPath"),
        ):
            tls = ClientTLS(**settings)
            error = self.assertRaises(ValueError, tls.wrap, endpoint, "localhost")
            self.assertIn(name, str(error))


class Raw(Protocol):
    """
    A client that writes what it is told, a byte at a time.
    """

    transport: Any

    def __init__(self) -> None:
        self.received = b""
        self.awaited = -1
        self.arrived: Deferred[bytes] = Deferred()
        self.lost: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        if len(self.received) == self.awaited:
            self.arrived.callback(self.received)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(None)


class SocketTests(TestCase):
    """
    Servers and clients over the loopback.
    """

    timeout = 300

    def setUp(self) -> None:
        self.folder = self.mktemp()
        Path(self.folder).mkdir()
        self.trusted = ROOT.write(self.folder, "root")[0]

    @inlineCallbacks
    def listen(self, tls: ServerTLS) -> Generator[Any, Any, int]:
        """
        Start a server.

        @return: a Deferred of its port.
        """
        self.factory = RemotingServerFactory(serving(reactor, {CODE: echo}), tls)
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = yield endpoint.listen(self.factory)

        def stop() -> Deferred[Any]:
            gone = [each.whenLost() for each in self.factory.connections]
            return gatherResults([port.stopListening(), *gone])

        self.addCleanup(stop)
        return int(port.getHost().port)

    @inlineCallbacks
    def ask(self, port: int, tls: ClientTLS | None, host: str = "127.0.0.1") -> Any:
        """
        Ask a server something as a client with some settings, and leave.

        @return: a Deferred of the answer's body.
        """
        peers = Peers(Remoting(reactor), endpoints(reactor, tls))
        try:
            answer = yield peers.request(f"{host}:{port}", requestCommand(CODE, body=b"hi"), 10)
        finally:
            yield peers.stop()
        return answer.body

    def own(self, name: str, *chain: Any) -> dict[str, Any]:
        """
        The settings for a certificate of one's own.
        """
        who = identity(name, chain[0] if chain else ROOT)
        certPath, keyPath = who.write(self.folder, name, *chain)
        return {"certPath": certPath, "keyPath": keyPath}

    @inlineCallbacks
    def test_modes(self) -> Any:
        """
        All six cells of the table of modes, with the certificate that a server
        makes up in test mode, and a client that believes it.
        """
        for mode, plain, secured in (
            (TLSMode.DISABLED, True, False),
            (TLSMode.PERMISSIVE, True, True),
            (TLSMode.ENFORCING, False, True),
        ):
            port = yield self.listen(ServerTLS(mode=mode))
            for tls, served in ((None, plain), (ClientTLS(), secured)):
                if served:
                    body = yield self.ask(port, tls)
                    self.assertEqual(body, b"hi")
                else:
                    yield self.assertFailure(self.ask(port, tls), RemotingError)

    @inlineCallbacks
    def test_realCertificates(self) -> Any:
        """
        A client that checks believes a server whose certificate was signed by
        whom it trusts, also if there is one between, and no other.
        """
        between = identity("between", ROOT, authority=True)
        client = ClientTLS(authServer=True, trustCertPath=self.trusted)
        for settings in (self.own("localhost"), self.own("localhost", between)):
            port = yield self.listen(ServerTLS(mode=TLSMode.ENFORCING, testMode=False, **settings))
            for host in ("127.0.0.1", "localhost"):
                body = yield self.ask(port, client, host)
                self.assertEqual(body, b"hi")
        unknown = STRANGER.write(self.folder, "stranger")[0]
        for client in (ClientTLS(authServer=True, trustCertPath=unknown), ClientTLS(True)):
            error = yield self.assertFailure(self.ask(port, client), RemotingError)
            self.assertIn("certificate verify failed", str(error))

    @inlineCallbacks
    def test_testModeRefused(self) -> Any:
        """
        A client that checks does not believe what a server made up.
        """
        port = yield self.listen(ServerTLS(mode=TLSMode.ENFORCING))
        client = ClientTLS(authServer=True, trustCertPath=self.trusted)
        yield self.assertFailure(self.ask(port, client), RemotingError)

    @inlineCallbacks
    def test_clientAuth(self) -> Any:
        """
        A server that requires certificates refuses clients without one, and
        with one that a stranger signed; one that only asks for them takes those
        without; one that does not ask takes all.
        """
        without, known = ClientTLS(), ClientTLS(**self.own("client"))
        foreign = ClientTLS(**self.own("foreign", STRANGER))
        for auth, answers in (
            (ClientAuth.REQUIRE, (False, True, False)),
            (ClientAuth.OPTIONAL, (True, True, False)),
            (ClientAuth.NONE, (True, True, True)),
        ):
            port = yield self.listen(
                ServerTLS(
                    mode=TLSMode.ENFORCING,
                    testMode=False,
                    clientAuth=auth,
                    trustCertPath=self.trusted,
                    **self.own("localhost"),
                )
            )
            for client, served in zip((without, known, foreign), answers, strict=True):
                if served:
                    body = yield self.ask(port, client)
                    self.assertEqual(body, b"hi")
                else:
                    yield self.assertFailure(self.ask(port, client), RemotingError)

    @inlineCallbacks
    def test_clientChain(self) -> Any:
        """
        A client shows the certificates between its own and the root as well,
        whether it checks the server or not.
        """
        between = identity("between", ROOT, authority=True)
        port = yield self.listen(
            ServerTLS(
                mode=TLSMode.ENFORCING,
                testMode=False,
                clientAuth=ClientAuth.REQUIRE,
                trustCertPath=self.trusted,
                **self.own("localhost"),
            )
        )
        own = self.own("client", between)
        for client in (ClientTLS(**own), ClientTLS(True, self.trusted, **own)):
            body = yield self.ask(port, client)
            self.assertEqual(body, b"hi")

    @inlineCallbacks
    def test_byteByByte(self) -> Any:
        """
        Bytes that arrive one at a time make the same connection.
        """
        port = yield self.listen(ServerTLS(mode=TLSMode.PERMISSIVE))
        raw = yield connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), Raw())
        raw.transport.setTcpNoDelay(True)
        request = frame(CODE, 1, b"hello")
        answer = echo(decoded(request)[0], raw)
        answer.opaque = 1
        raw.awaited = len(answer.encode())
        for byte in request:
            raw.transport.write(bytes([byte]))
            yield turn()
        received = yield raw.arrived
        self.assertEqual(decoded(received)[0].body, b"hello")
        raw.transport.loseConnection()
        yield raw.lost

    @inlineCallbacks
    def test_closedBeforeFirstByte(self) -> Any:
        """
        Who leaves before the first byte leaves nothing behind.
        """
        port = yield self.listen(ServerTLS(mode=TLSMode.PERMISSIVE))
        for _ in range(3):
            raw = yield connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), Raw())
            raw.transport.loseConnection()
            yield raw.lost
        body = yield self.ask(port, None)
        self.assertEqual(body, b"hi")

    @inlineCallbacks
    def test_brokenHandshake(self) -> Any:
        """
        What begins like a handshake and is none is closed.
        """
        port = yield self.listen(ServerTLS(mode=TLSMode.PERMISSIVE))
        raw = yield connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), Raw())
        raw.transport.write(b"\x16" + bytes(100))
        yield raw.lost
        self.assertEqual(list(self.factory.connections), [])


def turn() -> Deferred[None]:
    """
    Let the reactor do what there is to do.
    """
    done: Deferred[None] = Deferred()
    reactor.callLater(0, done.callback, None)
    return done
