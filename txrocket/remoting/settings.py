# SPDX-License-Identifier: Apache-2.0
"""
The settings of servers' ports and of TLS, by the names and with the defaults of
RocketMQ's C{NettyServerConfig} and C{TlsSystemConfig}.
"""

from __future__ import annotations

import ipaddress
from typing import Any

import attrs
from twisted.internet.endpoints import TCP4ServerEndpoint, TCP6ServerEndpoint
from twisted.internet.interfaces import IReactorTCP, IStreamServerEndpoint

from txrocket.config import atLeast, between
from txrocket.protocol.frames import FRAME_LIMIT, HEADER_LIMIT
from txrocket.remoting.remoting import Limits
from txrocket.remoting.tls import ClientAuth, ClientTLS, ServerTLS, TLSMode

__all__ = ["BrokerServerSettings", "NamesrvServerSettings", "ServerSettings", "TLSSettings"]


def _address(section: object, attribute: attrs.Attribute[Any], value: str) -> None:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise ValueError("an IP address was expected") from None


_port = between(0, 65535)


@attrs.frozen
class ServerSettings:
    """
    How a server listens.

    @ivar listenPort: 0 is any port that is free.
    @ivar bindAddress: the address of the interface to listen at.  4.9.7 always
        listens at all of them; this is RocketMQ 5's name and default.
    @ivar serverChannelMaxIdleTimeSeconds: how long a connection may be idle.
    @ivar serverAsyncSemaphoreValue: how many requests to a client may wait for
        their answers.  In Java this is for all clients together.
    @ivar serverOnewaySemaphoreValue: how many oneway requests to a client may
        wait to be written.  In Java this is for all clients together.
    @ivar serverSocketBacklog: how many connections may wait to be accepted.
    @ivar serverMaxConnectionNum: how many connections there may be.  This and what
        follows but for C{frameMaxLength} is txrocket's own.
    @ivar serverMaxConnectionNumPerAddress: how many of one address.
    @ivar serverMaxUnfinishedBytes: how many bytes of unfinished frames all connections
        may hold.
    @ivar serverFrameTimeoutSeconds: how long a peer may take for one frame.
    @ivar serverMaxUnreadBytes: how many bytes may wait for all peers that do not read.
    @ivar frameMaxLength: the longest frame in bytes; in Java a system property.
    @ivar headerMaxLength: the longest header in bytes.  The properties of a message are
        in it, at most 32,767 bytes, of which JSON may make six times as many.
    """

    listenPort: int = attrs.field(default=8888, validator=_port)
    bindAddress: str = attrs.field(default="0.0.0.0", validator=_address)
    serverChannelMaxIdleTimeSeconds: int = attrs.field(default=120, validator=atLeast(1))
    serverAsyncSemaphoreValue: int = attrs.field(default=64, validator=atLeast(1))
    serverOnewaySemaphoreValue: int = attrs.field(default=256, validator=atLeast(1))
    serverSocketBacklog: int = attrs.field(default=1024, validator=atLeast(1))
    serverMaxConnectionNum: int = attrs.field(default=50_000, validator=atLeast(1))
    serverMaxConnectionNumPerAddress: int = attrs.field(default=20_000, validator=atLeast(1))
    serverMaxUnfinishedBytes: int = attrs.field(
        default=256 * 1024 * 1024, validator=atLeast(64 * 1024)
    )
    serverFrameTimeoutSeconds: int = attrs.field(default=300, validator=atLeast(1))
    serverMaxUnreadBytes: int = attrs.field(
        default=1024 * 1024 * 1024, validator=atLeast(64 * 1024)
    )
    frameMaxLength: int = attrs.field(
        default=FRAME_LIMIT,
        # A longer one could begin like a TLS handshake, with 0x16.
        validator=between(1024, 0x16000000 - 1),
        metadata={"key": "com.rocketmq.remoting.frameMaxLength"},
    )
    headerMaxLength: int = attrs.field(
        default=256 * 1024,
        validator=between(1024, HEADER_LIMIT),
        metadata={"key": "com.rocketmq.remoting.headerMaxLength"},
    )

    @property
    def limits(self) -> Limits:
        """
        What one accepted connection may cost, and all of them.
        """
        return Limits(
            frame=self.frameMaxLength,
            header=self.headerMaxLength,
            requests=self.serverAsyncSemaphoreValue,
            oneways=self.serverOnewaySemaphoreValue,
            unfinished=self.serverMaxUnfinishedBytes,
            frameSeconds=self.serverFrameTimeoutSeconds,
            unread=self.serverMaxUnreadBytes,
        )

    def endpoint(self, reactor: IReactorTCP, port: int) -> IStreamServerEndpoint:
        """
        Where to listen.

        @param port: C{listenPort}, or a further port of the same server.
        """
        endpoint = TCP6ServerEndpoint if ":" in self.bindAddress else TCP4ServerEndpoint
        return endpoint(reactor, port, self.serverSocketBacklog, self.bindAddress)


