# SPDX-License-Identifier: Apache-2.0
"""
Addresses as RocketMQ writes them: C{host:port}, several joined by C{;}.
"""

from __future__ import annotations

from collections.abc import Sequence

from txrocket.errors import ConfigError

__all__ = ["nameServerAddresses", "parseAddress", "parseAddresses"]


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


def nameServerAddresses(given: str | Sequence[str] | None, otherwise: str) -> list[str]:
    """
    The name servers that a client is given.

    @param given: C{host:port;host:port}, or a list of addresses.
    @param otherwise: what counts if nothing is given; NAMESRV_ADDR of the
        environment.
    @raise ConfigError: if there is none, or an address is none.
    """
    chosen = otherwise if given is None else given
    try:
        addresses = parseAddresses(chosen if isinstance(chosen, str) else ";".join(chosen))
    except ValueError as error:
        raise ConfigError(f"name servers: {error}") from None
    if not addresses:
        raise ConfigError("no name server is given, and NAMESRV_ADDR is not set")
    return addresses
