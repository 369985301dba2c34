# SPDX-License-Identifier: Apache-2.0
"""
Where a consumer begins in a queue: where its group is, or, if the group was never
there, where the consumer is told to; C{computePullFromWhere} of Java's rebalance.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import attrs
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.offsetstore import OffsetStore
from txrocket.model import ConsumeFromWhere, MessageQueue
from txrocket.protocol.names import RETRY_PREFIX

__all__ = ["StartOffset"]


@attrs.frozen
class StartOffset:
    """
    Finds where to begin.

    @ivar where: for a group that has no offset.
    @ivar timestamp: for CONSUME_FROM_TIMESTAMP, in seconds since 1970.
    """

    _log = Logger()

    _group: str
    _requests: GroupCalls
    _offsets: OffsetStore
    where: ConsumeFromWhere
    timestamp: float

    @inlineCallbacks
    def find(self, queue: MessageQueue) -> Generator[Deferred[Any], Any, int]:
        """
        Where to begin in a queue.

        @return: a Deferred of the offset; it fails with a L{RocketError} if the
            broker does not say.
        """
        offset: int
        stored: int | None = yield self._offsets.fetch(queue)
        if stored is None:
            offset, reason = yield self._first(queue)
        else:
            offset, reason = stored, "the group's offset"
        self._log.info(
            "Group {group} begins at {offset} in queue {queueId} of {topic} at {broker}: {reason}",
            group=self._group,
            offset=offset,
            queueId=queue.queueId,
            topic=queue.topic,
            broker=queue.brokerName,
            reason=reason,
        )
        return offset

    @inlineCallbacks
    def _first(self, queue: MessageQueue) -> Generator[Deferred[Any], Any, tuple[int, str]]:
        requests, where = self._requests, self.where
        if queue.topic.startswith(RETRY_PREFIX):
            # No member has consumed a message in the retry topic, however old it is.  Java
            # skips it if the group begins by time.
            return 0, "all that is to be tried again, for it has none there"
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return (yield requests.minOffset(queue)), "the first message, for it has none there"
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            found = yield requests.searchByTime(queue, self.timestamp)
            return found, f"the first since {self.timestamp:.3f}, for it has none there"
        return (yield requests.maxOffset(queue)), "what comes from now on, for it has none there"
