# SPDX-License-Identifier: Apache-2.0
"""
Clients that come and go: HEART_BEAT and UNREGISTER_CLIENT, as Java's
C{ClientManageProcessor} serves them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from txrocket.broker.clients import Client, Consumers, Producers
from txrocket.broker.names import checkGroup
from txrocket.broker.progress import Gradual
from txrocket.errors import ResponseError
from txrocket.filters.expressions import checkExpression
from txrocket.model import SubscriptionGroupConfig
from txrocket.processors.gradual import Slices, Turns
from txrocket.protocol.bodies import ConsumerData, HeartbeatData
from txrocket.protocol.bodycodec import decodeGradually
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import UnregisterClientRequestHeader
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["GroupConfigs", "HeartbeatProcessor", "RetryTopics"]

#: How many topics a group may subscribe to: those of one group are noted in one turn.
SUBSCRIPTIONS_LIMIT: Final = 4096

# Bytes from which on a heartbeat is decoded in a turn of its own.
_LARGE: Final = 32 * 1024

# Groups and subscriptions that are dealt with at once.
_STEP: Final = 32


class GroupConfigs(Protocol):
    """
    The broker's consumer groups.
    """

    def find(self, group: str, /) -> SubscriptionGroupConfig | None:
        """
        A group's configuration, made if groups are made when they are first
        heard of.
        """


class RetryTopics(Protocol):
    """
    The broker's topics.
    """

    def ensureRetryTopic(self, group: str, retryQueueNums: int, unit: bool, /) -> object:
        """
        Make a group's retry topic if it is not there.
        """


class HeartbeatProcessor:
    """
    Serves clients that come and go.
    """

    def __init__(
        self,
        consumers: Consumers,
        producers: Producers,
        groups: GroupConfigs,
        topics: RetryTopics,
        now: Callable[[], int],
        slices: Slices,
    ) -> None:
        """
        @param now: the time in milliseconds.
        """
        self._consumers = consumers
        self._producers = producers
        self._groups = groups
        self._topics = topics
        self._now = now
        self._turns = Turns(slices)

    def codes(self) -> dict[int, Process]:
        """
        What serves which code.
        """
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
        }

    def heartbeat(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Take a client and its groups for connected.  A consumer group that is new
        to the broker gets its configuration and its retry topic.

        @raise RemoteSystemError: if a group's name is not valid.  Then nothing is taken
            of the heartbeat.
        @raise SubscriptionParseFailed: if an expression is too long.  Then nothing is
            taken either.
        @raise ResponseError: if there is no room for one of the groups.  The client is
            a member of the others all the same, so that what works goes on working.
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
        client = Client(data.clientID, peer, request.language, request.version)
        now = self._now()
        refused: list[ResponseError] = []
        done = 0
        for consumer in data.consumerDataSet:
            if done >= _STEP:
                done = 0
                yield
            done += 1 + len(consumer.subscriptionDataSet)
            try:
                self._take(consumer, client, now)
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

    def _take(self, consumer: ConsumerData, client: Client, now: int) -> None:
        """
        Take a client for a consumer of a group.

        @raise ResponseError: if there is no room.
        """
        self._consumers.register(consumer, client, now)
        try:
            config = self._groups.find(consumer.groupName)
        except ResponseError:
            self._consumers.unregister(consumer.groupName, client.peer)
            raise
        # Java registers a consumer whose group may not be made, and refuses what it
        # pulls.
        if config is not None:
            self._topics.ensureRetryTopic(
                consumer.groupName, config.retryQueueNums, consumer.unitMode
            )

    def unregister(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Take a client out of a group, which need not be there.
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
