# SPDX-License-Identifier: Apache-2.0
"""
Certificates for tests, made on the spot.
"""

from __future__ import annotations

import datetime
import functools
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Identity(NamedTuple):
    """
    A certificate and its key.
    """

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """
        The certificate as text.
        """
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def keyPem(self, password: bytes | None = None) -> bytes:
        """
        The key as text, the way RocketMQ wants it (PKCS #8).
        """
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption(),
        )

    def write(self, folder: str, name: str, *chain: Identity) -> tuple[str, str]:
        """
        Write it into two files, with the certificates between it and the root.

        @return: their paths.
        """
        certificate, key = Path(folder, f"{name}.pem"), Path(folder, f"{name}.key")
        certificate.write_bytes(b"".join(each.pem for each in (self, *chain)))
        key.write_bytes(self.keyPem())
        return str(certificate), str(key)


@functools.cache
def identity(name: str, issuer: Identity | None = None, *, authority: bool = False) -> Identity:
    """
    A certificate for a name and for 127.0.0.1, signed by another or by itself.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(2020, 1, 1))
        .not_valid_after(datetime.datetime(2120, 1, 1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
    )
    signer = issuer.key if issuer else key
    return Identity(builder.sign(signer, hashes.SHA256()), key)


def write(folder: Path) -> None:
    """
    Write authority.pem, server.pem, server.key, client.pem and client.key; the
    server is C{localhost}.
    """
    folder.mkdir()
    authority = identity("authority", authority=True)
    authority.write(str(folder), "authority")
    for name, host in (("server", "localhost"), ("client", "client")):
        identity(host, authority).write(str(folder), name)
