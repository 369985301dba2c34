# SPDX-License-Identifier: Apache-2.0
"""
LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queues that a consumer locks for itself; both
C{AdminBrokerProcessor}'s in Java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txrocket.broker.clients.queuelocks import QueueLocks
from txrocket.broker.names import checkGroup
from txrocket.errors import MalformedBody
from txrocket.processors.cooperate import Slices, promptly, telling
from txrocket.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from txrocket.protocol.bodies.codec import decodeGradually
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["LockProcessor"]

# Queues that are decoded and locked in one turn.
_AT_ONCE: Final = 1024


class LockProcessor:
    """
    Serves orderly consumers.
    """

    def __init__(self, locks: QueueLocks, now: Callable[[], int], slices: Slices) -> None:
        """
        @param now: the time in milliseconds.
        """
        self._locks = locks
        self._now = now
        self._slices = slices

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def lock(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Lock queues; the response names those that the client holds.
        """
        return promptly(self._slices, self._lock(request.body))

    def _lock(self, data: bytes) -> Gradual[RemotingCommand]:
        body = yield from decodeGradually(LockBatchRequestBody, data)
        group, clientId = _holder(body)
        if len(body.mqSet) > _AT_ONCE:
            yield
        # All of them in one turn, because two consumers that lock the same queues at the
        # same time would else get half of them each.
        got = self._locks.lock(group, body.mqSet, clientId, self._now())
        if len(body.mqSet) > _AT_ONCE:
            yield
        return (yield from telling(LockBatchResponseBody(got)))

    def unlock(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Unlock queues; those of other clients stay locked.
        """
        return promptly(self._slices, self._unlock(request.body))

    def _unlock(self, data: bytes) -> Gradual[RemotingCommand]:
        body = yield from decodeGradually(UnlockBatchRequestBody, data)
        group, clientId = _holder(body)
        if len(body.mqSet) > _AT_ONCE:
            yield
        self._locks.unlock(group, body.mqSet, clientId)
        return responseCommand()


def _holder(body: LockBatchRequestBody | UnlockBatchRequestBody) -> tuple[str, str]:
    """
    The group and the client of a request.

    @raise RemoteSystemError: if the group name is not valid.
    @raise MalformedBody: if the client id is missing.
    """
    group = checkGroup(body.consumerGroup)
    if not body.clientId:
        raise MalformedBody(f"{type(body).__name__}: clientId is missing")
    return group, body.clientId
