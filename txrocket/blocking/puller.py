# SPDX-License-Identifier: Apache-2.0
"""
Pulls messages of a queue, from the master or from the slave that the last answer suggested.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from txrocket.blocking.brokercalls import BrokerCalls, Read
from txrocket.blocking.deadline import Deadline
from txrocket.client.sansio.pullrequest import (
    PullRequest,
    pullData,
    pullHeader,
    pullResult,
    readAll,
    wantedTags,
)
from txrocket.client.sansio.results import PullData, PullResult
from txrocket.filters.tags import TAG
from txrocket.model import MASTER_ID, MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import PullMessageRequestHeader

__all__ = ["BlockingPuller", "pullRequestHeader"]

_log = logging.getLogger(__name__)

# The faults of one pull that are logged.
_TOLD: Final = 5

_Result = TypeVar("_Result")


def pullRequestHeader(
    group: str,
    queue: MessageQueue,
    offset: int,
    most: int,
    expression: str,
    expressionType: str,
    wait: float = 0.0,
) -> PullMessageRequestHeader:
    """
    The header of a pull request that carries its own subscription.
    """
    # Like Java, send a version only if the broker caches the compiled expression.
    version = 0 if expressionType == TAG else int(time.time() * 1000)
    return pullHeader(
        group,
        PullRequest(queue, offset, most, expression, expressionType, version, wait=wait),
    )


class BlockingPuller:
    """
    Pulls messages and remembers the broker that each queue is best pulled from.

    @ivar unreadable: the number of messages that were skipped because they cannot be read.
    """

    def __init__(self, brokers: BrokerCalls) -> None:
        self._brokers = brokers
        # The broker id that the last answer suggested for each queue.
        self._suggested: dict[MessageQueue, int] = {}
        self.unreadable = 0

    def pull(
        self, queue: MessageQueue, header: PullMessageRequestHeader, deadline: Deadline
    ) -> PullResult:
        """
        Pull messages and decode them.  Messages that cannot be read are skipped and logged.

        @raise SubscriptionParseFailed: if the expression cannot be parsed.
        """
        tags = wantedTags(header.subscription or "", header.expressionType or TAG)

        def read(answer: RemotingCommand, address: str) -> PullResult:
            offset = header.queueOffset
            result, self._suggested[queue] = pullResult(answer, queue, offset, tags, address)
            result = readAll(result)
            if result.faults:
                self.unreadable += len(result.faults)
                _log.error(
                    "%d messages behind offset %d of %s cannot be read and are skipped: %s",
                    len(result.faults),
                    offset,
                    queue,
                    "; ".join(result.faults[:_TOLD]),
                )
            return result

        return self._ask(queue, header, read, deadline)

    def pullData(
        self,
        queue: MessageQueue,
        header: PullMessageRequestHeader,
        deadline: Deadline,
        *,
        master: bool,
    ) -> PullData:
        """
        Pull messages without decoding them.

        @param master: whether to ask the master, even if a slave was suggested.
        @raise SubscriptionParseFailed: if the expression cannot be parsed.
        """
        wantedTags(header.subscription or "", header.expressionType or TAG)
        if master:
            self._suggested.pop(queue, None)

        def read(answer: RemotingCommand, address: str) -> PullData:
            result, self._suggested[queue] = pullData(answer, address)
            return result

        return self._ask(queue, header, read, deadline)

    def pullAhead(
        self,
        queue: MessageQueue,
        headers: Sequence[PullMessageRequestHeader],
        deadline: Deadline,
    ) -> list[PullData]:
        """
        Send several pulls at once, without retries, because an answer need not begin where
        the one before it ends.
        """

        def read(answer: RemotingCommand, address: str) -> PullData:
            result, self._suggested[queue] = pullData(answer, address)
            return result

        return self._brokers.askAll(
            queue.topic,
            queue.brokerName,
            [requestCommand(RequestCode.PULL_MESSAGE, each) for each in headers],
            read,
            deadline,
            brokerId=self._suggested.get(queue, MASTER_ID),
        )

    def _ask(
        self,
        queue: MessageQueue,
        header: PullMessageRequestHeader,
        read: Read[_Result],
        deadline: Deadline,
    ) -> _Result:
        return self._brokers.ask(
            queue.topic,
            queue.brokerName,
            requestCommand(RequestCode.PULL_MESSAGE, header),
            read,
            deadline,
            brokerId=self._suggested.get(queue, MASTER_ID),
            slaves=True,
        )
