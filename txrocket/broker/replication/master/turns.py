# SPDX-License-Identifier: Apache-2.0
"""
The turns in which the connections of slaves send::

    far behind    | piece |       | piece |       | piece | ...
    nearly there          | piece |       | piece |

A slave that is far behind does not delay one that has nearly all, and neither delays what else
the reactor has to do.
"""

from __future__ import annotations

from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["PieceTurns"]

# Pieces of each connection in one turn of the reactor.
_ROUNDS: Final = 8


class _ISender(Protocol):
    """
    A connection that has something to send.
    """

    def sendPiece(self) -> bool:
        """
        Send one piece.

        @return: whether there is more, and the socket takes more.
        """


class PieceTurns:
    """
    Lets connections send in turns: a piece of each, again and again, and not for long before
    the reactor does something else.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: dict[_ISender, None] = {}
        self._call: IDelayedCall | None = None

    def want(self, sender: _ISender) -> None:
        """
        A connection has something to send.
        """
        self._waiting[sender] = None
        self._soon()

    def forget(self, sender: _ISender) -> None:
        """
        A connection has nothing to send any more.
        """
        self._waiting.pop(sender, None)

    def _soon(self) -> None:
        if self._call is None:
            self._call = self._clock.callLater(0, self._turn)

    def _turn(self) -> None:
        self._call = None
        for _ in range(_ROUNDS):
            for sender in list(self._waiting):
                if not sender.sendPiece():
                    self._waiting.pop(sender, None)
            if not self._waiting:
                return
        self._soon()
