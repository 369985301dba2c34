# SPDX-License-Identifier: Apache-2.0
"""
How all consumers get messages from brokers; Java's C{PullAPIWrapper}.

The way of a pull::

    queue --> which broker? --> PULL_MESSAGE --> code --> records --> tags --> PullResult
                  ^                  |
                  |   what it says, or that it did not answer,
                  +---- counts for the queue's next pull

What is asked and answered is in L{txrocket.client.sansio.pullrequest}; its L{readable} is here
under its own name as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.routes import Route
from txrocket.client.sansio.pullrequest import (
    COMMIT_FLAG,
    PullRequest,
    pullHeader,
    pullResult,
    readable,
    wantedTags,
)
from txrocket.client.sansio.results import PullResult
from txrocket.errors import (
    ConnectFailed,
    RemotingError,
    TopicNotExist,
)
from txrocket.model import MASTER_ID, MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand

__all__ = ["Puller", "readable", "unknownBroker"]

# How many faults of one pull are logged.
_TOLD: Final = 5


def unknownBroker(brokerName: str) -> ConnectFailed:
    """
    Make the error for a broker that is in no route.
    """
    return ConnectFailed("", f"no broker with the name {brokerName} is known")


class Puller:
    """
    Pulls messages, each queue from the broker that is best for it.

    @ivar unreadable: how many messages could not be read, and were skipped.
    """

    _log = Logger()

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._routes = cluster.routes
        # The broker id that each queue is to be pulled from; else the master.
        self._suggested: dict[MessageQueue, int] = {}
        self.unreadable = 0

    def pull(self, pull: PullRequest, timeout: float) -> Deferred[PullResult]:
        """
        Pull messages of a queue.

        @param timeout: in seconds, the broker's waiting included.
        @return: a Deferred that fails with a L{RemotingError} if no broker answers,
            with a L{ResponseError} if it refuses, and with a L{ProtocolError} if its
            answer cannot be decoded.  Messages that cannot be read are skipped, counted
            and logged.
        @raise SubscriptionParseFailed: if the expression cannot be parsed as tags.
        """
        tags = wantedTags(pull.expression, pull.expressionType)
        if self._routes.brokers.get(pull.queue.brokerName):
            return self._ask(None, pull, tags, timeout)
        return self._routes.refresh(pull.queue.topic).addCallback(self._ask, pull, tags, timeout)

    def forget(self, queue: MessageQueue) -> None:
        """
        A queue is not pulled any more.
        """
        self._suggested.pop(queue, None)

    def _ask(
        self, route: Route | None, pull: PullRequest, tags: frozenset[str], timeout: float
    ) -> Deferred[PullResult]:
        queue = pull.queue
        found = self._routes.anyAddress(queue.brokerName, self._suggested.get(queue, MASTER_ID))
        if found is None:
            raise unknownBroker(queue.brokerName)
        address, brokerId = found
        header = pullHeader(self._group, pull)
        if brokerId != MASTER_ID:
            # A slave copies its master's offsets, and commits none itself.
            header = replace(header, sysFlag=header.sysFlag & ~COMMIT_FLAG)
        request = requestCommand(RequestCode.PULL_MESSAGE, header)
        asked = self._cluster.peers.request(address, request, timeout)
        asked.addCallbacks(
            self._answered,
            self._unanswered,
            callbackArgs=(pull, tags, address),
            errbackArgs=(queue, brokerId),
        )
        result: Deferred[PullResult] = asked  # type: ignore[assignment]
        return result

    def _answered(
        self, answer: RemotingCommand, pull: PullRequest, tags: frozenset[str], address: str
    ) -> PullResult:
        queue, offset = pull.queue, pull.offset
        try:
            result, self._suggested[queue] = pullResult(answer, queue, offset, tags, address)
        except TopicNotExist:
            self._routes.doubt(queue.topic, queue.brokerName, denied=True)
            raise
        if result.faults:
            self.passedOver(queue, offset, result.faults)
        return result

    def passedOver(self, queue: MessageQueue, offset: int, faults: Sequence[str]) -> None:
        """
        Count and log messages that cannot be read.

        @param offset: where their pull began.
        @param faults: what is wrong with each.
        """
        self.unreadable += len(faults)
        self._log.error(
            "{count} messages behind offset {offset} of {queue} cannot be read and are passed"
            " over: {faults}",
            count=len(faults),
            queue=queue,
            offset=offset,
            faults="; ".join(faults[:_TOLD]),
        )

    def _unanswered(self, failure: Failure, queue: MessageQueue, brokerId: int) -> Failure:
        if failure.check(RemotingError):
            others = sorted(self._routes.brokers.get(queue.brokerName, ()))
            self._suggested[queue] = next((each for each in others if each > brokerId), MASTER_ID)
            self._routes.doubt(queue.topic, queue.brokerName, denied=False)
        return failure
