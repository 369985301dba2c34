# SPDX-License-Identifier: Apache-2.0
"""
Where topics live, as a blocking client knows it.

A route is asked for when it is first needed, kept for half a minute, and asked for
again after that and when a broker fails.  If no name server answers, the one that
is known counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from txrocket.blocking.deadline import Deadline
from txrocket.blocking.links import Links
from txrocket.client.topicroute import DEFAULT_TOPIC, Route, limited
from txrocket.errors import RemotingError, RocketError, TopicNotExist, responseError
from txrocket.model import TopicRouteData
from txrocket.protocol.bodies import ClusterInfo, TopicList
from txrocket.protocol.bodycodec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import GetRouteInfoRequestHeader

__all__ = ["Routes"]

# In seconds, as Java's pollNameServerInterval.
_MAX_AGE: Final = 30.0

_log = logging.getLogger(__name__)


class Routes:
    """
    Name servers, and the routes that they told.
    """

    def __init__(self, links: Links, nameServers: Sequence[str], first: int) -> None:
        """
        @param first: the number of the name server to begin with.
        """
        self._links = links
        self._nameServers = nameServers
        self._current = first % len(nameServers)
        # A route, and when it was asked for.
        self._routes: dict[str, tuple[Route, float]] = {}

    def find(self, topic: str, deadline: Deadline) -> Route:
        """
        A topic's route.

        @raise TopicNotExist: if there is none.
        @raise RemotingError: if no name server answers, and none is known.
        """
        known = self._routes.get(topic)
        if known is not None and time.monotonic() - known[1] < _MAX_AGE:
            return known[0]
        return self.refresh(topic, deadline)

    def refresh(self, topic: str, deadline: Deadline) -> Route:
        """
        A topic's route, asked for anew.

        @raise TopicNotExist: if there is none.
        @raise RemotingError: if no name server answers, and none is known.
        """
        known = self._routes.pop(topic, None)
        try:
            route = Route(topic, self._ask(topic, deadline), inherited=False)
        except RocketError as error:
            if known is None or isinstance(error, TopicNotExist):
                raise
            _log.warning("The route of %s stays as it was: %s", topic, error)
            route = known[0]
        self._routes[topic] = route, time.monotonic()
        return route

    def toSend(self, topic: str, queues: int, deadline: Deadline) -> Route:
        """
        A topic's route, for who brings it into being if it does not exist.

        @param queues: how many queues it then gets at each broker.
        @raise TopicNotExist: if there is none, nor one to inherit from.
        @raise RemotingError: if no name server answers, and none is known.
        """
        try:
            return self.find(topic, deadline)
        except TopicNotExist as error:
            try:
                parent = self._ask(DEFAULT_TOPIC, deadline)
            except TopicNotExist:
                raise error from None
        # Not kept: once something is sent to it, it has a route of its own.
        return Route(topic, limited(parent, queues), inherited=True)

    def forget(self, topic: str) -> None:
        """
        Ask for a topic's route when it is needed next.
        """
        self._routes.pop(topic, None)

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
        return decodeBody(TopicRouteData, self._askAny(request, deadline).body)

    def _askAny(self, request: RemotingCommand, deadline: Deadline) -> RemotingCommand:
        """
        Ask the name server in use and, if it gives no answer, the others in turn,
        each with its share of the time.
        """
        remaining = len(self._nameServers)
        while True:
            address = self._nameServers[self._current]
            try:
                answer = self._links.ask(address, request, deadline.share(remaining))
            except RemotingError as error:
                self._current = (self._current + 1) % len(self._nameServers)
                remaining -= 1
                if not remaining:
                    raise
                _log.warning("Asking the next name server: %s", error)
                continue
            if answer.code:
                raise responseError(answer.code, answer.remark, address)
            return answer
