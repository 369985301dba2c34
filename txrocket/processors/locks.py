# SPDX-License-Identifier: Apache-2.0
"""
Queues that a consumer has for itself: LOCK_BATCH_MQ and UNLOCK_BATCH_MQ, as
Java's C{AdminBrokerProcessor} serves them.
"""

from __future__ import annotations

from collections.abc import Callable

from txrocket.broker.locks import QueueLocks
from txrocket.broker.names import checkGroup
from txrocket.errors import MalformedBody
from txrocket.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from txrocket.protocol.bodycodec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["LockProcessor"]


class LockProcessor:
    """
    Serves consumers that take messages in order.
    """

    def __init__(self, locks: QueueLocks, now: Callable[[], int]) -> None:
        """
        @param now: the time in milliseconds.
        """
        self._locks = locks
        self._now = now

    def codes(self) -> dict[int, Process]:
        """
        What serves which code.
        """
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def lock(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Lock queues; the answer says which the client has.
        """
        body = decodeBody(LockBatchRequestBody, request.body)
        group, clientId = _who(body)
        got = self._locks.lock(group, body.mqSet, clientId, self._now())
        return responseCommand(body=encodeBody(LockBatchResponseBody(got)))

    def unlock(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Give queues back; those that the client does not have stay as they are.
        """
        body = decodeBody(UnlockBatchRequestBody, request.body)
        group, clientId = _who(body)
        self._locks.unlock(group, body.mqSet, clientId)
        return responseCommand()


def _who(body: LockBatchRequestBody | UnlockBatchRequestBody) -> tuple[str, str]:
    """
    The group and the client of a request.

    @raise RemoteSystemError: if the group's name is none.
    @raise MalformedBody: if there is no client.
    """
    group = checkGroup(body.consumerGroup)
    if not body.clientId:
        raise MalformedBody(f"{type(body).__name__}: clientId is missing")
    return group, body.clientId
