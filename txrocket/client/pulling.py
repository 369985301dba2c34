# SPDX-License-Identifier: Apache-2.0
"""
How all consumers get messages from brokers; Java's C{PullAPIWrapper}.

The way of a pull::

    queue --> which broker? --> PULL_MESSAGE --> code --> records --> tags --> PullResult
                  ^                  |
                  |   what it says, or that it did not answer,
                  +---- counts for the queue's next pull

A broker finds messages by the hash of their tags, so tags are compared here once
more.  Bodies are left as they are stored: L{readable} undoes their compression
when somebody is to read them, so that one bad body does not hold up the others.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final

from msgspec.structs import force_setattr
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.results import PullResult, PullStatus
from txrocket.client.routes import Route
from txrocket.errors import (
    ConnectFailed,
    MalformedRecord,
    RemotingError,
    RocketError,
    UnsupportedCompression,
    responseError,
)
from txrocket.filters.tags import TAG, tagSubscription
from txrocket.message import PROPERTY_MAX_OFFSET, PROPERTY_MIN_OFFSET, MessageExt
from txrocket.model import MASTER_ID, MessageQueue
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.compression import COMPRESSED_FLAG, inflated
from txrocket.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader
from txrocket.protocol.record import decodeRecords

__all__ = ["Puller", "readable", "unknownBroker"]

# Bits of a pull's sysFlag.
_COMMIT: Final = 0x1
_SUSPEND: Final = 0x2
_SUBSCRIPTION: Final = 0x4

_STATUS: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


def readable(message: MessageExt) -> MessageExt:
    """
    A pulled message whose body can be read: the same one unless it is compressed.

    @raise MalformedRecord: if its body is damaged; the text says where it is.
    @raise UnsupportedCompression: if the library for it is not installed.
    """
    if not message.sysFlag & COMPRESSED_FLAG:
        return message
    try:
        return inflated(message)
    except (MalformedRecord, UnsupportedCompression) as error:
        raise type(error)(
            f"message {message.queueOffset} in queue {message.queueId} of topic {message.topic}"
            f" at broker {message.brokerName}: {error}"
        ) from None


# One for each subscription of a process, and each pull looks.
@lru_cache(1024)
def _tags(expression: str) -> frozenset[str]:
    return tagSubscription("", expression).tagsSet


def unknownBroker(brokerName: str) -> ConnectFailed:
    """
    Make the error for a broker that is in no route.
    """
    return ConnectFailed("", f"no broker with the name {brokerName} is known")


class Puller:
    """
    Pulls messages, each queue from the broker that is best for it.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._routes = cluster.routes
        # The broker id that each queue is to be pulled from; else the master.
        self._suggested: dict[MessageQueue, int] = {}

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        most: int,
        *,
        expression: str,
        expressionType: str = TAG,
        version: int = 0,
        brought: bool,
        commitOffset: int | None = None,
        wait: float = 0,
        timeout: float,
    ) -> Deferred[PullResult]:
        """
        Pull messages of a queue.

        @param offset: where to begin.
        @param most: how many messages at most; the broker may give fewer.
        @param expression: what is wanted: tags, or SQL92.
        @param version: the subscription's, a time in milliseconds.
        @param brought: whether the request brings the expression along; if not,
            the broker goes by the group's heartbeat.
        @param commitOffset: the group's offset, to be kept by the broker; a slave is
            not told.
        @param wait: how many seconds the broker may wait for a message to come.
        @param timeout: in seconds, waiting included.
        @return: a Deferred that fails with a L{RemotingError} if no broker answers,
            with a L{ResponseError} if it refuses, and with L{MalformedRecord} if its
            answer cannot be read.
        @raise SubscriptionParseFailed: if the expression is none of tags.
        """
        sysFlag = _SUSPEND if wait > 0 else 0
        if brought:
            sysFlag |= _SUBSCRIPTION
        if commitOffset is not None:
            sysFlag |= _COMMIT
        header = PullMessageRequestHeader(
            self._group,
            queue.topic,
            queue.queueId,
            offset,
            most,
            sysFlag,
            commitOffset or 0,
            int(wait * 1000),
            version,
            expression if brought else None,
            expressionType,
            queue.brokerName,
        )
        tags = _tags(expression) if expressionType == TAG else frozenset()
        ask = partial(self._ask, queue=queue, header=header, tags=tags, timeout=timeout)
        if self._routes.brokers.get(queue.brokerName):
            return ask(None)
        return self._routes.refresh(queue.topic).addCallback(ask)

    def forget(self, queue: MessageQueue) -> None:
        """
        A queue is not pulled any more.
        """
        self._suggested.pop(queue, None)

    def _ask(
        self,
        route: Route | None,
        queue: MessageQueue,
        header: PullMessageRequestHeader,
        tags: frozenset[str],
        timeout: float,
    ) -> Deferred[PullResult]:
        found = self._routes.anyAddress(queue.brokerName, self._suggested.get(queue, MASTER_ID))
        if found is None:
            raise unknownBroker(queue.brokerName)
        address, brokerId = found
        request = requestCommand(RequestCode.PULL_MESSAGE, header)
        if brokerId != MASTER_ID:
            # It only copies its master's offsets.
            request.extFields["sysFlag"] = str(header.sysFlag & ~_COMMIT)
        asked = self._cluster.peers.request(address, request, timeout)
        asked.addCallbacks(
            self._answered,
            self._unanswered,
            callbackArgs=(queue, tags, address),
            errbackArgs=(queue, brokerId),
        )
        result: Deferred[PullResult] = asked  # type: ignore[assignment]
        return result

    def _answered(
        self, answer: RemotingCommand, queue: MessageQueue, tags: frozenset[str], address: str
    ) -> PullResult:
        status = _STATUS.get(answer.code)
        if status is None:
            raise responseError(answer.code, answer.remark, address)
        header = answer.decodeHeader(PullMessageResponseHeader)
        self._suggested[queue] = header.suggestWhichBrokerId
        low, high = header.minOffset, header.maxOffset
        messages: list[MessageExt] = []
        if status is PullStatus.FOUND:
            messages = decodeRecords(answer.body, inflate=False, brokerName=queue.brokerName)
            known = (
                f"\x02{PROPERTY_MIN_OFFSET}\x01{low}\x02{PROPERTY_MAX_OFFSET}\x01{high}".encode()
            )
            for message in messages:
                # Nobody else has the message yet, and a copy of each would cost more
                # than all the rest of its decoding.
                force_setattr(message, "propertiesData", message.propertiesData + known)
            if tags:
                messages = [each for each in messages if each.tags in tags]
        return PullResult(status, header.nextBeginOffset, low, high, tuple(messages))

    def _unanswered(self, failure: Failure, queue: MessageQueue, brokerId: int) -> Failure:
        if failure.check(RemotingError):
            others = sorted(self._routes.brokers.get(queue.brokerName, ()))
            self._suggested[queue] = next((each for each in others if each > brokerId), MASTER_ID)
            self._routes.refresh(queue.topic).addErrback(lambda failure: failure.trap(RocketError))
        return failure
