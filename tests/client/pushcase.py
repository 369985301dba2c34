# SPDX-License-Identifier: Apache-2.0
"""
The set-up of the tests of push consumers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel

from tests.client.brokers import ConsumerTests
from tests.client.listeners import Slow
from txrocket.client.consumer.allocate import averagely
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.model import ConsumeFromWhere, MessageQueue
from txrocket.protocol.bodies import LockBatchRequestBody
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class PushTests(ConsumerTests):
    """
    A consumer of T, which has four queues at one broker.
    """

    def setUp(self) -> None:
        super().setUp()
        self.slow = Slow()
        self.owned: dict[str, tuple[int, ...]] = {}
        self.divisions = 0
        self.locking: list[frozenset[MessageQueue]] = []
        self.a.answers[RequestCode.LOCK_BATCH_MQ] = self.lock
        self.addCleanup(self.cluster.stop)

    def lock(self, request: RemotingCommand) -> RemotingCommand:
        """
        Queues are to be locked.
        """
        self.locking.append(decodeBody(LockBatchRequestBody, request.body).mqSet)
        return self.a.lockQueues(request)

    def make(self, listener: Any = None, group: str = "G", **options: Any) -> PushConsumer:
        """
        A consumer that has not been started.
        """
        options.setdefault("consumeFromWhere", FIRST)
        options.setdefault("strategy", self.divide)
        consumer = PushConsumer(self.cluster, group, listener or self.slow, **options)
        consumer.subscribe("T")
        self.addCleanup(self.stopped, consumer)
        return consumer

    def started(self, listener: Any = None, **options: Any) -> PushConsumer:
        """
        A consumer that has got its queues.
        """
        consumer = self.make(listener, **options)
        self.got(consumer.start())
        self.network.flush()
        return consumer

    def stopped(self, consumer: PushConsumer) -> None:
        """
        A consumer leaves no timer behind.
        """
        if consumer.running:
            stopping = consumer.stop(0.5)
            self.network.advance(0.5)
            self.got(stopping)
        self.assertEqual(consumer._queues._later, set())

    def stop(self, consumer: PushConsumer, within: float = 5.0) -> Deferred[None]:
        """
        A consumer is told to stop.
        """
        stopping: Deferred[None] = consumer.stop(within)
        self.network.flush()
        return stopping

    def had(self, consumer: PushConsumer) -> list[int]:
        """
        The ids of the queues that it pulls.
        """
        return sorted(each.queueId for each in consumer.runningInfo().mqTable)

    def mine(self, consumer: PushConsumer, *queueIds: int) -> None:
        """
        The queues are divided anew, and these are the consumer's now.
        """
        self.owned[consumer.group] = queueIds
        consumer.idsChanged()
        self.network.flush()

    def divide(
        self, group: str, clientId: str, queues: Sequence[MessageQueue], ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """
        The strategy of the consumers: the queues of L{mine}, or an even share.
        """
        self.divisions += 1
        if (owned := self.owned.get(group)) is None:
            return averagely(group, clientId, queues, ids)
        return [each for each in queues if each.queueId in owned]

    def updates(self) -> list[int]:
        """
        The offsets in the first queue that the broker was told since this was last
        asked.
        """
        seen, self.a.updates = self.a.updates, []
        return [offset for queueId, offset in seen if queueId == 0]

    def said(self, words: str, level: LogLevel = LogLevel.info) -> list[str]:
        """
        The log lines that have these words.
        """
        return [each for each in self.logged(level) if words in each]
