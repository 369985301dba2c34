# SPDX-License-Identifier: Apache-2.0
"""
Errors of the link between a master and its slave.
"""

from __future__ import annotations

from txrocket.errors.base import RocketError

__all__ = ["LogsDiverged", "ReplicaRefused"]


class ReplicaRefused(RocketError):
    """
    A broker does not replicate with another.  No byte of the log was taken.

    @ivar reason: the reason in a few words, which are the same each time.
    """

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(f"{reason}: {details}" if details else reason)
        self.reason = reason


class LogsDiverged(ReplicaRefused):
    """
    A slave's log has other bytes than its master's.  The slave must cut them off.
    """
