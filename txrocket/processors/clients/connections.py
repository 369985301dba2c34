# SPDX-License-Identifier: Apache-2.0
"""
Requests about clients: the members of a group, their connections, and whether the broker can
evaluate a client's expression.

=============================== ===============================================
request                         its processor in Java
=============================== ===============================================
GET_CONSUMER_LIST_BY_GROUP      ConsumerManageProcessor
GET_CONSUMER_CONNECTION_LIST    AdminBrokerProcessor
GET_PRODUCER_CONNECTION_LIST    AdminBrokerProcessor
GET_ALL_PRODUCER_INFO           AdminBrokerProcessor
CHECK_CLIENT_CONFIG             ClientManageProcessor
=============================== ===============================================
"""

from __future__ import annotations

from txrocket.broker.parts import Clients
from txrocket.errors import ConsumerNotOnline, RemoteSystemError
from txrocket.processors.cooperate import Slices, promptly, telling
from txrocket.protocol.bodies import CheckClientRequestBody, GetConsumerListByGroupResponseBody
from txrocket.protocol.bodies.codec import decodeGradually
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["ClientProcessor"]


class ClientProcessor:
    """
    Serves requests about clients.
    """

    def __init__(self, clients: Clients, slices: Slices) -> None:
        self._consumers = clients.consumers
        self._producers = clients.producers
        self._subscriptions = clients.subscriptions
        self._slices = slices

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumerIds,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumerConnections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producerConnections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.allProducers,
            RequestCode.CHECK_CLIENT_CONFIG: self.checkClient,
        }

    def consumerIds(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        The ids of a group's consumers, by which each computes its share of the queues.

        @raise RemoteSystemError: if none is connected, as Java answers.
        """
        group = request.decodeHeader(GetConsumerListByGroupRequestHeader).consumerGroup
        clientIds = self._consumers.clientIds(group)
        if not clientIds:
            raise RemoteSystemError(f"no consumer of the group {group} is connected")
        return promptly(self._slices, telling(GetConsumerListByGroupResponseBody(clientIds)))

    def consumerConnections(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        The consumers of a group and their subscriptions.

        @raise ConsumerNotOnline: if none is connected, as Java answers.
        """
        group = request.decodeHeader(GetConsumerConnectionListRequestHeader).consumerGroup
        connection = self._consumers.connection(group)
        if connection is None:
            raise ConsumerNotOnline(f"no consumer of the group {group} is connected")
        return promptly(self._slices, telling(connection))

    def producerConnections(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        The producers of a group.

        @raise RemoteSystemError: if none is connected, as Java answers.
        """
        group = request.decodeHeader(GetProducerConnectionListRequestHeader).producerGroup
        connection = self._producers.connection(group)
        if connection is None:
            raise RemoteSystemError(f"no producer of the group {group} is connected")
        return promptly(self._slices, telling(connection))

    def allProducers(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        All producers.
        """
        return promptly(self._slices, self._allProducers())

    def _allProducers(self) -> Gradual[RemotingCommand]:
        table = yield from self._producers.table()
        return (yield from telling(table))

    def checkClient(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Whether the broker can evaluate an expression.  A client asks before it subscribes
        with another expression than tags.

        @raise RemoteSystemError: if the broker does not evaluate such expressions.
        @raise SubscriptionParseFailed: if the expression cannot be parsed.
        """
        return promptly(self._slices, self._check(request.body))

    def _check(self, data: bytes) -> Gradual[RemotingCommand]:
        body = yield from decodeGradually(CheckClientRequestBody, data)
        if body.subscriptionData is not None:
            self._subscriptions.filterOf(body.subscriptionData)
        return responseCommand()
