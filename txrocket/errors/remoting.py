# SPDX-License-Identifier: Apache-2.0
"""
Errors of requests that got no response, by the phase in which they failed::

    connect    ConnectFailed      the request was not sent
    send       TooManyRequests    the request was not sent
               ConnectionLost     the peer may have served the request
    answer     RequestTimedOut    the peer may have served the request

All of them are retriable.
"""

from __future__ import annotations

from typing import ClassVar

from txrocket.errors.base import RocketError

__all__ = [
    "ConnectFailed",
    "ConnectionLost",
    "RemotingError",
    "RequestTimedOut",
    "TooManyRequests",
]


class RemotingError(RocketError):
    """
    A request got no response.

    @ivar address: the peer, as C{host:port}.
    """

    retriable: ClassVar[bool] = True

    def __init__(self, address: str, message: str) -> None:
        super().__init__(message)
        self.address = address


class ConnectFailed(RemotingError):
    """
    No connection could be made.  The request was not sent.
    """


class TooManyRequests(RemotingError):
    """
    The limit of requests or bytes in flight is reached.  The request was not sent.
    """


class RequestTimedOut(RemotingError):
    """
    No response arrived in time.  The peer may have served the request nevertheless.
    """


class ConnectionLost(RemotingError):
    """
    The connection was lost, before or after the request was sent.  The text says which:
    in the second case the peer may have served the request.
    """
