# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.blocking.tls}, over real sockets.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import attrs

from tests import certificates
from tests.blocking.server import BlockingCase, Server
from txrocket.blocking import TLS, Client, Settings
from txrocket.blocking.connections import BlockingConnection
from txrocket.blocking.deadline import Deadline
from txrocket.errors import ConfigError, ConnectFailed, RemotingError
from txrocket.message import Message
from txrocket.protocol.codes import RequestCode
from txrocket.remoting.tls import ClientTLS


class TLSTests(BlockingCase):
    """
    A server that speaks TLS, and clients that do or do not.
    """

    def setUp(self) -> None:
        folder = self.mktemp()
        certificates.write(Path(folder))
        self.folder = Path(folder)
        self.routes = {}
        self.names = self.secure()

    def path(self, name: str) -> str:
        """
        A file in the folder.
        """
        return str(self.folder / name)

    def secure(self, host: str = "127.0.0.1", **changes: Any) -> Server:
        """
        A server, whose certificate is for localhost and 127.0.0.1.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("server.pem"), self.path("server.key"))
        for name, value in changes.items():
            setattr(context, name, value)
        if changes:
            context.load_verify_locations(self.path("authority.pem"))
        server = self.server(tls=context, host=host)
        server.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self.tellRoute
        server.serve[RequestCode.SEND_MESSAGE_V2] = self.stored
        self.routes["T"] = self.routeTo(server)
        return server

    def queues(
        self,
        tls: TLS | None,
        server: Server | None = None,
        host: str = "127.0.0.1",
        timeout: float = 60.0,
    ) -> int:
        """
        Ask for the queues of T.
        """
        port = (server or self.names).port
        with Client(Settings(f"{host}:{port}", tls=tls, timeout=timeout)) as client:
            return len(client.queues("T"))

    def test_certificateIsAcceptedByDefault(self) -> None:
        """
        By default every certificate is believed.
        """
        self.assertEqual(self.queues(TLS()), 2)

    def test_trustedCertificateIsAccepted(self) -> None:
        """
        A certificate that a trusted authority has signed, for the host that was
        dialled, is believed.
        """
        tls = TLS(authServer=True, trustCertPath=self.path("authority.pem"))
        self.assertEqual(self.queues(tls), 2)
        self.assertEqual(self.queues(tls, host="localhost"), 2)

    def test_untrustedCertificateIsRefused(self) -> None:
        """
        A certificate without a trusted signature is refused, and the error says why.
        """
        for trusted in (None, self.path("client.pem")):
            error = self.assertRaises(
                ConnectFailed, self.queues, TLS(authServer=True, trustCertPath=trusted)
            )
            self.assertIn("certificate verify failed", str(error))

    def test_certificateOfOtherHostIsRefused(self) -> None:
        """
        A certificate of another host is refused.
        """
        tls = TLS(authServer=True, trustCertPath=self.path("authority.pem"))
        other = self.secure("127.0.0.2")
        error = self.assertRaises(ConnectFailed, self.queues, tls, other, "127.0.0.2")
        self.assertIn("certificate is not valid for '127.0.0.2'", str(error))

    def test_clientSendsItsCertificate(self) -> None:
        """
        A server may ask for the client's certificate.
        """
        server = self.secure(verify_mode=ssl.CERT_REQUIRED)
        own = TLS(certPath=self.path("client.pem"), keyPath=self.path("client.key"))
        self.assertEqual(self.queues(own, server), 2)
        self.assertRaises(RemotingError, self.queues, TLS(), server)

    def test_keyPasswordIsUsed(self) -> None:
        """
        A key may have a password; a wrong one is an error, and no prompt is made.
        """
        server = self.secure(verify_mode=ssl.CERT_REQUIRED)
        authority = certificates.identity("authority", authority=True)
        key = certificates.identity("client", authority).keyPem(b"secret")
        (self.folder / "locked.key").write_bytes(key)
        own = TLS(certPath=self.path("client.pem"), keyPath=self.path("locked.key"))
        self.assertEqual(self.queues(attrs.evolve(own, keyPassword="secret"), server), 2)
        for wrong in (None, "wrong"):
            error = self.assertRaises(
                ConfigError, self.queues, attrs.evolve(own, keyPassword=wrong), server
            )
            self.assertIn("locked.key", str(error))

    def test_invalidSettingIsNamed(self) -> None:
        """
        A missing or unusable setting is named, also to the sender of a message.
        """
        for tls, named in (
            (TLS(authServer=True, trustCertPath=self.path("none")), "tls.client.trustCertPath"),
            (TLS(authServer=True, trustCertPath=self.path("client.key")), "trustCertPath"),
            (TLS(certPath=self.path("none"), keyPath=self.path("client.key")), "certPath"),
            (TLS(certPath=self.path("client.pem")), "tls.client.keyPath is not set"),
        ):
            error = self.assertRaises(ConfigError, self.queues, tls)
            self.assertIn(named, str(error))
            with Client(Settings(self.names.address, tls=tls)) as client:
                self.assertRaises(ConfigError, client.send, Message("T", b"x"))

    def test_plainTextAndTlsDoNotConnect(self) -> None:
        """
        A plain text client gets no connection to a TLS server, nor the other way round.
        """
        self.assertRaises(RemotingError, self.queues, None)
        plain = self.server()
        # It waits for more of what it takes for a long frame.
        self.assertRaises(RemotingError, self.queues, TLS(), plain, timeout=0.5)

    def test_tlsRecordsKeepConnection(self) -> None:
        """
        The connection is kept, although TLS has things to say after the handshake
        that are no answers.
        """
        with Client(Settings(self.names.address, tls=TLS())) as client:
            for _ in range(3):
                client.send(Message("T", bytes(100_000)))
            connection = client._connections._connections[self.names.address]
            self.assertTrue(connection.isAlive())
        self.assertEqual(len(self.names.connections), 1)

    def test_tlsRecordsAreNoData(self) -> None:
        """
        A record of TLS itself does not make a connection look dead: it is readable, and
        holds no data.
        """
        connection = BlockingConnection.dial(
            self.names.address, Deadline(10), TLS().context(), 1 << 20
        )
        self.addCleanup(connection.close)
        self.assertTrue(connection._readable.poll(10_000))
        self.assertTrue(connection.isAlive())

    def test_settingsMatchReactorClient(self) -> None:
        """
        The settings are those of the client with a reactor, with the same defaults.
        """
        ours = {each.name: each.default for each in attrs.fields(TLS)}
        theirs = {each.name: each.default for each in attrs.fields(ClientTLS)}
        self.assertEqual(ours, theirs)
