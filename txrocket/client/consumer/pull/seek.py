# SPDX-License-Identifier: Apache-2.0
"""
Going on at another offset of a queue that is pulled ahead; C{seek} of Java's
C{DefaultLitePullConsumerImpl}.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.pull.prefetch import Prefetch, PrefetchedQueue
from txrocket.errors import NotAssigned, PullOffsetMoved
from txrocket.model import MessageQueue

__all__ = ["QueueSeek"]


class QueueSeek:
    """
    Moves a reader in the queues that it reads.
    """

    def __init__(self, group: str, calls: GroupCalls, prefetch: Prefetch) -> None:
        self._group = group
        self._calls = calls
        self._prefetch = prefetch

    def find(self, queue: MessageQueue) -> PrefetchedQueue:
        """
        A queue that is read.

        @raise NotAssigned: if the queue is not read.
        """
        prefetched = self._prefetch.get(queue)
        if prefetched is None:
            raise NotAssigned(
                f"consumer {self._group} does not read queue {queue.queueId} of topic"
                f" {queue.topic} at broker {queue.brokerName}"
            )
        return prefetched

    @inlineCallbacks
    def seek(self, queue: MessageQueue, offset: int) -> Generator[Deferred[Any], Any, None]:
        """
        Go on at an offset.

        @return: a Deferred that fails with L{PullOffsetMoved} if the queue does not have
            the offset.
        """
        self.find(queue)
        low = yield self._calls.minOffset(queue)
        high = yield self._calls.maxOffset(queue)
        if not low <= offset <= high:
            raise PullOffsetMoved(
                f"offset {offset} is not in queue {queue.queueId} of topic {queue.topic} at"
                f" broker {queue.brokerName}, which has {low} to {high}"
            )
        self._prefetch.seek(self.find(queue), offset)

    @inlineCallbacks
    def seekTo(
        self, queue: MessageQueue, locate: Callable[[MessageQueue], Deferred[int]]
    ) -> Generator[Deferred[Any], Any, None]:
        """
        Go on at an offset that a broker tells.
        """
        self.find(queue)
        offset = yield locate(queue)
        # This member may have lost the queue meanwhile.
        self._prefetch.seek(self.find(queue), offset)
