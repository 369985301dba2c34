# SPDX-License-Identifier: Apache-2.0
"""
The routes of topics, as a blocking client caches them.

A route is requested when it is first needed, again after half a minute, and again when a
broker fails.  If no name server answers, the cached route stays in use.

The cached route also stays in use if no name server has one, because a restarted name
server knows no topic until the brokers register.  A topic counts as removed only after each
broker of its route has failed or has said so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from txrocket.blocking.connections import BlockingConnections
from txrocket.blocking.deadline import Deadline
from txrocket.client.sansio.topicroute import DEFAULT_TOPIC, Route, limited
from txrocket.errors import RemotingError, RocketError, TopicNotExist, responseError
from txrocket.model import TopicRouteData
from txrocket.protocol.bodies import ClusterInfo, TopicList
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import GetRouteInfoRequestHeader

__all__ = ["BlockingRoutes"]

# In seconds, as Java's pollNameServerInterval.
_MAX_AGE: Final = 30.0

# The seconds that another name server has to answer if the current one has no route.
_OTHERS: Final = 1.0

_log = logging.getLogger(__name__)


class BlockingRoutes:
    """
    Asks name servers, and caches the routes.
    """

    def __init__(
        self, connections: BlockingConnections, nameServers: Sequence[str], first: int
    ) -> None:
        """
        @param first: the index of the first name server to ask.
        """
        self._connections = connections
        self._nameServers = nameServers
        self._current = first % len(nameServers)
        # By name server that did not answer, the time of the failure.
        self._failed: dict[str, float] = {}
        # By topic, the route and the time of its request.
        self._routes: dict[str, tuple[Route, float]] = {}
        # By topic, the names of the brokers that have failed since the route was cached.
        self._doubts: dict[str, set[str]] = {}
        # Topics whose route could not be refreshed, which was logged.
        self._stale: set[str] = set()

    def find(self, topic: str, deadline: Deadline) -> Route:
        """
        A topic's route, from the cache or from a name server.

        @raise TopicNotExist: if the topic does not exist.
        @raise RemotingError: if no name server answers and no route is cached.
        """
        known = self._routes.get(topic)
        if known is not None and time.monotonic() - known[1] < _MAX_AGE:
            return known[0]
        return self.refresh(topic, deadline)

    def refresh(self, topic: str, deadline: Deadline) -> Route:
        """
        A topic's route from a name server; the cached one if no name server has it.

        @raise TopicNotExist: if the topic does not exist, and all brokers of the cached
            route have failed.
        @raise RemotingError: if no name server answers and no route is cached.
        """
        known = self._routes.get(topic)
        try:
            route = Route(topic, self._ask(topic, deadline), inherited=False)
            if not route.brokers and known is not None and known[0].brokers:
                raise TopicNotExist(f"the route of topic {topic} has no broker")
            self._doubts.pop(topic, None)
            self._stale.discard(topic)
        except RocketError as error:
            if known is None:
                raise
            if isinstance(error, TopicNotExist) and self._isGone(known[0]):
                self.forget(topic)
                raise
            # Log it once, and not for each call.
            if topic not in self._stale:
                self._stale.add(topic)
                _log.warning("The route of %s cannot be refreshed: %s", topic, error)
            route = known[0]
        self._routes[topic] = route, time.monotonic()
        return route

    def doubt(self, topic: str, brokerName: str) -> None:
        """
        A broker has not answered a request about a topic, or has said that the topic
        does not exist.
        """
        if topic in self._routes:
            self._doubts.setdefault(topic, set()).add(brokerName)

    def trust(self, topic: str, brokerName: str) -> None:
        """
        A broker has served a request about a topic.
        """
        if topic in self._doubts:
            self._doubts[topic].discard(brokerName)

    def _isGone(self, known: Route) -> bool:
        return known.brokers.keys() <= self._doubts.get(known.topic, set())

    def toSend(self, topic: str, queues: int, deadline: Deadline) -> Route:
        """
        A topic's route for a send.  If the topic does not exist, the send creates it, and
        the route is the one of the default topic.

        @param queues: the queues that a new topic gets at each broker.
        @raise TopicNotExist: if neither the topic nor the default topic has a route.
        @raise RemotingError: if no name server answers and no route is cached.
        """
        try:
            return self.find(topic, deadline)
        except TopicNotExist as error:
            try:
                parent = self._ask(DEFAULT_TOPIC, deadline)
            except TopicNotExist:
                raise error from None
        # Not cached, because the topic has a route of its own after the first send.
        return Route(topic, limited(parent, queues), inherited=True)

    def forget(self, topic: str) -> None:
        """
        Drop a topic's route from the cache.
        """
        self._routes.pop(topic, None)
        self._doubts.pop(topic, None)
        self._stale.discard(topic)

    def clusterInfo(self, deadline: Deadline) -> ClusterInfo:
        """
        All brokers.

        @raise RemotingError: if no name server answers.
        """
        answer = self._askAny(requestCommand(RequestCode.GET_BROKER_CLUSTER_INFO), deadline)
        return decodeBody(ClusterInfo, answer.body)

    def topics(self, deadline: Deadline) -> frozenset[str]:
        """
        The names of all topics.

        @raise RemotingError: if no name server answers.
        """
        request = requestCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return decodeBody(TopicList, self._askAny(request, deadline).body).topicList

    def _ask(self, topic: str, deadline: Deadline) -> TopicRouteData:
        header = GetRouteInfoRequestHeader(topic, True)
        request = requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        try:
            answer = self._askAny(request, deadline)
        except TopicNotExist:
            better = self._askOthers(request, deadline)
            if better is None:
                raise
            answer = better
        return decodeBody(TopicRouteData, answer.body)

    def _askOthers(self, request: RemotingCommand, deadline: Deadline) -> RemotingCommand | None:
        """
        Ask the other name servers, because the current one has no route and may have been
        restarted.  A name server that has the route becomes the current one.
        """
        last = self._nameServers[self._current]
        for number, address in enumerate(self._nameServers):
            failed = self._failed.get(address)
            if address == last or (failed is not None and time.monotonic() - failed < _MAX_AGE):
                continue
            if deadline.over:
                break
            try:
                answer = self._connections.ask(address, request, deadline.share(2).atMost(_OTHERS))
            except RemotingError as error:
                _log.warning("Name server %s does not answer: %s", address, error)
                self._failed[address] = time.monotonic()
                continue
            if not answer.code:
                self._current = number
                return answer
        return None

    def _askAny(self, request: RemotingCommand, deadline: Deadline) -> RemotingCommand:
        """
        Ask the current name server.  If it does not answer, ask the others in turn, each
        with its share of the time.
        """
        remaining = len(self._nameServers)
        while True:
            address = self._nameServers[self._current]
            try:
                answer = self._connections.ask(address, request, deadline.share(remaining))
            except RemotingError as error:
                self._failed[address] = time.monotonic()
                self._current = (self._current + 1) % len(self._nameServers)
                remaining -= 1
                if not remaining:
                    raise
                _log.warning("Asking the next name server: %s", error)
                continue
            self._failed.pop(address, None)
            if answer.code:
                raise responseError(answer.code, answer.remark, address)
            return answer
