# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.settings}.
"""

from __future__ import annotations

from pathlib import Path

import attrs
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactor
from twisted.trial.unittest import SynchronousTestCase

from tests.certificates import identity
from tests.javasettings import differences
from txrocket.config import Configuration
from txrocket.config.javakeys import SYSTEM_PROPERTIES, TLS_SYSTEM_CONFIG
from txrocket.errors import ConfigError
from txrocket.protocol.frames import FRAME_LIMIT
from txrocket.remoting.remoting import Limits
from txrocket.remoting.server import IDLE_TIMEOUT
from txrocket.remoting.settings import (
    BrokerServerSettings,
    NamesrvServerSettings,
    ServerSettings,
    TLSSettings,
)
from txrocket.remoting.tls import ClientAuth, ClientTLS, ServerTLS, TLSMode

# The limits of txrocket's own.
LIMITS = (
    *("serverMaxConnectionNum", "serverMaxConnectionNumPerAddress", "serverMaxUnfinishedBytes"),
    *("serverFrameTimeoutSeconds", "serverMaxUnreadBytes"),
)

FRAME_KEY = "com.rocketmq.remoting.frameMaxLength"
HEADER_KEY = "com.rocketmq.remoting.headerMaxLength"


class ServerSettingsTests(SynchronousTestCase):
    """
    Tests for L{ServerSettings}.
    """

    def test_java(self) -> None:
        """
        Names, types and defaults are those of NettyServerConfig, but for a system
        property, a setting of RocketMQ 5, and limits of our own; each server has its own port, as
        NamesrvStartup and BrokerStartup set it.
        """
        added = dict.fromkeys(("bindAddress", FRAME_KEY, HEADER_KEY, *LIMITS), "not in RocketMQ")
        for section, ports in (
            (ServerSettings, {}),
            (NamesrvServerSettings, {"listenPort": "9876, not 8888"}),
            (BrokerServerSettings, {"listenPort": "10911, not 8888"}),
        ):
            self.assertEqual(differences(section, "NettyServerConfig"), {**added, **ports})
        self.assertIn(FRAME_KEY, SYSTEM_PROPERTIES)
        self.assertEqual(ServerSettings().frameMaxLength, FRAME_LIMIT)
        self.assertEqual(ServerSettings().serverChannelMaxIdleTimeSeconds, IDLE_TIMEOUT)

    def test_limits(self) -> None:
        """
        The settings that bound a connection become its limits.
        """
        settings = ServerSettings(
            frameMaxLength=2048,
            headerMaxLength=1024,
            serverAsyncSemaphoreValue=3,
            serverOnewaySemaphoreValue=4,
        )
        self.assertEqual(settings.limits, Limits(frame=2048, header=1024, requests=3, oneways=4))

    def test_endpoint(self) -> None:
        """
        A server listens at its address with its backlog, by IPv4 or IPv6, on its
        port or another one.
        """
        for address in ("0.0.0.0", "127.0.0.1", "::1"):
            reactor = MemoryReactor()
            settings = BrokerServerSettings(bindAddress=address, serverSocketBacklog=7)
            for port in (settings.listenPort, settings.listenPort - 2):
                self.successResultOf(settings.endpoint(reactor, port).listen(Factory()))
            self.assertEqual(
                [(port, backlog, at) for port, _, backlog, at in reactor.tcpServers],
                [(10911, 7, address), (10909, 7, address)],
            )

    def test_refused(self) -> None:
        """
        What cannot be listened at, or would shut everyone out, is refused; so is
        a frame that could begin with 0x16, as a TLS handshake does.
        """
        for key, value, said in (
            ("listenPort", "65536", "0 to 65535 was expected"),
            ("listenPort", "-1", "0 to 65535 was expected"),
            ("bindAddress", "localhost", "an IP address was expected"),
            ("serverChannelMaxIdleTimeSeconds", "0", "1 or more was expected"),
            ("serverAsyncSemaphoreValue", "0", "1 or more was expected"),
            ("serverOnewaySemaphoreValue", "0", "1 or more was expected"),
            ("serverSocketBacklog", "0", "1 or more was expected"),
            (FRAME_KEY, "1023", "1024 to 369098751 was expected"),
            (FRAME_KEY, str(0x16000000), "1024 to 369098751 was expected"),
        ):
            error = self.assertRaises(
                ConfigError, Configuration.read, [NamesrvServerSettings], (), None, {key: value}
            )
            self.assertEqual(str(error), f"--set {key}={value}: {said}")


class TLSSettingsTests(SynchronousTestCase):
    """
    Tests for L{TLSSettings}.
    """

    def read(self, **given: str) -> TLSSettings:
        """
        The section for settings, of whose keys C{tls.} is left out and whose dots
        are underscores.
        """
        texts = {f"tls.{key.replace('_', '.')}": value for key, value in given.items()}
        return Configuration.read([TLSSettings], (), None, texts)[TLSSettings]

    def files(self) -> dict[str, str]:
        """
        A server's key and certificate, and the authority's.
        """
        folder = Path(self.mktemp())
        folder.mkdir()
        authority = identity("authority", authority=True)
        trusted, _ = authority.write(str(folder), "authority")
        certificate, key = identity("localhost", authority).write(str(folder), "server")
        return {"keyPath": key, "certPath": certificate, "trustCertPath": trusted}

    def test_java(self) -> None:
        """
        All keys are TlsSystemConfig's, and all of its are there but for the path
        of the file that they would stand in; each attribute is called what
        Java's static field is.
        """
        keys = {each.metadata["key"]: each.name for each in attrs.fields(TLSSettings)}
        self.assertEqual(keys.keys(), TLS_SYSTEM_CONFIG - {"tls.config.file"})
        self.assertEqual(keys["tls.server.mode"], "tlsMode")
        self.assertEqual(keys["tls.test.mode.enable"], "tlsTestModeEnable")
        self.assertEqual(keys["tls.server.need.client.auth"], "tlsServerNeedClientAuth")

    def test_defaults(self) -> None:
        """
        By default a server takes TLS with a certificate that it makes up, and
        dials in plain text.
        """
        settings = self.read()
        self.assertEqual(settings.server(), ServerTLS(TLSMode.PERMISSIVE, testMode=True))
        self.assertIsNone(settings.client())
        settings.check()

    def test_server(self) -> None:
        """
        The settings of the accepting end.
        """
        settings = self.read(
            server_mode="enforcing",
            test_mode_enable="false",
            server_need_client_auth="REQUIRE",
            server_authClient="true",
            server_keyPath="k",
            server_keyPassword="p",
            server_certPath="c",
            server_trustCertPath="t",
        )
        self.assertEqual(
            settings.server(),
            ServerTLS(TLSMode.ENFORCING, False, "c", "k", "p", ClientAuth.REQUIRE, "t"),
        )

    def test_client(self) -> None:
        """
        The settings of the dialling end; in test mode it believes everyone.
        """
        paths = {f"client_{key}": key for key in ("keyPath", "certPath", "trustCertPath")}
        given = {**paths, "client_keyPassword": "p", "client_authServer": "true", "enable": "true"}
        self.assertEqual(
            self.read(test_mode_enable="false", **given).client(),
            ClientTLS(True, "trustCertPath", "certPath", "keyPath", "p"),
        )
        self.assertEqual(self.read(**given).client(), ClientTLS())

    def test_enable(self) -> None:
        """
        If nothing is said of the dialling end, it speaks TLS where the accepting
        end insists on it, as in BrokerStartup.
        """
        for mode, enable, expected in (
            ("enforcing", "", True),
            ("permissive", "", False),
            ("enforcing", "false", False),
            ("disabled", "true", True),
        ):
            client = self.read(server_mode=mode, enable=enable).client()
            self.assertEqual(client is not None, expected, (mode, enable))

    def test_believingEveryone(self) -> None:
        """
        Certificates that are asked for and not checked are refused: they would
        let everyone in.
        """
        error = self.assertRaises(
            ConfigError, self.read, test_mode_enable="false", server_need_client_auth="optional"
        )
        self.assertIn("tls.server.authClient=true", str(error))
        self.read(server_need_client_auth="require")

    def test_secret(self) -> None:
        """
        Passwords are not shown.
        """
        texts = {"tls.server.keyPassword": "sesame", "tls.client.keyPassword": "sesame"}
        configuration = Configuration.read([TLSSettings], (), None, texts)
        self.assertEqual(configuration[TLSSettings].tlsServerKeyPassword, "sesame")
        self.assertNotIn("sesame", str(configuration.properties()))
        self.assertNotIn("sesame", repr(configuration[TLSSettings]))

    def test_check(self) -> None:
        """
        Keys and certificates are looked at where they will be needed, and only
        there.
        """
        server = {f"server_{key}": value for key, value in self.files().items()}
        client = {f"client_{key}": value for key, value in self.files().items()}
        real = {"test_mode_enable": "false"}
        self.read(**server, **client, **real, client_authServer="true", enable="true").check()
        self.read(**real, server_mode="disabled").check()
        self.read(**real, **server, client_keyPath="no/key").check()
        for given, said in (
            ({}, "tls.server.certPath is not set"),
            ({**server, "server_keyPath": "no/key"}, "tls.server.keyPath: "),
            ({**server, "client_certPath": "no/pem", "enable": "true"}, "tls.client.certPath: "),
        ):
            error = self.assertRaises(ValueError, self.read(**real, **given).check)
            self.assertTrue(str(error).startswith(said), error)
