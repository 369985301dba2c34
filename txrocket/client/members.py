# SPDX-License-Identifier: Apache-2.0
"""
What a cluster expects of its members, the producers and consumers that share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from twisted.internet.defer import Deferred

from txrocket.message import MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ProducerData,
)
from txrocket.protocol.headers import CheckTransactionStateRequestHeader

__all__ = ["ConsumerMember", "Member", "ProducerMember"]


class Member(Protocol):
    """
    A producer or a consumer.

    @ivar group: its group.
    """

    group: str

    def topics(self) -> Iterable[str]:
        """
        The topics whose routes it needs.
        """


class ProducerMember(Member, Protocol):
    """
    A producer.
    """

    def producerData(self) -> ProducerData:
        """
        What its heartbeat says.
        """

    def checkTransaction(
        self, header: CheckTransactionStateRequestHeader, message: MessageExt, address: str
    ) -> None:
        """
        A broker asks what became of a transaction.
        """


class ConsumerMember(Member, Protocol):
    """
    A consumer.
    """

    def consumerData(self) -> ConsumerData:
        """
        What its heartbeat says.
        """

    def idsChanged(self) -> None:
        """
        A member has come to the group, or has left it.
        """

    def resetOffsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """
        An administrator moves the group to other offsets.
        """

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """
        The offsets of the queues that it has.
        """

    def runningInfo(self) -> ConsumerRunningInfo:
        """
        All that it tells of itself.
        """

    def consumeDirectly(
        self, message: MessageExt, brokerName: str
    ) -> Deferred[ConsumeMessageDirectlyResult]:
        """
        Have a message consumed that an administrator has chosen.
        """
