# SPDX-License-Identifier: Apache-2.0
"""
TLS beside plain text on one port, as RocketMQ has it (C{TlsSystemConfig}).

The first byte decides.  A TLS handshake begins with 0x16; a frame begins with
the high byte of a length of at most 16 MiB, so with 0 or 1::

    tls.server.mode    first byte 0x16    any other
    disabled           refused            plain text
    permissive         TLS                plain text
    enforcing          TLS                refused

In test mode, RocketMQ's default, a server makes up a certificate of its own and
a client believes every certificate.  Both are for trying things out.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import attrs
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL.crypto import X509, PKey
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import (
    Certificate,
    CertificateOptions,
    KeyPair,
    PrivateCertificate,
    optionsForClientTLS,
    trustRootFromCertificates,
)
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from txrocket.remoting.addresses import addressOf

__all__ = ["ClientAuth", "ClientTLS", "FirstByteProtocol", "ServerTLS", "TLSMode"]

_HANDSHAKE = 0x16


class TLSMode(Enum):
    """
    C{tls.server.mode}.
    """

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """
    C{tls.server.need.client.auth}: whether a client must show a certificate.
    """

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@attrs.frozen
class ServerTLS:
    """
    The C{tls.server.*} settings.

    @ivar testMode: C{tls.test.mode.enable}: use a certificate made up on the
        spot, whatever the paths say.
    @ivar trustCertPath: the authorities that may sign the clients' certificates.
    """

    mode: TLSMode = TLSMode.DISABLED
    testMode: bool = True
    certPath: str | None = None
    keyPath: str | None = None
    keyPassword: str | None = None
    clientAuth: ClientAuth = ClientAuth.NONE
    trustCertPath: str | None = None

    def contextFactory(self) -> CertificateOptions:
        """
        What OpenSSL needs to know.

        @raise ValueError: naming the setting that is missing or unusable.
        """
        own = (
            _selfSigned()
            if self.testMode
            else _load("tls.server", self.certPath, self.keyPath, self.keyPassword)
        )
        checks = not self.testMode and self.clientAuth is not ClientAuth.NONE
        return CertificateOptions(
            privateKey=own.key,
            certificate=own.certificate,
            extraCertChain=own.chain,
            # Not trustRoot, with which Twisted lets no client come without a certificate.
            verify=checks,
            caCerts=_certificates("tls.server.trustCertPath", self.trustCertPath)
            if checks
            else None,
            requireCertificate=self.clientAuth is ClientAuth.REQUIRE,
        )


@attrs.frozen
class ClientTLS:
    """
    The C{tls.client.*} settings.

    @ivar authServer: C{tls.client.authServer}: refuse a server whose
        certificate none of C{trustCertPath}, or of the system's authorities if
        that is not set, has signed.
    """

    authServer: bool = False
    trustCertPath: str | None = None
    certPath: str | None = None
    keyPath: str | None = None
    keyPassword: str | None = None

    def wrap(self, endpoint: IStreamClientEndpoint, host: str) -> IStreamClientEndpoint:
        """
        An endpoint that speaks TLS over another.

        @raise ValueError: naming the setting that is missing or unusable.
        """
        return wrapClientTLS(self.connectionCreator(host), endpoint)

    def connectionCreator(self, host: str) -> Any:
        """
        What OpenSSL needs to know.

        @raise ValueError: naming the setting that is missing or unusable.
        """
        own = (
            _load("tls.client", self.certPath, self.keyPath, self.keyPassword)
            if self.certPath
            else None
        )
        if self.authServer:
            return optionsForClientTLS(
                host,
                trustRoot=_trusted("tls.client.trustCertPath", self.trustCertPath)
                if self.trustCertPath
                else None,
                clientCertificate=own.asTwisted() if own else None,
                extraCertificateOptions={"extraCertChain": own.chain} if own else None,
            )
        if own is not None:
            return CertificateOptions(own.key, own.certificate, extraCertChain=own.chain)
        return CertificateOptions()


class _Identity(NamedTuple):
    """
    A certificate, its key, and the certificates between it and the root.
    """

    certificate: X509
    key: PKey
    chain: list[X509]

    def asTwisted(self) -> PrivateCertificate:
        identity: PrivateCertificate = PrivateCertificate.fromCertificateAndKeyPair(
            Certificate(self.certificate), KeyPair(self.key)
        )
        return identity


def _selfSigned() -> _Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # No clock is asked: a test certificate has no business to run out.
        .not_valid_before(datetime.datetime(2020, 1, 1))
        .not_valid_after(datetime.datetime(2120, 1, 1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Identity(X509.from_cryptography(certificate), PKey.from_cryptography_key(key), [])


def _load(
    prefix: str, certPath: str | None, keyPath: str | None, password: str | None
) -> _Identity:
    own, *chain = _certificates(f"{prefix}.certPath", certPath)
    pem = _read(f"{prefix}.keyPath", keyPath)
    try:
        key: Any = serialization.load_pem_private_key(pem, password.encode() if password else None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"{prefix}.keyPath {keyPath}: {error}") from None
    if key.public_key() != own.to_cryptography().public_key():
        raise ValueError(f"{prefix}.keyPath {keyPath}: not the key of {prefix}.certPath {certPath}")
    return _Identity(own, PKey.from_cryptography_key(key), chain)


def _trusted(setting: str, path: str | None) -> Any:
    """
    The authorities whose signatures are believed.
    """
    return trustRootFromCertificates([Certificate(each) for each in _certificates(setting, path)])


def _certificates(setting: str, path: str | None) -> list[X509]:
    pem = _read(setting, path)
    try:
        return [X509.from_cryptography(each) for each in x509.load_pem_x509_certificates(pem)]
    except ValueError as error:
        raise ValueError(f"{setting} {path}: {error}") from None


def _read(setting: str, path: str | None) -> bytes:
    if not path:
        raise ValueError(f"{setting} is not set")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{setting}: {error}") from None


class FirstByteProtocol(Protocol):
    """
    Waits for the first byte of a connection and makes way for the protocol that
    it calls for.
    """

    _log = Logger()

    def __init__(
        self,
        accept: Callable[[], Protocol],
        mode: TLSMode,
        contextFactory: Callable[[], CertificateOptions],
        decided: Callable[[FirstByteProtocol], object],
    ) -> None:
        """
        @param accept: makes the protocol that speaks over the connection.
        @param decided: told once the first byte is there, or will never be.
        """
        self._accept = accept
        self._mode = mode
        self._contextFactory = contextFactory
        self._decided: Callable[[FirstByteProtocol], object] | None = decided

    def dataReceived(self, data: bytes) -> None:
        """
        Decide, and make way.
        """
        self._decide()
        handshake = data[0] == _HANDSHAKE
        if handshake and self._mode is TLSMode.DISABLED:
            self._refuse("it wants TLS, and tls.server.mode is disabled")
            return
        if not handshake and self._mode is TLSMode.ENFORCING:
            self._refuse("it speaks plain text, and tls.server.mode is enforcing")
            return
        chosen: Any = self._secured() if handshake else self._accept()
        transport: Any = self.transport
        chosen.makeConnection(transport)
        # A socket speaks to the chosen one alone from here on, and this object goes:
        # 5 MB of ten thousand connections.
        transport.protocol = chosen
        # Other transports may still hold this one.
        self.dataReceived = chosen.dataReceived  # type: ignore[method-assign]
        self.connectionLost = chosen.connectionLost  # type: ignore[method-assign]
        chosen.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        Gone before it said anything, as a port scan or a health check does.
        """
        self._decide()

    def _decide(self) -> None:
        # A connection that was refused is decided once more when it is lost.
        if self._decided is not None:
            decided, self._decided = self._decided, None
            decided(self)

    def _secured(self) -> Any:
        factory = Factory()
        factory.protocol = self._accept
        factory.noisy = False
        return TLSMemoryBIOFactory(self._contextFactory(), False, factory).buildProtocol(None)

    def _refuse(self, why: str) -> None:
        assert self.transport is not None
        self._log.warn(
            "Refusing the connection from {address}: {why}",
            address=addressOf(self.transport.getPeer()),
            why=why,
        )
        self.transport.loseConnection()
