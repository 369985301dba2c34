# SPDX-License-Identifier: Apache-2.0
"""
Requests of operators beyond RocketMQ: the locked queues, the undecided transactions, and the
groups whose members have different subscriptions::

    INSPECT_LOCKS    INSPECT_HALVES    INSPECT_SUBSCRIPTIONS

The bodies are those of L{txrocket.protocol.bodies.inspect}.  Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from txrocket.errors import RemoteSystemError, StoreError
from txrocket.processors.cooperate import Slices, promptly, telling
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.bodies.inspect import (
    DifferingGroupList,
    HalfList,
    InspectHalvesRequestHeader,
    InspectRequestHeader,
    LockList,
    PendingHalf,
)
from txrocket.protocol.codes import InspectCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["Halves", "InspectProcessor"]

#: Given how many at most and where to begin, the undecided halves of transactions, each
#: with the fields of L{PendingHalf} in their order.
Halves: TypeAlias = Callable[[int, int], Sequence[tuple[Any, ...]]]

# How many are listed at most.  Each half is read from the log.
_LOCKS: Final = 1000
_HALVES: Final = 200
_GROUPS: Final = 100


class InspectProcessor:
    """
    Serves operators.
    """

    def __init__(
        self,
        locks: Callable[[int, str | None], Gradual[LockList]],
        halves: Halves,
        subscriptions: Callable[[int, str | None], Gradual[DifferingGroupList]],
        slices: Slices,
    ) -> None:
        """
        @param locks: lists locks; takes a maximum and a group, or L{None} for all.
        @param subscriptions: lists the groups whose members differ; takes the same.
        """
        self._locks = locks
        self._halves = halves
        self._subscriptions = subscriptions
        self._slices = slices

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            InspectCode.INSPECT_LOCKS: self.locks,
            InspectCode.INSPECT_HALVES: self.halves,
            InspectCode.INSPECT_SUBSCRIPTIONS: self.subscriptions,
        }

    def locks(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        The locked queues, their holders, and since when.
        """
        group = request.decodeHeader(InspectRequestHeader).group
        return promptly(self._slices, _telling(self._locks(_LOCKS, group)))

    def halves(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The undecided halves of transactions, and how often producers were asked.

        @raise RemoteSystemError: if the disk cannot be read.
        """
        offset = request.decodeHeader(InspectHalvesRequestHeader).offset
        try:
            # One more than is listed shows that there are more.
            found = self._halves(_HALVES + 1, max(0, offset))
        except StoreError as error:
            raise RemoteSystemError(f"the halves cannot be read: {error}") from None
        halves = tuple(PendingHalf(*each) for each in found[:_HALVES])
        return responseCommand(body=encodeBody(HalfList(halves, len(found) > _HALVES)))

    def subscriptions(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        The groups whose members have different subscriptions.
        """
        group = request.decodeHeader(InspectRequestHeader).group
        return promptly(self._slices, _telling(self._subscriptions(_GROUPS, group)))


def _telling(work: Gradual[Any]) -> Gradual[RemotingCommand]:
    body = yield from work
    return (yield from telling(body))
