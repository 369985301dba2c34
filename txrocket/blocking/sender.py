# SPDX-License-Identifier: Apache-2.0
"""
Sends messages by the rules of L{txrocket.client.producer.producer}: each queue in turn,
another broker after a failure, all attempts within one time limit.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from typing import Any

from txrocket.blocking.connections import BlockingConnections
from txrocket.blocking.deadline import Deadline
from txrocket.blocking.routes import BlockingRoutes
from txrocket.blocking.settings import Settings
from txrocket.client.sansio.queueselector import Selector, byHash, inTurn
from txrocket.client.sansio.results import SendResult
from txrocket.client.sansio.sendrequest import SendRequest
from txrocket.client.sansio.topicroute import Route
from txrocket.errors import (
    ConfigError,
    ConnectFailed,
    InvalidMessage,
    RemotingError,
    RocketError,
    SendFailed,
    ServiceNotAvailable,
    TopicNotExist,
)
from txrocket.message import Message
from txrocket.model import MASTER_ID, MessageQueue
from txrocket.protocol.messageid import UniqueIds, monthStart

__all__ = ["BlockingSend", "Sender", "uniqueIds"]

_log = logging.getLogger(__name__)


def uniqueIds() -> UniqueIds:
    """
    A source of message ids that no other process generates.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # This sends nothing; the system only chooses the interface.
            probe.connect(("192.0.2.1", 9))
            ip = probe.getsockname()[0]
        except OSError:
            ip = "127.0.0.1"
    return UniqueIds(
        socket.inet_aton(ip),
        os.getpid(),
        random.randrange(2**32),
        lambda: int(time.time() * 1000),
        monthStart,
    )


class BlockingSend(SendRequest):
    """
    A send request and the state of its attempts.

    @ivar queue: the caller's queue; L{None} if the client chooses.
    @ivar selector: chooses the queue; L{None} uses each queue in turn.
    """

    __slots__ = ("address", "attempts", "born", "broker", "error", "key", "queue", "selector")

    def __init__(
        self,
        topic: str,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
    ) -> None:
        super().__init__(topic)
        self.queue = queue
        self.selector = byHash if selector is None and key is not None else selector
        self.key = key
        self.born = int(time.time() * 1000)
        self.attempts = 0
        self.address = ""
        self.broker: str | None = None
        self.error: RocketError | None = None


class Sender:
    """
    Sends prepared requests, with retries.
    """

    def __init__(
        self, connections: BlockingConnections, routes: BlockingRoutes, settings: Settings
    ) -> None:
        self._connections = connections
        self._routes = routes
        self._settings = settings
        self._turn = random.randrange(2**31)

    def send(
        self, sending: BlockingSend, message: Message | None, deadline: Deadline
    ) -> SendResult:
        """
        Send a request.

        @param message: the message for the selector.
        @raise SendFailed: if it failed, or its outcome is unknown.
        @raise InvalidMessage: if it is not valid.
        """
        try:
            route = self._route(sending, deadline)
            while True:
                try:
                    return self._attempt(sending, message, route, deadline)
                except RocketError as error:
                    if not self._mayRetry(sending, error, deadline):
                        raise
                    sending.error = error
                    route = self._again(sending, route, deadline)
        except (ConfigError, InvalidMessage):
            raise
        except RocketError as error:
            raise SendFailed(
                sending.topic, error, sending.address, sending.attempts, deadline.elapsed
            ) from error

    def _route(self, sending: BlockingSend, deadline: Deadline) -> Route:
        topic = sending.topic
        route = self._routes.toSend(topic, self._settings.defaultTopicQueueNums, deadline)
        if not route.writeQueues and not route.inherited:
            # The topic may have a queue to write to by now.
            route = self._routes.refresh(topic, deadline)
        return route

    def _attempt(
        self, sending: BlockingSend, message: Message | None, route: Route, deadline: Deadline
    ) -> SendResult:
        queue = sending.queue or self._choose(sending, message, route)
        sending.attempts += 1
        sending.broker = queue.brokerName
        address = route.brokers.get(queue.brokerName, {}).get(MASTER_ID, "")
        if not address:
            sending.address = ""
            raise ConnectFailed("", f"no master of broker {queue.brokerName} is known")
        if address == sending.address and not deadline.pause(sending.attempts - 1):
            assert sending.error is not None
            raise sending.error
        sending.address = address
        request = sending.request(
            self._settings.producerGroup,
            queue,
            self._settings.defaultTopicQueueNums,
            sending.born,
        )
        dialling = deadline.share(self._tries(sending, route))
        try:
            answer = self._connections.ask(address, request, deadline, dialling)
            result = sending.resultOf(answer, queue, address)
        except (RemotingError, TopicNotExist):
            self._routes.doubt(sending.topic, queue.brokerName)
            raise
        self._routes.trust(sending.topic, queue.brokerName)
        return result

    def _choose(self, sending: BlockingSend, message: Message | None, route: Route) -> MessageQueue:
        queues = route.writeQueues
        if not queues:
            raise TopicNotExist(f"topic {sending.topic} has no queue that can be written to")
        if sending.selector is not None:
            assert message is not None
            return sending.selector(queues, message, sending.key)
        self._turn += 1
        queue = inTurn(queues, self._turn, sending.broker)
        # Count the skipped queues too, so that the queues behind them get equal shares.
        self._turn += (queues.index(queue) - self._turn) % len(queues)
        return queue

    def _tries(self, sending: BlockingSend, route: Route) -> int:
        """
        The number of brokers that may still be tried, this one included.
        """
        if sending.queue is not None or sending.selector is not None:
            return 1
        brokers = len({each.brokerName for each in route.writeQueues})
        return max(1, min(brokers, self._settings.retries + 2 - sending.attempts))

    def _mayRetry(self, sending: BlockingSend, error: RocketError, deadline: Deadline) -> bool:
        return (
            error.retriable and 0 < sending.attempts <= self._settings.retries and not deadline.over
        )

    def _again(self, sending: BlockingSend, route: Route, deadline: Deadline) -> Route:
        _log.info(
            "Sending to topic %s again after attempt %d: %s",
            sending.topic,
            sending.attempts,
            sending.error,
        )
        if isinstance(sending.error, RemotingError | TopicNotExist | ServiceNotAvailable):
            try:
                # The broker may have moved, be gone, or be a slave now.  Use at most half of
                # the time, so that some is left for sending.
                return self._routes.refresh(sending.topic, deadline.share(2))
            except RocketError:
                pass
        return route