@attrs.frozen
class NamesrvServerSettings(ServerSettings):
    """
    How a name server listens.
    """

    listenPort: int = attrs.field(default=9876, validator=_port)


@attrs.frozen
class BrokerServerSettings(ServerSettings):
    """
    How a broker listens.
    """

    listenPort: int = attrs.field(default=10911, validator=_port)


def _key(name: str, **metadata: bool) -> dict[str, Any]:
    return {"key": name, **metadata}


@attrs.frozen
class TLSSettings:
    """
    TLS at both ends of a server: with those who dial it, and with those it dials.

    @ivar tlsTestModeEnable: use a certificate made up on the spot, and believe
        every other, whatever the paths say.
    @ivar tlsServerNeedClientAuth: whether clients must show a certificate.
    @ivar tlsServerAuthClient: whether the certificates that they show are checked.
    @ivar tlsEnable: whether to speak TLS to those that are dialled; if it is not
        set, only when C{tlsMode} insists on TLS from all others.
    """

    tlsMode: TLSMode = attrs.field(default=TLSMode.PERMISSIVE, metadata=_key("tls.server.mode"))
    tlsTestModeEnable: bool = attrs.field(default=True, metadata=_key("tls.test.mode.enable"))
    tlsServerNeedClientAuth: ClientAuth = attrs.field(
        default=ClientAuth.NONE, metadata=_key("tls.server.need.client.auth")
    )
    tlsServerKeyPath: str | None = attrs.field(default=None, metadata=_key("tls.server.keyPath"))
    tlsServerKeyPassword: str | None = attrs.field(
        default=None, repr=False, metadata=_key("tls.server.keyPassword", secret=True)
    )
    tlsServerCertPath: str | None = attrs.field(default=None, metadata=_key("tls.server.certPath"))
    tlsServerAuthClient: bool = attrs.field(default=False, metadata=_key("tls.server.authClient"))
    tlsServerTrustCertPath: str | None = attrs.field(
        default=None, metadata=_key("tls.server.trustCertPath")
    )
    tlsEnable: bool | None = attrs.field(default=None, metadata=_key("tls.enable"))
    tlsClientKeyPath: str | None = attrs.field(default=None, metadata=_key("tls.client.keyPath"))
    tlsClientKeyPassword: str | None = attrs.field(
        default=None, repr=False, metadata=_key("tls.client.keyPassword", secret=True)
    )
    tlsClientCertPath: str | None = attrs.field(default=None, metadata=_key("tls.client.certPath"))
    tlsClientAuthServer: bool = attrs.field(default=False, metadata=_key("tls.client.authServer"))
    tlsClientTrustCertPath: str | None = attrs.field(
        default=None, metadata=_key("tls.client.trustCertPath")
    )

    def __attrs_post_init__(self) -> None:
        asked = not self.tlsTestModeEnable and self.tlsServerNeedClientAuth is not ClientAuth.NONE
        if asked and not self.tlsServerAuthClient:
            # Java then asks for certificates and believes every one.
            raise ValueError(
                "tls.server.need.client.auth without tls.server.authClient=true would let"
                " everyone in who has a certificate, whoever signed it"
            )

    def server(self) -> ServerTLS:
        """
        For those who dial.
        """
        return ServerTLS(
            mode=self.tlsMode,
            testMode=self.tlsTestModeEnable,
            certPath=self.tlsServerCertPath,
            keyPath=self.tlsServerKeyPath,
            keyPassword=self.tlsServerKeyPassword,
            clientAuth=self.tlsServerNeedClientAuth,
            trustCertPath=self.tlsServerTrustCertPath,
        )

    def client(self) -> ClientTLS | None:
        """
        For those that are dialled; L{None} is plain text.
        """
        enforcing = self.tlsMode is TLSMode.ENFORCING
        if not (enforcing if self.tlsEnable is None else self.tlsEnable):
            return None
        if self.tlsTestModeEnable:
            return ClientTLS()
        return ClientTLS(
            authServer=self.tlsClientAuthServer,
            trustCertPath=self.tlsClientTrustCertPath,
            certPath=self.tlsClientCertPath,
            keyPath=self.tlsClientKeyPath,
            keyPassword=self.tlsClientKeyPassword,
        )

    def check(self) -> None:
        """
        Read all keys and certificates that will be needed.

        @raise ValueError: naming the setting that is missing or unusable.
        """
        if self.tlsMode is not TLSMode.DISABLED and not self.tlsTestModeEnable:
            self.server().contextFactory()
        if (client := self.client()) is not None:
            client.connectionCreator("localhost")
