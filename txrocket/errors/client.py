# SPDX-License-Identifier: Apache-2.0
"""
Errors that a producer or a consumer hands to the application.
"""

from __future__ import annotations

from typing import Any

from txrocket.errors.base import RocketError
from txrocket.errors.remoting import ConnectFailed, ConnectionLost, TooManyRequests

__all__ = ["AssignFailed", "NotAssigned", "SendFailed"]


class SendFailed(RocketError):
    """
    A message was not sent, or the producer does not know whether it was.

    @ivar error: the error of the last attempt.
    @ivar phase: the phase that failed: C{route}, C{connect}, C{send} or C{answer}.
        After C{send} and C{answer} the broker may have stored the message.  After
        several attempts, the broker of any earlier attempt may have stored it.
    @ivar address: the broker of the last attempt; empty if no broker was found.
    @ivar attempts: the number of attempts.
    @ivar elapsed: the duration of all attempts, in seconds.
    @ivar sent: if the message was part of a batch, the results of the parts before it.
        Those parts were sent; the parts after it were not.
    """

    sent: tuple[Any, ...] = ()

    def __init__(
        self, topic: str, error: RocketError, address: str, attempts: int, elapsed: float
    ) -> None:
        phase = _phase(error) if attempts else "route"
        self.error = error
        self.phase = phase
        self.address = address
        self.attempts = attempts
        self.elapsed = elapsed
        with_ = f" with {address}" if address else ""
        times = f" at attempt {attempts}" if attempts > 1 else ""
        super().__init__(
            f"sending to topic {topic} failed{times} after {elapsed:.3f} s, {phase}{with_}: {error}"
        )

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """
        Whether another attempt may succeed.
        """
        return self.error.retriable


def _phase(error: RocketError) -> str:
    if isinstance(error, ConnectFailed):
        return "connect"
    if isinstance(error, (TooManyRequests, ConnectionLost)):
        return "send"
    return "answer"


class NotAssigned(RocketError):
    """
    The consumer does not own the queue, or owns it no longer: another member of its
    group may have it now.
    """


class AssignFailed(RocketError, ValueError):
    """
    The queues cannot be allocated to the members of the group.
    """
