# SPDX-License-Identifier: Apache-2.0
"""
An authority and what it signed, for tests of TLS.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write(folder: Path) -> None:
    """
    Write authority.pem, server.pem, server.key, client.pem and client.key; the
    server is C{localhost}.
    """
    folder.mkdir()
    authorityKey = ec.generate_private_key(ec.SECP256R1())
    authority = _name("authority")
    _write(folder / "authority.pem", _certificate(authority, authorityKey, authority, authorityKey))
    for title, host in (("server", "localhost"), ("client", "client")):
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder / f"{title}.pem", _certificate(_name(host), key, authority, authorityKey))
        (folder / f"{title}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    name: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuerKey: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    host = name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    assert isinstance(host, str)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(2020, 1, 1))
        .not_valid_after(datetime.datetime(2120, 1, 1))
        .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(issuerKey, hashes.SHA256())
    )


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
