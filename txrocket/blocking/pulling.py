# SPDX-License-Identifier: Apache-2.0
"""
Pulling, from the broker of a queue that is said to be the best for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from txrocket.blocking.brokers import Brokers, Read
from txrocket.blocking.deadline import Deadline
from txrocket.client.pulled import pullData, pullHeader, pullResult, readAll, wantedTags
from txrocket.client.results import PullData, PullResult
from txrocket.filters.tags import TAG
from txrocket.model import MASTER_ID, MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import PullMessageRequestHeader

__all__ = ["Puller", "asking"]

_log = logging.getLogger(__name__)

# How many faults of one pull are logged.
_TOLD: Final = 5

_Result = TypeVar("_Result")


def asking(
    group: str,
    queue: MessageQueue,
    offset: int,
    most: int,
    expression: str,
    expressionType: str,
    wait: float = 0.0,
) -> PullMessageRequestHeader:
    """
    What a pull asks for that brings its expression along.
    """
    return pullHeader(
        group,
        queue,
        offset,
        most,
        expression=expression,
        expressionType=expressionType,
        # Java names a version only where the broker keeps what it compiled.
        version=0 if expressionType == TAG else int(time.time() * 1000),
        brought=True,
        wait=wait,
    )


class Puller:
    """
    Pulls.

    @ivar unreadable: how many messages could not be read, and were passed over.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        # The broker id that each queue is to be pulled from; else the master.
        self._suggested: dict[MessageQueue, int] = {}
        self.unreadable = 0

    def pull(
        self, queue: MessageQueue, header: PullMessageRequestHeader, deadline: Deadline
    ) -> PullResult:
        """
        Messages that can be read.

        @raise SubscriptionParseFailed: if the expression is none.
        """
        tags = wantedTags(header.subscription or "", header.expressionType or TAG)

        def read(answer: RemotingCommand, address: str) -> PullResult:
            offset = header.queueOffset
            result, self._suggested[queue] = pullResult(answer, queue, offset, tags, address)
            result = readAll(result)
            if result.faults:
                self.unreadable += len(result.faults)
                _log.error(
                    "%d messages behind offset %d of %s cannot be read and are passed over: %s",
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
        Messages as the broker has them.

        @param master: whether to ask the master, whoever was said to be better.
        @raise SubscriptionParseFailed: if the expression is none.
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
        Several pulls at once, and only once: an answer may well not be what is behind the
        one before.
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
