# SPDX-License-Identifier: Apache-2.0
"""
What is told of connections that are refused.
"""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

from txrocket.errors import ReplicaRefused

__all__ = ["Refusals"]

# The most refusals that are remembered.
_REMEMBERED: Final = 256


class Refusals:
    """
    Logs why connections are refused, once for each host and reason: anyone can connect, and
    a slave that is refused tries again and again.
    """

    _log = Logger()

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], None] = {}

    def tell(self, address: str, error: Exception) -> None:
        """
        A connection is refused.
        """
        reason = error.reason if isinstance(error, ReplicaRefused) else type(error).__name__
        if self._isNew(address, reason):
            self._log.warn(
                "Refusing to replicate with {address}: {error}", address=address, error=error
            )

    def warn(self, address: str, reason: str) -> None:
        """
        A connection is accepted that should not be.
        """
        if self._isNew(address, reason):
            self._log.warn("{address}: {reason}", address=address, reason=reason)

    def _isNew(self, address: str, reason: str) -> bool:
        key = address.rpartition(":")[0], reason
        if key in self._told:
            return False
        if len(self._told) >= _REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[key] = None
        return True
