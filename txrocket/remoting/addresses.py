# SPDX-License-Identifier: Apache-2.0
"""
The addresses of transports, as RocketMQ writes them and as records hold them.

L{txrocket.protocol.addresses} reads them, and is here under its own name as well.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IAddress

from txrocket.errors import InvalidMessage
from txrocket.protocol.addresses import parseAddress, parseAddresses
from txrocket.protocol.record.fields import encodeHost

__all__ = ["NO_HOST", "addressOf", "hostOf", "parseAddress", "parseAddresses"]

#: 0.0.0.0:0, as records hold it.
NO_HOST: Final = bytes(8)


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
