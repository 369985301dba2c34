# SPDX-License-Identifier: Apache-2.0
"""
Addresses as RocketMQ writes them: C{host:port}, several joined by C{;}.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IAddress

from txrocket.errors import InvalidMessage
from txrocket.protocol.parts import encodeHost

__all__ = ["NO_HOST", "addressOf", "hostOf", "parseAddress", "parseAddresses"]

#: 0.0.0.0:0, as records hold it.
NO_HOST: Final = bytes(8)


def parseAddress(address: str) -> tuple[str, int]:
    """
    Host and port of C{host:port}; an IPv6 host may stand in brackets.

    @raise ValueError: saying what is wrong with it.
    """
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host:
        raise ValueError(f"address {address!r}: host:port was expected")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"address {address!r}: {port!r} is no port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parseAddresses(addresses: str) -> list[str]:
    """
    The addresses of C{a:1;b:2}, each once, checked.

    @raise ValueError: naming the one that is no address.
    """
    listed = [each.strip() for each in addresses.split(";") if each.strip()]
    for each in listed:
        parseAddress(each)
    return list(dict.fromkeys(listed))


def addressOf(address: IAddress) -> str:
    """
    A transport's address as C{host:port}, for logs, errors and bodies.
    """
    host = getattr(address, "host", None)
    if host is None:
        return str(address)
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"  # type: ignore[attr-defined]


def hostOf(address: IAddress) -> bytes:
    """
    A transport's address as records hold it; zeros for one that is no IP address,
    as that of a socket in the file system is not.
    """
    try:
        return encodeHost(address.host, address.port)  # type: ignore[attr-defined]
    except (AttributeError, InvalidMessage):
        return NO_HOST
