# SPDX-License-Identifier: Apache-2.0
"""
HEART_BEAT and UNREGISTER_CLIENT: clients join and leave groups; Java's
C{ClientManageProcessor}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txrocket.broker.clients.registry import ClientChannelInfo
from txrocket.broker.names import checkGroup
from txrocket.broker.parts import Clients, Tables
from txrocket.errors import ResponseError
from txrocket.filters.expressions import checkExpression
from txrocket.processors.cooperate import Slices, Turns
from txrocket.protocol.bodies import ConsumerData, HeartbeatData
from txrocket.protocol.bodies.codec import decodeGradually
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import UnregisterClientRequestHeader
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["HeartbeatProcessor"]

# A heartbeat with more bytes is decoded in a turn of its own.
_LARGE: Final = 32 * 1024

# Groups and subscriptions that are registered in one slice.
_STEP: Final = 32


class HeartbeatProcessor:
    """
    Serves clients that join and leave groups.
    """

    def __init__(
        self, clients: Clients, tables: Tables, now: Callable[[], int], slices: Slices
    ) -> None:
        """
        @param now: the time in milliseconds, of a monotonic clock.
        """
        self._consumers = clients.consumers
        self._producers = clients.producers
        self._groups = tables.groups
        self._topics = tables.topics
        self._now = now
        self._turns = Turns(slices)

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
        }

    def heartbeat(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Add a client to its groups.  The broker creates the configuration and the retry
        topic of a new consumer group.

        @raise RemoteSystemError: if the name of a group is not valid.  Then the whole
            heartbeat is refused.
        @raise SubscriptionParseFailed: if an expression is too long.  Then the whole
            heartbeat is refused, too.
        @raise ResponseError: if there is no room in one of the groups.  The client joins
            the others all the same.
        """
        return self._turns.take(peer, self._heartbeat(request, peer))

    def _heartbeat(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Gradual[RemotingCommand]:
        data = yield from decodeGradually(HeartbeatData, request.body)
        if len(request.body) > _LARGE:
            yield
        names = [consumer.groupName for consumer in data.consumerDataSet]
        names += [producer.groupName for producer in data.producerDataSet]
        for name in names:
            checkGroup(name)
        for consumer in data.consumerDataSet:
            for subscription in consumer.subscriptionDataSet:
                checkExpression(subscription.topic, subscription.subString)
        client = ClientChannelInfo(data.clientID, peer, request.language, request.version)
        now = self._now()
        refused: list[ResponseError] = []
        done = 0
        for consumer in data.consumerDataSet:
            if done >= _STEP:
                done = 0
                yield
            done += 1 + len(consumer.subscriptionDataSet)
            try:
                self._join(consumer, client, now)
            except ResponseError as error:
                refused.append(error)
        for producer in data.producerDataSet:
            if done >= _STEP:
                done = 0
                yield
            done += 1
            try:
                self._producers.register(producer.groupName, client, now)
            except ResponseError as error:
                refused.append(error)
        if refused:
            raise refused[0]
        return responseCommand()

    def _join(self, consumer: ConsumerData, client: ClientChannelInfo, now: int) -> None:
        """
        Add a client to a consumer group.

        @raise ResponseError: if there is no room.
        """
        self._consumers.register(consumer, client, now)
        try:
            config = self._groups.find(consumer.groupName)
        except ResponseError:
            self._consumers.unregister(consumer.groupName, client.peer)
            raise
        # As Java: if the group may not be created, the consumer is a member, and its pulls
        # are refused.
        if config is not None:
            self._topics.ensureRetryTopic(
                consumer.groupName, config.retryQueueNums, consumer.unitMode
            )

    def unregister(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Remove a client from a group, which need not exist.
        """
        return self._turns.take(peer, self._unregister(request, peer))

    def _unregister(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Gradual[RemotingCommand]:
        header = request.decodeHeader(UnregisterClientRequestHeader)
        if header.producerGroup is not None:
            self._producers.unregister(header.producerGroup, peer)
        if header.consumerGroup is not None:
            self._consumers.unregister(header.consumerGroup, peer)
        return responseCommand()
        yield
