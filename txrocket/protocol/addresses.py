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
    Parse C{host:port}; an IPv6 host may be in brackets.

    @raise ValueError: if the address is not valid.
    """
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host:
        raise ValueError(f"address {address!r}: host:port was expected")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"address {address!r}: {port!r} is not a port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parseAddresses(addresses: str) -> list[str]:
    """
    Parse C{host:port;host:port} to a list without duplicates.

    @raise ValueError: if an address is not valid; the error names it.
    """
    listed = [each.strip() for each in addresses.split(";") if each.strip()]
    for each in listed:
        parseAddress(each)
    return list(dict.fromkeys(listed))


def nameServerAddresses(given: str | Sequence[str] | None, otherwise: str) -> list[str]:
    """
    The addresses of a client's name servers.

    @param given: C{host:port;host:port}, or a list of addresses; L{None} to use
        C{otherwise}.
    @param otherwise: the value of the environment variable NAMESRV_ADDR.
    @raise ConfigError: if there is no address, or an address is not valid.
    """
    chosen = otherwise if given is None else given
    try:
        addresses = parseAddresses(chosen if isinstance(chosen, str) else ";".join(chosen))
    except ValueError as error:
        raise ConfigError(f"name servers: {error}") from None
    if not addresses:
        raise ConfigError("no name server is given, and NAMESRV_ADDR is not set")
    return addresses
