# SPDX-License-Identifier: Apache-2.0
"""
Members of a cluster that write down what happens to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from tests.broker.peers import consumer
from txrocket.message import MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ProducerData,
)
from txrocket.protocol.headers import CheckTransactionStateRequestHeader


class FakeProducer:
    """
    A producer.

    @ivar seen: what it was told.
    """

    def __init__(self, group: str, *topics: str) -> None:
        self.group = group
        self.wanted: Iterable[str] = topics
        self.seen: list[Any] = []

    def topics(self) -> Iterable[str]:
        return self.wanted

    def producerData(self) -> ProducerData:
        return ProducerData(self.group)

    def checkTransaction(
        self, header: CheckTransactionStateRequestHeader, message: MessageExt, address: str
    ) -> None:
        self.seen.append((header, message, address))


class FakeConsumer:
    """
    A consumer.

    @ivar seen: what it was told.
    @ivar offsets: what its status is.
    @ivar info: what it tells of itself.
    @ivar consumed: what is promised of a message that it is to consume.
    """

    def __init__(self, group: str, *topics: str) -> None:
        self.group = group
        self.wanted: Iterable[str] = topics
        self.seen: list[Any] = []
        self.offsets: Mapping[MessageQueue, int] = {}
        self.info = ConsumerRunningInfo()
        self.consumed: Deferred[ConsumeMessageDirectlyResult] = Deferred()

    def topics(self) -> Iterable[str]:
        return self.wanted

    def consumerData(self) -> ConsumerData:
        return consumer(self.group, *self.wanted)

    def idsChanged(self) -> None:
        self.seen.append("ids")

    def resetOffsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.seen.append((topic, offsets))

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        self.seen.append(topic)
        return self.offsets

    def runningInfo(self) -> ConsumerRunningInfo:
        return self.info

    def consumeDirectly(
        self, message: MessageExt, brokerName: str
    ) -> Deferred[ConsumeMessageDirectlyResult]:
        self.seen.append((message, brokerName))
        return self.consumed
